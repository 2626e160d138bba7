//! The user's side of the library: settings read from the environment, and the few words we say.

use core::ffi::{CStr, c_char};
use core::fmt;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    /// As `getenv`, but null in programs that run with more rights than their user (`man secure_getenv`).
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// A setting, if it is set and not empty. Read once and kept by the caller, never on a call's path.
pub(crate) fn setting(name: &CStr) -> Option<OsString> {
    // SAFETY: a C string; the answer is copied before anything else of ours runs.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string of the environment.
    let value = OsStr::from_bytes(unsafe { CStr::from_ptr(value) }.to_bytes());
    (!value.is_empty()).then(|| value.to_owned())
}

/// Tells the user that a setting cannot work: the one case in which we speak unasked.
pub(crate) fn warn(message: fmt::Arguments<'_>) {
    // A message that cannot be written must not stop the program.
    let _ = writeln!(std::io::stderr(), "baton: {message}");
}
