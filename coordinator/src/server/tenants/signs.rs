//! Signs of life.

use std::time::{Duration, Instant};

/// A control loop shows far more often than this that it is alive while its program is at work.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// The number of times a control loop has shown that, and the time of the last change.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Heartbeat {
    pub(in crate::server) beats: u32,
    pub(in crate::server) since: Instant,
}

impl Heartbeat {
    pub(in crate::server) fn new() -> Self {
        Self { beats: 0, since: Instant::now() }
    }

    /// True if it has stood still for too long.
    pub(in crate::server) fn is_overdue(&mut self, beats: u32) -> bool {
        self.is_overdue_by(beats, HEARTBEAT)
    }

    /// The same with another limit.
    pub(in crate::server) fn is_overdue_by(&mut self, beats: u32, limit: Duration) -> bool {
        if self.beats != beats {
            *self = Self { beats, since: Instant::now() };
        }
        self.since.elapsed() > limit
    }
}
