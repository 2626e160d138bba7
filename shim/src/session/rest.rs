//! A program that has its turn, and for which no other tenant waits, comes to rest: its time stands still, and it is not checked any more
//! until its next call, which announces itself.
//!
//! So it is known since when the program has been quiet once another tenant asks for the GPU, and a program that has been quiet for long
//! enough yields at once. (Programs that co-run rest much sooner: [`Corun`](super::corun::Corun).)

use core::time::Duration;

use baton_contract::messages::TurnReport;

use super::idle::Watch;
use crate::gate::{self, stamps};
use crate::link::Link;
use crate::work::drain::IdleWatch;

/// The interval of the checks for a quiet program, and the time for which it has to be quiet: so it comes to rest and goes on at most ten
/// times a second, and reports both.
const LOOK: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_millis(100);

/// The program's rest in this turn.
#[derive(Default)]
pub(super) struct Rest {
    /// The turns in which it rests: one on each GPU.
    resting: Vec<(&'static Link, u64)>,
}

impl Rest {
    /// The time until the next check of a program that has its turn, while no other tenant waits for it.
    pub(super) fn look_again_after(&self) -> Option<Duration> {
        self.resting.is_empty().then_some(LOOK)
    }

    /// Checks whether the program rests, in turns that no other tenant waits for.
    pub(super) fn look(&mut self, turns: Vec<(&'static Link, u64)>, watch: &mut Watch, idle: &mut IdleWatch) {
        let (calls, before) = (gate::activity(), stamps::rests_before());
        if !self.resting.is_empty() || watch.quiet() < QUIET || !idle.is_idle(calls) || !gate::rest_alone() {
            return;
        }
        // Calls that came in before the rest did not see it.
        if gate::activity() != calls || gate::inside() != 0 {
            return gate::work_on();
        }
        stamps::rest(&before);
        turns.iter().for_each(|(link, grant)| link.tell(&TurnReport::Rests { grant: *grant }));
        self.resting = turns;
    }

    /// Called when the first call after a rest may have come.
    pub(super) fn look_whether_awake(&mut self) {
        if !gate::is_resting() {
            self.end();
        }
    }

    /// Ends the rest: the program is checked again, or the turn has ended.
    pub(super) fn end(&mut self) {
        if !self.resting.is_empty() {
            gate::work_on();
        }
        for (link, grant) in self.resting.drain(..) {
            link.tell(&TurnReport::Works { grant });
        }
    }
}
