//! A lock that no forked copy of the process inherits locked.
//!
//! It guards data that is used in processes that have not initialised the driver, and whose copies go on with hooks.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::process;

/// A value behind a lock; a forked copy of the process begins with a new value, made by a function.
pub(crate) struct Lock<T> {
    /// The process that the value belongs to; 0 for the first one.
    owner: AtomicU32,
    value: UnsafeCell<Mutex<T>>,
    new: fn() -> T,
}

/// Set beside a process's number while one of its threads is making a new value.
const BEING_MADE: u32 = 1 << 31;

// SAFETY: the value is behind a mutex, which is replaced only before this process first locks it.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T, new: fn() -> T) -> Self {
        Self { owner: AtomicU32::new(0), value: UnsafeCell::new(Mutex::new(value)), new }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let this = process::number();
        loop {
            let owner = self.owner.load(Ordering::Acquire);
            if owner == this {
                break;
            }
            // The value belongs to another process, or a thread of another process was making it: here it is free.
            let is_free = owner != this | BEING_MADE;
            let take = || self.owner.compare_exchange(owner, this | BEING_MADE, Ordering::AcqRel, Ordering::Relaxed);
            if is_free && take().is_ok() {
                // SAFETY: no thread of this process has locked it, and none does before the owner is set. The one before is
                // not dropped: a thread that this process does not have may have been changing it.
                unsafe { self.value.get().write(Mutex::new((self.new)())) };
                self.owner.store(this, Ordering::Release);
                break;
            }
            core::hint::spin_loop();
        }
        // SAFETY: from here on only locked.
        unsafe { &*self.value.get() }.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_process_finds_it_open_and_new() {
        static COUNT: Lock<u32> = Lock::new(0, || 0);
        *COUNT.lock() += 1;
        let held = COUNT.lock();
        // SAFETY: the copy only locks, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child, also if it waits.
            unsafe {
                libc::alarm(20);
                libc::_exit(if *COUNT.lock() == 0 { 0 } else { 1 });
            }
        }
        let mut status = 0;
        // SAFETY: a place for the answer.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((status, *held), (0, 1));
    }
}
