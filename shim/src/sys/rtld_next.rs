//! The functions after ours: those of the C library, or of another preloaded library.

use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The function of this name after ours, or `nobody` where there is none; `slot` holds it once it was found.
///
/// `unset` is the value of the slot until then.
pub(crate) fn after_ours(
    slot: &AtomicPtr<c_void>,
    unset: *mut c_void,
    name: &CStr,
    nobody: *mut c_void,
) -> *mut c_void {
    let known = slot.load(Ordering::Acquire);
    if !ptr::eq(known, unset) {
        return known;
    }
    // SAFETY: a handle and a string that are valid for dlsym; RTLD_NEXT means the libraries after ours.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let next = if found.is_null() { nobody } else { found };
    slot.store(next, Ordering::Release);
    next
}
