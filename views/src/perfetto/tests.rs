use proptest::prelude::*;

use baton_report::event::Event;

use super::*;
use crate::strategy::{heard, history};
use crate::trace_file::{TraceFile, read};

fn traced(timeline: &Timeline) -> TraceFile {
    let time = timeline.since..timeline.now;
    let trace = trace(timeline, &time, "GPU-0", 0);
    let text = serde_json::to_string(&trace).expect("numbers and texts");
    read(&text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

fn event(what: &str, id: u32, ns: u64) -> Event {
    Event { id: Some(id), tenant: Some(format!("program {id}")), what: what.into(), ns, ..Event::default() }
}

#[test]
fn an_arrow_leads_from_asking_to_the_first_launch() {
    let timeline = heard(vec![
        event("joined", 1, 0),
        event("joined", 2, 0),
        event("asked", 1, 10),
        event("chosen", 1, 20),
        Event { from_ns: Some(9), arriving: Some(true), ..event("granted", 1, 30) },
        event("opened", 1, 31),
        Event { first_launch_ns: Some(35), ..event("arrived", 1, 50) },
        event("drained", 1, 70),
        event("asked", 2, 71),
        Event { from_ns: Some(71), ..event("granted", 2, 72) },
        event("opened", 2, 73),
        event("drained", 2, 80),
    ]);
    let trace = traced(&timeline);
    let pid = FIRST + 1;
    assert_eq!(trace.flows, [[(pid, STATE, 10), (pid, STATE, 35)], [(pid + 1, STATE, 71), (pid + 1, STATE, 73)]]);
    assert_eq!(
        trace.states("program 1"),
        ["waiting for the baton", "waiting for memory", "running, memory arriving", "running"]
    );
    assert_eq!((trace.instants.len(), trace.about["switches"].as_u64()), (1, Some(1)));
    let owner = &trace.slices[&(GPU, OWNER)];
    assert_eq!(owner.iter().map(|slice| slice.time).collect::<Vec<_>>(), [(31, 70), (73, 80)]);
}

#[test]
fn copies_are_slices_with_their_bytes_and_counters_say_how_fast_they_were() {
    let copy = |what, id, from, ns, bytes| Event { from_ns: Some(from), bytes: Some(bytes), ..event(what, id, ns) };
    let timeline = heard(vec![
        event("joined", 1, 0),
        copy("copied_in", 1, 1000, 2000, 8000),
        copy("copied_in", 1, 1500, 2500, 4000),
        copy("copied_out", 1, 3000, 4000, 1000),
    ]);
    let trace = traced(&timeline);
    assert_eq!((trace.bytes("copy_in"), trace.bytes("copy_out")), (12_000, 1000));
    let rates = &trace.counters[&(GPU, "GB/s to the GPU".to_owned())];
    assert_eq!(*rates, [(1000, 8.0), (1500, 12.0), (2000, 4.0), (2500, 0.0)]);
    // An overlapping copy has a track of its own.
    assert_eq!(trace.tracks[&(GPU, COPIES_IN + 1)], "copies to the GPU (2)");
}

#[test]
fn a_stretch_of_time_shows_what_was_so_then() {
    let mut timeline = heard(vec![
        event("joined", 1, 0),
        Event { resident_bytes: Some(5), ..event("allocated", 1, 1) },
        event("granted", 1, 5),
        event("opened", 1, 6),
        Event { from_ns: Some(8), bytes: Some(3), ..event("copied_in", 1, 12) },
        event("drained", 1, 30),
    ]);
    timeline.forget_before(10);
    let trace = traced(&timeline);
    assert_eq!(trace.slices[&(GPU, OWNER)][0].time, (10, 30));
    assert_eq!(trace.counters[&(FIRST + 1, "resident".to_owned())], [(10, 5.0)]);
    assert_eq!((trace.bytes("copy_in"), trace.slices[&(GPU, COPIES_IN)][0].time), (3, (10, 12)));
}

#[test]
fn a_name_is_a_strangers_bytes() {
    let name = "</script>\"\\\u{0}\u{202e}\n😀";
    let mut timeline = heard(vec![event("granted", 1, 1), event("opened", 1, 2), event("drained", 1, 9)]);
    timeline.programs.get_mut(&1).expect("it is there").name = name.to_owned();
    let trace = traced(&timeline);
    assert_eq!(trace.groups[&(FIRST + 1)], name);
    assert_eq!(trace.slices[&(GPU, OWNER)][0].name, name);
}

proptest! {
    /// For any history, with any part of it forgotten, viewers can read the trace, and its sums are those of the timeline.
    #[test]
    fn every_trace_can_be_read(history in history(150), forgotten in 0..300u64) {
        let mut timeline = Timeline::default();
        timeline.see(&history);
        let all = traced(&timeline);
        let sum = |way: &str| {
            let copies = history.events.iter().filter(|event| event.what.word() == way);
            copies.map(|event| event.bytes.unwrap_or(0)).sum::<u64>()
        };
        prop_assert_eq!(all.bytes("copy_in"), sum("copied_in"));
        prop_assert_eq!(all.about["bytes_out"].as_u64(), Some(sum("copied_out")));
        prop_assert_eq!(all.instants.len() as u64, timeline.switches);
        timeline.forget_before(forgotten);
        traced(&timeline);
    }
}
