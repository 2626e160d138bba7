//! The owners of the GPU over time, as a line of text for each program.

use std::collections::BTreeMap;
use std::ops::Range;

use baton_views::timeline::{Program, State, Timeline};

/// The meaning of the letters.
pub(super) const LEGEND: &str = "█ has the GPU   ░ waits for it   · rests";

/// The letter of a state.
fn letter(state: State) -> char {
    match state {
        State::Running | State::RunningArriving | State::CoRunning => '█',
        State::Waiting | State::Arriving | State::Descheduled | State::Preempted | State::Suspended => '░',
        State::Idle => '·',
    }
}

/// Returns a program's line of `width` letters: each is the state that it had for most of a part of the time.
pub(super) fn line(program: &Program, time: &Range<u64>, width: u64) -> String {
    let step = ((time.end - time.start) / width).max(1);
    (0..width).map(|at| most(program, &(time.start + at * step..time.start + (at + 1) * step))).collect()
}

fn most(program: &Program, time: &Range<u64>) -> char {
    let mut took: BTreeMap<char, u64> = BTreeMap::new();
    for span in program.states.iter() {
        if let Some(part) = span.within(time) {
            *took.entry(letter(span.what)).or_default() += part.end - part.start;
        }
    }
    took.into_iter().max_by_key(|(_, took)| *took).map_or(' ', |(letter, _)| letter)
}

/// Returns the program of this name.
pub(super) fn program<'a>(timeline: &'a Timeline, name: &str) -> Option<(u32, &'a Program)> {
    timeline.programs.iter().find(|(_, program)| program.name == name).map(|(id, program)| (*id, program))
}

#[cfg(test)]
mod tests {
    use baton_report::event::{Event, History};

    use super::*;

    #[test]
    fn each_letter_is_how_the_program_stood_for_most_of_its_time() {
        let event = |ns: u64, what: &str| Event {
            ns: ns * 1000,
            id: Some(1),
            tenant: Some("one".to_owned()),
            what: what.into(),
            ..Event::default()
        };
        let events = vec![event(0, "joined"), event(10, "asked"), event(20, "granted"), event(21, "opened")];
        let more = vec![event(38, "drained"), event(50, "departed")];
        let mut timeline = Timeline::default();
        let events: Vec<Event> =
            (0..).zip(events.into_iter().chain(more)).map(|(n, event)| Event { n, ..event }).collect();
        timeline.see(&History { events, next: 6, now_ns: 60_000, ..History::default() });
        let (_, one) = program(&timeline, "one").expect("it was there");
        assert_eq!(line(one, &(0..60_000), 6), "·░██· ");
    }
}
