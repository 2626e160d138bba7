//! The two pages that a tenant and the coordinator share, one for each direction, and the activity page, which all share.
//!
//! Each of the two is written by one side only, and says nothing that the other side must believe: the coordinator
//! shows what a tenant's page says, and decides by its own tables. A page is 4096 bytes of memory that both
//! sides have mapped, so it holds fixed-width integers only, each read and written as a whole.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The size of either page, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Written by the coordinator, read-only in the tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CoordinatorPage {
    /// [`crate::wire::VERSION`].
    pub version: AtomicU32,
    /// What the tenant may have at most, in bytes: the size of "its GPU".
    pub arena_bytes: AtomicU64,
}

/// Written by the tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub struct TenantPage {
    /// Device memory that is not virtualised, in bytes.
    pub unmanaged_bytes: AtomicU64,
    /// Where the addresses that it gives to allocations begin: a word between here and the end may be a pointer.
    pub window_start: AtomicU64,
    /// Where they end.
    pub window_end: AtomicU64,
    /// While it is inside of the call that [`Probe`](crate::messages::PreemptionCommand::Probe) asks for:
    /// 1 and the milliseconds in which it was seen to be there. Otherwise 0.
    pub probing: AtomicU32,
    /// Changes again and again while it is at work beside others: it was not stopped.
    pub heartbeat: AtomicU32,
}

/// On which tenants that run beside others say that they are at work: written by tenants of class latency and the coordinator,
/// read by all. Nothing but the pace of others depends on it.
///
/// A tenant has a *slot*, a bit in one of the words. Whether anybody is at work is one load for any number of them: a summary
/// has a bit for each word that is not 0. Who sets a bit sets its word first; who finds a word to have become 0 clears the bit and
/// looks at the word again. So the summary lacks a word only for as long as somebody is about to set its bit.
#[repr(C)]
#[derive(Debug)]
pub struct ActivityPage {
    summary: AtomicU64,
    /// Nobody waits for those at work while this is 1: the others have waited for so long that it is their turn, or their work
    /// is descheduled and disturbs nobody.
    pub pass: AtomicU32,
    /// Changes when there is nobody to wait for any more: who waits does so with a (shared) futex here.
    pub news: AtomicU32,
    words: [AtomicU64; ACTIVITY_WORDS],
}

/// How many words the activity page has.
pub const ACTIVITY_WORDS: usize = u64::BITS as usize;
/// How many tenants can be on the activity page.
pub const ACTIVITY_SLOTS: u32 = u64::BITS * ACTIVITY_WORDS as u32;

impl Default for ActivityPage {
    fn default() -> Self {
        let words = [const { AtomicU64::new(0) }; ACTIVITY_WORDS];
        Self { summary: AtomicU64::new(0), pass: AtomicU32::new(0), news: AtomicU32::new(0), words }
    }
}

impl ActivityPage {
    /// A slot's word, and the bits of the slot there and of the word in the summary.
    fn place(&self, slot: u32) -> (&AtomicU64, u64, u64) {
        let at = slot / u64::BITS;
        (&self.words[at as usize % ACTIVITY_WORDS], 1 << (slot % u64::BITS), 1 << (at % u64::BITS))
    }

    /// Whether anybody is at work.
    #[inline]
    pub fn is_any_busy(&self) -> bool {
        self.summary.load(Ordering::Relaxed) != 0
    }

    /// Whether the tenant with this slot is.
    pub fn is_busy(&self, slot: u32) -> bool {
        let (word, bit, _) = self.place(slot);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// It is at work from now on.
    pub fn set_busy(&self, slot: u32) {
        let (word, bit, in_summary) = self.place(slot);
        word.fetch_or(bit, Ordering::AcqRel);
        self.summary.fetch_or(in_summary, Ordering::AcqRel);
    }

    /// It is no longer. Says whether that leaves nobody: then those who wait are to be woken.
    pub fn set_idle(&self, slot: u32) -> bool {
        let (_, bit, _) = self.place(slot);
        self.clear((slot / u64::BITS) as usize, bit)
    }

    /// The slots of a word that are at work, a bit each; by number of the word.
    pub fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// As [`ActivityPage::set_idle`], for several slots of a word.
    pub fn clear(&self, at: usize, bits: u64) -> bool {
        let (word, in_summary) = (&self.words[at], 1 << at);
        let before = word.fetch_and(!bits, Ordering::AcqRel);
        if before & bits == 0 {
            return false;
        }
        if before & !bits == 0 {
            self.summary.fetch_and(!in_summary, Ordering::AcqRel);
            if word.load(Ordering::Acquire) != 0 {
                self.summary.fetch_or(in_summary, Ordering::AcqRel);
            }
        }
        !self.is_any_busy()
    }
}

const _: () = assert!(size_of::<ActivityPage>() <= PAGE_BYTES);
const _: () = assert!(size_of::<CoordinatorPage>() <= PAGE_BYTES && size_of::<TenantPage>() <= PAGE_BYTES);
const _: () = assert!(core::mem::offset_of!(CoordinatorPage, arena_bytes) == 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_at_work_is_seen_by_its_slot_and_in_the_summary() {
        let page = ActivityPage::default();
        let slots = [0, 1, 63, 64, 1000, ACTIVITY_SLOTS - 1];
        for slot in slots {
            assert!(!page.is_busy(slot));
            page.set_busy(slot);
            assert!(page.is_busy(slot) && page.is_any_busy(), "{slot}");
        }
        assert!(!page.set_idle(5), "it was not at work");
        let left = slots.map(|slot| page.set_idle(slot));
        assert_eq!(left, [false, false, false, false, false, true]);
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
                        assert!(page.is_any_busy(), "it has just said that it is at work");
                        page.set_idle(slot);
                    }
                    if slot == 4 {
                        page.set_busy(slot);
                    }
                });
            }
        });
        assert!(page.is_any_busy() && page.is_busy(4));
        assert!(page.set_idle(4));
    }
}
