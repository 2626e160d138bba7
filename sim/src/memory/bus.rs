//! Memory that other devices on the bus reach (DMA-BUF): it stays behind its descriptor when mappings change.
//!
//! There is no other device here. Exports of this driver's own read and write in its place.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;

use super::phys::Phys;
use crate::errors::{Outcome, Status};

/// A part of a handle's memory: from where, and how many bytes.
pub(crate) type Piece = (Arc<Phys>, usize, usize);

/// One buffer.
struct Buffer {
    /// The other end of the program's descriptor: it tells when the last descriptor is closed.
    own: OwnedFd,
    inode: u64,
    pieces: Vec<Piece>,
}

/// All buffers of the process of which a descriptor is open.
#[derive(Default)]
pub(crate) struct Bus(Mutex<Vec<Buffer>>);

impl Bus {
    /// A descriptor for these pieces side by side. It keeps their memory.
    pub(crate) fn give(&self, pieces: Vec<Piece>) -> Outcome<OwnedFd> {
        let (theirs, own) = std::io::pipe().map_err(|_| Status::OPERATING_SYSTEM)?;
        let inode = inode(theirs.as_fd())?;
        self.live().push(Buffer { own: own.into(), inode, pieces });
        Ok(theirs.into())
    }

    /// Reads as another device would.
    pub(crate) fn read(&self, descriptor: BorrowedFd<'_>, offset: usize, bytes: usize) -> Outcome<Vec<u8>> {
        let mut all = vec![0; bytes];
        self.each(descriptor, offset, bytes, |at, memory, bytes| {
            // SAFETY: the handle's mapping is that long and lives over the call; the buffer is as long as was asked for.
            unsafe { all.as_mut_ptr().add(at).copy_from(memory, bytes) };
        })?;
        Ok(all)
    }

    /// Writes as another device would.
    pub(crate) fn write(&self, descriptor: BorrowedFd<'_>, offset: usize, from: &[u8]) -> Outcome {
        self.each(descriptor, offset, from.len(), |at, memory, bytes| {
            // SAFETY: as above.
            unsafe { memory.copy_from(from.as_ptr().add(at), bytes) };
        })
    }

    /// Calls for each part of a range: where it is in the range, where in this process, and how many bytes.
    fn each(
        &self,
        descriptor: BorrowedFd<'_>,
        offset: usize,
        bytes: usize,
        mut part: impl FnMut(usize, *mut u8, usize),
    ) -> Outcome {
        let inode = inode(descriptor)?;
        let live = self.live();
        let buffer = live.iter().find(|buffer| buffer.inode == inode).ok_or(Status::INVALID_VALUE)?;
        let whole: usize = buffer.pieces.iter().map(|(_, _, bytes)| bytes).sum();
        if offset.checked_add(bytes).is_none_or(|end| end > whole) {
            return Err(Status::INVALID_VALUE);
        }
        let (mut before, mut done) = (0, 0);
        for (phys, start, length) in &buffer.pieces {
            let skipped = (offset + done).saturating_sub(before);
            if skipped < *length && done < bytes {
                let piece = (length - skipped).min(bytes - done);
                part(done, phys.contents().wrapping_add(start + skipped), piece);
                done += piece;
            }
            before += length;
        }
        Ok(())
    }

    /// Those that still have a descriptor.
    fn live(&self) -> MutexGuard<'_, Vec<Buffer>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|buffer| {
            let mut ends = [PollFd::new(&buffer.own, PollFlags::empty())];
            // Should it fail, the buffer stays.
            let is_closed = poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0);
            !is_closed
        });
        all
    }
}

fn inode(descriptor: BorrowedFd<'_>) -> Outcome<u64> {
    fstat(descriptor).map(|stat| stat.st_ino).map_err(|_| Status::INVALID_VALUE)
}
