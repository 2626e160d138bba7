//! Each program's state in columns of equal time: a bounded amount, however often programs change.
//!
//! A column of a program is one character of the base64 alphabet: eight times the part of the time that it ran, from 0 to 7, plus its
//! state for most of the rest ([`Rest`]).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use baton_views::timeline::{Program, State, Timeline};
use serde_json::{Map, Value, json};

/// The length of a column, and the number of columns: a minute in all.
pub(crate) const COLUMN_NS: u64 = 200_000_000;
pub(crate) const COLUMNS: usize = 300;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// The steps between never and always.
const STEPS: f64 = 7.0;

/// A program's state while it did not run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// It was not there, or its state is unknown.
    None,
    Idle,
    Waiting,
    Arriving,
    Descheduled,
    Preempted,
    Suspended,
}

impl Rest {
    const COUNT: usize = 7;

    fn of(state: State) -> Self {
        match state {
            State::Idle | State::Running | State::CoRunning => Self::Idle,
            State::Waiting => Self::Waiting,
            State::Arriving | State::RunningArriving => Self::Arriving,
            State::Descheduled => Self::Descheduled,
            State::Preempted => Self::Preempted,
            State::Suspended => Self::Suspended,
        }
    }
}

fn code(ran: f64, rest: usize) -> u8 {
    // Any time at all on the GPU is visible.
    let step = if ran > 0.0 { (ran * STEPS).round().max(1.0) as usize } else { 0 };
    ALPHABET[8 * step.min(STEPS as usize) + rest]
}

/// The column of a program that was not there.
const NOTHING: u8 = ALPHABET[Rest::None as usize];
/// The column of a program without work.
const IDLE: u8 = ALPHABET[Rest::Idle as usize];

/// Returns one column of a program.
fn column(program: &Program, time: Range<u64>) -> u8 {
    let (ran, mut rest) = (program.worked(&time), [0_u64; Rest::COUNT]);
    for span in program.states.iter().rev() {
        if span.to.is_some_and(|to| to <= time.start) {
            break;
        }
        let Some(part) = span.within(&time) else { continue };
        if !matches!(span.what, State::Running | State::CoRunning) {
            rest[Rest::of(span.what) as usize] += part.end - part.start;
        }
    }
    let known: u64 = rest.iter().sum();
    // A program that had the GPU all the time had no other state; where it did nothing, it was idle.
    let is_there = program.states.iter().any(|span| span.within(&time).is_some());
    let most = (0..Rest::COUNT).max_by_key(|at| rest[*at]).filter(|_| known > 0);
    let rest = most.unwrap_or(if ran > 0.0 || is_there { Rest::Idle as usize } else { Rest::None as usize });
    code(ran / (time.end - time.start) as f64, rest)
}

/// The columns of all programs.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// The number of the column after the last.
    end: u64,
    /// The last columns of each program, oldest first. Programs without activity have none.
    of: BTreeMap<u32, VecDeque<u8>>,
}

impl Lanes {
    /// Adds the columns that are complete by now. Returns the number of the first new one.
    pub(crate) fn advance(&mut self, timeline: &Timeline) -> u64 {
        let end = timeline.now / COLUMN_NS;
        if end < self.end {
            // This is another coordinator.
            *self = Self::default();
        }
        let from = self.end.max(end.saturating_sub(COLUMNS as u64));
        let new = (end - from) as usize;
        for (id, program) in &timeline.programs {
            let made = (from..end).map(|at| column(program, at * COLUMN_NS..(at + 1) * COLUMN_NS));
            let made: Vec<u8> = made.collect();
            let is_still = made.iter().all(|code| [NOTHING, IDLE].contains(code));
            if !is_still || self.of.contains_key(id) {
                let lane = self.of.entry(*id).or_default();
                // The program did nothing before that.
                let missing = COLUMNS.saturating_sub(lane.len() + new);
                (0..missing).for_each(|_| lane.push_front(NOTHING));
                lane.extend(made);
                lane.drain(..lane.len().saturating_sub(COLUMNS));
            }
        }
        self.of.retain(|id, lane| {
            timeline.programs.contains_key(id) && lane.iter().any(|code| ![NOTHING, IDLE].contains(code))
        });
        self.end = end;
        from
    }

