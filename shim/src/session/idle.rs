//! Tells how long the program has been quiet.

use std::time::{Duration, Instant};

use crate::{arrival, gate};

/// True if a call is inside, or waits for the gate or for memory; or if its queued work waits for memory.
pub(super) fn is_in_a_call() -> bool {
    gate::inside() != 0 || gate::is_waited_at() || arrival::is_waited_for() || arrival::is_waited_for_on_gpu()
}

/// The program's recent calls.
pub(super) struct Watch {
    activity: u32,
    since: Instant,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { activity: gate::activity(), since: Instant::now() }
    }

    /// The time since the program's last call.
    pub(super) fn quiet(&mut self) -> Duration {
        let activity = gate::activity();
        if activity != self.activity || is_in_a_call() {
            *self = Self { activity, since: Instant::now() };
        }
        self.since.elapsed()
    }
}
