//! Finding and opening the real driver.
//!
//! The places, in order: the file that `BATON_DRIVER` names, and no other if it is set; then `libcuda.so.1` where the loader would find
//! it: the folders of `LD_LIBRARY_PATH`, the loader's cache, and the folders where distributions and container runtimes put it. Always by
//! full path, because the bare name means this library. A file that is this library, or a copy of it, is passed over.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use baton_contract::settings;

use super::family;
use super::symbols::Function;
use crate::driver::ld_cache;
use crate::sys::once::Once;
use crate::sys::{cancel, user};

/// Exported so that a search for the driver recognises this library, or a copy of it.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[used]
static baton_version: [u8; VERSION.len()] = *VERSION.as_bytes().first_chunk().expect("as long as itself");

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Usual folders, for systems whose loader cache does not list the driver.
const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/cuda/compat",
];

/// The real driver, open.
pub(crate) struct Driver {
    handle: NonNull<c_void>,
}

// SAFETY: a handle of dlopen may be used from every thread.
unsafe impl Send for Driver {}
// SAFETY: as above; dlsym takes its own locks.
unsafe impl Sync for Driver {}

impl Driver {
    fn open(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // Local: the driver's names must not be found in front of ours.
        let handle = family::open(&path, libc::RTLD_NOW | libc::RTLD_LOCAL)?;
        let driver = Some(Self { handle }).filter(|driver| !driver.is_baton())?;
        family::join(&path, handle);
        Some(driver)
    }

    /// The driver's function of this name.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<Function> {
        let found = family::symbol(self.handle, name);
        (!found.is_null()).then_some(found)
    }

    fn is_baton(&self) -> bool {
        self.symbol(c"baton_version").is_some()
    }
}

/// The real driver, opened by the first caller; `None` on a machine without one.
pub(crate) fn get() -> Option<&'static Driver> {
    static DRIVER: Once<Option<Driver>> = Once::new();
    if let Some(known) = DRIVER.get() {
        return known.as_ref();
    }
    let _uncancelled = cancel::Off::begin();
    // A library that is opened twice is still one library, with one handle.
    let named = user::setting(settings::DRIVER).map(PathBuf::from);
    let found = match &named {
        Some(path) => Driver::open(path),
        None => candidates().find_map(|path| Driver::open(&path)),
    };
    let (driver, ours) = DRIVER.keep(found);
    if let (None, true, Some(path)) = (driver, ours, named) {
        user::warn(&baton_messages::named_driver_does_not_open(path.display()));
    }
    driver.as_ref()
}

/// Every place where the driver may be, best first.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let path = user::setting(c"LD_LIBRARY_PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = path
        .as_bytes()
        .split(|b| matches!(b, b':' | b';'))
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(OsStr::from_bytes(folder)).join("libcuda.so.1"))
        .collect();
    let cached = ld_cache::paths_of("libcuda.so.1");
    let usual = FOLDERS.iter().map(|folder| Path::new(folder).join("libcuda.so.1"));
    listed.into_iter().chain(cached).chain(usual).filter(|path| path.exists())
}
