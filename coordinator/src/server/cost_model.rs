//! The observed cost of moving memory here: the arbiter's and the planner's estimates.

use std::ops::Range;
use std::time::{Duration, Instant};

use baton_policy::planner::{Costs, Nanos};

/// Before any measurement: the speed of a PCIe 4 link in bytes per second, and the time of giving access to an extent on an H200 in
/// seconds.
const USUAL_SPEED: f64 = 20e9;
const USUAL_MAP: f64 = 30e-6;
/// The cost of a group beside its bytes: submitting, reporting, and a message.
const GROUP: Nanos = 60_000;
/// Copies of fewer bytes say nothing about the speed.
const LEAST: u64 = 1 << 20;

/// The estimates.
#[derive(Debug, Default)]
pub(super) struct CostModel {
    /// Bytes per second of the last large copies in either direction.
    speed: Option<f64>,
    /// The recent cost of mapping one extent, in seconds.
    map: Option<f64>,
}

/// An average in which the new value counts for a fifth.
fn average(before: &mut Option<f64>, now: f64) {
    *before = Some(before.map_or(now, |before| 0.8 * before + 0.2 * now));
}

impl CostModel {
    /// Records the time that copying these bytes took.
    pub(super) fn record_copy(&mut self, bytes: u64, time: &Range<Instant>) {
        let seconds = (time.end - time.start).as_secs_f64();
        if bytes >= LEAST && seconds > 0.0 {
            average(&mut self.speed, bytes as f64 / seconds);
        }
    }

    /// Records the time that mapping these extents took.
    pub(super) fn record_mapping(&mut self, took: Duration, extents: u64) {
        average(&mut self.map, took.as_secs_f64() / extents.max(1) as f64);
    }

    /// Bytes copied in a second, if any were yet.
    pub(super) fn speed(&self) -> Option<u64> {
        self.speed.map(|speed| speed as u64)
    }

    /// The time that copying `bytes` bytes takes.
    pub(super) fn copy_time(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.speed.unwrap_or(USUAL_SPEED))
    }

    /// The costs that the planner uses.
    pub(super) fn costs(&self) -> Costs {
        Costs {
            bytes_per_second: self.speed.unwrap_or(USUAL_SPEED) as u64,
            per_group: GROUP,
            per_extent: (self.map.unwrap_or(USUAL_MAP) * 1e9) as Nanos,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_counts_the_more_the_later() {
        let (mut model, now) = (CostModel::default(), Instant::now());
        assert_eq!(model.copy_time(20_000_000_000), Duration::from_secs(1));
        model.record_copy(1 << 30, &(now..now + Duration::from_millis(100)));
        let fast = model.costs().bytes_per_second;
        model.record_copy(1 << 30, &(now..now + Duration::from_millis(200)));
        let slower = model.costs().bytes_per_second;
        assert!(slower < fast && slower > fast / 2);
        model.record_copy(4096, &(now..now + Duration::from_secs(1)));
        assert_eq!(model.costs().bytes_per_second, slower, "too little to say anything");
        model.record_mapping(Duration::from_micros(100), 10);
        assert_eq!(model.costs().per_extent, 10_000);
    }
}
