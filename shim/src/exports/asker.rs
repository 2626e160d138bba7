//! Who makes a call: the program, or the driver inside of a call of the program's.
//!
//! Another library's function of the same name may stand between, such as that of a sanitizer, and look like the caller. So the stack
//! is walked.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use crate::driver::family;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The driver.
    Driver,
    /// Something that the driver has called: a library of its own, or of the program's.
    BelowDriver,
    /// Anybody else.
    Program,
}

/// Who has called `dlopen`, which returns to `caller`.
pub(super) fn of(caller: usize) -> Asker {
    if family::is_opening() {
        return Asker::Driver;
    }
    match family::has_code_at(caller) {
        None => Asker::Program,
        Some(true) => Asker::Driver,
        Some(false) => {
            let mut walk = Walk { caller, is_past_callers: false, found: Asker::Program };
            // SAFETY: the callback below, and what it is handed, which lives over the call.
            unsafe { _Unwind_Backtrace(step, ptr::from_mut(&mut walk).cast()) };
            walk.found
        }
    }
}

/// How far the stack has been walked.
struct Walk {
    /// Where the call returns to: frames before that are ours.
    caller: usize,
    /// Whether the one has been seen who means the call, and does not just hand it on.
    is_past_callers: bool,
    found: Asker,
}

const GO_ON: c_int = 0;
/// Any other code ends the walk.
const END: c_int = 4;

unsafe extern "C" {
    /// Calls a function for each frame of the stack, the innermost first (the unwinder's, of libgcc_s).
    fn _Unwind_Backtrace(step: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void)
    -> c_int;
    /// Where a frame goes on.
    safe fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    /// As `dladdr`, and more about the library (`dladdr(3)`).
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, more: *mut *mut c_void, flags: c_int) -> c_int;
}

/// Asks `dladdr1` for the library's entry in the loader's list, which is a handle of it.
const RTLD_DL_LINKMAP: c_int = 2;

unsafe extern "C" fn step(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: what was handed to the walk.
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

/// Whether an address lies in a library that has a function of this name itself: such a one stands in front of ours.
fn hands_on(address: usize, name: &CStr) -> bool {
    let library = |address: *const c_void| {
        // SAFETY: zeros are valid where the loader fills in the structure.
        let (mut info, mut handle): (libc::Dl_info, _) = unsafe { (core::mem::zeroed(), ptr::null_mut()) };
        // SAFETY: an address, and out-parameters.
        let known = unsafe { dladdr1(address, &mut info, &mut handle, RTLD_DL_LINKMAP) } != 0;
        (known && !handle.is_null()).then_some(handle)
    };
    let Some(handle) = library(ptr::with_exposed_provenance(address)) else { return false };
    // SAFETY: the loader's entry of a library that is loaded is a handle of it; a C string.
    let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // What the library does not have itself is found in those that it needs.
    !function.is_null() && library(function) == Some(handle)
}
