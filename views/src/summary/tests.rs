use baton_report::event::{Event, History};

use super::*;

const MS: u64 = 1_000_000;

fn event(ms: u64, id: u32, what: &str) -> Event {
    Event { ns: ms * MS, id: Some(id), tenant: Some(format!("p{id}")), what: what.into(), ..Event::default() }
}

fn timeline(events: Vec<Event>, now_ms: u64) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.see(&History { now_ns: now_ms * MS, next: events.len() as u64, events, ..History::default() });
    timeline
}

fn granted(ms: u64, id: u32, asked_ms: u64) -> Event {
    Event { from_ns: Some(asked_ms * MS), ..event(ms, id, "granted") }
}

/// An event: the program had the GPU for all of that time.
fn worked(from_ms: u64, to_ms: u64, id: u32) -> Event {
    let (from, to) = (from_ms * MS, to_ms * MS);
    Event { from_ns: Some(from), gpu_ns: Some(to - from), ..event(to_ms, id, "worked") }
}

#[test]
fn shares_switches_waits_and_bytes_are_those_of_the_last_so_many_seconds() {
    let copied = |ms: u64, id, what: &str, bytes| Event { bytes: Some(bytes), ..event(ms, id, what) };
    let timeline = timeline(
        vec![
            event(0, 1, "joined"),
            event(0, 2, "joined"),
            granted(10, 1, 5),
            event(10, 1, "opened"),
            copied(20, 2, "copied_in", 7),
            worked(10, 100, 1),
            event(100, 1, "preempted"),
            copied(110, 2, "copied_in", 30),
            copied(112, 1, "copied_out", 40),
            granted(120, 2, 90),
            event(120, 2, "opened"),
            worked(120, 200, 2),
            Event { from_ns: Some(121 * MS), to_ns: Some(124 * MS), ..event(125, 2, "request") },
        ],
        200,
    );
    let summary = Summary::of(&timeline, 100 * MS);
    assert_eq!(summary.time, 100 * MS..200 * MS);
    let (first, second) = (&summary.programs[&1], &summary.programs[&2]);
    assert_eq!((first.share, first.bytes_out, first.waits.count()), (0.0, 40, 0));
    assert!((second.share - 0.8).abs() < 1e-9 && second.switches == 1 && second.bytes_in == 30, "{second:?}");
    assert_eq!((second.waits.percentile(50), second.requests.percentile(99)), (Some(30 * MS), Some(3 * MS)));
    assert_eq!((summary.gpu.switches, summary.gpu.bytes_in, summary.gpu.bytes_out), (1, 30, 40));
    // Over the whole time, the first program has a share too.
    assert!(Summary::of(&timeline, u64::MAX).programs[&1].share > 0.4);
}

#[test]
fn percentiles_are_of_those_that_there_are() {
    assert_eq!(Took::of(Vec::new()).percentile(50), None);
    let took = Took::of((1..=200).rev().collect());
    assert_eq!([50, 99, 100].map(|percent| took.percentile(percent)), [Some(100), Some(198), Some(200)]);
}
