//! Histograms of durations: counts by duration, to within one part in a hundred.

use std::time::Duration;

use baton_report::times::Times;

/// The shortest and the longest time that are told apart, in nanoseconds.
const SHORTEST: u64 = 1_000;
const LONGEST: u64 = 3_600_000_000_000;

/// Durations of one kind.
#[derive(Debug)]
pub(super) struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        // Its memory grows with the recorded values: usually some ten kilobytes.
        Self(hdrhistogram::Histogram::new_with_bounds(SHORTEST, LONGEST, 2).expect("bounds in order"))
    }
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST));
    }

    pub(super) fn add_ms(&mut self, ms: f64) {
        self.0.saturating_record((ms * 1e6) as u64);
    }

    /// The figures that are shown of it.
    pub(super) fn summary(&self) -> Times {
        let some = |nanos: u64| (!self.0.is_empty()).then_some(nanos as f64 / 1e6);
        Times {
            count: self.0.len(),
            p50: some(self.0.value_at_quantile(0.5)),
            p99: some(self.0.value_at_quantile(0.99)),
            max: some(self.0.max()),
        }
    }
}
