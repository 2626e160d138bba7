//! The table of a shared GPU: words in a file, changed only under its lock.
//!
//! ```text
//! word 0        magic                    process slot (9 words)       record (6 words)
//!      1        version                  0  pid, 0 = free             0    id, 0 = free
//!      2        memory in bytes          1  start time of that pid    1    bytes
//!      3..5     UUID                     2  bytes nobody else holds   2..6 holders, a bit per slot
//!      5        next record id           3  paused since, 0 = not
//!      6        bytes in all records     4  paused in all before
//!      7        records ever used        5  accesses to memory under way
//!      8..12    time slices: see         6  kernels' time begun
//!               `slices.rs`              7  ... and had
//!      16..     256 process slots        8  time slice
//!      2560..   16384 records
//!
//! Times are nanoseconds of the system's monotonic clock.
//! ```

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::mapping::SharedWords;

pub(super) const MAGIC: u64 = 0x3130_4144_5543_4D53;
pub(super) const VERSION: u64 = 3;
pub(super) const SLOTS: usize = 256;
const SLOT_WORDS: usize = 9;
const FIRST_SLOT: usize = 16;
pub(super) const RECORDS: usize = 16384;
const RECORD_WORDS: usize = 6;
const FIRST_RECORD: usize = 2560;
const _: () = assert!(FIRST_SLOT + SLOTS * SLOT_WORDS <= FIRST_RECORD);
pub(super) const WORDS: usize = FIRST_RECORD + RECORDS * RECORD_WORDS;

/// The words; everything in them may be changed by other processes too.
pub(super) struct Table(pub(super) SharedWords);

impl Table {
    pub(super) fn magic(&self) -> &AtomicU64 {
        self.word(0)
    }

    pub(super) fn version(&self) -> &AtomicU64 {
        self.word(1)
    }

    pub(super) fn memory(&self) -> &AtomicU64 {
        self.word(2)
    }

    pub(super) fn uuid(&self) -> [&AtomicU64; 2] {
        [self.word(3), self.word(4)]
    }

    pub(super) fn next_id(&self) -> &AtomicU64 {
        self.word(5)
    }

    fn shared_bytes(&self) -> &AtomicU64 {
        self.word(6)
    }

    fn records_end(&self) -> &AtomicU64 {
        self.word(7)
    }

    /// The process in a slot; 0: the slot is free.
    pub(super) fn pid(&self, slot: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS)
    }

    /// When that process started: a pid may be used again.
    pub(super) fn started(&self, slot: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS + 1)
    }

    /// What that process alone holds.
    pub(super) fn private_bytes(&self, slot: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS + 2)
    }

    /// Since when that process is off the GPU; 0: it is not.
    pub(super) fn paused_since(&self, slot: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS + 3)
    }

    /// How long it was off the GPU before.
    pub(super) fn paused_before(&self, slot: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS + 4)
    }

    /// How many accesses to memory it is in the middle of.
    pub(super) fn at_work(&self, slot: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS + 5)
    }

    /// Up to when the time slices are computed, who has the GPU, since when, and when its last kernel ended.
    pub(super) fn slices(&self) -> [&AtomicU64; 4] {
        [self.word(8), self.word(9), self.word(10), self.word(11)]
    }

    /// Of a process's kernels: how long those take that it has begun, and what of that is over.
    pub(super) fn kernel_time(&self, slot: usize) -> [&AtomicU64; 2] {
        [self.word(FIRST_SLOT + slot * SLOT_WORDS + 6), self.word(FIRST_SLOT + slot * SLOT_WORDS + 7)]
    }

    /// A process's time slice.
    pub(super) fn slice(&self, slot: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS + 8)
    }

    /// Bytes in use, by anyone.
    pub(super) fn used(&self) -> u64 {
        let own: u64 = (0..SLOTS).map(|slot| self.private_bytes(slot).load(Relaxed)).sum();
        own + self.shared_bytes().load(Relaxed)
    }

    /// The id of the record at a place; 0: there is none.
    pub(super) fn id(&self, at: usize) -> u64 {
        self.record(at, 0).load(Relaxed)
    }

    /// The places of records that were ever used.
    pub(super) fn used_records(&self) -> Range<usize> {
        0..self.records_end().load(Relaxed) as usize
    }

    /// A place without a record.
    pub(super) fn free_record(&self) -> Option<usize> {
        (0..RECORDS).find(|at| self.id(*at) == 0)
    }

    /// Writes a record with one holder.
    pub(super) fn write_record(&self, at: usize, id: u64, bytes: u64, holder: usize) {
        for word in 2..RECORD_WORDS {
            self.record(at, word).store(0, Relaxed);
        }
        self.add_holder(at, holder);
        self.record(at, 1).store(bytes, Relaxed);
        self.record(at, 0).store(id, Relaxed);
        self.shared_bytes().fetch_add(bytes, Relaxed);
        self.records_end().fetch_max(at as u64 + 1, Relaxed);
    }

    /// Makes a process a holder of a record.
    pub(super) fn add_holder(&self, at: usize, slot: usize) {
        self.holders(at, slot).fetch_or(bit(slot), Relaxed);
    }

    /// Ends a process's hold; a record that nobody holds is gone.
    pub(super) fn drop_holder(&self, at: usize, slot: usize) {
        if self.id(at) == 0 {
            return;
        }
        self.holders(at, slot).fetch_and(!bit(slot), Relaxed);
        if (2..RECORD_WORDS).all(|word| self.record(at, word).load(Relaxed) == 0) {
            let bytes = self.record(at, 1).load(Relaxed);
            self.shared_bytes().fetch_sub(bytes, Relaxed);
            self.record(at, 0).store(0, Relaxed);
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.0.get()[at]
    }

    fn record(&self, at: usize, word: usize) -> &AtomicU64 {
        self.word(FIRST_RECORD + at * RECORD_WORDS + word)
    }

    fn holders(&self, at: usize, slot: usize) -> &AtomicU64 {
        self.record(at, 2 + slot / 64)
    }
}

fn bit(slot: usize) -> u64 {
    1 << (slot % 64)
}
