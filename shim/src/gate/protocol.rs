//! How calls and whoever closes the gate see each other. Pure: no threads, no system calls; checked by loom
//! (`tests/gate_model.rs`, which includes this file with loom's atomics).
//!
//! ```text
//! program's thread            whoever closes
//! word = 1                    state = CLOSED
//! (compiler barrier)          membarrier: every thread of the process passes a full barrier
//! read state: open, go on     wait until every word is 0
//! ```
//!
//! Of the two, at least one sees the other: either the thread reads CLOSED and steps back, or its word
//! is seen raised and waited for. `membarrier` pays for the barrier on the rare side, so the thread's
//! side needs none.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence, light_fence};

/// Everybody passes.
pub(crate) const OPEN: u32 = 0;
/// Everybody passes, and launches are counted because somebody waits for the GPU.
pub(crate) const CONTENDED: u32 = 1;
/// Nobody passes. Counts, in the bits above, how often the gate was closed: who is about to sleep at one
/// closing must not sleep through the next, for which it has not said that it waits.
pub(crate) const CLOSED: u32 = 2;
/// Nobody will ever pass again: the coordinator is gone, and with it memory of this program.
pub(crate) const BROKEN: u32 = 3;
/// Everybody passes, but memory is still on its way: calls wait for what they need.
pub(crate) const ARRIVING: u32 = 4;
/// Both.
pub(crate) const ARRIVING_CONTENDED: u32 = 5;
/// Everybody passes, and the first to do so says that we are at work beside others.
pub(crate) const RESTING: u32 = 6;
/// It is not decided yet whether this program joins a coordinator: a call that finds a context does that first.
pub(crate) const UNDECIDED: u32 = 7;

const NEXT_CLOSING: u32 = 8;
const STATE: u32 = 7;

/// The state without the count of closings.
pub(crate) fn state(word: u32) -> u32 {
    word & STATE
}

/// Whether calls pass in this state.
pub(crate) fn passes(word: u32) -> bool {
    !matches!(state(word), CLOSED | BROKEN)
}

/// What a call adds to its thread's word while it is inside.
const INSIDE: u64 = 1;
/// What a call adds for good when it ends.
const PASSED: u64 = 1 << 32;

/// A thread's in-call word: how many calls the thread is inside of, in the low half; how many have ended, in the high
/// half. Only the thread itself writes it.
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

    /// A call begins; says how many the thread is inside of already. The gate is read after this.
    #[inline(always)]
    pub(crate) fn enter(&self) -> u32 {
        let calls = self.0.load(Ordering::Relaxed);
        self.0.store(calls + INSIDE, Ordering::Relaxed);
        light_fence();
        calls as u32
    }

    /// A call ends. Release: what it did is done before its end is seen.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let calls = self.0.load(Ordering::Relaxed);
        self.0.store(calls.wrapping_add(PASSED - INSIDE), Ordering::Release);
    }

    /// A call that has begun steps back, as if it had not.
    pub(crate) fn step_back(&self) {
        let calls = self.0.load(Ordering::Relaxed);
        self.0.store(calls - INSIDE, Ordering::Release);
    }

    /// How many calls the thread is inside of.
    pub(crate) fn depth(&self) -> u32 {
        self.0.load(Ordering::Acquire) as u32
    }

    /// How many calls have ended; starts again after 4 billion.
    pub(crate) fn passed(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) >> 32) as u32
    }

    /// For a thread that is gone, or about to be.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// The gate's state, and who changes what memory there is. A cache line of its own, because all threads read it.
#[repr(align(128))]
pub(crate) struct Gate {
    state: AtomicU32,
    /// How many threads are changing what memory there is.
    mapping: AtomicU32,
    /// How often calls were left inside when the gate closed.
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

    /// What threads sleep on while it is closed.
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.state
    }

    /// Acquire: whoever opened it did so after what the caller will find.
    #[inline(always)]
    pub(crate) fn load(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// As [`Self::load`], where nothing depends on what others did before.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    /// A new state, whatever it was. For [`CLOSED`] there is [`Self::close`].
    pub(crate) fn set(&self, to: u32) {
        self.state.store(to, Ordering::Release);
    }

    /// A new state, if it was this one.
    pub(crate) fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Lets nobody in any more. Whoever calls this passes the barrier of all threads next, and looks at the words then.
    pub(crate) fn close(&self) {
        let closing = self.closings.fetch_add(NEXT_CLOSING, Ordering::Relaxed);
        self.state.store(closing | CLOSED, Ordering::Release);
    }

    /// Memory is about to be mapped, unmapped, given out or taken back; false if the gate does not let anybody do so. Whoever
    /// closes the gate closes it first and asks then.
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

    /// From here on memory may go from under the calls that are inside; false if somebody is changing what there is. The
    /// gate was closed before.
    pub(crate) fn leave_calls_inside(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.mapping.load(Ordering::Acquire) != 0 {
            return false;
        }
        self.holds.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Changes when memory may have gone from under a call that is inside.
    #[inline(always)]
    pub(crate) fn holds(&self) -> u32 {
        self.holds.load(Ordering::Relaxed)
    }

    /// In a forked child, which has no coordinator.
    pub(crate) fn start_anew(&self) {
        self.mapping.store(0, Ordering::Relaxed);
        self.set(OPEN);
    }
}
