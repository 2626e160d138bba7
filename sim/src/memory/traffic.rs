//! The only place that touches the device's memory.
//!
//! Copies, fills and kernels reach it through an address that is looked up anew for every piece, as the
//! device looks up its page tables: memory that is unmapped meanwhile, or whose access is taken
//! away, is `CUDA_ERROR_ILLEGAL_ADDRESS` from then on and never a crash of the host.
//!
//! Several streams, other processes and (for pinned memory) the program's own threads may use the same bytes at
//! the same time. As on the device, a read then gives one or the other; nothing here depends on it.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::space::{Table, allows};
use super::view::View;
use crate::errors::{Outcome, Status};

/// How much is copied or computed before the address is looked up again.
pub(crate) const PIECE: usize = 1 << 20;

/// Plain numbers that any bytes are a value of.
pub(crate) trait Plain: Copy + Default + Send + 'static {}
impl Plain for u8 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for f32 {}

/// One end of a copy.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Reached by the device: its own memory, or host memory that is pinned.
    Device(u64),
    /// The program's own memory, at its own risk.
    Host(u64),
    /// A part of what was staged when the copy was submitted.
    Staged(Arc<Vec<u8>>, usize),
}

impl Place {
    /// The place `bytes` further.
    pub(crate) fn plus(&self, bytes: u64) -> Place {
        match self {
            Place::Device(at) => Place::Device(at.wrapping_add(bytes)),
            Place::Host(at) => Place::Host(at.wrapping_add(bytes)),
            Place::Staged(all, at) => Place::Staged(all.clone(), at + bytes as usize),
        }
    }
}

impl View<'_> {
    /// Reads numbers from consecutive addresses.
    pub(crate) fn read<T: Plain>(&self, at: u64, into: &mut [T]) -> Outcome {
        let bytes = size_of_val(into);
        aligned::<T>(at)?;
        // SAFETY: `into` is writable for its own size, and any bytes are a `T`.
        unsafe { self.read_raw(at, into.as_mut_ptr().cast(), bytes) }
    }

    /// Writes numbers to consecutive addresses.
    pub(crate) fn write<T: Plain>(&self, at: u64, from: &[T]) -> Outcome {
        let bytes = size_of_val(from);
        aligned::<T>(at)?;
        // SAFETY: `from` is readable for its own size, and has no bytes that are not a number's.
        unsafe { self.write_raw(at, from.as_ptr().cast(), bytes) }
    }

    /// Copies bytes from one place to another.
    pub(crate) fn copy(&self, dst: &Place, src: &Place, bytes: usize) -> Outcome {
        let mut done = 0;
        while done < bytes {
            let piece = PIECE.min(bytes - done);
            self.copy_piece(&dst.plus(done as u64), &src.plus(done as u64), piece)?;
            done += piece;
        }
        Ok(())
    }

    /// Writes a pattern of 1, 2 or 4 bytes `count` times.
    pub(crate) fn fill(&self, at: u64, pattern: &[u8], count: usize) -> Outcome {
        let total = pattern.len() * count;
        if pattern.iter().all(|byte| *byte == 0) {
            return self.zero(at, total);
        }
        let buffer = pattern.repeat(count.min(PIECE / pattern.len()));
        let mut done = 0;
        while done < total {
            let piece = buffer.len().min(total - done);
            self.write(at + done as u64, &buffer[..piece])?;
            done += piece;
        }
        Ok(())
    }

    /// Zeros what was written since it was made. The rest is zero, and takes no memory of this machine as long as it is not touched.
    fn zero(&self, at: u64, total: usize) -> Outcome {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut done = 0;
        while done < total {
            let (room, is_zero) = self.at_work().made(self, at.wrapping_add(done as u64))?;
            let piece = room.min(total - done).min(if is_zero { usize::MAX } else { ZEROS.len() });
            if !is_zero {
                self.write(at.wrapping_add(done as u64), &ZEROS[..piece])?;
            }
            done += piece;
        }
        Ok(())
    }

    /// Uses the 32-bit word at an address as others use it at the same time.
    pub(crate) fn word32<R>(&self, at: u64, write: bool, use_it: impl FnOnce(&AtomicU32) -> R) -> Outcome<R> {
        aligned::<u32>(at)?;
        let table = self.at_work();
        let (start, _) = table.span(self, at, write)?;
        // SAFETY: aligned, inside a mapping that the lock keeps, and reached only with atomics or raw copies.
        Ok(use_it(unsafe { AtomicU32::from_ptr(start.cast()) }))
    }

    /// Uses the 64-bit word at an address as others use it at the same time.
    pub(crate) fn word64<R>(&self, at: u64, write: bool, use_it: impl FnOnce(&AtomicU64) -> R) -> Outcome<R> {
        aligned::<u64>(at)?;
        let table = self.at_work();
        let (start, _) = table.span(self, at, write)?;
        // SAFETY: aligned, inside a mapping that the lock keeps, and reached only with atomics or raw copies.
        Ok(use_it(unsafe { AtomicU64::from_ptr(start.cast()) }))
    }

    /// The program's own bytes, as they are now.
    pub(crate) fn host_bytes(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        // SAFETY: the program promised to let the driver read its memory here.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(host(at), bytes) };
        copy
    }

    fn copy_piece(&self, dst: &Place, src: &Place, bytes: usize) -> Outcome {
        match (dst, src) {
            (Place::Staged(..), _) => Err(Status::INVALID_VALUE),
            (Place::Device(dst), Place::Staged(all, at)) => {
                self.write(*dst, all.get(*at..at + bytes).ok_or(Status::INVALID_VALUE)?)
            }
            (Place::Device(dst), Place::Host(src)) => {
                // SAFETY: the program promised to let the driver read its memory here.
                unsafe { self.write_raw(*dst, host(*src).cast_const(), bytes) }
            }
            (Place::Host(dst), Place::Device(src)) => {
                // SAFETY: the program promised to let the driver write its memory here.
                unsafe { self.read_raw(*src, host(*dst), bytes) }
            }
            (Place::Device(dst), Place::Device(src)) => self.copy_reached(*dst, *src, bytes),
            (Place::Host(dst), Place::Staged(all, at)) => {
                let from = all.get(*at..at + bytes).ok_or(Status::INVALID_VALUE)?;
                // SAFETY: the program promised to let the driver write its memory here.
                unsafe { host(*dst).copy_from(from.as_ptr(), bytes) };
                Ok(())
            }
            (Place::Host(dst), Place::Host(src)) => {
                // SAFETY: the program promised both; they may overlap.
                unsafe { host(*dst).copy_from(host(*src), bytes) };
                Ok(())
            }
        }
    }

    /// Copies between two places that the device reaches.
    fn copy_reached(&self, dst: u64, src: u64, bytes: usize) -> Outcome {
        let table = self.at_work();
        let mut done = 0;
        while done < bytes {
            let (from, readable) = table.span(self, src.wrapping_add(done as u64), false)?;
            let (to, writable) = table.span(self, dst.wrapping_add(done as u64), true)?;
            let piece = readable.min(writable).min(bytes - done);
            // SAFETY: both are valid for the piece while the lock is held; they may overlap.
            unsafe { to.copy_from(from, piece) };
            done += piece;
        }
        Ok(())
    }

    /// # Safety
    /// `into` is writable for `bytes`.
    unsafe fn read_raw(&self, at: u64, into: *mut u8, bytes: usize) -> Outcome {
        let table = self.at_work();
        let mut done = 0;
        while done < bytes {
            let (start, room) = table.span(self, at.wrapping_add(done as u64), false)?;
            let piece = room.min(bytes - done);
            // SAFETY: `start` is readable for `room` while the lock is held; `into` by the caller.
            unsafe { into.add(done).copy_from(start, piece) };
            done += piece;
        }
        Ok(())
    }

    /// # Safety
    /// `from` is readable for `bytes`.
    unsafe fn write_raw(&self, at: u64, from: *const u8, bytes: usize) -> Outcome {
        let table = self.at_work();
        let mut done = 0;
        while done < bytes {
            let (start, room) = table.span(self, at.wrapping_add(done as u64), true)?;
            let piece = room.min(bytes - done);
            // SAFETY: `start` is writable for `room` while the lock is held; `from` by the caller.
            unsafe { start.copy_from(from.add(done), piece) };
            done += piece;
        }
        Ok(())
    }
}

