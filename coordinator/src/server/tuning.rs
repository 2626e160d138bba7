//! Settings that users change while the coordinator serves: its later decisions use them. Parts made with the other settings, memory
//! and sockets, last as long as the coordinator does.

use std::time::Duration;

use baton_policy::arbiter::{Micros, SHARE};
use baton_policy::bursts::Rules;

/// The settings that can change.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The shortest time for which a tenant has the baton before an equal gets it.
    pub quantum: Duration,
    /// The longest time for which a tenant waits while others of better classes use the GPU.
    pub max_wait: Duration,
    /// The time for which urgent tenants are at work before those beside them are taken off the GPU.
    pub burst: Duration,
    /// The slowdown that urgent tenants may suffer from those beside them: 0.05 is 5 %.
    pub latency_slack: f64,
    /// Maximum number of tenants at once; later programs wait. Present ones stay.
    pub max_tenants: usize,
}

impl Tuning {
    pub(super) fn quantum(&self) -> Micros {
        micros(self.quantum)
    }

    pub(super) fn max_wait(&self) -> Micros {
        micros(self.max_wait)
    }

    pub(super) fn bursts(&self) -> Rules {
        let slack = (self.latency_slack * 1000.0) as u64;
        Rules { burst: micros(self.burst), slack, max_wait: self.max_wait(), share: SHARE }
    }
}

/// A time for the arbiter.
pub(super) fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}
