//! The memory behind a pool that processes share: one file for all of it, so that a descriptor of the file is one of the pool.
//!
//! ```text
//! 0 .. length          contents by the pool's addresses; addresses without memory take none
//! length .. + 4096     magic, length, UUID of the GPU (2 words), the pool's number
//! ```
//!
//! The memory is charged to the process that made the pool, as long as that has it. (Memory that another one still has when it dies
//! counts as free.)

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::errors::{Outcome, Status};
use crate::gpu_file::Gpu;

const LABEL_BYTES: u64 = 4096;
const MAGIC: u64 = 0x4C4F_4F50_4441_5543;

/// The file.
pub(crate) struct Backing {
    file: OwnedFd,
    pub(crate) length: u64,
    /// By which what is exported from the pool is known to be of it.
    pub(crate) number: u64,
    /// True if another process made it.
    pub(crate) imported: bool,
}

impl Backing {
    /// For a pool with so many addresses.
    pub(crate) fn make(gpu: &Gpu, length: u64) -> Outcome<Backing> {
        let mut number = [0; 8];
        let mut made = || -> rustix::io::Result<OwnedFd> {
            rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
            let file = rustix::fs::memfd_create("simcuda-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            rustix::fs::ftruncate(&file, length + LABEL_BYTES)?;
            // A peer that shortened it would crash us at the next access.
            rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
            let mut label = Vec::with_capacity(40);
            label.extend(MAGIC.to_ne_bytes());
            label.extend(length.to_ne_bytes());
            label.extend(gpu.uuid());
            label.extend(number);
            rustix::io::pwrite(&file, &label, length)?;
            Ok(file)
        };
        let file = made().map_err(|_| Status::OPERATING_SYSTEM)?;
        Ok(Backing { file, length, number: u64::from_ne_bytes(number), imported: false })
    }

    /// That of a descriptor which another process (or this one) exported, of a pool on one of these GPUs.
    pub(crate) fn import(
        mut gpus: impl Iterator<Item = &'static Gpu>,
        descriptor: BorrowedFd<'_>,
    ) -> Outcome<(&'static Gpu, Backing)> {
        // The answer is the same for every error in it (measured).
        let refused = |_| Status::UNKNOWN;
        let size = rustix::fs::fstat(descriptor).map_err(refused)?.st_size as u64;
        let length = size.checked_sub(LABEL_BYTES).ok_or(Status::UNKNOWN)?;
        let mut label = [0; 40];
        if rustix::io::pread(descriptor, &mut label, length).map_err(refused)? != label.len() {
            return Err(Status::UNKNOWN);
        }
        let word = |at: usize| u64::from_ne_bytes(label[at * 8..at * 8 + 8].try_into().expect("a word is 8 bytes"));
        if word(0) != MAGIC || word(1) != length {
            return Err(Status::UNKNOWN);
        }
        let gpu = gpus.find(|gpu| label[16..32] == gpu.uuid()).ok_or(Status::INVALID_DEVICE)?;
        let file = rustix::io::fcntl_dupfd_cloexec(descriptor, 0).map_err(refused)?;
        Ok((gpu, Backing { file, length, number: word(4), imported: true }))
    }

    /// A descriptor for another process.
    pub(crate) fn export(&self) -> Outcome<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(&self.file, 0).map_err(|_| Status::OPERATING_SYSTEM)
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
