//! Finding and opening the real driver.
//!
//! Where to look, in order: the file that `BATON_DRIVER` names, and nothing else if it is set; then
//! `libcuda.so.1` where the loader would look: the folders of `LD_LIBRARY_PATH`, the loader's cache,
//! and the folders where distributions and container runtimes put it. Always by full path, because the
//! bare name means this library. A file that is this library, or a copy of it, is passed over.

use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use baton_contract::settings;

use super::symbols::Function;
use crate::driver::ld_cache;
use crate::sys::once::Once;
use crate::sys::{cancel, user};

/// Exported so that this library, or a copy of it, is recognised by whoever finds it while looking for the
/// driver.
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

/// Where the driver's code begins and ends; nothing until it is open.
static CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Whether an address is in the driver's code; none as long as that is not known. Async-signal-safe.
pub(crate) fn has_code_at(address: usize) -> Option<bool> {
    let end = CODE[1].load(Ordering::Acquire);
    (end != 0).then(|| (CODE[0].load(Ordering::Relaxed)..end).contains(&address))
}

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
        // Not by `dlopen`, which may be ours or another library's: by name, the driver is this library.
        // SAFETY: the program's own namespace, a C string and documented flags. Local: the driver's names
        // must not be found in front of ours.
        let handle = unsafe { libc::dlmopen(libc::LM_ID_BASE, path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let driver = NonNull::new(handle).map(|handle| Self { handle }).filter(|driver| !driver.is_baton())?;
        driver.note_code();
        Some(driver)
    }

    /// Remembers where its code is.
    fn note_code(&self) {
        let Some(function) = self.symbol(c"cuInit") else { return };
        // SAFETY: zeros are valid where the loader fills in the structure.
        let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: an address of a library, and an out-parameter.
        if unsafe { libc::dladdr(function, &mut info) } == 0 {
            return;
        }
        let mut range = (info.dli_fbase.addr(), 0);
        unsafe extern "C" fn each(library: *mut libc::dl_phdr_info, _: usize, range: *mut c_void) -> libc::c_int {
            // SAFETY: what the loader hands to each call, and what is handed to it below.
            let (library, range) = unsafe { (&*library, &mut *range.cast::<(usize, usize)>()) };
            // SAFETY: the loader's own headers of a library that is loaded.
            let headers = unsafe { core::slice::from_raw_parts(library.dlpi_phdr, library.dlpi_phnum.into()) };
            let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
            let span = |header: &libc::Elf64_Phdr| {
                let start = library.dlpi_addr as usize + header.p_vaddr as usize;
                (start, start + header.p_memsz as usize)
            };
            let spans: Vec<(usize, usize)> = loaded.map(span).collect();
            if spans.iter().any(|(start, end)| (*start..*end).contains(&range.0)) {
                range.1 = spans.iter().map(|(_, end)| *end).max().unwrap_or(0);
                return 1;
            }
            0
        }
        // SAFETY: the callback above, and a pair that lives over the call.
        unsafe { libc::dl_iterate_phdr(Some(each), ptr::from_mut(&mut range).cast()) };
        CODE[0].store(range.0, Ordering::Relaxed);
        CODE[1].store(range.1, Ordering::Release);
    }

    /// The driver's function of this name.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<Function> {
        // SAFETY: an open handle and a C string.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
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
    // Opened twice it is still one library, with one handle.
    let named = user::setting(settings::DRIVER).map(PathBuf::from);
    let found = match &named {
        Some(path) => Driver::open(path),
        None => candidates().find_map(|path| Driver::open(&path)),
    };
    let (driver, ours) = DRIVER.keep(found);
    if let (None, true, Some(path)) = (driver, ours, named) {
        user::warn(format_args!(
            "BATON_DRIVER={} is not a CUDA driver that can be opened; there is no GPU for this program",
            path.display()
        ));
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
