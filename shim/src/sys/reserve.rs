//! Descriptors in reserve: for memory that comes to a process which can open no more.
//!
//! Frames come as descriptors. A program that has as many open as it may (`RLIMIT_NOFILE`) could get none, so a few are kept open here,
//! and closed when they are needed. All of them are one file of ours. The program may close them, as it may close all descriptors that it
//! does not know (`closefrom`), and reuse their numbers for its own files: a number that no longer means our file is left alone.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use baton_contract::wire::MAX_DESCRIPTORS;

use super::cancel;
use super::lock::Lock;

/// The least number of a descriptor where there is a choice: programs may want low ones, to put files in their places.
const LEAST: c_int = 64;
/// The least number in any case, above standard input, output and error.
const LEAST_OF_ALL: c_int = 3;

const NONE: c_int = -1;
/// Their numbers; plain integers, for [`forget`].
static KEPT: [AtomicI32; MAX_DESCRIPTORS] = [const { AtomicI32::new(NONE) }; MAX_DESCRIPTORS];
/// The file of all of them: its device and its number there.
static FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The number of callers that have let go of them.
static LENT: Lock<usize> = Lock::new(0, || 0);

/// While this lives, the reserved numbers are free for other descriptors.
#[must_use]
pub(crate) struct Spare(());

impl Drop for Spare {
    fn drop(&mut self) {
        let _uncancelled = cancel::Off::begin();
        let mut lent = LENT.lock();
        *lent -= 1;
        if *lent == 0 {
            fill();
        }
    }
}

/// Opens as many as are to be kept, as far as possible.
pub(crate) fn keep() {
    let _uncancelled = cancel::Off::begin();
    let lent = LENT.lock();
    if *lent == 0 {
        fill();
    }
}

/// Closes those in reserve, so that others can be opened.
pub(crate) fn let_go() -> Spare {
    let _uncancelled = cancel::Off::begin();
    let mut lent = LENT.lock();
    *lent += 1;
    close_all();
    Spare(())
}

/// Closes those in reserve, in a forked child. Async-signal-safe.
pub(crate) fn forget() {
    close_all();
}

fn close_all() {
    for kept in &KEPT {
        let number = kept.swap(NONE, Ordering::Relaxed);
        if number != NONE && is_ours(number) {
            // SAFETY: our own file, which is used nowhere else.
            unsafe { libc::close(number) };
        }
    }
}

fn is_ours(number: c_int) -> bool {
    identity(number).is_some_and(|file| file == FILE.each_ref().map(|part| part.load(Ordering::Relaxed)))
}

fn identity(number: c_int) -> Option<[u64; 2]> {
    let mut found: MaybeUninit<libc::stat> = MaybeUninit::uninit();
    // SAFETY: any number may be asked about; room for the answer.
    let known = unsafe { libc::fstat(number, found.as_mut_ptr()) };
    if known != 0 {
        return None;
    }
    // SAFETY: filled in, as the answer says.
    let found = unsafe { found.assume_init() };
    Some([found.st_dev, found.st_ino])
}

fn file() -> Option<OwnedFd> {
    // SAFETY: a C string.
    let made = unsafe { libc::memfd_create(c"baton-reserve".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: new, and ours.
    (made >= 0).then(|| unsafe { OwnedFd::from_raw_fd(made) })
}

fn fill() {
    if KEPT.iter().all(|kept| kept.load(Ordering::Relaxed) != NONE) {
        return;
    }
    // A new file for all: those of the old one, if there are any, are closed first.
    close_all();
    let Some(file) = file() else { return };
    let Some(identity) = identity(file.as_raw_fd()) else { return };
    FILE.iter().zip(identity).for_each(|(part, value)| part.store(value, Ordering::Relaxed));
    let copy = |number: c_int, least: c_int| {
        // SAFETY: a descriptor of ours, and a number.
        let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, least) };
        (copy >= 0).then_some(copy)
    };
    let copy = |number| copy(number, LEAST).or_else(|| copy(number, LEAST_OF_ALL));
    let Some(first) = copy(file.as_raw_fd()) else { return };
    // It may be the last one that could be opened.
    drop(file);
    KEPT[0].store(first, Ordering::Relaxed);
    for kept in &KEPT[1..] {
        let Some(number) = copy(first) else { return };
        kept.store(number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because all tests of the process have one reserve.
    #[test]
    fn what_is_in_reserve_is_free_while_it_is_let_go_and_no_file_of_others_is_closed() {
        let numbers = || KEPT.each_ref().map(|kept| kept.load(Ordering::Relaxed));
        keep();
        assert!(numbers().iter().all(|number| *number >= LEAST && is_ours(*number)), "{:?}", numbers());
        let before = numbers();
        keep();
        assert_eq!(numbers(), before);
        let (first, second) = (let_go(), let_go());
        assert!(numbers().iter().all(|number| *number == NONE));
        drop(first);
        assert!(numbers().iter().all(|number| *number == NONE), "somebody still needs them");
        drop(second);
        assert!(numbers().iter().all(|number| is_ours(*number)));
        // The program puts a file of its own under one of the numbers.
        let null = std::fs::File::open("/dev/null").expect("there");
        let taken = numbers()[5];
        // SAFETY: plain numbers; the file that was there is used nowhere else.
        assert_eq!(unsafe { libc::dup3(null.as_raw_fd(), taken, libc::O_CLOEXEC) }, taken);
        let spare = let_go();
        assert!(identity(taken).is_some(), "the program's file stays open");
        drop(spare);
        assert!(numbers().iter().all(|number| *number != taken && is_ours(*number)));
        // SAFETY: opened above.
        unsafe { libc::close(taken) };
        forget();
        assert!(numbers().iter().all(|number| *number == NONE));
    }
}
