//! The `dlopen` that makes every spelling of the driver's name lead here.
//!
//! The loader already gives this library to every program that asks for `libcuda.so.1`, by DT_SONAME. Some programs ask for `libcuda.so`
//! or a full path instead; their `dlopen` is answered with the name that matches. The exported function is a tail jump: `dlopen` reads its
//! return address to find the caller's search path and namespace, so no frame of ours may stand between.
//!
//! The driver itself gets the library that it asks for (see [`family`]). Its calls are told from a program's by the stack ([`asker`]).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use super::asker::{self, Asker};
use super::nvml;
use crate::driver::family;
use crate::sys::rtld_next::after_ours;

/// The `dlopen` after ours: the C library's, or another preloaded library's.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The exported `dlopen`: a new name perhaps, and a jump to [`NEXT`].
#[cfg_attr(test, allow(dead_code))]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        // The stack is walked from below here.
        ".cfi_startproc",
        "mov rdx, [rsp]",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "call {prepare}",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rax",
        "jmp qword ptr [rip + {next}]",
        ".cfi_endproc",
        prepare = sym prepare,
        next = sym NEXT,
    )
}

/// The name that is to be opened in place of this one, for a call that returns to `caller`.
extern "C" fn prepare(name: *const c_char, flags: c_int, caller: usize) -> *const c_char {
    after_ours(&NEXT, ptr::null_mut(), c"dlopen", nobody as *const () as *mut c_void);
    if name.is_null() {
        return name;
    }
    // SAFETY: the caller of dlopen passes null or a C string.
    let asked = unsafe { CStr::from_ptr(name) };
    if is_called(asked, b"libnvidia-ml.so") && asker::of(caller) == Asker::Program {
        nvml::stand_in(asked, flags);
    }
    let is_path = asked.to_bytes().contains(&b'/');
    if !is_driver(asked) {
        // Any other library that the driver opens may be the driver too.
        if asker::is_driver(caller) && (is_path || is_called(asked, b"libcuda.so")) {
            family::extend(asked, flags);
        }
        return name;
    }
    match asker::of(caller) {
        // By its own name the loader would find this library.
        Asker::Driver if !is_path => family::own_path(),
        Asker::Driver => {
            family::extend(asked, flags);
            name
        }
        Asker::BelowDriver if is_path && !family::is_member(asked) => {
            family::extend(asked, flags);
            name
        }
        Asker::BelowDriver | Asker::Program => c"libcuda.so.1".as_ptr(),
    }
}

/// True if a program that opens this name wants the CUDA driver, and would get it.
///
/// A path counts if there is such a file: programs try several, and expect those that are not there to
/// fail.
fn is_driver(name: &CStr) -> bool {
    let bytes = name.to_bytes();
    if !bytes.contains(&b'/') {
        return matches!(bytes, b"libcuda.so" | b"libcuda.so.1");
    }
    is_called(name, b"libcuda.so")
        // SAFETY: a C string; the call only asks.
        && unsafe { libc::access(name.as_ptr(), libc::F_OK) } == 0
}

/// True if a library's path ends in this name, with or without a version.
fn is_called(path: &CStr, name: &[u8]) -> bool {
    let file = path.to_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
    file.strip_prefix(name).is_some_and(|rest| rest.iter().all(|b| b.is_ascii_digit() || *b == b'.'))
}

/// The `dlopen` where no library after ours can open libraries (a static C library).
extern "C" fn nobody(_: *const c_char, _: c_int) -> *mut c_void {
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::is_driver;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_names_that_programs_use_are_recognised() {
        assert!(is_driver(c"libcuda.so") && is_driver(c"libcuda.so.1"));
        for name in
            [c"", c"libcudart.so.13", c"libcuda.so.1.bak", c"libcuda.so.11", c"mylibcuda.so", c"libcudadebugger.so.1"]
        {
            assert!(!is_driver(name), "{name:?}");
        }
    }

    #[test]
    fn a_path_counts_if_there_is_such_a_file() {
        let folder = std::env::temp_dir().join(format!("baton-dlopen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder");
        let path = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).expect("no null byte");
        for name in ["libcuda.so", "libcuda.so.1", "libcuda.so.580.159.04"] {
            assert!(!is_driver(&path(name)), "{name} is not there");
            std::fs::write(folder.join(name), "").expect("a writable folder");
            assert!(is_driver(&path(name)), "{name}");
        }
        std::fs::remove_dir_all(&folder).expect("our own folder");
    }
}
