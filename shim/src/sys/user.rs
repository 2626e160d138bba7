//! The user's side of the library: settings read from the environment, and our few messages.

use core::ffi::{CStr, c_char};
use core::mem::ManuallyDrop;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;

use baton_contract::settings;
use baton_messages::Message;

use super::{cancel, environment};

unsafe extern "C" {
    /// As `getenv`, but null in programs that run with more rights than their user (`man secure_getenv`).
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// A setting, if it is set and not empty: as the program has it now, else as it was when the process was started. Read once and kept by
/// the caller, never on a call's path.
pub(crate) fn setting(name: &CStr) -> Option<OsString> {
    // SAFETY: a C string; the answer is copied before anything else of ours runs.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    let value = if value.is_null() {
        environment::at_the_start(name)?
    } else {
        // SAFETY: not null, so a C string of the environment.
        OsStr::from_bytes(unsafe { CStr::from_ptr(value) }.to_bytes()).to_owned()
    };
    (!value.is_empty()).then_some(value)
}

/// True if a setting is on: set, and not to `0`.
pub(crate) fn is_on(name: &CStr) -> bool {
    setting(name).is_some_and(|value| value != "0")
}

/// The name of this program's file.
pub(crate) fn program() -> String {
    let _uncancelled = cancel::Off::begin();
    let program = std::fs::read("/proc/self/comm").unwrap_or_default();
    OsStr::from_bytes(program.trim_ascii_end()).to_string_lossy().into_owned()
}

/// Warns the user that a wish cannot be met: the only message that is printed unasked. It goes to the file that `BATON_LOG` names, or to
/// standard error.
pub(crate) fn warn(message: &Message) {
    if !note(message) {
        let line = format!(
            "baton: {message}
"
        );
        let _uncancelled = cancel::Off::begin();
        // A message that cannot be written must not stop the program. Not by the standard library's standard error, which has a lock: a
        // thread of ours may have it in the middle of a fork.
        // SAFETY: the program's standard error, which nothing here closes.
        let mut error = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
        let _ = error.write_all(line.as_bytes());
    }
}

/// Writes a message for the user to the file that `BATON_LOG` names. False if there is none.
pub(crate) fn note(message: &Message) -> bool {
    let _uncancelled = cancel::Off::begin();
    let file = setting(settings::LOG).and_then(|path| File::options().append(true).create(true).open(path).ok());
    let Some(mut file) = file else { return false };
    // A message that cannot be written must not stop the program.
    let _ = file.write_all(
        format!(
            "baton: process {}: {message}
",
            std::process::id()
        )
        .as_bytes(),
    );
    true
}
