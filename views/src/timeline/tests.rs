use baton_report::record::Head;
use proptest::prelude::*;

use super::*;

/// A history as a coordinator would send it, made of kind, program and time of each event.
fn told(events: &[(&str, u32, u64)]) -> History {
    let event = |(n, (what, id, ns)): (u64, &(&str, u32, u64))| Event {
        n,
        ns: *ns,
        id: Some(*id),
        tenant: Some(format!("program {id}")),
        what: (*what).into(),
        ..Event::default()
    };
    let now_ns = events.last().map_or(0, |(.., ns)| *ns);
    let events: Vec<Event> = (0..).zip(events).map(event).collect();
    History { next: events.len() as u64, now_ns, events, ..History::default() }
}

fn states(timeline: &Timeline, id: u32) -> Vec<(u64, Option<u64>, State)> {
    timeline.programs[&id].states.iter().map(|span| (span.from, span.to, span.what)).collect()
}

#[test]
fn the_class_of_one_that_joined_before_is_what_the_status_says() {
    let mut timeline = Timeline::default();
    timeline.see(&told(&[("asked", 1, 10), ("granted", 1, 12)]));
    assert_eq!(timeline.programs[&1].class, None);
    let tenant = |class: &str| baton_report::tenant::Tenant { id: 1, class: class.to_owned(), ..Default::default() };
    timeline.know(&Status { tenants: vec![tenant("batch")], ..Status::default() });
    assert_eq!(timeline.programs[&1].class.as_deref(), Some("batch"));
    // A known class stays: the program may have had another one then.
    timeline.know(&Status { tenants: vec![tenant("latency")], ..Status::default() });
    assert_eq!(timeline.programs[&1].class.as_deref(), Some("batch"));
}

#[test]
fn two_programs_take_turns() {
    let mut timeline = Timeline::default();
    timeline.see(&told(&[
        ("joined", 1, 0),
        ("joined", 2, 1),
        ("asked", 1, 10),
        ("chosen", 1, 11),
        ("granted", 1, 12),
        ("opened", 1, 13),
        ("asked", 2, 20),
        ("preempted", 1, 30),
        ("chosen", 2, 31),
        ("granted", 2, 32),
        ("opened", 2, 33),
        ("drained", 2, 50),
    ]));
    use State::*;
    assert_eq!(
        states(&timeline, 1),
        [
            (0, Some(10), Idle),
            (10, Some(11), Waiting),
            (11, Some(13), Arriving),
            (13, Some(30), Running),
            (30, None, Preempted)
        ]
    );
    assert_eq!(states(&timeline, 2).last(), Some(&(50, None, Idle)));
    let owners: Vec<_> = timeline.owner.iter().map(|span| (span.from, span.to, span.what)).collect();
    assert_eq!(owners, [(13, Some(30), 1), (33, Some(50), 2)]);
    assert_eq!((timeline.switches, timeline.now), (1, 50));
    assert_eq!(timeline.switched, [Switch { at: 33, from: 1, to: 2 }]);
    assert_eq!(timeline.waits.iter().map(|wait| wait.launched).collect::<Vec<_>>(), [Some(13), Some(33)]);
}

#[test]
fn one_that_runs_while_its_memory_comes_launches_before_all_is_there() {
    let mut timeline = Timeline::default();
    let mut history = told(&[("joined", 1, 0), ("granted", 1, 10), ("opened", 1, 11), ("arrived", 1, 40)]);
    history.events[1].arriving = Some(true);
    history.events[3].first_launch_ns = Some(14);
    timeline.see(&history);
    assert_eq!(states(&timeline, 1)[1..], [(11, Some(40), State::RunningArriving), (40, None, State::Running)]);
    assert_eq!(timeline.waits[0].launched, Some(14));
}

