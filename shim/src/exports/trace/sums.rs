//! The number of calls of each symbol, and their time.

use core::sync::atomic::AtomicU64;

use crate::driver::symbols::COUNT;

/// The sums of one symbol.
pub(super) struct Sums {
    pub(super) calls: AtomicU64,
    pub(super) nanoseconds: AtomicU64,
    pub(super) longest: AtomicU64,
    /// Calls that failed. "Not ready yet" is an answer, not a failure.
    pub(super) errors: AtomicU64,
}

impl Sums {
    const fn none() -> Self {
        Self {
            calls: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }
}

pub(super) static SUMS: [Sums; COUNT] = [const { Sums::none() }; COUNT];
