//! Random histories for tests: any events in any order, unlike a coordinator's.

use proptest::prelude::*;

use baton_report::event::{Event, History, Kind};

use crate::timeline::Timeline;

/// Returns a history of these events, as a coordinator would send it.
pub(crate) fn told(mut events: Vec<Event>) -> History {
    (0..).zip(&mut events).for_each(|(n, event)| event.n = n);
    let now_ns = events.last().map_or(0, |event| event.ns);
    History { next: events.len() as u64, now_ns, events, ..History::default() }
}

/// Returns the timeline of these events.
pub(crate) fn heard(events: Vec<Event>) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.see(&told(events));
    timeline
}

/// A name with letters that have a meaning in the formats that show it.
fn name() -> impl Strategy<Value = String> {
    const ODD: &[&str] =
        &["train", "", "<b>", "</script>", "\"'&", "]]>", "\u{0}\u{7}\n", "\u{202e}\u{fffe}", "{{title}}", "é😀"];
    prop::collection::vec(prop::sample::select(ODD), 0..3).prop_map(|parts| parts.concat())
}

/// A history of up to `most` events, of a few programs.
pub(crate) fn history(most: usize) -> impl Strategy<Value = History> {
    let number = || prop_oneof![Just(None), (0..400u64).prop_map(Some), Just(Some(u64::MAX))];
    let bytes = || prop_oneof![Just(None), (0..1u64 << 40).prop_map(Some)];
    let one = (0..Kind::ALL.len(), 0..5u32, 0..4u64, number(), number(), bytes(), bytes(), any::<Option<bool>>());
    (prop::collection::vec(name(), 5), prop::collection::vec(one, 0..most)).prop_map(|(names, raw)| {
        let mut now = 0;
        let event = |(kind, id, step, from_ns, other, bytes, more, arriving): (usize, u32, u64, _, _, _, _, _)| {
            now += step;
            Event {
                ns: now,
                id: Some(id),
                tenant: Some(names[id as usize].clone()),
                what: Kind::ALL[kind].clone(),
                from_ns,
                to_ns: other,
                bytes,
                uncopied_bytes: more,
                resident_bytes: more,
                arriving,
                first_launch_ns: other,
                ..Event::default()
            }
        };
        told(raw.into_iter().map(event).collect())
    })
}
