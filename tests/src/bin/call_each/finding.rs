//! Finding functions. Each find is compared with the loader's by name.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use crate::bench::{Ready, Subject};
use crate::driver::GetProcAddress;
use crate::piece::NOWHERE;

/// A name, a version, flags, and the symbol that should be found, if any.
const QUESTIONS: [(&str, c_int, u64, &str); 18] = [
    ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 3020, 1, "cuMemAlloc_v2"),
    ("cuMemAlloc", 3010, 1, "cuMemAlloc"),
    ("cuMemAlloc", 1000, 1, ""),
    ("cuMemcpyHtoD", 13000, 1, "cuMemcpyHtoD_v2"),
    ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
    ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"),
    ("cuMemAlloc", 13000, 2, "cuMemAlloc_v2"),
    ("cuStreamSynchronize", 13000, 2, "cuStreamSynchronize_ptsz"),
    ("cuDeviceGetCount", 13000, 0, "cuDeviceGetCount"),
    ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ("cuMemPrefetchAsync", 12000, 0, "cuMemPrefetchAsync"),
    ("cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2"),
    ("cuNoSuchFunction", 13000, 0, ""),
    ("", 13000, 0, ""),
    ("cuMemAlloc", -1, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 13000, 0x80, ""),
];

/// Asks all questions; `find` gets name, place for the function, version, flags, and a place for the status.
fn questions(subject: &Subject, find: impl Fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32) {
    for (name, version, flags, symbol) in QUESTIONS {
        let question = CString::new(name).expect("a name without nulls");
        let untouched = NOWHERE as *mut c_void;
        let (mut function, mut status) = (untouched, 77);
        let result = find(question.as_ptr(), &mut function, version, flags, &mut status);
        let found = match function {
            function if function == untouched => "untouched",
            function if function.is_null() => "null",
            function if function == subject.bench.driver.by_name(symbol) => symbol,
            _ => "something else",
        };
        subject.say(format_args!("'{name}' {version} {flags:#x}"), result, format_args!("{found}, status {status}"));
    }
}

/// `cuGetProcAddress_v2`.
pub(crate) fn second(subject: &Subject, find: GetProcAddress) {
    questions(subject, |name, function, version, flags, status| find(name, function, version, flags, status));
    for name in [c"cuMemAlloc", c"cuNoSuchFunction"] {
        let mut function = std::ptr::null_mut();
        let result = find(name.as_ptr(), &mut function, 13000, 0, std::ptr::null_mut());
        let found = if function.is_null() { "null" } else { "found" };
        subject.say(format_args!("{name:?} without a place for the status"), result, found);
    }
}

/// `cuGetProcAddress` of before CUDA 12.
pub(crate) fn first(subject: &Subject, find: extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> u32) {
    questions(subject, |name, function, version, flags, _| find(name, function, version, flags));
}

/// `cuInit`; the calls that are made before it stay so.
pub(crate) fn started(subject: &Subject, init: extern "C" fn(c_uint) -> u32) {
    let is_started = subject.bench.ready != Ready::Nothing;
    for flags in [1, c_uint::MAX].into_iter().chain(is_started.then_some(0)) {
        subject.say(format_args!("flags {flags:#x}"), init(flags), format_args!(""));
    }
}
