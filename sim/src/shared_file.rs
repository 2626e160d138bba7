//! A file of this process's that another one opens, by what a handle for processes says: whose it is, and which.
//!
//! A handle of 64 bytes has no room for a descriptor, and no process serves one. So it names the process and the descriptor there,
//! and the process that opens it looks below `/proc`. That works between processes of one user that see each other's numbers.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::errors::{Outcome, Status};

/// `CUipcMemHandle` and `CUipcEventHandle`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IpcHandle {
    /// The kind of the handle: 0 and all ones are none.
    magic: u64,
    process: u32,
    descriptor: i32,
    /// It differs for two files that had the same descriptor.
    pub(crate) number: u64,
    /// Further data, by the kind.
    pub(crate) words: [u64; 5],
}

const _: () = assert!(size_of::<IpcHandle>() == 64);

impl IpcHandle {
    pub(crate) fn new(magic: u64, file: BorrowedFd<'_>, number: u64, words: [u64; 5]) -> IpcHandle {
        IpcHandle { magic, process: std::process::id(), descriptor: file.as_raw_fd(), number, words }
    }

    /// All zeros.
    #[cfg(test)]
    pub(crate) fn nothing() -> IpcHandle {
        IpcHandle { magic: 0, process: 0, descriptor: 0, number: 0, words: [0; 5] }
    }

    /// The handle as numbers, for another process.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> Vec<u64> {
        [self.magic, self.process.into(), self.descriptor as u64, self.number].into_iter().chain(self.words).collect()
    }

    /// The handle of these numbers.
    #[cfg(test)]
    pub(crate) fn of_numbers(numbers: &[u64]) -> IpcHandle {
        let [magic, process, descriptor, number, words @ ..] = numbers else { return Self::nothing() };
        let words = words.try_into().unwrap_or_default();
        IpcHandle { magic: *magic, process: *process as u32, descriptor: *descriptor as i32, number: *number, words }
    }

    /// True if it is a handle of this kind.
    pub(crate) fn is(&self, magic: u64) -> bool {
        self.magic == magic
    }

    /// True if this process made it.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Opens the file. The process is gone: an invalid handle. It has closed the file: an invalid value.
    pub(crate) fn open(&self) -> Outcome<OwnedFd> {
        let folder = format!("/proc/{}/fd", self.process);
        let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        open(&folder, OFlags::RDONLY | OFlags::DIRECTORY).map_err(|_| Status::INVALID_HANDLE)?;
        open(&format!("{folder}/{}", self.descriptor), OFlags::RDWR).map_err(|_| Status::INVALID_VALUE)
    }
}
