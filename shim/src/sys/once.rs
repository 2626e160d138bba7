//! A value that is made on first use and kept, without ever waiting.
//!
//! `std::sync::OnceLock` makes late comers wait for the first. Here that can deadlock: the search for the driver needs the loader's lock,
//! and may be called by a library's constructor, from a thread that holds that lock already; and a thread that waits is copied into a
//! forked child in which no thread will wake it. So every early comer makes the value for itself, and the first to finish is kept.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made on first use and lives for ever.
pub(crate) struct Once<T>(AtomicPtr<T>);

impl<T: Sync> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value, if it was made.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or a value that was leaked by `keep` and lives for ever.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value that is kept, and true if it is the one given here.
    pub(crate) fn keep(&self, value: T) -> (&T, bool) {
        let value = Box::into_raw(Box::new(value));
        let (kept, ours) = match self.0.compare_exchange(ptr::null_mut(), value, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => (value, true),
            Err(earlier) => {
                // SAFETY: made a few lines above, and never shared.
                drop(unsafe { Box::from_raw(value) });
                (earlier, false)
            }
        };
        // SAFETY: not null, and values that were kept live for ever.
        (unsafe { &*kept }, ours)
    }
}

#[cfg(test)]
mod tests {
    use super::Once;

    #[test]
    fn everybody_gets_the_value_that_was_first() {
        let once = Once::new();
        assert!(once.get().is_none());
        let seen: Vec<(u32, bool)> = std::thread::scope(|scope| {
            let keep = |n| {
                let (kept, ours) = once.keep(n);
                (*kept, ours)
            };
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || keep(n))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(seen.iter().all(|(value, _)| Some(value) == once.get()));
        assert_eq!(seen.iter().filter(|(_, ours)| *ours).count(), 1);
    }
}
