//! Whether any of many words has a bit, in one load: a *summary* has a bit for each word that is not 0. Pure: no system calls;
//! checked by loom (`shim/model/`, which includes this file with loom's atomics).
//!
//! Whoever has changed a word *settles* its bit: makes it what the word is, and looks at the word again until that is so. The last
//! one to write the summary has looked at the word after that, and whoever changes the word later writes the summary later. So when
//! nobody is between the two, the summary is right, in whatever order they came.

use super::sync::{AtomicU64, Ordering};

/// How often a word is looked at before whoever changes it all the time is left to it.
const MOST_LOOKS: usize = 100;

/// A word, and its bit in the summary.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) word: &'a AtomicU64,
    pub(super) summary: &'a AtomicU64,
    pub(super) in_summary: u64,
}

impl Word<'_> {
    /// These bits are set from here on, and seen.
    pub(super) fn set(self, bits: u64) {
        self.word.fetch_or(bits, Ordering::AcqRel);
        self.settle();
    }

    /// They are no longer. Gives those of them that were.
    pub(super) fn clear(self, bits: u64) -> u64 {
        let before = self.word.fetch_and(!bits, Ordering::AcqRel);
        // Also where nothing has changed: one that was killed before it came here has left it to us.
        self.settle();
        before & bits
    }

    /// Whether the summary says what the word is.
    pub(super) fn is_settled(self) -> bool {
        (self.summary.load(Ordering::Acquire) & self.in_summary != 0) == self.has_bits()
    }

    /// Has the summary say it.
    pub(super) fn settle(self) {
        for _ in 0..MOST_LOOKS {
            let has_bits = self.has_bits();
            // Also where that changes nothing: what the others have changed before is seen by this, and by the look that follows.
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
