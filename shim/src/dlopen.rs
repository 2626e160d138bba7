//! The `dlopen` that makes every spelling of the driver's name lead here.
//!
//! The loader already gives this library to whoever asks for `libcuda.so.1`, by DT_SONAME. Some
//! programs ask for `libcuda.so` or a full path instead; their `dlopen` is answered with the name that
//! matches. The exported function is a tail jump: `dlopen` looks at its return address to find the
//! caller's search path and namespace, so nothing of ours may stand between.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The `dlopen` after ours: the C library's, or another preloaded library's.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The exported `dlopen`: a new name perhaps, and a jump to [`NEXT`].
#[cfg_attr(test, allow(dead_code))]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rsi",
        "call {prepare}",
        "pop rsi",
        "mov rdi, rax",
        "jmp qword ptr [rip + {next}]",
        prepare = sym prepare,
        next = sym NEXT,
    )
}

extern "C" fn prepare(name: *const c_char) -> *const c_char {
    next();
    if name.is_null() {
        return name;
    }
    // SAFETY: the caller of dlopen passes null or a C string.
    if is_driver(unsafe { CStr::from_ptr(name) }.to_bytes()) { c"libcuda.so.1".as_ptr() } else { name }
}

/// Whether a program that opens this file wants the CUDA driver.
fn is_driver(path: &[u8]) -> bool {
    let file = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    match file.strip_prefix(b"libcuda.so") {
        Some([]) => true,
        Some([b'.', rest @ ..]) => !rest.is_empty() && rest.iter().all(|b| b.is_ascii_digit() || *b == b'.'),
        _ => false,
    }
}

/// The next `dlopen`, found once.
fn next() -> *mut c_void {
    let known = NEXT.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the handle and the string are what dlsym takes; RTLD_NEXT means the libraries after ours.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    if found.is_null() {
        found = nobody as *const () as *mut c_void;
    }
    NEXT.store(found, Ordering::Release);
    found
}

/// Where no library after ours can open libraries (a static C library).
extern "C" fn nobody(_: *const c_char, _: c_int) -> *mut c_void {
    ptr::null_mut()
}

/// Opens a library for ourselves: exactly the file named.
pub(crate) fn open(path: &CStr) -> *mut c_void {
    // SAFETY: `next` is a function with dlopen's signature.
    let dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = unsafe { core::mem::transmute(next()) };
    // SAFETY: a C string and documented flags. Local: the driver's names must not be found before ours.
    unsafe { dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

#[cfg(test)]
mod tests {
    use super::is_driver;

    #[test]
    fn every_spelling_of_the_driver_is_recognised() {
        for name in ["libcuda.so", "libcuda.so.1", "libcuda.so.580.159.04", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"] {
            assert!(is_driver(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn other_libraries_are_left_alone() {
        for name in [
            "",
            "libcudart.so.13",
            "libcuda.so.1.bak",
            "libcuda.so.",
            "mylibcuda.so",
            "libcuda.so.1/x",
            "libcudadebugger.so.1",
        ] {
            assert!(!is_driver(name.as_bytes()), "{name}");
        }
    }
}
