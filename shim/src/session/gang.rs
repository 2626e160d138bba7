//! The gang that a process on several GPUs is: it has them at the same time, or not at all.

use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::{BuildHasher as _, RandomState};

use crate::sys::process;

/// The number of this process's own gang, which no other process has; 0 until it is asked for.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The number of this process's own gang.
pub(super) fn of_this_process() -> u64 {
    // Its keys are random.
    let new = RandomState::new().hash_one((std::process::id(), process::number())).max(1);
    match NUMBER.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(known) => known,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_one_number() {
        let number = super::of_this_process();
        assert!(number != 0 && super::of_this_process() == number);
    }
}
