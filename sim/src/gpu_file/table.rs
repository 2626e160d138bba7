//! The table of a shared GPU: words in a file, changed only under its lock.
//!
//! ```text
//! word 0        magic                    process slot (9 words)       record (68 words)
//!      1        version                  0  its number, 0 = free      0     id, 0 = free
//!      2        memory in bytes          1  bytes it alone holds      1     bytes
//!      3..5     UUID                     2  paused since, 0 = not     2..4  its file, 0 = none
//!      5        next record id           3  paused in all before      4..68 holders, a bit per slot
//!      6        bytes in all records     4  accesses to memory under way
//!      7        records ever used        5  kernels' time begun
//!      8..12    time slices: see         6  ... and had
//!               `slices.rs`              7  time slice
//!      12       bytes in no record
//!      13       processes that ever came  8  how often it is paused
//!      14       slots ever used
//!      15       records without holder
//!      16..     4096 process slots
//!      36880..  16384 records
//!
//! Times are nanoseconds of the system's monotonic clock. A word that was never written is a hole in the file.
//!
//! A process locks byte 0 of the file while it changes the table, and byte `1 + slot` of its slot for as
//! long as it lives.
//! ```

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::open_files::FileId;
use crate::mapping::SharedWords;

pub(super) const MAGIC: u64 = 0x3130_4144_5543_4D53;
pub(super) const VERSION: u64 = 5;
pub(super) const SLOTS: usize = 4096;
const SLOT_WORDS: usize = 9;
const FIRST_SLOT: usize = 16;
pub(super) const RECORDS: usize = 16384;
const FIRST_HOLDER: usize = 4;
const RECORD_WORDS: usize = FIRST_HOLDER + SLOTS / 64;
const FIRST_RECORD: usize = FIRST_SLOT + SLOTS * SLOT_WORDS;
pub(super) const WORDS: usize = FIRST_RECORD + RECORDS * RECORD_WORDS;

