//! The libraries of the driver: the one that we have opened, and those that it opens by a path itself, as WSL's `libcuda.so.1` does with
//! `libcuda.so.1.1`.
//!
//! Such an opening has to give the driver the library that it asks for. By our own exports its calls would come back to it for ever.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use std::ffi::CString;

use super::symbols::Function;
use crate::sys::once::Once;

/// The most libraries that are known to be the driver's.
const MOST: usize = 4;

static MEMBERS: [Once<Member>; MOST] = [const { Once::new() }; MOST];

thread_local! {
    /// The path of the driver that this thread is opening, or null.
    static OPENING: Cell<*const c_char> = const { Cell::new(ptr::null()) };
}

/// A library of the driver's. It is never closed.
struct Member {
    path: CString,
    handle: NonNull<c_void>,
    /// The start and the end of its code.
    code: (usize, usize),
}

// SAFETY: a handle of dlopen may be used from every thread, and the rest is only read.
unsafe impl Send for Member {}
// SAFETY: as above; dlsym takes its own locks.
unsafe impl Sync for Member {}

/// Opens a library, without `dlopen`, which may be ours or another library's.
pub(crate) fn open_as_it_is(path: &CStr, flags: c_int) -> Option<NonNull<c_void>> {
    let path = if path.is_empty() { ptr::null() } else { path.as_ptr() };
    // SAFETY: the program's own namespace, null or a C string, and documented flags.
    NonNull::new(unsafe { libc::dlmopen(libc::LM_ID_BASE, path, flags) })
}

/// Opens a library that may be the driver. Libraries that its start-up code opens meanwhile, in this thread, are for the driver.
pub(super) fn open(path: &CStr, flags: c_int) -> Option<NonNull<c_void>> {
    let outer = OPENING.replace(path.as_ptr());
    let opened = open_as_it_is(path, flags);
    OPENING.set(outer);
    opened
}

/// Adds an open library to the driver; false if it is not the driver's.
pub(super) fn join(path: &CStr, handle: NonNull<c_void>) -> bool {
    // A library that needs the driver finds our exports.
    let ours = join as *const () as usize;
    let Some(code) = code_of(handle).filter(|code| !(code.0..code.1).contains(&ours)) else { return false };
    for place in &MEMBERS {
        let make = || place.keep(Member { path: path.to_owned(), handle, code }).0;
        if place.get().unwrap_or_else(make).handle == handle {
            return true;
        }
    }
    false
}

/// Called when the driver opens another library, which may be its own.
pub(crate) fn extend(path: &CStr, flags: c_int) {
    if let Some(handle) = open(path, flags)
        && !join(path, handle)
    {
        close(handle);
    }
}

fn close(handle: NonNull<c_void>) {
    // SAFETY: a handle of our own, which is no longer used.
    unsafe { libc::dlclose(handle.as_ptr()) };
}

fn members() -> impl Iterator<Item = &'static Member> {
    MEMBERS.iter().map_while(Once::get)
}

/// The path of the driver that this thread is opening, or that was opened: the driver means it by its own name.
pub(crate) fn own_path() -> *const c_char {
    let opening = OPENING.get();
    if opening.is_null() { members().next().map_or(ptr::null(), |member| member.path.as_ptr()) } else { opening }
}

/// True if this thread is opening the driver.
pub(crate) fn is_opening() -> bool {
    !OPENING.get().is_null()
}

/// True if a path leads to one of these libraries.
pub(crate) fn is_member(path: &CStr) -> bool {
    while_open(path, |handle| members().any(|member| member.handle == handle)).unwrap_or(false)
}

/// The function that a loaded library, by its path, or the program itself, by an empty path, means by this name.
pub(crate) fn symbol_in(path: &CStr, name: &CStr) -> Option<Function> {
    while_open(path, |handle| symbol(handle, name)).filter(|function| !function.is_null())
}

/// Runs a closure with the handle of a loaded library; `None` if it is not loaded.
fn while_open<T>(path: &CStr, with: impl FnOnce(NonNull<c_void>) -> T) -> Option<T> {
    let handle = open_as_it_is(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD)?;
    let made = with(handle);
    close(handle);
    Some(made)
}

/// True if an address is in the driver's code; `None` as long as that is not known. Async-signal-safe.
pub(crate) fn has_code_at(address: usize) -> Option<bool> {
    let mut known = members().peekable();
    known.peek()?;
    Some(known.any(|member| (member.code.0..member.code.1).contains(&address)))
}

/// True if this is the driver's function of this name, in any of its libraries.
pub(crate) fn is_named(function: Function, name: &CStr) -> bool {
    members().any(|member| ptr::eq(symbol(member.handle, name), function))
}

/// A library's function of this name, or null.
pub(crate) fn symbol(library: NonNull<c_void>, name: &CStr) -> Function {
    // SAFETY: an open handle and a C string.
    unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) }
}

/// The start and the end of a driver's code.
fn code_of(library: NonNull<c_void>) -> Option<(usize, usize)> {
    let function = symbol(library, c"cuInit");
    // SAFETY: zeros are valid where the loader fills in the structure.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: an address, and an out-parameter.
    if function.is_null() || unsafe { libc::dladdr(function, &mut info) } == 0 {
        return None;
    }
    let mut range = (info.dli_fbase.addr(), 0);
    unsafe extern "C" fn each(library: *mut libc::dl_phdr_info, _: usize, range: *mut c_void) -> c_int {
        // SAFETY: the arguments that the loader gives to each call, and the one that is given to it below.
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
    (range.1 != 0).then_some(range)
}