    /// Returns all columns.
    pub(crate) fn all(&self, timeline: &Timeline) -> String {
        self.text(COLUMNS, timeline, true)
    }

    /// Returns the columns from this one on, for programs that were active in them.
    pub(crate) fn since(&self, from: u64, timeline: &Timeline) -> String {
        self.text((self.end - from) as usize, timeline, false)
    }

    fn text(&self, count: usize, timeline: &Timeline, all: bool) -> String {
        let mut of = Map::new();
        for (id, lane) in &self.of {
            let codes: Vec<u8> = lane.iter().skip(lane.len().saturating_sub(count)).copied().collect();
            if all || codes.iter().any(|code| *code != IDLE) {
                let name = timeline.programs.get(id).map_or("", |program| program.name.as_str());
                of.insert(id.to_string(), json!([name, String::from_utf8_lossy(&codes)]));
            }
        }
        json!({ "end": self.end, "count": count.min(COLUMNS), "ms": COLUMN_NS / 1_000_000, "of": Value::Object(of) })
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use baton_report::event::{Event, History};

    use super::*;

    fn event(ns: u64, what: &str) -> Event {
        Event { ns, id: Some(1), tenant: Some("a".to_owned()), what: what.into(), ..Event::default() }
    }

    /// An event: the program had the GPU for all of that time.
    fn worked(from: u64, to: u64) -> Event {
        Event { from_ns: Some(from), gpu_ns: Some(to - from), ..event(to, "worked") }
    }

    fn told(events: Vec<Event>, now_ns: u64) -> Timeline {
        let mut timeline = Timeline::default();
        timeline.see(&History { now_ns, next: events.len() as u64, events, ..History::default() });
        timeline
    }

    #[test]
    fn a_column_says_how_much_of_it_a_program_ran_and_how_it_stood_for_the_rest() {
        let half = COLUMN_NS / 2;
        let events = vec![
            event(0, "joined"),
            event(COLUMN_NS, "asked"),
            event(2 * COLUMN_NS, "granted"),
            event(2 * COLUMN_NS + half, "opened"),
            worked(2 * COLUMN_NS + half, 4 * COLUMN_NS),
            event(4 * COLUMN_NS, "preempted"),
        ];
        let timeline = told(events, 5 * COLUMN_NS);
        let mut lanes = Lanes::default();
        assert_eq!(lanes.advance(&timeline), 0);
        let lane: Vec<u8> = lanes.of[&1].iter().skip(COLUMNS - 5).copied().collect();
        let want = [
            code(0.0, Rest::Idle as usize),
            code(0.0, Rest::Waiting as usize),
            code(0.5, Rest::Waiting as usize),
            code(1.0, Rest::Idle as usize),
            code(0.0, Rest::Preempted as usize),
        ];
        assert_eq!(lane, want);
        assert_eq!(lanes.advance(&timeline), 5, "nothing is new");
    }

    #[test]
    fn who_does_nothing_has_no_lane_and_who_did_something_has_one_for_a_minute() {
        let mut lanes = Lanes::default();
        let quiet = told(vec![event(0, "joined")], 10 * COLUMN_NS);
        lanes.advance(&quiet);
        assert!(lanes.of.is_empty());
        let events = vec![
            event(0, "joined"),
            event(11 * COLUMN_NS, "granted"),
            event(11 * COLUMN_NS, "opened"),
            worked(11 * COLUMN_NS, 12 * COLUMN_NS),
            event(12 * COLUMN_NS, "drained"),
        ];
        lanes.advance(&told(events.clone(), 20 * COLUMN_NS));
        assert_eq!(lanes.of[&1].len(), COLUMNS);
        lanes.advance(&told(events, (12 + COLUMNS as u64) * COLUMN_NS));
        assert!(lanes.of.is_empty());
    }
}
