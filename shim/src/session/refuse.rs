//! Ends a program that has to share the GPU and cannot. An error from CUDA would not do: frameworks take it for a machine without a GPU,
//! and run for hours on the CPU.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::time::Duration;
use std::io::Write as _;

use baton_messages::Message;

use crate::sys::user;

/// The exit code: that of a launcher that failed itself.
const EXIT_CODE: c_int = 125;
/// The longest wait for Python to write its pending output.
const PATIENCE: Duration = Duration::from_secs(2);

unsafe extern "C" {
    /// The C library's standard output.
    static mut stdout: *mut libc::FILE;
}

/// Prints the reason, in one line, and ends the process. Output that the program has printed so far is not lost.
pub(super) fn end(why: &Message, remedy: &str) -> ! {
    flush_pythons();
    // Only this one: another file may be locked by a thread that waits for input.
    // SAFETY: the C library's own, which is open or null; null would flush all.
    unsafe {
        let output = stdout;
        if !output.is_null() {
            libc::fflush(output);
        }
    }
    let line = format!("{}\n", baton_messages::cannot_share(user::program(), why, remedy));
    let _ = std::io::stderr().write_all(line.as_bytes());
    // No handlers: other threads are in the middle of their work.
    // SAFETY: ends the process.
    unsafe { libc::_exit(EXIT_CODE) }
}

/// Flushes Python's standard output, which is its own, above the C library's.
fn flush_pythons() {
    let Some(python) = Python::find() else { return };
    // SAFETY: no arguments; asks about this thread.
    if unsafe { (python.holds_lock)() } != 0 {
        return python.flush();
    }
    // Another thread may have the interpreter's lock, and wait for this one.
    let (done, is_done) = std::sync::mpsc::channel();
    let started = std::thread::Builder::new().spawn(move || {
        python.flush();
        let _ = done.send(());
    });
    if started.is_ok() {
        let _ = is_done.recv_timeout(PATIENCE);
    }
}

type Ask = unsafe extern "C" fn() -> c_int;
type Give = unsafe extern "C" fn(c_int);
type Run = unsafe extern "C" fn(*const c_char) -> c_int;

/// The functions of an interpreter that lives in this process.
#[derive(Clone, Copy)]
struct Python {
    holds_lock: Ask,
    take_lock: Ask,
    give_lock: Give,
    run: Run,
}

impl Python {
    /// Finds the interpreter. `None` if there is none, or it is not running.
    fn find() -> Option<Self> {
        let symbol = |name: &CStr| {
            // SAFETY: looks a name up among all libraries.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let [is_running, holds_lock, take_lock, give_lock, run] = [
            symbol(c"Py_IsInitialized")?,
            symbol(c"PyGILState_Check")?,
            symbol(c"PyGILState_Ensure")?,
            symbol(c"PyGILState_Release")?,
            symbol(c"PyRun_SimpleString")?,
        ];
        // SAFETY: CPython gives these names these signatures, as a part of its stable interface (`PyRun_SimpleString`: of its interface
        // from the beginning).
        unsafe {
            let is_running = core::mem::transmute::<*mut c_void, Ask>(is_running);
            (is_running() != 0).then_some(Self {
                holds_lock: core::mem::transmute::<*mut c_void, Ask>(holds_lock),
                take_lock: core::mem::transmute::<*mut c_void, Ask>(take_lock),
                give_lock: core::mem::transmute::<*mut c_void, Give>(give_lock),
                run: core::mem::transmute::<*mut c_void, Run>(run),
            })
        }
    }

    fn flush(self) {
        // SAFETY: with the interpreter's lock, which a thread that has it may take again.
        unsafe {
            let state = (self.take_lock)();
            (self.run)(c"import sys; sys.stdout.flush()".as_ptr());
            (self.give_lock)(state);
        }
    }
}
