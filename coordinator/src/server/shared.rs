//! The pages that a tenant and the server share.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use baton_contract::page::{Board, CoordinatorPage, PAGE_BYTES, TenantPage};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A kind of page. All its fields are atomics, so any bytes are a valid one, whoever writes them.
pub(super) trait Page {}

impl Page for CoordinatorPage {}
impl Page for TenantPage {}
impl Page for Board {}

/// A page mapped here, and the descriptor by which the tenant maps it.
#[derive(Debug)]
pub(super) struct Shared<P: Page>(NonNull<P>);

// SAFETY: a page holds nothing but atomics.
unsafe impl<P: Page> Send for Shared<P> {}

/// What a tenant's pages are called among its mappings.
pub(super) fn page_name(tenant: u32) -> String {
    format!("baton-page-{tenant}-of-{}", std::process::id())
}

impl<P: Page> Shared<P> {
    /// A page of zeros for a tenant of this number. With `sealed`, whoever gets the descriptor can only read it.
    pub(super) fn new(tenant: u32, sealed: bool) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create(page_name(tenant), MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, PAGE_BYTES as u64)?;
        // SAFETY: a new mapping wherever the system likes.
        let page = unsafe {
            mmap(std::ptr::null_mut(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?
        };
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if sealed {
            seals |= SealFlags::FUTURE_WRITE;
        }
        let shared = Self(page);
        fcntl_add_seals(&file, seals)?;
        Ok((shared, file))
    }
}

impl<P: Page> std::ops::Deref for Shared<P> {
    type Target = P;

    fn deref(&self) -> &P {
        // SAFETY: mapped until drop, page-aligned, at least as large as any page type, and made of atomics; the
        // file cannot shrink under us.
        unsafe { self.0.as_ref() }
    }
}

impl<P: Page> Drop for Shared<P> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}