#[test]
fn a_corunner_has_no_turn_and_whoever_makes_way_for_it_goes_on_as_before() {
    let mut timeline = Timeline::default();
    timeline.see(&told(&[
        ("granted", 1, 5),
        ("opened", 1, 6),
        ("opened", 2, 7),
        ("descheduled", 1, 10),
        ("descheduled", 1, 11),
        ("rescheduled", 1, 12),
    ]));
    assert_eq!(timeline.programs[&2].states.now(), Some(State::CoRunning));
    assert_eq!(timeline.programs[&1].states.now(), Some(State::Running));
    assert_eq!(timeline.owner.now(), Some(1));
}

#[test]
fn who_had_the_gpu_is_what_the_coordinator_has_counted_in_whatever_state() {
    let mut timeline = Timeline::default();
    let mut history = told(&[("joined", 1, 0), ("opened", 2, 0), ("worked", 1, 40), ("worked", 2, 60)]);
    for (event, (from, gpu)) in history.events[2..].iter_mut().zip([(0, 20), (20, 10)]) {
        (event.from_ns, event.gpu_ns) = (Some(from), Some(gpu));
    }
    timeline.see(&history);
    let shares = |time: Range<u64>| timeline.shares(&time);
    assert_eq!(shares(0..60), [(1, 20.0 / 60.0), (2, 10.0 / 60.0)].into());
    assert_eq!(shares(20..40), [(1, 0.5), (2, 0.25)].into(), "evenly where nothing else is known");
    assert_eq!(shares(50..100)[&1], 0.0);
}

#[test]
fn a_suspended_program_is_shown_so_from_when_it_is_off_the_gpu() {
    let mut timeline = Timeline::default();
    timeline.see(&told(&[
        ("granted", 1, 5),
        ("opened", 1, 6),
        ("suspended", 1, 8),
        ("preempted", 1, 9),
        ("asked", 1, 10),
        ("unsuspended", 1, 20),
    ]));
    let rest = [(6, Some(9), State::Running), (9, Some(20), State::Suspended), (20, None, State::Preempted)];
    assert_eq!(states(&timeline, 1), rest);
}

#[test]
fn one_that_was_taken_off_in_the_middle_stays_preempted_until_its_work_is_back() {
    let mut timeline = Timeline::default();
    timeline.see(&told(&[
        ("granted", 1, 5),
        ("opened", 1, 6),
        ("preempted", 1, 9),
        ("drained", 1, 10),
        ("asked", 1, 12),
        ("resumed", 1, 20),
        ("chosen", 1, 30),
    ]));
    use State::*;
    let all = [(6, Some(9), Running), (9, Some(20), Preempted), (20, Some(30), Waiting), (30, None, Arriving)];
    assert_eq!(states(&timeline, 1), all);
}

#[test]
fn one_is_evicted_until_all_that_leaves_is_copied_and_unmapped() {
    let mut timeline = Timeline::default();
    let mut history = told(&[
        ("joined", 1, 0),
        ("leaves", 1, 10),
        ("leaves", 1, 11),
        ("unmapped", 1, 15),
        ("copied_out", 1, 16),
        ("unmapped", 1, 17),
        ("leaves", 1, 30),
        ("unmapped", 1, 31),
        ("leaves", 1, 40),
        ("opened", 1, 50),
    ]);
    // The second span does not change, nor does the third; no later event concerns the last.
    let bytes = [None, Some((8, 2)), Some((8, 8)), None, Some((6, 0)), None, Some((8, 8)), None, Some((8, 0)), None];
    for (event, (bytes, uncopied)) in history.events.iter_mut().zip(bytes.map(Option::unzip)) {
        (event.bytes, event.uncopied_bytes) = (bytes, uncopied);
    }
    timeline.see(&history);
    let evicting: Vec<_> = timeline.programs[&1].evicting.iter().map(|span| (span.from, span.to)).collect();
    assert_eq!(evicting, [(10, Some(17)), (30, Some(31)), (40, Some(50))]);
}

