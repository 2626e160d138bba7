//! The GPU that several processes share: how much memory it has, and how much of it each process uses.
//!
//! It is a file (`SIMCUDA_GPU_FILE`), mapped by every process and changed only under its lock, a
//! POSIX record lock, which the kernel drops when the holder dies. Another one, on a byte of its own, shows that a
//! process lives: so it does not matter which processes see each other in which namespace. A process without that setting has
//! the same table in a memfd of its own.
//!
//! Memory that only one process holds is charged to its slot. Once exported, a handle has a record and is
//! charged once, until no process holds it and its file is open nowhere: also after the process that made it
//! died, as long as one that imported it lives, or a descriptor is kept somewhere, be it in a socket.
//! The usage of a process that died, however it died, is taken back by the next process that needs memory or asks.

mod byte_lock;
pub(crate) mod open_files;
pub(crate) mod pausing;
pub(crate) mod slices;
mod stopped;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, Mode, OFlags};

use crate::errors::{Outcome, Status};
use crate::mapping::SharedWords;
use byte_lock::{Lock, holder, lock, try_lock};
use open_files::{FileId, closed};
use stopped::{PAUSE, SHORT_ACCESS, Stopped};
use table::{MAGIC, RECORDS, SLOTS, Table, VERSION, WORDS};

/// The byte of the file that stands for the table.
const TABLE_BYTE: i64 = 0;

/// The byte that stands for the life of the process in a slot.
fn byte_of(slot: usize) -> i64 {
    1 + slot as i64
}

/// Processes' numbers are smaller.
pub(crate) const NUMBERS: u32 = 1 << 29;

/// The error of a file that is not ours.
const OTHER_VERSION: &str =
    "SIMCUDA_GPU_FILE is no file of this version of the simulated driver; remove it if no program uses it";

/// This process's part in the shared GPU.
pub(crate) struct Gpu {
    file: OwnedFd,
    table: Table,
    slot: usize,
    /// How often this process holds each record: the same memory may be imported twice.
    held: Mutex<HashMap<u64, usize>>,
    /// True if the GPU is this process's own: then no other process needs to be kept out.
    private: bool,
    /// Its number among the machine's GPUs.
    number: usize,
    /// The number by which the program knows it.
    ordinal: usize,
    /// The word that its memory is full of when it is new.
    new_memory: u64,
}

/// A handle's record: where it is, and the id that says that it is still the same handle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Record {
    /// Its place in the table.
    pub(crate) at: usize,
    /// Its id; never drawn twice.
    pub(crate) id: u64,
}

impl Gpu {
    /// Opens or makes the GPU and enters this process into it. Its kernels have this time slice, if any.
    pub(crate) fn open(path: Option<&Path>, memory: u64, slice: Option<Duration>) -> io::Result<Gpu> {
        let file = match path {
            Some(path) => {
                rustix::fs::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?
            }
            None => rustix::fs::memfd_create("simcuda-gpu", MemfdFlags::CLOEXEC)?,
        };
        lock_table(&file);
        let fresh = rustix::fs::fstat(&file)?.st_size == 0;
        let length = (WORDS * 8) as u64;
        if fresh {
            rustix::fs::ftruncate(&file, length)?;
        } else if rustix::fs::fstat(&file)?.st_size as u64 != length {
            return Err(io::Error::other(OTHER_VERSION));
        }
        let table = Table(SharedWords::map(&file, WORDS)?);
        let private = path.is_none();
        let mut gpu = Gpu {
            file,
            table,
            slot: usize::MAX,
            held: Mutex::default(),
            private,
            number: 0,
            ordinal: 0,
            new_memory: 0,
        };
        if fresh || gpu.table.magic().load(Relaxed) == 0 {
            gpu.begin(memory)?;
        }
        let (magic, version) = (gpu.table.magic().load(Relaxed), gpu.table.version().load(Relaxed));
        if magic != MAGIC || version != VERSION {
            return Err(io::Error::other(OTHER_VERSION));
        }
        gpu.slot = gpu.enter(slice)?;
        lock(&gpu.file, TABLE_BYTE, Lock::Release)?;
        Ok(gpu)
    }

    /// The same as the machine's GPU of this number; it is the first one until that is said.
    pub(crate) fn of_machine(mut self, number: usize) -> Gpu {
        self.number = number;
        self
    }

    /// The same as the program's GPU of this number; it is the first one until that is said.
    pub(crate) fn at(mut self, ordinal: usize) -> Gpu {
        self.ordinal = ordinal;
        self
    }

