//! Finds the caller of a function: the program, or the driver inside a call of the program's.
//!
//! Another library's function of the same name may stand between, such as that of a sanitizer, and look like the caller. So the stack
//! is walked.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::ffi::CString;

use crate::driver::family;

/// The caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The driver.
    Driver,
    /// A function that the driver has called: in a library of its own, or of the program's.
    BelowDriver,
    /// Any other code.
    Program,
}

/// True if a call that returns to `caller` is the driver's. Functions in between are not considered.
pub(super) fn is_driver(caller: usize) -> bool {
    family::is_opening() || family::has_code_at(caller) == Some(true)
}

/// The caller of `dlopen`, which returns to `caller`.
pub(super) fn of(caller: usize) -> Asker {
    match family::has_code_at(caller) {
        _ if is_driver(caller) => Asker::Driver,
        None => Asker::Program,
        Some(_) => {
            let mut walk = Walk { caller, is_past_callers: false, found: Asker::Program };
            // SAFETY: the callback below, and its argument, which lives over the call.
            unsafe { _Unwind_Backtrace(step, ptr::from_mut(&mut walk).cast()) };
            walk.found
        }
    }
}

/// The state of a walk along the stack.
struct Walk {
    /// The address that the call returns to: frames before that are ours.
    caller: usize,
    /// The real caller, which does not just hand the call on, has been seen.
    is_past_callers: bool,
    found: Asker,
}

const GO_ON: c_int = 0;
/// Any other code ends the walk.
const END: c_int = 4;

/// Asks `dladdr1` for the library's entry in the loader's list (`dlfcn.h`).
const RTLD_DL_LINKMAP: c_int = 2;

unsafe extern "C" {
    /// Calls a function for each frame of the stack, the innermost first (the unwinder's, of libgcc_s).
    fn _Unwind_Backtrace(step: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void)
    -> c_int;
    /// The address at which a frame goes on.
    safe fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

unsafe extern "C" fn step(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the argument that was given to the walk.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    let address = _Unwind_GetIP(frame);
    if walk.caller != 0 {
        if address == walk.caller {
            walk.caller = 0;
        } else {
            return GO_ON;
        }
    }
    if family::has_code_at(address) == Some(true) {
        walk.found = if walk.is_past_callers { Asker::BelowDriver } else { Asker::Driver };
        return END;
    }
    walk.is_past_callers |= !hands_on(address, c"dlopen");
    GO_ON
}

/// True if an address lies in a library that has a function of this name itself: such a library stands in front of ours.
fn hands_on(address: usize, name: &CStr) -> bool {
    let Some(library) = library_at(ptr::with_exposed_provenance(address)) else { return false };
    // A function that the library lacks is found in the libraries that it needs.
    family::symbol_in(&library.path, name).is_some_and(|function| library_at(function) == Some(library))
}

/// A library that is loaded, as the loader lists it.
#[derive(PartialEq, Eq)]
struct Library {
    entry: *mut c_void,
    /// Empty if it is the program itself.
    path: CString,
}

/// The library in which an address lies.
fn library_at(address: *const c_void) -> Option<Library> {
    // SAFETY: zeros are valid where the loader fills in the structure.
    let (mut info, mut entry): (libc::Dl_info, *mut c_void) = unsafe { (core::mem::zeroed(), ptr::null_mut()) };
    // SAFETY: an address, and out-parameters.
    let known = unsafe { libc::dladdr1(address, &mut info, &mut entry, RTLD_DL_LINKMAP) } != 0;
    if !known || entry.is_null() {
        return None;
    }
    // SAFETY: a `struct link_map` (`link.h`) of a library that runs; its second word is its path.
    let path = unsafe { CStr::from_ptr(*entry.cast::<*const c_char>().add(1)) };
    Some(Library { entry, path: path.to_owned() })
}