impl Table {
    /// How many bytes there are from an address that can be written, and whether none of them was since the memory was made.
    fn made(&self, seen: &View<'_>, at: u64) -> Outcome<(usize, bool)> {
        let (_, room) = self.span(seen, at, true)?;
        let Some((base, mapping)) = self.mapping(at) else { return Ok((room, false)) };
        let written = mapping.phys.next_written(at - base).unwrap_or(mapping.phys.bytes());
        let untouched = (written - (at - base)) as usize;
        Ok(if untouched == 0 { (room, false) } else { (untouched.min(room), true) })
    }

    /// Where an address is in this process, and for how many bytes. Valid while the table is held. (The reach
    /// into the driver's own memory ends with an allocation; as on the device, going beyond that is not always found out.)
    fn span(&self, seen: &View<'_>, at: u64, write: bool) -> Outcome<(*mut u8, usize)> {
        if let Some((base, mapping)) = self.mapping(at) {
            if !allows(seen.access_for(write, self, at, mapping), write) {
                return Err(Status::ILLEGAL_ADDRESS);
            }
            let offset = (at - base) as usize;
            let start = mapping.phys.contents().wrapping_add(offset);
            let room = mapping.phys.bytes() - offset as u64;
            let there = if mapping.pooled { self.leased(at).ok_or(Status::ILLEGAL_ADDRESS)? } else { room };
            return Ok((start, room.min(there) as usize));
        }
        if let Some((base, range)) = self.host(at) {
            return Ok((host(at), (range.bytes - (at - base)) as usize));
        }
        if self.reaches_pages && seen.is_of_kernels() && is_mapped(at) {
            return Ok((host(at), PAGE - at as usize % PAGE));
        }
        Err(Status::ILLEGAL_ADDRESS)
    }
}

