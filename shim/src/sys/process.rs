//! Identifies this process: a forked copy of a process has its parent's memory, but not its threads.
//!
//! `fork`, `_Fork` and a raw `clone` copy memory, and with it locks that are held by threads which the copy does not have. Handlers of
//! `pthread_atfork` run after the first of them only, and process numbers may repeat in another PID namespace. So the number here lies in
//! a page that the system wipes in every copy (`MADV_WIPEONFORK`). A child that only borrows the memory until it runs another program
//! (`vfork`, `posix_spawn`) sees the page as it is, and changes nothing. On a system without such pages, only `fork` is noticed.
//!
//! A copy of a process that has initialised the driver is **bare**: CUDA does not work there, and the driver itself refuses every call. So
//! no code of ours stands in between, and no lock of ours is taken.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::cancel;

/// The page that the system wipes, in memory that belongs to no file.
#[repr(C, align(4096))]
struct Page {
    /// This process's number; 0 if it has none yet.
    number: AtomicU32,
    rest: [u8; PAGE - size_of::<AtomicU32>()],
}

const PAGE: usize = 4096;

static WIPED: Page = Page { number: AtomicU32::new(0), rest: [0; PAGE - size_of::<AtomicU32>()] };
/// The last number that was given to this process or one that it is a copy of.
static LAST: AtomicU32 = AtomicU32::new(0);
/// The process that has initialised the driver.
static INITIALISED_BY: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = u32::MAX;
/// The last process that has let go of its parent's state.
static SETTLED: AtomicU32 = AtomicU32::new(NOBODY);
/// The function that lets go of it.
static SETTLE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// This process's number, which differs from those of all processes that it is a copy of. Async-signal-safe.
#[inline]
pub(crate) fn number() -> u32 {
    match WIPED.number.load(Ordering::Relaxed) {
        0 => begin(),
        number => number,
    }
}

#[cold]
fn begin() -> u32 {
    // SAFETY: a page of our own, which holds nothing yet but a number that may be forgotten.
    unsafe { libc::madvise((&raw const WIPED).cast_mut().cast(), size_of::<Page>(), libc::MADV_WIPEONFORK) };
    let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match WIPED.number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => new,
        Err(faster) => faster,
    }
}

/// True if the driver is known to be initialised in this very process.
#[inline(always)]
pub(crate) fn is_initialised() -> bool {
    INITIALISED_BY.load(Ordering::Relaxed) == WIPED.number.load(Ordering::Relaxed)
}

/// True if this is a copy of a process that has initialised the driver.
#[inline(always)]
pub(crate) fn is_bare() -> bool {
    !is_initialised() && INITIALISED_BY.load(Ordering::Relaxed) != NOBODY
}

/// True if this is such a copy. At the first call that asks, the copy lets go of its parent's state.
#[inline(always)]
pub(crate) fn settle_if_bare() -> bool {
    let is_bare = is_bare();
    if is_bare {
        settle();
    }
    is_bare
}

/// Records that the driver is initialised in this process.
pub(crate) fn initialised() {
    if !is_bare() {
        INITIALISED_BY.store(number(), Ordering::Relaxed);
    }
}

/// Sets the function that is called once in each copy of this process, at the latest at its first call that could wait. `settle` may do
/// nothing that a signal handler may not do.
pub(crate) fn attend(settle: fn()) {
    extern "C" fn in_child() {
        // For a system that has not wiped it.
        WIPED.number.store(0, Ordering::Relaxed);
        self::settle();
    }
    SETTLED.store(number(), Ordering::Relaxed);
    SETTLE.store(settle as *mut (), Ordering::Release);
    // SAFETY: the handler makes system calls and stores to atomics that live for ever, nothing else.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Lets go of the parent's state, if this is a copy that has not done so yet. Async-signal-safe.
#[cold]
pub(crate) fn settle() {
    // Making a copy is no cancellation point.
    let _uncancelled = cancel::Off::begin();
    let settle = SETTLE.load(Ordering::Acquire);
    let number = number();
    if !settle.is_null() && SETTLED.swap(number, Ordering::AcqRel) != number {
        // SAFETY: nothing but such a function is stored there.
        unsafe { core::mem::transmute::<*mut (), fn()>(settle)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a copy of this process.
    fn in_a_copy(copy: impl FnOnce() -> libc::c_long, what: impl FnOnce() -> bool) -> bool {
        let child = copy();
        if child == 0 {
            let held = what();
            // SAFETY: ends the child without running any code of its parent.
            unsafe { libc::_exit(i32::from(!held)) };
        }
        let mut status = 0;
        // SAFETY: a place for the answer.
        assert_eq!(unsafe { libc::waitpid(child as libc::pid_t, &mut status, 0) }, child as libc::pid_t);
        status == 0
    }

    #[test]
    fn every_copy_of_a_process_has_a_number_of_its_own_and_who_borrows_its_memory_has_not() {
        let this = number();
        assert_eq!(number(), this);
        // SAFETY: the copies only read numbers, and end.
        let fork = || libc::c_long::from(unsafe { libc::fork() });
        let differs = || number() != this && number() == number();
        assert!(in_a_copy(fork, || differs() && in_a_copy(fork, differs)));
        // SAFETY: as above; without flags, a copy as of `fork` for which no handlers run.
        let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        assert!(in_a_copy(clone, differs));
        assert_eq!(number(), this);
    }
}