    /// The same, whose memory is full of this word when it is new.
    pub(crate) fn with_new_memory(mut self, word: u64) -> Gpu {
        self.new_memory = word;
        self
    }

    /// The word that its memory is full of when it is new.
    pub(crate) fn new_memory(&self) -> u64 {
        self.new_memory
    }

    /// Its number among the machine's GPUs.
    pub(crate) fn number_in_machine(&self) -> usize {
        self.number
    }

    /// The number by which the program knows it.
    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The GPU's memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.table.memory().load(Relaxed)
    }

    /// The GPU's UUID.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(self.table.uuid()) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        bytes
    }

    /// Bytes that no process uses.
    pub(crate) fn free(&self) -> u64 {
        let _locked = self.lock();
        self.reap();
        self.memory().saturating_sub(self.table.used())
    }

    /// Takes memory for this process alone.
    pub(crate) fn charge(&self, bytes: u64) -> Outcome {
        let _locked = self.lock();
        self.make_room(bytes)?;
        self.table.set_private_bytes(self.slot, self.table.private_bytes(self.slot) + bytes);
        Ok(())
    }

    /// Gives memory of [`Gpu::charge`] back.
    pub(crate) fn discharge(&self, bytes: u64) {
        let _locked = self.lock();
        self.table.set_private_bytes(self.slot, self.table.private_bytes(self.slot) - bytes);
    }

    /// Moves memory from this process's own account to a record, so that others can hold it too. It stays used while this file is open.
    pub(crate) fn share(&self, bytes: u64, file: FileId) -> Outcome<Record> {
        let mut held = self.lock();
        let at = self.free_record()?;
        let id = self.table.next_id().fetch_add(1, Relaxed);
        self.table.write_record(at, id, bytes, file, self.slot);
        self.table.set_private_bytes(self.slot, self.table.private_bytes(self.slot) - bytes);
        held.insert(id, 1);
        Ok(Record { at, id })
    }

    /// Holds a record that a process shared, or makes it anew if that has ended meanwhile: this file was not
    /// known to be open.
    pub(crate) fn hold(&self, record: Record, bytes: u64, file: BorrowedFd<'_>) -> Outcome<Record> {
        let mut held = self.lock();
        let mut record = record;
        if record.at >= RECORDS || self.table.id(record.at) != record.id {
            // Another process may have made it anew already, elsewhere than its descriptors say.
            let known = self.table.used_records().find(|at| self.table.id(*at) == record.id);
            record.at = match known {
                Some(at) => at,
                None => {
                    self.make_room(bytes)?;
                    let at = self.free_record()?;
                    self.table.write_record(at, record.id, bytes, FileId::mark(file), self.slot);
                    at
                }
            };
        }
        self.table.add_holder(record.at, self.slot);
        *held.entry(record.id).or_default() += 1;
        Ok(record)
    }

    /// Ends one hold of this process.
    pub(crate) fn let_go(&self, record: Record) {
        let mut held = self.lock();
        let Some(count) = held.get_mut(&record.id) else { return };
        *count -= 1;
        if *count == 0 {
            held.remove(&record.id);
            self.table.drop_holder(record.at, self.slot);
        }
    }

    /// This process's number on the GPU: another process that gets its place later has another number.
    pub(crate) fn number(&self) -> u32 {
        self.table.number(self.slot).load(SeqCst) as u32
    }

    /// The slot of the process with that number.
    pub(super) fn slot_of(&self, wanted: u32) -> Outcome<usize> {
        let slot = wanted as usize % SLOTS;
        let is_there = wanted != 0 && self.table.number(slot).load(SeqCst) == u64::from(wanted);
        if is_there { Ok(slot) } else { Err(Status::INVALID_VALUE) }
    }

    fn begin(&self, memory: u64) -> io::Result<()> {
        let mut uuid = [0; 16];
        rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty())?;
        self.table.version().store(VERSION, Relaxed);
        self.table.memory().store(memory, Relaxed);
        for (half, word) in uuid.chunks_exact(8).zip(self.table.uuid()) {
            word.store(u64::from_le_bytes(half.try_into().expect("a half of 16 bytes is 8")), Relaxed);
        }
        self.table.next_id().store(1, Relaxed);
        self.table.magic().store(MAGIC, Relaxed);
        Ok(())
    }

    fn enter(&self, slice: Option<Duration>) -> io::Result<usize> {
        self.reap();
        let slot = (0..SLOTS).find(|slot| self.table.number(*slot).load(Relaxed) == 0);
        let slot = slot.ok_or_else(|| io::Error::other(format!("{SLOTS} processes share this GPU already")))?;
        if !self.private {
            lock(&self.file, byte_of(slot), Lock::Take)?;
        }
        let generation = self.table.came().fetch_add(1, Relaxed) + 1;
        // Never 0; those above run out after a hundred thousand processes, and begin again.
        let number = (generation as u32).wrapping_mul(SLOTS as u32) % NUMBERS + slot as u32;
        self.table.begin_unpaused(slot);
        self.table.begin_sliced(slot, slice.unwrap_or_default());
        self.table.fill_slot(slot, if number == 0 { SLOTS as u32 } else { number });
        Ok(slot)
    }

    /// The processes that use the GPU: as this process numbers them (0 if it cannot see one), and the bytes that each holds.
    pub(crate) fn processes(&self) -> Vec<(u32, u64)> {
        let _locked = self.lock();
        self.reap();
        let used = self.table.used_slots().filter(|slot| self.table.number(*slot).load(Relaxed) != 0);
        used.map(|slot| (self.pid_in(slot), self.table.held_bytes(slot))).collect()
    }

    /// The process with this number there, as this process numbers them. 0 if there is none, or it cannot be seen.
    pub(crate) fn process_id(&self, number: u32) -> u32 {
        let pid = self.slot_of(number).map_or(0, |slot| self.pid_in(slot));
        // Another process may have got the place meanwhile.
        if self.slot_of(number).is_ok() { pid } else { 0 }
    }

    fn pid_in(&self, slot: usize) -> u32 {
        let is_own = slot == self.slot;
        if is_own { std::process::id() } else { holder(&self.file, byte_of(slot)).unwrap_or(0) }
    }

    /// Fails if the GPU has no room for that much more. The lock is held.
    fn make_room(&self, bytes: u64) -> Outcome {
        let fits = |used: u64| used.checked_add(bytes).is_some_and(|sum| sum <= self.memory());
        if fits(self.table.used()) {
            return Ok(());
        }
        self.reap();
        if fits(self.table.used()) { Ok(()) } else { Err(Status::OUT_OF_MEMORY) }
    }

    /// Takes back what dead processes used, and what no descriptor keeps any more. The lock is held.
    fn reap(&self) {
        if !self.private {
            self.reap_slots();
        }
        let orphans = self.table.orphaned_records();
        if !orphans.is_empty() {
            let closed = closed(orphans.iter().map(|at| self.table.file(*at)));
            let ended = orphans.into_iter().filter(|at| closed.contains(&self.table.file(*at)));
            ended.for_each(|at| self.table.end_orphan(at));
        }
    }

    fn reap_slots(&self) {
        let mut ended = false;
        for slot in self.table.used_slots().filter(|slot| *slot != self.slot) {
            if self.table.number(slot).load(Relaxed) != 0 && holder(&self.file, byte_of(slot)).is_none() {
                self.table.empty_slot(slot);
                ended = true;
            }
        }
        if ended {
            self.table.recount();
        }
    }

    /// A place for a record. The lock is held.
    fn free_record(&self) -> Outcome<usize> {
        let at = self.table.free_record().or_else(|| {
            self.reap();
            self.table.free_record()
        });
        at.ok_or(Status::OUT_OF_MEMORY)
    }

    /// The table, kept from other threads and other processes until the guard goes.
    fn lock(&self) -> Locked<'_> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.private {
            lock_table(&self.file);
        }
        Locked { gpu: self, held }
    }
}

/// Locks the table, from other processes.
fn lock_table(file: &OwnedFd) {
    let (mut since, mut stopped) = (Instant::now(), None);
    loop {
        match try_lock(file, TABLE_BYTE) {
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Refused (no locks on that file system): the figures may then be off by what another process changes
            // meanwhile, but nothing else depends on them.
            Ok(true) | Err(_) => return,
        }
        if since.elapsed() > SHORT_ACCESS {
            // A driver's own work goes on also while the process is stopped for which it does it.
            drop(stopped);
            stopped = holder(file, TABLE_BYTE).and_then(Stopped::of);
            since = Instant::now();
        }
        std::thread::sleep(PAUSE);
    }
}

struct Locked<'a> {
    gpu: &'a Gpu,
    held: MutexGuard<'a, HashMap<u64, usize>>,
}

impl std::ops::Deref for Locked<'_> {
    type Target = HashMap<u64, usize>;
    fn deref(&self) -> &Self::Target {
        &self.held
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.held
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if !self.gpu.private {
            // Failing to unlock means that the lock was never had; see `lock`.
            let _ = lock(&self.gpu.file, TABLE_BYTE, Lock::Release);
        }
    }
}