#[test]
fn what_is_forgotten_leaves_behind_how_much_was_on_the_gpu() {
    let mut timeline = Timeline::default();
    let mut history = told(&[("joined", 1, 0), ("allocated", 1, 10), ("unmapped", 1, 20), ("mapped", 1, 30)]);
    for (event, bytes) in history.events.iter_mut().zip([None, Some(7), Some(3), Some(9)]) {
        event.resident_bytes = bytes;
    }
    timeline.see(&history);
    timeline.forget_before(25);
    assert_eq!(timeline.programs[&1].resident_before, Some(3));
    assert_eq!(timeline.resident, [(30, 1, 9)]);
}

#[test]
fn what_was_lost_ends_what_was_known() {
    let mut timeline = Timeline::default();
    timeline.see(&told(&[("granted", 1, 5), ("opened", 1, 6)]));
    let mut later = told(&[("asked", 2, 100)]);
    (later.oldest, later.next) = (50, 51);
    later.events[0].n = 50;
    timeline.see(&later);
    assert_eq!((timeline.lost, timeline.owner.now(), timeline.since), (48, None, 100));
    assert_eq!(states(&timeline, 1), [(6, Some(100), State::Running)]);
}

#[test]
fn one_that_has_left_is_forgotten_with_its_time() {
    let mut timeline = Timeline::default();
    timeline.see(&told(&[
        ("joined", 1, 0),
        ("granted", 1, 5),
        ("opened", 1, 6),
        ("departed", 1, 9),
        ("joined", 2, 50),
    ]));
    assert_eq!(timeline.programs[&1].ended, Some(9));
    timeline.forget_before(20);
    assert_eq!(timeline.programs.keys().collect::<Vec<_>>(), [&2]);
    assert_eq!(timeline.owner.iter().count() + timeline.waits.len(), 0);
}

proptest! {
    /// For any events, spans follow each other, at most one of each lane is open, and reading them in two parts makes no difference.
    #[test]
    fn spans_never_overlap(raw in prop::collection::vec((0..Kind::ALL.len(), 0..4u32, 0..5u64), 0..200), cut in 0..200usize) {
        let mut now = 0;
        let kinds = Kind::ALL;
        let events: Vec<(&str, u32, u64)> = raw.iter().map(|(kind, id, step)| {
            now += step;
            (kinds[*kind].word(), *id, now)
        }).collect();
        let all = told(&events);
        let mut at_once = Timeline::default();
        at_once.see(&all);
        let mut in_two = Timeline::default();
        let cut = cut.min(events.len());
        let first = History { events: all.events[..cut].to_vec(), next: cut as u64, more: true, ..all.clone() };
        in_two.see(&first);
        in_two.see(&History { events: all.events[cut..].to_vec(), ..all.clone() });
        let lanes = |timeline: &Timeline| {
            let programs: Vec<_> = timeline.programs.keys().map(|id| states(timeline, *id)).collect();
            let owner: Vec<_> = timeline.owner.iter().map(|span| (span.from, span.to, span.what)).collect();
            (programs, owner, timeline.switches)
        };
        prop_assert_eq!(lanes(&at_once), lanes(&in_two));
        let (programs, owner, _) = lanes(&at_once);
        for lane in programs.iter().map(|lane| lane.iter().map(|(from, to, _)| (*from, *to)).collect::<Vec<_>>())
            .chain([owner.iter().map(|(from, to, _)| (*from, *to)).collect()]) {
            for pair in lane.windows(2) {
                prop_assert!(pair[0].1.is_some_and(|to| to <= pair[1].0 && to > pair[0].0));
            }
        }
    }
}

#[test]
fn a_record_says_what_is_missing_and_of_which_class_programs_were() {
    let head = Head { programs: [(1, ("a".to_owned(), "batch".to_owned()))].into(), ..Head::default() };
    let pieces = [(7, 10), (11, 12)].map(|(oldest, next)| {
        let event = |n| Event { n, ns: 10 * n, id: Some(1), tenant: Some("a".to_owned()), ..Event::default() };
        History { oldest, next, events: (oldest..next).map(event).collect(), ..History::default() }
    });
    let timeline = Timeline::of(&Record { head, histories: pieces.to_vec() });
    assert_eq!((timeline.lost, timeline.programs[&1].class.as_deref()), (8, Some("batch")));
}
