//! The amount of free memory that a program is told.
//!
//! Programs measure their need by the drop in free memory, and size themselves by the rest. So the amount they were told does not rise
//! because others leave: only memory that they free themselves comes back. A program that has nothing left begins anew.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use baton_contract::cuda::CUdevice;

use crate::sys::by_device::{MOST, place};

static PROMISES: [Promise; MOST] = [const { Promise::new() }; MOST];

/// Bytes that the program is told are free on a GPU, by the lowest `total` and `could_have` so far. The GPU has `total` bytes in all, of which the
/// program could have `could_have` as movable memory; it takes `taken` bytes of movable memory, and `beside` other bytes.
pub(crate) fn free(device: CUdevice, total: u64, could_have: u64, taken: u64, beside: u64) -> u64 {
    PROMISES[place(device)].free(total, could_have, taken, beside)
}

/// The least amount that the program was told.
struct Promise {
    total: AtomicU64,
    could_have: AtomicU64,
    had_some: AtomicBool,
}

impl Promise {
    const fn new() -> Self {
        Self { total: AtomicU64::new(u64::MAX), could_have: AtomicU64::new(u64::MAX), had_some: AtomicBool::new(false) }
    }

    fn free(&self, total: u64, could_have: u64, taken: u64, beside: u64) -> u64 {
        let own = taken.saturating_add(beside);
        if own > 0 {
            self.had_some.store(true, Ordering::Relaxed);
        } else if self.had_some.swap(false, Ordering::Relaxed) {
            self.total.store(u64::MAX, Ordering::Relaxed);
            self.could_have.store(u64::MAX, Ordering::Relaxed);
        }
        let least = |told: &AtomicU64, now: u64| told.fetch_min(now, Ordering::Relaxed).min(now);
        let of_all = least(&self.total, total).saturating_sub(own);
        of_all.min(least(&self.could_have, could_have).saturating_sub(taken))
    }
}

#[cfg(test)]
mod tests {
    use super::Promise;

    #[test]
    fn what_is_free_rises_only_by_what_the_program_frees() {
        let promise = Promise::new();
        assert_eq!(promise.free(100, 200, 0, 0), 100);
        assert_eq!(promise.free(100, 60, 10, 0), 50, "others have come");
        assert_eq!(promise.free(100, 200, 10, 0), 50, "and gone");
        assert_eq!(promise.free(100, 200, 5, 0), 55);
        assert_eq!(promise.free(50, 200, 5, 5), 40, "others have what cannot move");
        assert_eq!(promise.free(100, 200, 5, 10), 35);
        assert_eq!(promise.free(100, 200, 0, 1), 49);
    }

    #[test]
    fn a_program_that_has_freed_all_begins_anew() {
        let promise = Promise::new();
        assert_eq!(promise.free(100, 60, 0, 0), 60);
        assert_eq!(promise.free(100, 200, 0, 0), 60, "it has had nothing yet");
        assert_eq!(promise.free(100, 200, 10, 0), 50);
        assert_eq!(promise.free(100, 200, 0, 0), 100);
    }
}
