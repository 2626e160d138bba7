//! Pages that other processes share with this one, mapped for ever.

use core::ptr::{self, NonNull};
use std::os::fd::{AsRawFd, OwnedFd};

use baton_contract::page::PAGE_BYTES;

fn access(writable: bool) -> libc::c_int {
    if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ }
}

/// Maps a page for ever.
pub(crate) fn map(file: &OwnedFd, writable: bool) -> Option<NonNull<libc::c_void>> {
    let file = file.as_raw_fd();
    // SAFETY: a new mapping wherever the system likes.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, access(writable), libc::MAP_SHARED, file, 0) };
    if page == libc::MAP_FAILED { None } else { NonNull::new(page) }
}

/// Maps another page, read-only, where one lies that [`map`] has mapped. Threads that read there meanwhile find the one or the other.
pub(crate) fn replace<T>(page: NonNull<T>, file: &OwnedFd) -> bool {
    let (at, file) = (page.cast().as_ptr(), file.as_raw_fd());
    // SAFETY: over a mapping of this size, of atomics that are only read.
    let mapped = unsafe { libc::mmap(at, PAGE_BYTES, access(false), libc::MAP_SHARED | libc::MAP_FIXED, file, 0) };
    mapped != libc::MAP_FAILED
}
