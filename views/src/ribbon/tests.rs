use proptest::prelude::*;

use baton_report::event::Event;

use super::svg::{Caption, file};
use super::*;
use crate::strategy::{heard, history};
use crate::summary::Summary;

fn made(timeline: &Timeline, most: usize) -> (Ribbon, String) {
    let time = timeline.since..timeline.now;
    let ribbon = ribbon(timeline, &Summary::within(timeline, time.clone()), &time, most);
    let file = file(&ribbon, &Caption { title: "<GPU>", line: "\u{0}&" });
    (ribbon, file)
}

fn event(what: &str, id: u32, ns: u64) -> Event {
    Event { id: Some(id), tenant: Some(format!("program {id}")), what: what.into(), ns, ..Event::default() }
}

/// A timeline of two programs that take `count` turns of `each` nanoseconds.
fn turns(count: u64, each: u64) -> Timeline {
    let turn = |n: u64| {
        let (id, at) = (1 + (n % 2) as u32, n * each);
        ["granted", "opened", "drained"].into_iter().zip([at, at, at + each]).map(move |(what, at)| event(what, id, at))
    };
    heard((0..count).flat_map(turn).collect())
}

#[test]
fn turns_are_marks_of_their_programs_in_place() {
    let (ribbon, _) = made(&turns(4, 1_000_000), 12);
    let owner: Vec<_> = ribbon.gpu[0].marks.iter().map(|mark| (mark.from, mark.to, mark.number)).collect();
    assert_eq!(owner, [(0.0, 0.25, Some(0)), (0.25, 0.5, Some(1)), (0.5, 0.75, Some(0)), (0.75, 1.0, Some(1))]);
    assert_eq!(ribbon.gpu[0].marks[1].said, "program 2 for 1.00 ms, from 1.00 ms");
    assert_eq!(ribbon.programs.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["program 1", "program 2"]);
}

#[test]
fn what_is_too_short_to_be_seen_is_put_together_and_counted() {
    let (ribbon, file) = made(&turns(60_000, 1000), 12);
    assert!(ribbon.gpu[0].marks.len() as u64 <= 2 * PLACES && file.len() < 1 << 20, "{}", file.len());
    assert_eq!(ribbon.gpu[0].marks[0].said, "program 2 for most of 100 µs, from 0 ns, 100 changes");
}

#[test]
fn of_many_programs_those_are_shown_that_had_the_gpu_longest() {
    let mut events: Vec<_> = (0..50).map(|id| event("joined", id, 0)).collect();
    for (id, from, to) in [(7, 10, 20), (3, 20, 80), (40, 80, 85)] {
        events.extend([event("granted", id, from), event("opened", id, from), event("drained", id, to)]);
    }
    let (ribbon, file) = made(&heard(events), 2);
    assert_eq!(ribbon.programs.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["program 3", "program 7"]);
    assert_eq!(ribbon.quiet.len(), 48);
    assert!(file.contains("and 48 more programs"));
}

#[test]
fn rates_are_of_the_bytes_that_were_copied_in_each_part() {
    let copy = Event { from_ns: Some(500_000_000), bytes: Some(4_000_000_000), ..event("copied_in", 1, 1_000_000_000) };
    let (ribbon, _) = made(&heard(vec![event("joined", 1, 0), copy]), 12);
    let lane = &ribbon.gpu[1];
    assert_eq!((lane.note.as_str(), lane.marks.len()), ("max 8.0 GB/s", PARTS / 2));
    assert!(lane.marks.iter().all(|mark| mark.kind == Kind::Copies(1.0) && mark.from >= 0.5));
    assert_eq!(lane.marks[0].said, "8.0 GB/s, from 500 ms: program 1 31.8 MiB");
}

#[test]
fn an_axis_has_few_round_steps() {
    let words = |ns: u64, most| ticks(&(7..7 + ns), most).into_iter().map(|(_, said)| said).collect::<Vec<_>>();
    assert_eq!(words(30_000_000_000, 6), ["0 s", "5 s", "10 s", "15 s", "20 s", "25 s", "30 s"]);
    assert_eq!(words(2_500_000, 5), ["0 µs", "500 µs", "1000 µs", "1500 µs", "2000 µs", "2500 µs"]);
    assert_eq!(words(0, 5), ["0 ns", "1 ns"]);
}

proptest! {
    /// For any history, marks lie in the picture, and the file is well-formed.
    #[test]
    fn every_picture_is_well_formed(history in history(100), most in 0..6usize) {
        let mut timeline = Timeline::default();
        timeline.see(&history);
        let (ribbon, file) = made(&timeline, most);
        let parsed = roxmltree::Document::parse(&file);
        prop_assert!(parsed.is_ok(), "{:?}\n{}", parsed.err(), file);
        for lane in ribbon.gpu.iter().chain(&ribbon.programs) {
            for mark in &lane.marks {
                prop_assert!(0.0 <= mark.from && mark.from <= mark.to && mark.to <= 1.0 + 1e-9, "{:?}", mark);
            }
            // The marks of one row are in the order of their starts.
            let rows = [|kind: Kind| matches!(kind, Kind::State(_)), |kind: Kind| kind == Kind::Owner];
            for row in rows {
                let starts: Vec<_> = lane.marks.iter().filter(|mark| row(mark.kind)).map(|mark| mark.from).collect();
                prop_assert!(starts.is_sorted());
            }
        }
    }
}
