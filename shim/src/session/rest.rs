//! A program that has its turn, and for which nobody waits, comes to rest: its time stands still, and nobody looks at it any more until
//! its next call, which says so.
//!
//! So it is known since when it has been quiet when somebody does ask for the GPU, and one that has been quiet for long enough yields at
//! once. (Programs that run beside others say much sooner that they rest: [`Corun`](super::corun::Corun).)

use core::time::Duration;

use baton_contract::messages::TurnReport;

use super::idle::Watch;
use crate::gate::{self, stamps};
use crate::link::Link;
use crate::work::drain::IdleWatch;

/// How often it is looked whether the program is quiet, and how long it has to be: it is at most ten times a second that it comes to rest
/// and says so, and goes on and says so.
const LOOK: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_millis(100);

/// Whether the program rests in this turn.
pub(super) struct Rest {
    link: &'static Link,
    /// Which turn that is.
    resting: Option<u64>,
}

impl Rest {
    pub(super) fn new(link: &'static Link) -> Self {
        Self { link, resting: None }
    }

    /// How soon it has to be looked at a program that has this turn, and for which nobody waits.
    pub(super) fn look_again_after(&self) -> Option<Duration> {
        self.resting.is_none().then_some(LOOK)
    }

    /// Looks, in a turn in which nobody waits for it.
    pub(super) fn look(&mut self, grant: u64, watch: &mut Watch, idle: &mut IdleWatch) {
        let (calls, before) = (gate::activity(), stamps::rests_before());
        if self.resting.is_some() || watch.quiet() < QUIET || !idle.is_idle(calls) || !gate::rest_alone() {
            return;
        }
        // Calls that came in before that did not see it.
        if gate::activity() != calls || gate::inside() != 0 {
            return gate::work_on();
        }
        stamps::rest(before);
        self.resting = Some(grant);
        self.link.tell(&TurnReport::Rests { grant });
    }

    /// The first call after a rest may have come.
    pub(super) fn look_whether_awake(&mut self) {
        if !gate::is_resting() {
            self.end();
        }
    }

    /// It is looked at again, or the turn has ended.
    pub(super) fn end(&mut self) {
        if let Some(grant) = self.resting.take() {
            gate::work_on();
            self.link.tell(&TurnReport::Works { grant });
        }
    }
}
