//! How long things take, as monitoring wants it: counts in buckets whose bounds never change, so that those of several moments,
//! tenants and coordinators can be compared and added up.

use std::time::Duration;

use serde::Serialize;

use super::switches::Record;

/// What each bucket holds at most, in seconds. What takes longer is in one more.
pub(in crate::server) const BOUNDS: [f64; 16] =
    [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// Times of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::server) struct Buckets {
    /// How many are in each bucket, and in no smaller one.
    counts: [u64; BOUNDS.len() + 1],
    sum_seconds: f64,
}

impl Buckets {
    pub(super) fn add(&mut self, time: Duration) {
        self.add_seconds(time.as_secs_f64());
    }

    fn add_seconds(&mut self, seconds: f64) {
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum_seconds += seconds;
    }

    fn add_all(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum_seconds += other.sum_seconds;
    }
}

/// What only goes up, of one tenant.
#[derive(Clone, Debug, Default, Serialize)]
pub(in crate::server) struct Totals {
    /// From wanting the GPU to having it.
    wait_buckets: Buckets,
    /// Its requests, if it is of class latency.
    request_buckets: Buckets,
    /// How many of them took longer than its target.
    slo_misses: u64,
}

impl Totals {
    pub(super) fn has_waited(&mut self, time: Duration) {
        self.wait_buckets.add(time);
    }

    pub(super) fn has_answered(&mut self, time: Duration, late: bool) {
        self.request_buckets.add(time);
        self.slo_misses += u64::from(late);
    }
}

/// The same of all tenants that have left.
#[derive(Debug, Default, Serialize)]
pub(in crate::server) struct DepartedTotals {
    tenants: u64,
    gpu_seconds: f64,
    #[serde(flatten)]
    totals: Totals,
}

impl DepartedTotals {
    pub(super) fn add(&mut self, totals: &Totals, gpu_time: Duration) {
        self.tenants += 1;
        self.gpu_seconds += gpu_time.as_secs_f64();
        self.totals.wait_buckets.add_all(&totals.wait_buckets);
        self.totals.request_buckets.add_all(&totals.request_buckets);
        self.totals.slo_misses += totals.slo_misses;
    }
}

/// How long each part of switches takes. What a switch did not need is not counted in it.
#[derive(Debug, Default, Serialize)]
pub(in crate::server) struct PhaseBuckets {
    /// From the decision to the open gate.
    whole: Buckets,
    drain: Buckets,
    preempt: Buckets,
    unmap: Buckets,
    copy_out: Buckets,
    prepare: Buckets,
    copy_in: Buckets,
    map: Buckets,
    /// From wanting the GPU to the first launch, and until all memory was there.
    first_launch: Buckets,
    all_resident: Buckets,
}

impl PhaseBuckets {
    pub(super) fn see(&mut self, record: &Record) {
        self.whole.add_seconds(record.switch_ms / 1e3);
        let needed = [
            (&mut self.drain, record.drain_ms / 1e3),
            (&mut self.preempt, record.pause_ms / 1e3),
            (&mut self.unmap, record.unmap_ms / 1e3),
            (&mut self.copy_out, record.out_seconds),
            (&mut self.prepare, record.prepare_ms / 1e3),
            (&mut self.copy_in, record.in_seconds),
            (&mut self.map, record.map_ms / 1e3),
        ];
        needed
            .into_iter()
            .filter(|(_, seconds)| *seconds > 0.0)
            .for_each(|(phase, seconds)| phase.add_seconds(seconds));
        let since = [
            (&mut self.first_launch, record.phases.first_launch_ms),
            (&mut self.all_resident, record.phases.all_resident_ms),
        ];
        since.into_iter().for_each(|(phase, ms)| ms.into_iter().for_each(|ms| phase.add_seconds(ms / 1e3)));
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
