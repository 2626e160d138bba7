//! Explains why a recorded program was slow: all its waits together, and the change that would help, in sentences.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::format::{bytes, duration, percent};
use crate::summary::{Part, Summary};
use crate::timeline::{State, Timeline};

/// The time that a program spent in each state.
#[derive(Default)]
struct Stood {
    waiting: u64,
    loading: u64,
    /// Time off the GPU in the middle of its work, or about to go on.
    preempted: u64,
    suspended: u64,
    all: u64,
    /// The owners of the GPU while this program waited for its turn or was preempted, with the time of each.
    behind: BTreeMap<u32, u64>,
}

impl Stood {
    fn of(timeline: &Timeline, id: u32, time: &Range<u64>) -> Self {
        let mut stood = Self::default();
        let Some(program) = timeline.programs.get(&id) else { return stood };
        let mut waits: Vec<Range<u64>> = Vec::new();
        for (state, part) in program.states.iter().filter_map(|span| Some((span.what, span.within(time)?))) {
            let took = part.end - part.start;
            stood.all += took;
            match state {
                State::Waiting => stood.waiting += took,
                State::Arriving | State::RunningArriving => stood.loading += took,
                State::Preempted | State::Descheduled => stood.preempted += took,
                State::Suspended => stood.suspended += took,
                State::Idle | State::Running | State::CoRunning => {}
            }
            if matches!(state, State::Waiting | State::Preempted) {
                waits.push(part);
            }
        }
        // Waits and owners are both in order.
        let mut from = 0;
        for owned in timeline.owner.iter().filter(|owned| owned.what != id) {
            from += waits[from..].iter().take_while(|wait| wait.end <= owned.from).count();
            let during = waits[from..].iter().map_while(|wait| owned.within(wait));
            *stood.behind.entry(owned.what).or_default() += during.map(|part| part.end - part.start).sum::<u64>();
        }
        stood
    }
}

/// Describes the waits of the programs of this name in a timeline; none if it has no such program.
pub fn sentences(timeline: &Timeline, name: &str) -> Option<String> {
    let summary = Summary::of(timeline, u64::MAX);
    let of = |(id, part): (&u32, &Part)| (part.name == name).then(|| said(timeline, &summary, *id, part));
    let all: Vec<String> = summary.programs.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

fn said(timeline: &Timeline, summary: &Summary, id: u32, part: &Part) -> String {
    let stood = Stood::of(timeline, id, &summary.time);
    let Stood { waiting, loading, preempted, suspended, all, behind } = &stood;
    let name = &part.name;
    let all = (*all).max(1);
    let share = part.share * (summary.time.end - summary.time.start) as f64;
    let turns = match part.waits.count() {
        1 => "one turn".to_owned(),
        turns => format!("{turns} turns"),
    };
    let had = percent(share / all as f64);
    let mut text = format!("{name} was there for {}, and had the GPU for {had} of that, in {turns}.\n", duration(all));
    let mut most: Vec<(&u32, &u64)> = behind.iter().filter(|(_, ns)| **ns > 0).collect();
    most.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
    let whom = most.first().and_then(|(id, _)| summary.programs.get(id));
    let behind = whom.map_or(String::new(), |whom| format!(", mostly behind {}", whom.name));
    let longest =
        part.waits.longest().map_or(String::new(), |longest| format!(" (the longest wait was {})", duration(longest)));
    let parts = [
        (*waiting, format!("for its turn{behind}{longest}")),
        (*preempted, "because its work was taken off the GPU in the middle".to_owned()),
        (
            *loading,
            format!("for its memory, of which {} came and {} left", bytes(part.bytes_in), bytes(part.bytes_out)),
        ),
        (*suspended, "because of `baton suspend`".to_owned()),
    ];
    for (ns, what) in parts.iter().filter(|(ns, _)| *ns > 0) {
        text += &format!("It waited for {} {what}.\n", duration(*ns));
    }
    text + help(&stood)
}

/// Names the change that would have helped the most.
fn help(stood: &Stood) -> &'static str {
    let Stood { waiting, loading, preempted, suspended, all, .. } = stood;
    let most = *[waiting + preempted, *loading, *suspended].iter().max().unwrap_or(&0);
    match most {
        most if 20 * most < *all => "It hardly waited: turns did not make it slow.",
        most if most == waiting + preempted => {
            "A better class or a larger weight would help, or fewer programs at the same time."
        }
        most if most == *loading => {
            "A larger --arena would keep more of its memory on the GPU; a longer --quantum moves it less often."
        }
        _ => "`baton resume` ends that.",
    }
}

#[cfg(test)]
mod tests {
    use baton_report::event::{Event, History};

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_says_for_how_long_a_program_waited_for_what_and_behind_whom() {
        let event = |s: u64, id: u32, what: &str| Event {
            ns: s * S,
            id: Some(id),
            tenant: Some(["", "train", "serve"][id as usize].to_owned()),
            what: what.into(),
            ..Event::default()
        };
        let worked = |from: u64, to: u64, id| Event {
            from_ns: Some(from * S),
            gpu_ns: Some((to - from) * S),
            ..event(to, id, "worked")
        };
        let events = vec![
            event(0, 1, "joined"),
            event(0, 2, "joined"),
            event(0, 2, "granted"),
            event(0, 2, "opened"),
            event(10, 1, "asked"),
            worked(0, 70, 2),
            event(70, 2, "drained"),
            event(70, 1, "chosen"),
            Event { bytes: Some(3 << 30), ..event(75, 1, "copied_in") },
            Event { from_ns: Some(10 * S), ..event(80, 1, "granted") },
            event(80, 1, "opened"),
            worked(80, 100, 1),
        ];
        let mut timeline = Timeline::default();
        timeline.see(&History { now_ns: 100 * S, next: 12, events, ..History::default() });
        let said = sentences(&timeline, "train").expect("it was there");
        assert_eq!(
            said,
            "train was there for 100 s, and had the GPU for 20 % of that, in one turn.\n\
             It waited for 60.0 s for its turn, mostly behind serve (the longest wait was 70.0 s).\n\
             It waited for 10.0 s for its memory, of which 3 GiB came and 0 B left.\n\
             A better class or a larger weight would help, or fewer programs at the same time."
        );
        assert!(sentences(&timeline, "serve").expect("it was there").ends_with("turns did not make it slow."));
        assert_eq!(sentences(&timeline, "nobody"), None);
    }
}
