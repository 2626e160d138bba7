//! The atomics of the gate.

pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The program's side of a barrier that `membarrier` pays for: the compiler keeps the order, and the processor need not.
#[inline(always)]
pub(super) fn light_fence() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}