/// The system's monotonic clock, the same in all processes.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

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

    pub(super) fn shared_bytes(&self) -> &AtomicU64 {
        self.word(6)
    }

    fn records_end(&self) -> &AtomicU64 {
        self.word(7)
    }

    /// Bytes that one process alone holds, in all processes.
    pub(super) fn private_in_all(&self) -> &AtomicU64 {
        self.word(12)
    }

    /// How many processes ever came.
    pub(super) fn came(&self) -> &AtomicU64 {
        self.word(13)
    }

    fn slots_end(&self) -> &AtomicU64 {
        self.word(14)
    }

    /// The number of the process in a slot; 0: the slot is free. Two that have the slot after each other differ in it.
    pub(super) fn number(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot, 0)
    }

    /// Bytes that the process in a slot alone holds.
    pub(super) fn private_bytes(&self, slot: usize) -> u64 {
        self.slot(slot, 1).load(Relaxed)
    }

    /// Changes the bytes that the process in a slot alone holds.
    pub(super) fn set_private_bytes(&self, slot: usize, bytes: u64) {
        let before = self.slot(slot, 1).swap(bytes, Relaxed);
        self.private_in_all().fetch_add(bytes.wrapping_sub(before), Relaxed);
    }

    /// The time since which that process is off the GPU; 0: it is not.
    pub(super) fn paused_since(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot, 2)
    }

    /// The time that it was off the GPU before.
    pub(super) fn paused_before(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot, 3)
    }

    /// How many accesses to memory it is in the middle of.
    pub(super) fn at_work(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot, 4)
    }

    /// Up to when the time slices are computed, the holder of the GPU, since when, and when its last kernel ended.
    pub(super) fn slices(&self) -> [&AtomicU64; 4] {
        [self.word(8), self.word(9), self.word(10), self.word(11)]
    }

    /// Of a process's kernels: how long those take that it has begun, and what of that is over.
    pub(super) fn kernel_time(&self, slot: usize) -> [&AtomicU64; 2] {
        [self.slot(slot, 5), self.slot(slot, 6)]
    }

    /// A process's time slice.
    pub(super) fn slice(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot, 7)
    }

    /// How often it was taken off the GPU and not let go on yet.
    pub(super) fn pauses(&self, slot: usize) -> &AtomicU64 {
        self.slot(slot, 8)
    }

    /// The slots that were ever used.
    pub(super) fn used_slots(&self) -> Range<usize> {
        0..self.slots_end().load(Relaxed) as usize
    }

    /// Puts a process into a slot, as one that has nothing.
    pub(super) fn fill_slot(&self, slot: usize, number: u32) {
        self.set_private_bytes(slot, 0);
        self.number(slot).store(number.into(), Relaxed);
        self.slots_end().fetch_max(slot as u64 + 1, Relaxed);
    }

    /// Takes back what the process in a slot had.
    pub(super) fn empty_slot(&self, slot: usize) {
        self.used_records().for_each(|at| self.drop_holder(at, slot));
        self.set_private_bytes(slot, 0);
        self.number(slot).store(0, Relaxed);
    }

    /// Bytes that the process in a slot holds, also with others.
    pub(super) fn held_bytes(&self, slot: usize) -> u64 {
        let holds = |at: &usize| self.id(*at) != 0 && self.holders(*at, slot).load(Relaxed) & bit(slot) != 0;
        let shared: u64 = self.used_records().filter(holds).map(|at| self.record(at, 1).load(Relaxed)).sum();
        self.private_bytes(slot) + shared
    }

    /// Bytes in use, by all processes.
    pub(super) fn used(&self) -> u64 {
        // One of them may be too small, and below zero, until everything is counted anew.
        self.private_in_all().load(Relaxed).wrapping_add(self.shared_bytes().load(Relaxed))
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

    /// Writes a record of a file, with one holder.
    pub(super) fn write_record(&self, at: usize, id: u64, bytes: u64, file: FileId, holder: usize) {
        for word in FIRST_HOLDER..RECORD_WORDS {
            self.record(at, word).store(0, Relaxed);
        }
        self.holders(at, holder).store(bit(holder), Relaxed);
        self.record(at, 1).store(bytes, Relaxed);
        for (word, value) in (2..).zip(file.words()) {
            self.record(at, word).store(value, Relaxed);
        }
        self.record(at, 0).store(id, Relaxed);
        self.shared_bytes().fetch_add(bytes, Relaxed);
        self.records_end().fetch_max(at as u64 + 1, Relaxed);
    }

    /// Makes a process a holder of a record.
    pub(super) fn add_holder(&self, at: usize, slot: usize) {
        if !self.has_holder(at) {
            self.orphans().fetch_sub(1, Relaxed);
        }
        self.holders(at, slot).fetch_or(bit(slot), Relaxed);
    }

    /// Ends a process's hold. A record without a holder is gone, unless its file may be open somewhere.
    pub(super) fn drop_holder(&self, at: usize, slot: usize) {
        if self.id(at) == 0 || self.holders(at, slot).fetch_and(!bit(slot), Relaxed) & bit(slot) == 0 {
            return;
        }
        if !self.has_holder(at) {
            self.orphans().fetch_add(1, Relaxed);
            if !self.file(at).is_some() {
                self.end_orphan(at);
            }
        }
    }

    /// The records that no process holds, but whose files may be open somewhere.
    pub(super) fn orphaned_records(&self) -> Vec<usize> {
        if self.orphans().load(Relaxed) == 0 {
            return Vec::new();
        }
        self.used_records().filter(|at| self.id(*at) != 0 && !self.has_holder(*at)).collect()
    }

    /// Ends a record that no process holds.
    pub(super) fn end_orphan(&self, at: usize) {
        let bytes = self.record(at, 1).load(Relaxed);
        self.shared_bytes().fetch_sub(bytes, Relaxed);
        self.record(at, 0).store(0, Relaxed);
        self.orphans().fetch_sub(1, Relaxed);
    }

    /// The file of a record.
    pub(super) fn file(&self, at: usize) -> FileId {
        FileId::from_words([2, 3].map(|word| self.record(at, word).load(Relaxed)))
    }

    fn has_holder(&self, at: usize) -> bool {
        (FIRST_HOLDER..RECORD_WORDS).any(|word| self.record(at, word).load(Relaxed) != 0)
    }

    /// Counts everything anew: a process may have been killed between two stores that belong together.
    pub(super) fn recount(&self) {
        let private = self.used_slots().map(|slot| self.private_bytes(slot)).sum();
        self.private_in_all().store(private, Relaxed);
        let (mut shared, mut orphans) = (0, 0);
        for at in self.used_records().filter(|at| self.id(*at) != 0) {
            let is_held = self.has_holder(at);
            if !is_held && !self.file(at).is_some() {
                self.record(at, 0).store(0, Relaxed);
                continue;
            }
            shared += self.record(at, 1).load(Relaxed);
            orphans += u64::from(!is_held);
        }
        self.shared_bytes().store(shared, Relaxed);
        self.orphans().store(orphans, Relaxed);
    }

    /// How many records have no holder.
    fn orphans(&self) -> &AtomicU64 {
        self.word(15)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.0.get()[at]
    }

    fn slot(&self, slot: usize, word: usize) -> &AtomicU64 {
        self.word(FIRST_SLOT + slot * SLOT_WORDS + word)
    }

    fn record(&self, at: usize, word: usize) -> &AtomicU64 {
        self.word(FIRST_RECORD + at * RECORD_WORDS + word)
    }

    fn holders(&self, at: usize, slot: usize) -> &AtomicU64 {
        self.record(at, FIRST_HOLDER + slot / 64)
    }

    /// Begins a slot's life on the GPU.
    pub(super) fn begin_unpaused(&self, slot: usize) {
        for word in [self.paused_since(slot), self.paused_before(slot), self.at_work(slot), self.pauses(slot)] {
            word.store(0, SeqCst);
        }
    }

    /// True while the process in a slot is off the GPU.
    pub(super) fn is_paused(&self, slot: usize) -> bool {
        self.paused_since(slot).load(SeqCst) != 0
    }

    /// Gives a slot its time slice; its kernels have had no time yet.
    pub(super) fn begin_sliced(&self, slot: usize, slice: Duration) {
        self.kernel_time(slot).iter().for_each(|word| word.store(0, Relaxed));
        self.slice(slot).store(slice.as_nanos() as u64, Relaxed);
    }
}

fn bit(slot: usize) -> u64 {
    1 << (slot % 64)
}
