//! The summary of many words, which tells in one load whether any of them has a bit: it has a bit for each word that is not 0. Pure: no
//! system calls; checked by loom (`shim/model/`, which includes this file with loom's atomics).
//!
//! A thread that has changed a word *settles* its bit: it sets the bit to the word's state, and reads the word again until both agree.
//! The last thread to write the summary has read the word after that, and a thread that changes the word later writes the summary
//! later. So when no thread is between the two steps, the summary is right, in any order of the threads.

use super::sync::{AtomicU64, Ordering};

/// Maximum number of reads of a word; after that, the thread that keeps changing it has to settle it.
const MOST_LOOKS: usize = 100;

/// A word, and its bit in the summary.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) word: &'a AtomicU64,
    pub(super) summary: &'a AtomicU64,
    pub(super) in_summary: u64,
}

impl Word<'_> {
    /// Sets these bits, visibly.
    pub(super) fn set(self, bits: u64) {
        self.word.fetch_or(bits, Ordering::AcqRel);
        self.settle();
    }

    /// Clears these bits. Returns those of them that were set.
    pub(super) fn clear(self, bits: u64) -> u64 {
        let before = self.word.fetch_and(!bits, Ordering::AcqRel);
        // Also if nothing has changed: a thread that was killed before this point has left this step to the next.
        self.settle();
        before & bits
    }

    /// True if the summary agrees with the word.
    pub(super) fn is_settled(self) -> bool {
        (self.summary.load(Ordering::Acquire) & self.in_summary != 0) == self.has_bits()
    }

    /// Makes the summary agree with the word.
    pub(super) fn settle(self) {
        for _ in 0..MOST_LOOKS {
            let has_bits = self.has_bits();
            // Also where that changes nothing: this operation, and the read that follows, see earlier changes by other threads.
            match has_bits {
                true => self.summary.fetch_or(self.in_summary, Ordering::AcqRel),
                false => self.summary.fetch_and(!self.in_summary, Ordering::AcqRel),
            };
            if self.has_bits() == has_bits {
                return;
            }
        }
    }

    fn has_bits(self) -> bool {
        self.word.load(Ordering::Acquire) != 0
    }
}
