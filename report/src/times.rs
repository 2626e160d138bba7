//! Durations.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Durations of one kind, since the coordinator began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Times {
    /// The number of these durations.
    pub count: u64,
    /// The median, in milliseconds; null if there were none.
    pub p50: Option<f64>,
    /// The 99th percentile, in milliseconds; null if there were none.
    pub p99: Option<f64>,
    /// The longest, in milliseconds; null if there were none.
    pub max: Option<f64>,
}

/// How long things take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AllTimes {
    /// From the decision to the open gate.
    pub switch: Times,
    /// From wanting the GPU to having it.
    pub wait: Times,
    /// Until work had ended.
    pub drain: Times,
    /// Until work was off the GPU.
    pub preempt: Times,
    /// From asking for memory to getting it.
    pub allocate: Times,
    /// Requests of programs of class latency.
    pub request: Times,
    /// From the end of a request of class latency until work goes on that had made way for it.
    pub gap: Times,
}

/// Upper bounds of the buckets, in seconds. One more bucket counts longer durations. The bounds never change, so counts of several
/// moments, tenants and coordinators can be compared and added up.
pub const BOUNDS: [f64; 16] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// How long things took, counted: for monitoring, which adds such counts up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Buckets {
    /// How many are in each bucket of `bucket_seconds` and in no smaller one; the last counts longer durations.
    pub counts: Vec<u64>,
    /// How long all of them took together.
    pub sum_seconds: f64,
}

impl Default for Buckets {
    fn default() -> Self {
        Self { counts: vec![0; BOUNDS.len() + 1], sum_seconds: 0.0 }
    }
}

impl Buckets {
    /// Counts one more duration.
    pub fn add(&mut self, time: Duration) {
        self.add_seconds(time.as_secs_f64());
    }

    /// Counts one more duration, in seconds.
    pub fn add_seconds(&mut self, seconds: f64) {
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum_seconds += seconds;
    }

    /// Adds all counts of another one.
    pub fn add_all(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum_seconds += other.sum_seconds;
    }
}

/// How long each part of switches takes, in buckets. A part that a switch did not need is not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SwitchBuckets {
    /// From the decision to the open gate.
    pub whole: Buckets,
    /// Until work had ended.
    pub drain: Buckets,
    /// Until work was off the GPU.
    pub preempt: Buckets,
    /// Unmapping the memory that left.
    pub unmap: Buckets,
    /// Copying to the host.
    pub copy_out: Buckets,
    /// Putting frames in place.
    pub prepare: Buckets,
    /// Copying to the GPU.
    pub copy_in: Buckets,
    /// Giving access.
    pub map: Buckets,
    /// From wanting the GPU to the first launch.
    pub first_launch: Buckets,
    /// From wanting the GPU until all memory was there.
    pub all_resident: Buckets,
}

impl SwitchBuckets {
    /// Returns each part with its name, in the order of names.
    pub fn all(&self) -> [(&'static str, &Buckets); 10] {
        [
            ("all_resident", &self.all_resident),
            ("copy_in", &self.copy_in),
            ("copy_out", &self.copy_out),
            ("drain", &self.drain),
            ("first_launch", &self.first_launch),
            ("map", &self.map),
            ("preempt", &self.preempt),
            ("prepare", &self.prepare),
            ("unmap", &self.unmap),
            ("whole", &self.whole),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_may_hold_it() {
        let mut buckets = Buckets::default();
        for (micros, at) in [(0, 0), (200, 0), (201, 1), (1_000, 2), (30_000_000, 15), (30_000_001, 16)] {
            let before = buckets.counts[at];
            buckets.add(Duration::from_micros(micros));
            assert_eq!(buckets.counts[at], before + 1, "{micros} us");
        }
        assert_eq!(buckets.counts.iter().sum::<u64>(), 6);
        assert!((buckets.sum_seconds - 60.001_402).abs() < 1e-6);
    }
}
