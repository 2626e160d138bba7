//! The activity pages: they show the tenants at work that run beside others. Only the pace of other tenants depends on them.
//!
//! Tenants of one user, in one pod or container, are a *domain*, and have a page of their own. Those of class latency and the
//! coordinator write it, and all of the domain read it: a program that writes nonsense there delays only its own domain. Of other
//! domains, a tenant sees one word that the coordinator alone writes, in a page that the domain can only read.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::PAGE_BYTES;
use super::summary::Word;

/// The tenants of a domain that are at work: written by its tenants of class latency and by the coordinator.
///
/// A tenant has a *slot*, a bit in one of the words. One load tells, for any number of tenants, whether any is at work: a summary has a bit
/// for each word that is not 0 (`summary`).
#[repr(C)]
#[derive(Debug)]
pub struct ActivityPage {
    summary: AtomicU64,
    /// Changes when no tenant is left to wait for, here or elsewhere: waiters use a (shared) futex here.
    pub news: AtomicU32,
    words: [AtomicU64; ACTIVITY_WORDS],
}

/// The number of words on the activity page.
pub const ACTIVITY_WORDS: usize = u64::BITS as usize;
/// The number of tenants that can be on an activity page.
pub const ACTIVITY_SLOTS: u32 = u64::BITS * ACTIVITY_WORDS as u32;

impl Default for ActivityPage {
    fn default() -> Self {
        let words = [const { AtomicU64::new(0) }; ACTIVITY_WORDS];
        Self { summary: AtomicU64::new(0), news: AtomicU32::new(0), words }
    }
}

impl ActivityPage {
    fn at(&self, at: usize) -> Word<'_> {
        let at = at % ACTIVITY_WORDS;
        Word { word: &self.words[at], summary: &self.summary, in_summary: 1 << at }
    }

    /// Returns a slot's word, and its bit there.
    fn place(&self, slot: u32) -> (Word<'_>, u64) {
        (self.at((slot / u64::BITS) as usize), 1 << (slot % u64::BITS))
    }

    /// True if any tenant is at work.
    #[inline]
    pub fn is_any_busy(&self) -> bool {
        self.summary.load(Ordering::Relaxed) != 0
    }

    /// True if the tenant with this slot is at work, and others see it.
    pub fn is_seen_busy(&self, slot: u32) -> bool {
        let (Word { word, summary, in_summary }, bit) = self.place(slot);
        word.load(Ordering::Relaxed) & bit != 0 && summary.load(Ordering::Relaxed) & in_summary != 0
    }

    /// Marks the tenant of a slot as at work.
    pub fn set_busy(&self, slot: u32) {
        let (word, bit) = self.place(slot);
        word.set(bit);
    }

    /// Marks the tenant of a slot as no longer at work. True if that was the last: then the waiters are to be woken.
    pub fn set_idle(&self, slot: u32) -> bool {
        let (word, bit) = self.place(slot);
        word.clear(bit) != 0 && !self.is_any_busy()
    }

    /// Returns the slots of a word that are at work, a bit each, by the word's index.
    pub fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// The coordinator's side: leaves only the tenants in `slots` marked as at work, and makes the summary agree, for any content of
    /// the page. True if no tenant is left at work where one seemed to be.
    pub fn repair(&self, slots: &[u64; ACTIVITY_WORDS]) -> bool {
        let seemed = self.is_any_busy();
        for (at, slots) in slots.iter().enumerate() {
            let word = self.at(at);
            if self.word(at) & !slots != 0 {
                word.clear(!slots);
            } else if !word.is_settled() {
                word.settle();
            }
        }
        seemed && !self.is_any_busy()
    }
}

/// A domain's view of all other domains. Written by the coordinator, read-only in tenants.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ElsewherePage {
    /// Not 0 while a tenant of another domain is at work.
    pub busy: AtomicU64,
    /// While this is 1, waiting for tenants at work ends, here and elsewhere: the waiters have waited for so long that it is their
    /// turn, or the work is descheduled and disturbs no one.
    pub pass: AtomicU32,
}

const _: () = assert!(size_of::<ActivityPage>() <= PAGE_BYTES && size_of::<ElsewherePage>() <= PAGE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_at_work_is_seen_by_its_slot_and_in_the_summary() {
        let page = ActivityPage::default();
        let slots = [0, 1, 63, 64, 1000, ACTIVITY_SLOTS - 1];
        for slot in slots {
            assert!(!page.is_seen_busy(slot));
            page.set_busy(slot);
            assert!(page.is_seen_busy(slot) && page.is_any_busy(), "{slot}");
        }
        assert!(!page.set_idle(5), "it was not at work");
        let left = slots.map(|slot| page.set_idle(slot));
        assert_eq!(left, [false, false, false, false, false, true]);
        assert!(!page.is_any_busy());
    }

    #[test]
    fn one_that_is_killed_while_it_ends_its_work_hides_nobody() {
        let page = ActivityPage::default();
        page.set_busy(3);
        page.set_busy(4);
        // These are the steps of the other one until it is killed: it saw no other tenant.
        page.words[0].fetch_and(!(1 << 4), Ordering::AcqRel);
        page.summary.fetch_and(!1, Ordering::AcqRel);
        assert!(!page.is_seen_busy(3), "so it says so again");
        assert!(!page.set_idle(4), "the coordinator says so for it, and somebody is at work");
        assert!(page.is_any_busy());
        assert!(page.set_idle(3));
    }

    #[test]
    fn a_repaired_page_says_of_nobody_but_those_that_it_is_for_that_they_are_at_work() {
        let mut slots = [0; ACTIVITY_WORDS];
        slots[0] = 1 << 3 | 1 << 4;
        let page = ActivityPage::default();
        assert!(!page.repair(&slots));
        // A tenant writes nonsense.
        page.words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        page.summary.store(0, Ordering::Relaxed);
        page.repair(&slots);
        assert_eq!((page.word(0), page.is_any_busy()), (1 << 3 | 1 << 4, true));
        assert!((1..ACTIVITY_WORDS).all(|at| page.word(at) == 0));
        page.set_idle(3);
        assert!(page.set_idle(4));
        page.summary.store(1 << 9, Ordering::Relaxed);
        assert!(page.repair(&slots), "nobody is left, and those who wait are to be woken");
        assert!(!page.is_any_busy());
    }

    #[test]
    fn the_summary_is_right_when_many_begin_and_end_at_once() {
        let page = ActivityPage::default();
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            for slot in [3, 4, 70] {
                let page = &page;
                scope.spawn(move || {
                    for _ in 0..rounds {
                        page.set_busy(slot);
                        // Another one may have found no tenant at work just before, and be about to scan again.
                        while !page.is_any_busy() {
                            std::thread::yield_now();
                        }
                        page.set_idle(slot);
                    }
                    if slot == 4 {
                        page.set_busy(slot);
                    }
                });
            }
        });
        assert!(page.is_any_busy() && page.is_seen_busy(4));
        assert!(page.set_idle(4), "the others have ended, and left nothing");
    }
}
