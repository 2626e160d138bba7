//! Our part of the environment that this process was started with.
//!
//! Programs change it before they first use the GPU: they clear it, or write their title over it (`setproctitle`), and the system's own
//! copy (`/proc/self/environ`) with it. A setting must not be lost by that: the program would run outside of Baton. So our variables are
//! kept when the library is loaded, by the one function of ours that runs then. It reads the environment and writes to memory of our own,
//! byte by byte: it also runs in shells and compilers, and may run before the tools that watch memory, and the C library's functions, are
//! ready.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The prefixes of the variables that are kept: our settings, and those by which we find the driver and our sockets.
const KEPT: [&[u8]; 3] = [b"BATON_", b"XDG_RUNTIME_DIR=", b"LD_LIBRARY_PATH="];

/// The room for them; a variable for which none is left is not kept.
const ROOM: usize = 32 << 10;
/// Each variable with its null byte. Atomic, so that the compiler does not turn the loop into a call.
static BYTES: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];
static LENGTH: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// The environment: C strings, and null after the last.
    static environ: *const *const c_char;
}

#[ctor::ctor(unsafe)]
fn keep() {
    // SAFETY: no thread of the program that could change it runs yet.
    unsafe { keep_from(environ) }
}

/// # Safety
///
/// Null, or an environment that does not change meanwhile.
unsafe fn keep_from(mut variables: *const *const c_char) {
    let mut length = 0;
    // SAFETY: by this function's contract, as for the reads below: no further than to the null pointer, and to each string's null byte.
    while !variables.is_null() && !unsafe { variables.read() }.is_null() {
        // SAFETY: as above.
        let variable = unsafe { variables.read() }.cast::<u8>();
        // SAFETY: as above: the first difference ends the comparison, and a null byte differs.
        let begins = |name: &[u8]| (0..name.len()).all(|at| unsafe { variable.add(at).read_volatile() } == name[at]);
        if KEPT.iter().any(|name| begins(name)) {
            let mut at = length;
            loop {
                // SAFETY: as above.
                let byte = unsafe { variable.add(at - length).read_volatile() };
                if at == ROOM {
                    break;
                }
                BYTES[at].store(byte, Ordering::Relaxed);
                at += 1;
                if byte == 0 {
                    length = at;
                    break;
                }
            }
        }
        // SAFETY: as above.
        variables = unsafe { variables.add(1) };
    }
    LENGTH.store(length, Ordering::Release);
}

/// A variable's value when this process was started. `None` in programs that run with more rights than their user.
pub(super) fn at_the_start(name: &CStr) -> Option<OsString> {
    // SAFETY: asks for a number.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    let bytes: Vec<u8> =
        BYTES[..LENGTH.load(Ordering::Acquire)].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
    let value = |variable: &[u8]| variable.strip_prefix(name.to_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    bytes.split(|byte| *byte == 0).find_map(value).map(OsString::from_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_us_is_kept_and_nothing_else() {
        let long = [b"BATON_LONG=".to_vec(), vec![b'x'; ROOM], vec![0]].concat();
        let variables: [&[u8]; 7] =
            [b"HOME=/\0", b"BATON\0", b"BATON_NAME=a=b\0", &long, b"BATON_GATE=\0", b"LD_LIBRARY_PATH=/x:/y\0", b"\0"];
        let pointers: Vec<*const c_char> =
            variables.iter().map(|variable| variable.as_ptr().cast()).chain([core::ptr::null()]).collect();
        // SAFETY: C strings, and null behind the last.
        unsafe { keep_from(pointers.as_ptr()) };
        let kept = |name| at_the_start(name).map(OsString::into_encoded_bytes);
        assert_eq!(kept(c"BATON_NAME").as_deref(), Some(&b"a=b"[..]));
        assert_eq!(kept(c"BATON_GATE").as_deref(), Some(&b""[..]));
        assert_eq!(kept(c"LD_LIBRARY_PATH").as_deref(), Some(&b"/x:/y"[..]));
        assert_eq!([c"HOME", c"BATON", c"BATON_LONG", c"BATON_NAM"].map(kept), [None, None, None, None]);
    }
}
