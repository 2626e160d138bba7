//! The host's mappings that the driver makes: a shared table, a handle's memory, reserved addresses.
//!
//! Each type owns its mapping and ends it when dropped. None is inherited by a forked child, which is no
//! CUDA process.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A mapping of a file's first bytes, readable and writable, shared with all that map the file too; or of no file.
pub(crate) struct SharedBytes {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread; access goes through raw pointers or atomics only.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// Maps `length` bytes of the file.
    pub(crate) fn map(file: impl AsFd, length: usize) -> Result<SharedBytes, Errno> {
        SharedBytes::map_from(file, 0, length)
    }

    /// Maps `length` bytes of the file from an offset on, which is a multiple of a page.
    pub(crate) fn map_from(file: impl AsFd, offset: u64, length: usize) -> Result<SharedBytes, Errno> {
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset,
            )?
        };
        SharedBytes::new(start, length)
    }

    /// Maps `length` bytes of no file, all zero: no other process can have them, and no descriptor is needed.
    pub(crate) fn anonymous(length: usize) -> Result<SharedBytes, Errno> {
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
            )?
        };
        SharedBytes::new(start, length)
    }

    /// Becomes a mapping of a file, which `other` is of too, with its own contents, where it is. No other thread may write to either
    /// meanwhile.
    pub(crate) fn become_file(&self, file: impl AsFd, other: SharedBytes) -> Result<(), Errno> {
        assert!(other.length == self.length, "mappings of one length");
        // SAFETY: both are mapped and this long, and apart.
        unsafe { other.start().copy_from_nonoverlapping(self.start(), self.length) };
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED);
        let start = self.start.as_ptr().cast();
        // SAFETY: replaces this value's own mapping and nothing else, by one of the same length and contents.
        unsafe { rustix::mm::mmap(start, self.length, prot, flags, file, 0)? };
        // SAFETY: the range is the mapping just made; the advice changes no content.
        let _ = unsafe { rustix::mm::madvise(start, self.length, Advice::LinuxDontFork) };
        Ok(())
    }

    /// Takes over a mapping that was just made.
    fn new(start: *mut c_void, length: usize) -> Result<SharedBytes, Errno> {
        // A child that inherited it would be refused by the driver anyway, and would keep memory alive.
        // SAFETY: the range is the mapping just made; the advice changes no content.
        let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxDontFork) };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(SharedBytes { start, length })
    }

    /// The first byte. Valid for the mapping's length as long as `self` lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Fills it with this word. It holds zeros and is new: no other code has it yet.
    pub(crate) fn begin_with(&mut self, word: u64) {
        if word != 0 {
            // SAFETY: the mapping is this long, aligned to pages, and no other code's.
            unsafe { std::slice::from_raw_parts_mut(self.start().cast::<u64>(), self.length / 8) }.fill(word);
        }
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, and no code can use it after the drop.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A shared mapping of 64-bit words that other processes change too: atomics only.
pub(crate) struct SharedWords {
    bytes: SharedBytes,
    count: usize,
}

impl SharedWords {
    /// Maps the file's first `count` words. The file is that long.
    pub(crate) fn map(file: impl AsFd, count: usize) -> Result<SharedWords, Errno> {
        Ok(SharedWords { bytes: SharedBytes::map(file, count * 8)?, count })
    }

    /// The words.
    pub(crate) fn get(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `count` words long, lives as long as `self`, and is
        // reached by all through atomics.
        unsafe { std::slice::from_raw_parts(self.bytes.start().cast::<AtomicU64>(), self.count) }
    }
}

/// Reserved addresses: nothing of the host is there, and touching them from the host faults, as
/// touching a device address should.
pub(crate) struct Reserved {
    start: u64,
    length: u64,
}

impl Reserved {
    /// Reserves `length` bytes at a multiple of `alignment` (a power of two), at `wish` if that is free.
    pub(crate) fn anywhere(length: u64, alignment: u64, wish: u64) -> Result<Reserved, Errno> {
        if wish != 0
            && wish.is_multiple_of(alignment)
            && let Ok(reserved) = Reserved::exactly(wish, length)
        {
            return Ok(reserved);
        }
        let room = length.checked_add(alignment).ok_or(Errno::NOMEM)?;
        let start = reserve(0, room, MapFlags::empty())?;
        let aligned = start.next_multiple_of(alignment);
        unmap(start, aligned - start);
        unmap(aligned + length, start + room - (aligned + length));
        Ok(Reserved { start: aligned, length })
    }

    /// Reserves exactly these addresses, or fails.
    pub(crate) fn exactly(start: u64, length: u64) -> Result<Reserved, Errno> {
        let got = reserve(start, length, MapFlags::FIXED_NOREPLACE)?;
        if got != start {
            // A kernel that does not know the flag took the address as a wish only.
            unmap(got, length);
            return Err(Errno::EXIST);
        }
        Ok(Reserved { start, length })
    }

    /// The first address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// How many bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        unmap(self.start, self.length);
    }
}

