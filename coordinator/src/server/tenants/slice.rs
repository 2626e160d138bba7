//! A tenant's time slice on the GPU.
//!
//! An urgent tenant has a long slice: when it ends, the GPU changes over to others even if they have next to no work, and that
//! takes time (measured on an H200: with slices of 2 ms instead of 20, requests of 3.8 ms took 0.4 ms longer). Only an urgent
//! tenant that works for longer than that anyway, while another urgent one works too, has usual slices, until it rests.

use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::resource_manager::USUAL_TIMESLICE;

/// Time slices, in microseconds: of urgent tenants, and of others beside them.
const URGENT_SLICE: u64 = 20_000;
const TINY_SLICE: u64 = 1;

/// A tenant's time slice.
#[derive(Debug, Default)]
pub(in crate::server) struct Slice {
    /// The requested slice, in microseconds.
    asked: Option<u64>,
    /// True if the slice could not be set.
    pub(in crate::server) failed: bool,
    /// The time since when it has been seen at work.
    working: Option<Instant>,
    /// True if it shares the GPU with other urgent tenants.
    shares: bool,
}

impl Slice {
    /// Forgets the slice, because the driver no longer knows it.
    pub(in crate::server) fn forget(&mut self) {
        (self.asked, self.failed) = (None, false);
    }

    /// Notes the tenant's report that it begins to work: it has rested, if only for an unseen moment.
    pub(in crate::server) fn on_work_begins(&mut self) {
        (self.working, self.shares) = (None, false);
    }

    /// Notes that its tenant is at work now or not, and another urgent tenant too or not.
    pub(in crate::server) fn see(&mut self, now: Instant, at_work: bool, others: bool) {
        self.working = at_work.then(|| self.working.unwrap_or(now));
        let long = Duration::from_micros(URGENT_SLICE);
        let is_long = self.working.is_some_and(|since| now.saturating_duration_since(since) >= long);
        self.shares = at_work && self.shares || is_long && others;
    }

    /// The slice to set, if it differs from the last one.
    pub(in crate::server) fn set(&mut self, class: Class, urgent: bool) -> Option<u64> {
        let wanted = self.wanted(class, urgent);
        (self.asked.replace(wanted) != Some(wanted)).then_some(wanted)
    }

    /// It was set, or could not be. False if it is to be something else by now.
    pub(in crate::server) fn was_set(&mut self, micros: u64, works: bool) -> bool {
        let is_last = self.asked == Some(micros);
        if is_last {
            self.failed = !works;
        }
        is_last
    }

    /// The slice for this class, with or without another urgent tenant.
    fn wanted(&self, class: Class, urgent: bool) -> u64 {
        match class {
            Class::Latency if !self.shares => URGENT_SLICE,
            Class::Normal | Class::Batch if urgent => TINY_SLICE,
            _ => USUAL_TIMESLICE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn others_have_tiny_slices_beside_somebody_urgent() {
        let slice = Slice::default();
        assert_eq!(slice.wanted(Class::Latency, true), URGENT_SLICE);
        for class in [Class::Normal, Class::Batch] {
            assert_eq!([true, false].map(|urgent| slice.wanted(class, urgent)), [TINY_SLICE, USUAL_TIMESLICE]);
        }
    }

    #[test]
    fn who_is_urgent_shares_only_while_it_works_for_long_beside_another() {
        let (mut slice, start) = (Slice::default(), Instant::now());
        let mut at = |ms, at_work, others| {
            slice.see(after(start, ms), at_work, others);
            slice.wanted(Class::Latency, true) == USUAL_TIMESLICE
        };
        // Short requests of both, at the same time.
        assert!(!at(0, true, true));
        assert!(!at(15, true, true));
        assert!(!at(16, false, true));
        // A long one alone.
        assert!(!at(17, true, false));
        assert!(!at(100, true, false));
        // Beside another one, and on until it rests: the next request of the other would wait again.
        assert!(at(101, true, true));
        assert!(at(110, true, false));
        assert!(!at(120, false, false));
        assert!(!at(121, true, true));
    }

    #[test]
    fn requests_in_a_row_are_no_long_work() {
        let (mut slice, start) = (Slice::default(), Instant::now());
        for ms in (0..100).step_by(2) {
            slice.on_work_begins();
            slice.see(after(start, ms), true, true);
            assert!(!slice.shares);
        }
    }
}
