//! The protocol by which calls and the closer of the gate see each other. Pure: no threads, no system calls; checked by loom
//! (`tests/gate_model.rs`, which includes this file with loom's atomics).
//!
//! ```text
//! program's thread            the closer
//! word = 1                    state = CLOSED
//! (compiler barrier)          membarrier: every thread of the process passes a full barrier
//! read state: open, go on     wait until every word is 0
//! ```
//!
//! Of the two, at least one sees the other: either the thread reads CLOSED and steps back, or its word
//! is seen raised and waited for. `membarrier` pays for the barrier on the rare side, so the thread's
//! side needs none.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence, light_fence};

/// Every call passes.
pub(crate) const OPEN: u32 = 0;
/// Every call passes, and launches are counted because another tenant waits for the GPU.
pub(crate) const CONTENDED: u32 = 1;
/// No call passes. Counts, in the bits above, how often the gate was closed: a thread that is about to sleep at one closing must not sleep
/// through the next, for which it has not announced that it waits.
pub(crate) const CLOSED: u32 = 2;
/// No call will ever pass again: the coordinator is gone, and with it memory of this program.
pub(crate) const BROKEN: u32 = 3;
/// Every call passes, but memory is still on its way: calls wait for the memory that they need.
pub(crate) const ARRIVING: u32 = 4;
/// Both [`ARRIVING`] and [`CONTENDED`].
pub(crate) const ARRIVING_CONTENDED: u32 = 5;
/// Every call passes, and the first one declares that we are at work beside others.
pub(crate) const RESTING: u32 = 6;
/// It is not decided yet whether this program joins a coordinator: a call that finds a context does that first.
pub(crate) const UNDECIDED: u32 = 7;

const NEXT_CLOSING: u32 = 8;
const STATE: u32 = 7;

/// The state without the count of closings.
pub(crate) fn state(word: u32) -> u32 {
    word & STATE
}

/// True if calls pass in this state.
pub(crate) fn passes(word: u32) -> bool {
    !matches!(state(word), CLOSED | BROKEN)
}

/// A call adds this to its thread's word while it is inside.
const INSIDE: u64 = 1;
/// A call adds this for good when it ends.
const PASSED: u64 = 1 << 32;

/// A thread's in-call word. The low half counts the calls that the thread is inside of; the high half counts those that have ended. Only
/// the thread itself writes it.
pub(crate) struct InCall(AtomicU64);

impl InCall {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Begins a call. Returns the number of calls that the thread is inside of already. The gate is read after this.
    #[inline(always)]
    pub(crate) fn enter(&self) -> u32 {
        let calls = self.0.load(Ordering::Relaxed);
        self.0.store(calls + INSIDE, Ordering::Relaxed);
        light_fence();
        calls as u32
    }

    /// Ends a call. Release: its effects come before its end is seen.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let calls = self.0.load(Ordering::Relaxed);
        self.0.store(calls.wrapping_add(PASSED - INSIDE), Ordering::Release);
    }

    /// Takes a call back that has begun.
    pub(crate) fn step_back(&self) {
        let calls = self.0.load(Ordering::Relaxed);
        self.0.store(calls - INSIDE, Ordering::Release);
    }

    /// The number of calls that the thread is inside of.
    pub(crate) fn depth(&self) -> u32 {
        self.0.load(Ordering::Acquire) as u32
    }

    /// The number of calls that have ended; starts again after 4 billion.
    pub(crate) fn passed(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Clears the word of a thread that is gone, or about to be.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// The gate's state, and the threads that change mappings. A cache line of its own, because all threads read it.
#[repr(align(128))]
pub(crate) struct Gate {
    state: AtomicU32,
    /// The number of threads that change mappings.
    mapping: AtomicU32,
    /// The number of times that calls were left inside when the gate closed.
    holds: AtomicU32,
    closings: AtomicU32,
}

impl Gate {
    #[cfg(not(loom))]
    pub(crate) const fn new(state: u32) -> Self {
        let [state, mapping, holds, closings] =
            [AtomicU32::new(state), AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)];
        Self { state, mapping, holds, closings }
    }

    #[cfg(loom)]
    pub(crate) fn new(state: u32) -> Self {
        let [mapping, holds, closings] = [(); 3].map(|()| AtomicU32::new(0));
        Self { state: AtomicU32::new(state), mapping, holds, closings }
    }

    /// The word that threads sleep on while it is closed.
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.state
    }

    /// Acquire: the caller finds everything that was done before the gate was opened.
    #[inline(always)]
    pub(crate) fn load(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Like [`Self::load`], for a caller that does not depend on earlier writes.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    /// Sets a state, regardless of the one before. For [`CLOSED`] there is [`Self::close`].
    pub(crate) fn set(&self, to: u32) {
        self.state.store(to, Ordering::Release);
    }

    /// Sets a state, if the gate was in this one.
    pub(crate) fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Closes the gate, which is open: a thread that waits at one closing announces that once, and would sleep on at the next. The caller
    /// passes the barrier of all threads next, and checks the words then.
    pub(crate) fn close(&self) {
        debug_assert!(passes(self.peek()), "closed twice");
        let closing = self.closings.fetch_add(NEXT_CLOSING, Ordering::Relaxed);
        self.state.store(closing | CLOSED, Ordering::Release);
    }

    /// Begins to map, unmap, allocate or free memory; false if the gate does not allow that. A thread that closes the gate closes it first
    /// and checks for this then.
    pub(crate) fn begin_mapping(&self) -> bool {
        self.mapping.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if passes(self.state.load(Ordering::Acquire)) {
            return true;
        }
        self.end_mapping();
        false
    }

    pub(crate) fn end_mapping(&self) {
        self.mapping.fetch_sub(1, Ordering::AcqRel);
    }

    /// From here on memory may be evicted under the calls that are inside; false if a thread is changing mappings. The gate was closed
    /// before.
    pub(crate) fn leave_calls_inside(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.mapping.load(Ordering::Acquire) != 0 {
            return false;
        }
        self.holds.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Changes when memory may have been evicted under a call that is inside.
    #[inline(always)]
    pub(crate) fn holds(&self) -> u32 {
        self.holds.load(Ordering::Relaxed)
    }

    /// Resets the gate in a forked child, which has no coordinator.
    pub(crate) fn start_anew(&self) {
        self.mapping.store(0, Ordering::Relaxed);
        self.set(OPEN);
    }
}
