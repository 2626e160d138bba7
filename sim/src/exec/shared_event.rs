//! The part of an event that processes share: how often it was recorded, and which records were reached.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};

use super::pause::Pause;
use crate::errors::{Outcome, Status};
use crate::mapping::SharedWords;
use crate::shared_file::IpcHandle;

const MAGIC: u64 = 0x5456_454D_4953_4355;
/// In the file, too, then the number, then the count of records, then which were reached.
const WORDS: usize = REACHED + KEPT as usize;
const REACHED: usize = 3;
/// A later record does not release a stream that waits for an earlier one, unless it is so much later.
const KEPT: u64 = 1024;

/// A file of words: its magic and number, how many records there were, and of the last ones, each in a place of its own, whether
/// they were reached.
pub(crate) struct SharedEvent {
    words: SharedWords,
    /// If this process made it.
    file: Option<OwnedFd>,
}

impl SharedEvent {
    /// A new one, never recorded.
    pub(crate) fn make() -> Outcome<SharedEvent> {
        let mut number = [0; 8];
        let mut made = || -> rustix::io::Result<SharedEvent> {
            rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
            let file = rustix::fs::memfd_create("simcuda-event", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            rustix::fs::ftruncate(&file, 8 * WORDS as u64)?;
            // A peer that shortened it would crash us at the next access.
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
            let words = SharedWords::map(file.as_fd(), WORDS)?;
            Ok(SharedEvent { words, file: Some(file) })
        };
        let made = made().map_err(|_| Status::OPERATING_SYSTEM)?;
        made.word(0).store(MAGIC, Ordering::Relaxed);
        made.word(1).store(u64::from_ne_bytes(number), Ordering::Relaxed);
        Ok(made)
    }

    /// That which another process has given a handle of; as measured where the handle is none.
    pub(crate) fn open(handle: &IpcHandle) -> Outcome<SharedEvent> {
        if !handle.is(MAGIC) {
            return Err(Status::MAP_FAILED);
        }
        if handle.is_own() {
            return Err(Status::INVALID_CONTEXT);
        }
        let file = handle.open()?;
        let size = rustix::fs::fstat(&file).map_or(0, |told| told.st_size);
        if size != 8 * WORDS as i64 {
            return Err(Status::MAP_FAILED);
        }
        let words = SharedWords::map(file, WORDS).map_err(|_| Status::MAP_FAILED)?;
        let opened = SharedEvent { words, file: None };
        let is_it =
            opened.word(0).load(Ordering::Relaxed) == MAGIC && opened.word(1).load(Ordering::Relaxed) == handle.number;
        if is_it { Ok(opened) } else { Err(Status::MAP_FAILED) }
    }

    /// A handle for other processes. Those that it was opened by give none.
    pub(crate) fn handle(&self) -> Outcome<IpcHandle> {
        let file = self.file.as_ref().ok_or(Status::INVALID_HANDLE)?;
        Ok(IpcHandle::new(MAGIC, file.as_fd(), self.word(1).load(Ordering::Relaxed), [0; 5]))
    }

    /// It is recorded once more; the record's number.
    pub(crate) fn record(&self) -> u64 {
        self.word(2).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the last record.
    pub(crate) fn last(&self) -> u64 {
        self.word(2).load(Ordering::Acquire)
    }

    /// A record is reached.
    pub(crate) fn reach(&self, record: u64) {
        self.place(record).fetch_max(record, Ordering::AcqRel);
    }

    /// True if a record is reached. None is before the first.
    pub(crate) fn is_reached(&self, record: u64) -> bool {
        record == 0 || self.place(record).load(Ordering::Acquire) >= record
    }

    /// Waits for a record, wherever it was made, unless this happens first.
    pub(crate) fn wait(&self, record: u64, gives_up: impl Fn() -> bool) {
        let mut pause = Pause::default();
        while !self.is_reached(record) && !gives_up() {
            pause.step();
        }
    }

    fn place(&self, record: u64) -> &AtomicU64 {
        self.word(REACHED + (record % KEPT) as usize)
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        &self.words.get()[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_record_does_not_release_who_waits_for_an_earlier_one() {
        let event = SharedEvent::make().expect("a file");
        assert!(event.is_reached(event.last()), "never recorded");
        let (first, second) = (event.record(), event.record());
        event.reach(second);
        assert_eq!((event.is_reached(first), event.is_reached(second)), (false, true));
        event.reach(first);
        assert!(event.is_reached(first) && event.is_reached(second));
        for _ in 0..KEPT {
            let later = event.record();
            assert!(!event.is_reached(later));
            event.reach(later);
        }
        assert!(event.is_reached(second), "it was long ago");
    }
}