/// Page-locked memory of the driver's own making, for `cuMemHostAlloc`: anonymous, zero, kept until drop.
pub(crate) struct HostPages {
    start: usize,
    length: usize,
}

impl HostPages {
    /// Maps `length` bytes.
    pub(crate) fn map(length: usize) -> Result<HostPages, Errno> {
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        Ok(HostPages { start: start.expose_provenance(), length })
    }

    /// The first address.
    pub(crate) fn start(&self) -> usize {
        self.start
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        unmap(self.start as u64, self.length as u64);
    }
}

fn reserve(wish: u64, length: u64, flags: MapFlags) -> Result<u64, Errno> {
    let length = usize::try_from(length).map_err(|_| Errno::NOMEM)?;
    // SAFETY: without a fixed place the kernel chooses one; with `FIXED_NOREPLACE` it refuses a range
    // where something is. Either way nothing that exists is replaced.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::without_provenance_mut::<c_void>(wish as usize),
            length,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE | flags,
        )?
    };
    Ok(start as u64)
}

fn unmap(start: u64, length: u64) {
    if length == 0 {
        return;
    }
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(start as usize);
    // SAFETY: callers pass ranges that they reserved or mapped themselves and give up now.
    let _ = unsafe { rustix::mm::munmap(start, length as usize) };
}

/// True if the host may read at this address: used before host memory is registered.
pub(crate) fn is_host_memory(start: usize, length: usize) -> bool {
    let page = rustix::param::page_size();
    let first = start / page * page;
    let length = (start + length).next_multiple_of(page) - first;
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(first);
    // `msync` of nothing-to-do fails with ENOMEM if any page of the range is not mapped.
    // SAFETY: asynchronous flushing changes no content and no mapping.
    unsafe { rustix::mm::msync(start, length, rustix::mm::MsyncFlags::ASYNC) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_reserved_where_wished_and_aligned_where_not() {
        let first = Reserved::anywhere(4 << 20, 2 << 20, 0).unwrap();
        assert!(first.start().is_multiple_of(2 << 20));
        assert!(Reserved::exactly(first.start(), 2 << 20).is_err());
        // Where no other mapping is, also not of another test's thread meanwhile.
        let place = 0x3000_0000_0000;
        let second = Reserved::anywhere(4 << 20, 2 << 20, place).unwrap();
        assert_eq!(second.start(), place);
        assert_ne!(Reserved::anywhere(4 << 20, 2 << 20, place).unwrap().start(), place);
    }

    #[test]
    fn a_tebibyte_of_addresses_can_be_reserved() {
        assert_eq!(Reserved::anywhere(1 << 40, 2 << 20, 0).unwrap().length(), 1 << 40);
    }

    #[test]
    fn host_memory_is_told_from_holes() {
        let here = [0u8; 64];
        assert!(is_host_memory(here.as_ptr().addr(), 64));
        assert!(!is_host_memory(16, 64));
    }
}
