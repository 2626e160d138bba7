//! Making streams and ending them.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Subject};
use crate::contexts::green;
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// A stream's flag, and one that no stream has.
const NON_BLOCKING: u32 = 1;
const UNKNOWN: u32 = 0x80;

/// Fills memory in a stream.
fn works(bench: &Bench, stream: Handle) -> String {
    let target = Piece::target(bench, Place::Device);
    bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(target.at(0), 0x33, SIZE, stream));
    target.seen(&[0x33; SIZE])
}

/// Makes a stream, says what it is like, and ends it.
fn made(subject: &Subject, case: impl std::fmt::Display, make: impl FnOnce(*mut Handle) -> u32) {
    let bench = subject.bench;
    let untouched = NOWHERE as Handle;
    let mut stream = untouched;
    let result = make(&mut stream);
    if result != 0 {
        return subject.say(case, result, if stream == untouched { "untouched" } else { "written" });
    }
    let (mut flags, mut priority) = (77, 77);
    bench.note("cuStreamGetFlags", bench.cuStreamGetFlags(stream, &mut flags));
    bench.note("cuStreamGetPriority", bench.cuStreamGetPriority(stream, &mut priority));
    subject.say(case, result, format_args!("flags {flags}, priority {priority}, {}", works(bench, stream)));
    bench.note("cuStreamDestroy_v2", bench.cuStreamDestroy_v2(stream));
}

/// `cuStreamCreate`.
pub(crate) fn create(subject: &Subject, create: extern "C" fn(*mut Handle, u32) -> u32) {
    for (case, flags) in [("a blocking one", 0), ("a non-blocking one", NON_BLOCKING), ("unknown flags", UNKNOWN)] {
        made(subject, case, |out| create(out, flags));
    }
    subject.say("no place for the answer", create(null_mut(), 0), "");
}

/// `cuStreamCreateWithPriority`.
pub(crate) fn create_with_priority(subject: &Subject, create: extern "C" fn(*mut Handle, u32, c_int) -> u32) {
    for priority in [0, -1, -5, -1000, 1000] {
        made(subject, format_args!("priority {priority}"), |out| create(out, NON_BLOCKING, priority));
    }
    made(subject, "a blocking one", |out| create(out, 0, -1));
    made(subject, "unknown flags", |out| create(out, UNKNOWN, 0));
}

/// `cuGreenCtxStreamCreate`. Null is asked about only where the driver has made no green context.
pub(crate) fn create_in_green(subject: &Subject, create: extern "C" fn(*mut Handle, Handle, u32, c_int) -> u32) {
    let green = green(subject.bench);
    if green.is_null() {
        return made(subject, "no green context", |out| create(out, green, NON_BLOCKING, 0));
    }
    made(subject, "a non-blocking one", |out| create(out, green, NON_BLOCKING, 0));
    made(subject, "with a priority", |out| create(out, green, NON_BLOCKING, -1));
    made(subject, "a blocking one", |out| create(out, green, 0, 0));
    made(subject, "unknown flags", |out| create(out, green, UNKNOWN, 0));
    subject.bench.note("cuGreenCtxDestroy", subject.bench.cuGreenCtxDestroy(green));
}

/// `cuStreamDestroy` and its second version.
pub(crate) fn destroy(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let new = |flags| {
        let mut stream = null_mut();
        bench.note("cuStreamCreate", bench.cuStreamCreate(&mut stream, flags));
        stream
    };
    for (kind, flags) in [("blocking", 0), ("non-blocking", NON_BLOCKING)] {
        let result = destroy(new(flags));
        subject.say(format_args!("a {kind} one"), result, bench.settle());

        let target = Piece::target(bench, Place::Device);
        let stream = new(flags);
        bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(target.at(0), 0x44, SIZE, stream));
        let result = destroy(stream);
        subject.say(format_args!("a {kind} one with work"), result, target.seen(&[0x44; SIZE]));
    }
    let [_, (null, default), (legacy, one), _] = bench.streams();
    for (case, stream) in [(null, default), (legacy, one)] {
        subject.say(case, destroy(stream), works(bench, null_mut()));
    }
}
