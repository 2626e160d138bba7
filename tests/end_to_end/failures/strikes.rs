//! Processes die, stop and wait at fault points, and at random moments, and calls fail; the others go on.
//!
//! `tests/strikes` runs the long forms.

use std::time::Duration;

use baton_tests::generated::hunt::number;
use baton_tests::strikes::{Outcome, Record, State, VICTIMS, Victim, at_random, churn, matrix, system_calls};

/// The seed of the strikes.
const SEED: u64 = 48;

fn strikes(usual: usize) -> usize {
    number("STRIKES_COUNT").map_or(usual, |count| count as usize)
}

fn seed() -> u64 {
    number("STRIKES_SEED").unwrap_or(SEED)
}

#[track_caller]
fn all_go_on(outcome: &Outcome) {
    println!("{}", outcome.table());
    let failures = outcome.tally.failures();
    assert!(failures.is_empty(), "{} did not go on:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn programs_outlive_a_few_kills() {
    all_go_on(&at_random(State::Preemption, &[Victim::Coordinator, Victim::Keeper], 12, seed()));
}

#[track_caller]
fn in_each_cell(state: State, victims: &[Victim]) {
    let strikes = strikes(1);
    let limit = number("STRIKES_SECONDS").map(Duration::from_secs);
    let part = |name| number(name).map_or(0, |number| number as usize);
    let part = (part("STRIKES_PART"), part("STRIKES_PARTS"));
    let record = Record::of_environment();
    let earlier = record.cells(state);
    let outcome = matrix((state, victims), strikes, part, seed(), limit, &earlier);
    record.add(&outcome);
    println!("{state:?}: cells with fewer strikes: {:#?}", outcome.missed(strikes, &earlier));
    all_go_on(&outcome);
}

mod each_cell {
    use super::*;

    #[track_caller]
    fn of(state: State) {
        in_each_cell(state, &VICTIMS);
    }

    #[test]
    #[ignore = "long: 20 minutes"]
    fn of_programs_that_take_turns() {
        of(State::Turns);
    }

    #[test]
    #[ignore = "long: 20 minutes"]
    fn of_programs_that_are_preempted() {
        of(State::Preemption);
    }

    #[test]
    #[ignore = "long: 20 minutes"]
    fn of_programs_that_rest() {
        of(State::Rests);
    }

    #[test]
    #[ignore = "long: 20 minutes"]
    fn of_programs_that_fit_together() {
        of(State::Together);
    }

    #[test]
    #[ignore = "long: 20 minutes"]
    fn of_programs_that_share_memory() {
        of(State::Sharing);
    }

    #[test]
    #[ignore = "long: 20 minutes"]
    fn of_upgrades() {
        of(State::Upgrades);
    }
}

mod each_call {
    use super::*;

    #[track_caller]
    fn of(state: State) {
        in_each_cell(state, &[Victim::Call]);
    }

    #[test]
    #[ignore = "long: 5 minutes"]
    fn of_programs_that_take_turns() {
        of(State::Turns);
    }

    #[test]
    #[ignore = "long: 5 minutes"]
    fn of_programs_that_are_preempted() {
        of(State::Preemption);
    }

    #[test]
    #[ignore = "long: 5 minutes"]
    fn of_programs_that_rest() {
        of(State::Rests);
    }

    #[test]
    #[ignore = "long: 5 minutes"]
    fn of_programs_that_fit_together() {
        of(State::Together);
    }

    #[test]
    #[ignore = "long: 5 minutes"]
    fn of_programs_that_share_memory() {
        of(State::Sharing);
    }

    #[test]
    #[ignore = "long: 5 minutes"]
    fn of_upgrades() {
        of(State::Upgrades);
    }
}

mod each_system_call {
    use super::*;

    #[track_caller]
    fn of(state: State) {
        let limit = number("STRIKES_SECONDS").map(Duration::from_secs);
        all_go_on(&system_calls(state, strikes(1), seed(), limit));
    }

    #[test]
    #[ignore = "long: 6 minutes, with strace"]
    fn of_programs_that_take_turns() {
        of(State::Turns);
    }

    #[test]
    #[ignore = "long: 6 minutes, with strace"]
    fn of_programs_that_are_preempted() {
        of(State::Preemption);
    }

    #[test]
    #[ignore = "long: 6 minutes, with strace"]
    fn of_programs_that_share_memory() {
        of(State::Sharing);
    }
}

mod at_random {
    use super::*;

    #[track_caller]
    fn of(state: State) {
        all_go_on(&at_random(state, &[Victim::Coordinator, Victim::Keeper], strikes(100) / 3, seed()));
    }

    #[test]
    #[ignore = "long: as many kills as tests/strikes says"]
    fn of_programs_that_take_turns() {
        of(State::Turns);
    }

    #[test]
    #[ignore = "long: as many kills as tests/strikes says"]
    fn of_programs_that_are_preempted() {
        of(State::Preemption);
    }

    #[test]
    #[ignore = "long: as many kills as tests/strikes says"]
    fn of_programs_that_share_memory() {
        of(State::Sharing);
    }
}

mod hours {
    use super::*;

    #[track_caller]
    fn of(state: State) {
        let minutes = number("STRIKES_MINUTES").unwrap_or(1);
        let (tally, samples) = churn(state, Duration::from_secs(60 * minutes), seed());
        println!("{state:?}: {}\n{}", tally.summary(), samples.table());
        let failures = tally.failures();
        assert!(failures.is_empty(), "{} did not go on:\n{}", failures.len(), failures.join("\n"));
        assert!(samples.grown().is_empty(), "{:?} have grown", samples.grown());
    }

    #[test]
    #[ignore = "long: as many minutes as tests/strikes says"]
    fn of_programs_that_are_preempted() {
        of(State::Preemption);
    }

    #[test]
    #[ignore = "long: as many minutes as tests/strikes says"]
    fn of_programs_that_share_memory() {
        of(State::Sharing);
    }
}
