//! Memory of words that outlives this process, as long as some process has its descriptor.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Words in shared memory, mapped for the life of this process.
#[derive(Debug)]
pub struct Words(&'static [AtomicU64]);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        self.0
    }
}

impl Words {
    /// Makes so many words, which are zero, and a descriptor of them.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn make(count: usize) -> std::io::Result<(Self, OwnedFd)> {
        let file = memfd_create("baton-table", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, (count * size_of::<AtomicU64>()) as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::open(&file)?, file))
    }

    /// Maps the words behind a descriptor. Their number is that of the file.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn open(file: &impl AsFd) -> std::io::Result<Self> {
        let bytes = usize::try_from(fstat(file)?.st_size).unwrap_or(0);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping wherever the system likes.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        // SAFETY: mapped for ever, page-aligned, of atomics; the file is sealed, and does not shrink.
        Ok(Self(unsafe { std::slice::from_raw_parts(at.cast(), bytes / size_of::<AtomicU64>()) }))
    }
}
