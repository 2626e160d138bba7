//! Host memory that the device reads: the driver's, and the program's own.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Subject};
use crate::kernels::axpy;
use crate::piece::{NOWHERE, SIZE};

/// A page, which is what is registered.
pub(crate) const PAGE: usize = 4096;
const UNKNOWN_FLAG: u32 = 0x80;

/// Lets a kernel read its input from host memory, and says what flags that memory has.
fn read_by_a_kernel(bench: &Bench, at: *mut c_void) -> String {
    let mut kernel = axpy(bench, 1);
    let mut input = [0; 8];
    input.copy_from_slice(&kernel.arguments[1]);
    bench.note("cuMemcpyDtoH_v2", bench.cuMemcpyDtoH_v2(at, u64::from_le_bytes(input), SIZE));
    kernel.arguments[1] = (at as u64).to_le_bytes().to_vec();
    let (function, mut parameters) = (bench.function(kernel.name), kernel.pointers());
    let (stream, pointers) = (bench.own_stream(), parameters.as_mut_ptr());
    bench.note("cuLaunchKernel", bench.cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream, pointers, null_mut()));
    let mut flags = 77;
    let answer = bench.cuMemHostGetFlags(&mut flags, at);
    format!("{}, flags {answer} {flags}", kernel.seen())
}

/// Has memory given out, lets it be read, and gives it back.
fn given(subject: &Subject, case: impl std::fmt::Display, give: impl FnOnce(*mut Handle) -> u32) {
    let untouched = NOWHERE as Handle;
    let mut at = untouched;
    let result = give(&mut at);
    if result != 0 {
        return subject.say(case, result, if at == untouched { "untouched" } else { "written" });
    }
    subject.say(case, result, read_by_a_kernel(subject.bench, at));
    subject.bench.note("cuMemFreeHost", subject.bench.cuMemFreeHost(at));
}

/// `cuMemHostAlloc`.
pub(crate) fn give(subject: &Subject, give: extern "C" fn(*mut Handle, usize, u32) -> u32) {
    let flags = [("without flags", 0), ("portable", 1), ("mapped", 2), ("write-combined", 4), ("all flags", 7)];
    for (case, flags) in flags {
        given(subject, case, |out| give(out, 5000, flags));
    }
    given(subject, "20 MiB", |out| give(out, 20 << 20, 0));
    let wrongs = [("nothing", 0, 0), ("a million GiB", 1 << 50, 0), ("an unknown flag", 5000, UNKNOWN_FLAG)];
    for (case, bytes, flags) in wrongs {
        given(subject, case, |out| give(out, bytes, flags));
    }
    subject.say("no place for the answer", give(null_mut(), 5000, 0), "");
}

/// `cuMemAllocHost_v2`.
pub(crate) fn give_plain(subject: &Subject, give: extern "C" fn(*mut Handle, usize) -> u32) {
    let sizes = [("1 KiB", SIZE), ("20 MiB", 20 << 20), ("nothing", 0), ("a million GiB", 1 << 50)];
    for (case, bytes) in sizes {
        given(subject, case, |out| give(out, bytes));
    }
    subject.say("no place for the answer", give(null_mut(), SIZE), "");
}

/// `cuMemAllocHost` of before CUDA 3.2.
pub(crate) fn old_give_plain(subject: &Subject, give: extern "C" fn(*mut Handle, u32) -> u32) {
    for (case, bytes) in [("1 KiB", SIZE as u32), ("20 MiB", 20 << 20), ("nothing", 0)] {
        given(subject, case, |out| give(out, bytes));
    }
    subject.say("no place for the answer", give(null_mut(), SIZE as u32), "");
}

/// Memory of the program's own, with a whole page in it.
pub(crate) struct Own(Vec<u8>);

impl Own {
    pub(crate) fn new() -> Self {
        Self(vec![0; 2 * PAGE])
    }

    pub(crate) fn page(&mut self) -> *mut c_void {
        let skipped = self.0.as_ptr().align_offset(PAGE);
        self.0[skipped..].as_mut_ptr().cast()
    }
}

/// `cuMemHostRegister` and its second version.
pub(crate) fn register(subject: &Subject, register: extern "C" fn(*mut c_void, usize, u32) -> u32) {
    let bench = subject.bench;
    let mut own = Own::new();
    let page = own.page();
    for (case, flags) in [("without flags", 0), ("portable", 1), ("mapped", 2)] {
        let result = register(page, PAGE, flags);
        if result != 0 {
            subject.say(case, result, "");
            continue;
        }
        subject.say(case, result, read_by_a_kernel(bench, page));
        subject.say(format_args!("{case}, again"), register(page, PAGE, flags), read_by_a_kernel(bench, page));
        bench.note("cuMemHostUnregister", bench.cuMemHostUnregister(page));
    }
    subject.say("nothing", register(page, 0, 0), "");
    subject.say("an unknown flag", register(page, PAGE, UNKNOWN_FLAG), "");
    subject.say("null", register(null_mut(), PAGE, 0), "");
}

/// `cuMemFreeHost`.
pub(crate) fn take(subject: &Subject, take: extern "C" fn(*mut c_void) -> u32) {
    let bench = subject.bench;
    let mut at = null_mut();
    bench.note("cuMemAllocHost_v2", bench.cuMemAllocHost_v2(&mut at, SIZE));
    subject.say("memory", take(at), bench.settle());
    let mut own = Own::new();
    subject.say("the program's own", take(own.page()), bench.settle());
    subject.say("null", take(null_mut()), "");
}

/// `cuMemHostUnregister`.
pub(crate) fn unregister(subject: &Subject, unregister: extern "C" fn(*mut c_void) -> u32) {
    let bench = subject.bench;
    let mut own = Own::new();
    let page = own.page();
    bench.note("cuMemHostRegister_v2", bench.cuMemHostRegister_v2(page, PAGE, 0));
    subject.say("a page", unregister(page), bench.settle());
    subject.say("a page, again", unregister(page), "");
    let mut at = null_mut();
    if bench.cuMemAllocHost_v2(&mut at, SIZE) == 0 {
        subject.say("the driver's memory", unregister(at), read_by_a_kernel(bench, at));
        bench.note("cuMemFreeHost", bench.cuMemFreeHost(at));
    }
}
