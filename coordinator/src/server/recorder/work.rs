//! The GPU time of a program, written down often enough that any stretch of time can be computed, and seldom enough that there
//! is room for everything else.

use std::ops::Range;
use std::time::{Duration, Instant};

/// The shortest interval at which it is written down while no query comes.
const STEP: Duration = Duration::from_millis(100);

/// The observed GPU time of a tenant.
#[derive(Debug)]
pub(super) struct Work {
    /// All of it.
    seen: Duration,
    /// The part of that time that was written down.
    told: Duration,
    /// The start of the unwritten part, and the time when it was last seen to have grown.
    time: Range<Instant>,
}

impl Work {
    pub(super) fn new(now: Instant) -> Self {
        Self { seen: Duration::ZERO, told: Duration::ZERO, time: now..now }
    }

    /// Takes a tenant's GPU time so far. Returns the part to be written, if it is due: a stretch of time, and the GPU time in it.
    pub(super) fn see(&mut self, now: Instant, all: Duration) -> Option<(Range<Instant>, Duration)> {
        if all > self.seen {
            (self.seen, self.time.end) = (all, now);
        }
        let is_due = now.saturating_duration_since(self.time.start) >= STEP;
        let told = if is_due { self.take() } else { None };
        // GPU time from now on did not begin before.
        if self.seen == self.told && self.time.end < now {
            self.time = now..now;
        }
        told
    }

    /// Takes the time that has yet to be written down.
    pub(super) fn take(&mut self) -> Option<(Range<Instant>, Duration)> {
        let new = self.seen.checked_sub(self.told).filter(|new| !new.is_zero())?;
        let time = self.time.clone();
        (self.told, self.time.start) = (self.seen, self.time.end);
        Some((time, new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_program_had_is_written_down_and_rests_are_not_part_of_the_time() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut work = Work::new(start);
        let mut see = |at: u64, all: u64| {
            let told = work.see(start + ms(at), ms(all));
            told.map(|(time, new)| ((time.start - start).as_millis(), (time.end - start).as_millis(), new.as_millis()))
        };
        assert_eq!(see(1000, 0), None);
        // Many short ones are one.
        let short: Vec<_> = (0..60).filter_map(|n| see(1000 + 2 * n, n)).collect();
        assert_eq!(short, [(1000, 1100, 50)]);
        assert_eq!(see(5000, 59), Some((1100, 1118, 9)), "and what followed");
        assert_eq!(see(6000, 59), None);
        assert_eq!(see(6050, 109), None, "it began after its rest");
        assert_eq!(work.take().map(|(time, new)| (time.start - start, new)), Some((ms(6000), ms(50))));
        assert_eq!(work.take(), None);
    }
}
