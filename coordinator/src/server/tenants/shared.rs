//! The pages that a tenant and the server share.
//!
//! Tenants have descriptors of them and map those. A page's file is open to this user alone, so that no other user opens it anew by
//! `/proc` with rights that it was not given.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use baton_contract::page::{ActivityPage, CoordinatorPage, ElsewherePage, PAGE_BYTES, TenantPage};
use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A kind of page. All its fields are atomics, so any bytes form a valid page, no matter which process writes them.
pub(in crate::server) trait Page {}

impl Page for CoordinatorPage {}
impl Page for TenantPage {}
impl Page for ActivityPage {}
impl Page for ElsewherePage {}

/// A page mapped here.
#[derive(Debug)]
pub(in crate::server) struct Shared<P: Page>(NonNull<P>);

// SAFETY: a page holds nothing but atomics.
unsafe impl<P: Page> Send for Shared<P> {}

impl<P: Page> Shared<P> {
    /// A page of zeros that the server writes, and the file by which tenants map it. They can only read it: seals see to
    /// that.
    pub(in crate::server) fn written_by_us() -> io::Result<(Self, OwnedFd)> {
        let file = new_file()?;
        let page = map(&file, ProtFlags::READ | ProtFlags::WRITE)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE)?;
        Ok((page, file))
    }

    /// A page of zeros that the server writes, and all processes that get its file. So it has no seal against writing: the seal
    /// would also hold for their mappings, which they have yet to make.
    pub(in crate::server) fn written_by_all() -> io::Result<(Self, OwnedFd)> {
        let file = new_file()?;
        let page = map(&file, ProtFlags::READ | ProtFlags::WRITE)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((page, file))
    }
}

/// A page that one tenant alone writes.
#[derive(Debug)]
pub(in crate::server) struct TenantsPage {
    page: Shared<TenantPage>,
    file: OwnedFd,
}

impl TenantsPage {
    /// A page of zeros. The server maps it only for reading.
    pub(in crate::server) fn new() -> io::Result<Self> {
        let file = new_file()?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        // The same file is opened once more: a file opened only for reading does not count as mapped writable.
        let page = map(&reopened(&file)?, ProtFlags::READ)?;
        Ok(Self { page, file })
    }

    /// A page that another coordinator has made.
    pub(in crate::server) fn of(file: OwnedFd) -> io::Result<Self> {
        let page = map(&reopened(&file)?, ProtFlags::READ)?;
        Ok(Self { page, file })
    }

    /// The file by which the tenant maps the page.
    pub(in crate::server) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// True if the tenant no longer has it mapped: its program has been replaced by another one (`exec`), which has none of the old
    /// one's mappings. The system refuses this seal as long as any process can write (fcntl(2)), in any namespace. Callers ask only
    /// about a tenant that probably has it mapped no more: the tenant cannot map it again.
    pub(in crate::server) fn is_let_go(&self) -> bool {
        fcntl_add_seals(&self.file, SealFlags::WRITE).is_ok()
    }
}

impl std::ops::Deref for TenantsPage {
    type Target = TenantPage;

    fn deref(&self) -> &TenantPage {
        &self.page
    }
}

fn new_file() -> io::Result<OwnedFd> {
    let file = memfd_create("baton-page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&file, PAGE_BYTES as u64)?;
    Ok(file)
}

/// A page's file, opened anew, only for reading.
pub(in crate::server) fn reopened(file: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}

fn map<P: Page>(file: impl AsFd, access: ProtFlags) -> io::Result<Shared<P>> {
    // SAFETY: a new mapping wherever the system likes.
    let page = unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, access, MapFlags::SHARED, file, 0)? };
    Ok(Shared(NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_page_is_let_go_when_nobody_has_it_mapped_for_writing() {
        let page = TenantsPage::new().expect("a page");
        let theirs: Shared<TenantPage> = map(page.file(), ProtFlags::READ | ProtFlags::WRITE).expect("mapped");
        assert!(!page.is_let_go());
        assert!(!page.is_let_go(), "asking changes nothing");
        drop(theirs);
        assert!(page.is_let_go());
    }
}