const PAGE: usize = 4096;

/// True if the program has a page there. It must not unmap it while kernels use it.
fn is_mapped(at: u64) -> bool {
    let mut is_resident = 0;
    let page = std::ptr::without_provenance_mut(at as usize & !(PAGE - 1));
    // SAFETY: reads nothing there, and writes one byte about one page.
    unsafe { libc::mincore(page, PAGE, &mut is_resident) == 0 }
}

fn host(at: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(at as usize)
}

fn aligned<T>(at: u64) -> Outcome {
    if at.is_multiple_of(align_of::<T>() as u64) { Ok(()) } else { Err(Status::MISALIGNED_ADDRESS) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu_file::Gpu;
    use crate::memory::phys::{GRANULARITY, Phys};
    use crate::memory::space::{Access, Space};
    use crate::memory::view::Who;
    use std::sync::atomic::Ordering;

    /// A GPU, a space, and what the driver's copies see of it there.
    fn setup() -> (&'static Gpu, &'static Space, View<'static>) {
        let gpu: &'static Gpu = Box::leak(Box::new(Gpu::open(None, 64 << 20, None).unwrap()));
        let space: &'static Space = Box::leak(Box::default());
        (gpu, space, View::new(space, gpu, Who::Copies))
    }

    #[test]
    fn new_memory_is_zero_and_keeps_what_is_written() {
        let (gpu, space, seen) = setup();
        let at = space.allocate(gpu, 8 << 20, 1, false).unwrap();
        let mut got = [7u32; 4];
        seen.read(at + (5 << 20), &mut got).unwrap();
        assert_eq!(got, [0; 4]);
        seen.fill(at, &0xABCDu16.to_le_bytes(), 4 << 20).unwrap();
        seen.read(at + (8 << 20) - 16, &mut got).unwrap();
        assert_eq!(got, [0xABCD_ABCD; 4]);
    }

    #[test]
    fn memory_that_is_not_there_or_not_allowed_is_an_illegal_address() {
        let (gpu, space, seen) = setup();
        let start = space.change().reserve(8 << 20, GRANULARITY, 0, true).unwrap();
        let mut byte = [0u8];
        assert_eq!(seen.read(start, &mut byte), Err(Status::ILLEGAL_ADDRESS));
        let phys = Arc::new(Phys::create(gpu, GRANULARITY, true).unwrap());
        space.change().map_for_program(start, phys, 1).unwrap();
        assert_eq!(seen.read(start, &mut byte), Err(Status::ILLEGAL_ADDRESS));
        space.change().set_access(start, GRANULARITY, 0, Access::Read).unwrap();
        assert_eq!(seen.read(start, &mut byte), Ok(()));
        assert_eq!(seen.write(start, &byte), Err(Status::ILLEGAL_ADDRESS));
        assert_eq!(seen.read(start + 1, &mut [0u32]), Err(Status::MISALIGNED_ADDRESS));
        assert_eq!(seen.read(0, &mut byte), Err(Status::ILLEGAL_ADDRESS));
    }

    #[test]
    fn handles_mapped_side_by_side_are_one_range_and_keep_their_contents_when_they_move() {
        let (gpu, space, seen) = setup();
        let start = space.change().reserve(8 << 20, GRANULARITY, 0, true).unwrap();
        for at in 0..2 {
            let phys = Arc::new(Phys::create(gpu, GRANULARITY, true).unwrap());
            space.change().map_for_program(start + at * GRANULARITY, phys, 1).unwrap();
        }
        space.change().set_access(start, 2 * GRANULARITY, 0, Access::ReadWrite).unwrap();
        let data: Vec<u32> = (0..1000).collect();
        seen.write(start + GRANULARITY - 2000, &data).unwrap();
        let gone = space.change().unmap(start, 2 * GRANULARITY).unwrap();
        for (at, mapping) in gone.into_iter().enumerate() {
            let place = start + (at as u64 + 2) * GRANULARITY;
            space.change().map_for_program(place, mapping.phys, 1).unwrap();
        }
        space.change().set_access(start + 2 * GRANULARITY, 2 * GRANULARITY, 0, Access::ReadWrite).unwrap();
        let mut got = vec![0u32; 1000];
        seen.read(start + 3 * GRANULARITY - 2000, &mut got).unwrap();
        assert_eq!(got, data);
        assert_eq!(seen.read(start, &mut got), Err(Status::ILLEGAL_ADDRESS));
    }

    #[test]
    fn words_are_shared_with_whoever_else_uses_them() {
        let (gpu, space, seen) = setup();
        let at = space.allocate(gpu, 64, 1, false).unwrap();
        seen.word64(at + 8, true, |word| word.fetch_add(5, Ordering::Relaxed)).unwrap();
        let mut got = [0u64; 2];
        seen.read(at, &mut got).unwrap();
        assert_eq!(got, [0, 5]);
    }
}
