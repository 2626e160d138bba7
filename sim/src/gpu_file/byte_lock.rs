//! POSIX record locks on single bytes of a file. The kernel drops them when their process ends or closes the file, a
//! forked child does not inherit them, and a lock's holder can be found across PID namespaces.
#![allow(unsafe_code, reason = "fcntl with a structure")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A lock is taken or given back.
pub(super) enum Lock {
    Take,
    Release,
}

fn record_lock(kind: libc::c_int, byte: i64) -> libc::flock {
    // SAFETY: zeros are a valid value of this structure of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (byte, 1);
    lock
}

/// Locks a byte of the file for this process, waiting until no other process has it, or gives it back.
pub(super) fn lock(file: &OwnedFd, byte: i64, how: Lock) -> io::Result<()> {
    let kind = match how {
        Lock::Take => libc::F_WRLCK,
        Lock::Release => libc::F_UNLCK,
    };
    let lock = record_lock(kind, byte);
    // SAFETY: an open file, and a structure that lives over the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks a byte of the file for this process, if no other process has it.
pub(super) fn try_lock(file: &OwnedFd, byte: i64) -> io::Result<bool> {
    let lock = record_lock(libc::F_WRLCK, byte);
    // SAFETY: as above.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error => Err(error),
        },
    }
}

/// The other process that has a byte locked, 0 if it is of another PID namespace; none if it is free.
pub(super) fn holder(file: &OwnedFd, byte: i64) -> Option<u32> {
    let mut lock = record_lock(libc::F_WRLCK, byte);
    // SAFETY: as above; the system writes to the structure.
    let known = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) } == 0;
    (known && lock.l_type != libc::F_UNLCK as libc::c_short).then_some(u32::try_from(lock.l_pid).unwrap_or(0))
}
