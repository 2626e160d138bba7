//! Words that threads sleep on.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use super::cancel;

/// The threads that may wait on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Threads of this process.
    Process,
    /// Threads of all processes that have it mapped.
    Shared,
}

impl Scope {
    fn flag(self) -> libc::c_int {
        match self {
            Self::Process => libc::FUTEX_PRIVATE_FLAG,
            Self::Shared => 0,
        }
    }
}

/// Sleeps while the word has this value: until woken, for no longer than `limit`, or for no reason at all.
pub(crate) fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>, scope: Scope) {
    let _uncancelled = cancel::Off::begin();
    let limit = limit
        .map(|limit| libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: FUTEX_WAIT on an aligned word that lives over the call, with a time that does too or none.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | scope.flag(), value, limit) };
}

/// Wakes all threads that sleep on the word.
pub(crate) fn wake_all(word: &AtomicU32, scope: Scope) {
    // SAFETY: FUTEX_WAKE on an aligned word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | scope.flag(), i32::MAX) };
}
