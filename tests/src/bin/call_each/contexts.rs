//! Contexts that come and go, and streams, captures and waits in them.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Subject};

const BAD_DEVICE: c_int = 99;

/// `cuInit`: the first time, again, and with flags that there are none of.
pub(crate) fn init(subject: &Subject, init: extern "C" fn(u32) -> u32) {
    for flags in [1, 0, 0] {
        subject.say(format_args!("flags {flags}"), init(flags), "");
    }
}

/// Makes contexts; each is destroyed, and the one before is current again.
fn contexts(subject: &Subject, make: impl Fn(*mut Handle, u32, c_int) -> u32) {
    let bench = subject.bench;
    for (case, flags, device) in
        [("device 0", 0, 0), ("blocking", 4, 0), ("bad flags", !0, 0), ("bad device", 0, BAD_DEVICE)]
    {
        let mut made = null_mut();
        let result = make(&mut made, flags, device);
        let mut seen = String::new();
        if result == 0 {
            let mut memory = 0;
            seen = format!(
                "allocates {}, destroyed {}",
                bench.cuMemAlloc_v2(&mut memory, 1000),
                bench.cuCtxDestroy_v2(made)
            );
            bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(bench.context));
        }
        subject.say(case, result, seen);
    }
}

pub(crate) fn create(subject: &Subject, make: extern "C" fn(*mut Handle, u32, c_int) -> u32) {
    contexts(subject, |out, flags, device| make(out, flags, device));
}

pub(crate) fn create_third(subject: &Subject, make: extern "C" fn(*mut Handle, *mut c_void, c_int, u32, c_int) -> u32) {
    contexts(subject, |out, flags, device| make(out, null_mut(), 0, flags, device));
}

pub(crate) fn create_fourth(subject: &Subject, make: extern "C" fn(*mut Handle, *mut c_void, u32, c_int) -> u32) {
    contexts(subject, |out, flags, device| make(out, null_mut(), flags, device));
}

/// `cuCtxFromGreenCtx`: without a green context there is nothing to make one of.
pub(crate) fn from_green(subject: &Subject, make: extern "C" fn(*mut Handle, Handle) -> u32) {
    let mut made = null_mut();
    subject.say("no green context", make(&mut made, null_mut()), "");
}

/// `cuCtxDestroy` and `cuCtxDetach`: a context with memory and a stream in it.
pub(crate) fn destroy(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let (mut made, mut memory, mut stream) = (null_mut(), 0, null_mut());
    if bench.cuCtxCreate_v2(&mut made, 0, 0) == 0 {
        let (allocated, streams) = (bench.cuMemAlloc_v2(&mut memory, 3 << 20), bench.cuStreamCreate(&mut stream, 1));
        let result = destroy(made);
        bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(bench.context));
        let freed = bench.cuMemFree_v2(memory);
        subject.say("a context", result, format_args!("had {allocated} {streams}, its memory then {freed}"));
    }
    subject.say("null", destroy(null_mut()), "");
}

pub(crate) fn retain(subject: &Subject, retain: extern "C" fn(*mut Handle, c_int) -> u32) {
    let bench = subject.bench;
    for device in [0, 0, BAD_DEVICE] {
        let mut made = null_mut();
        let result = retain(&mut made, device);
        let same = made == bench.context;
        subject.say(
            format_args!("device {device}"),
            result,
            if result == 0 { format!("same {same}") } else { String::new() },
        );
        if result == 0 {
            bench.note("cuDevicePrimaryCtxRelease_v2", bench.cuDevicePrimaryCtxRelease_v2(device));
        }
    }
}

pub(crate) fn release(subject: &Subject, release: extern "C" fn(c_int) -> u32) {
    let bench = subject.bench;
    let mut made = null_mut();
    let retained = bench.cuDevicePrimaryCtxRetain(&mut made, 0);
    if retained == 0 {
        let result = release(0);
        let (mut flags, mut active) = (0, 7);
        let asked = bench.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active);
        subject.say("once retained", result, format_args!("state {asked} active {active}"));
    }
    subject.say("bad device", release(BAD_DEVICE), "");
}

/// `cuDevicePrimaryCtxReset`: what was in it is gone.
pub(crate) fn reset(subject: &Subject, reset: extern "C" fn(c_int) -> u32) {
    let bench = subject.bench;
    let mut memory = 0;
    let allocated = bench.cuMemAlloc_v2(&mut memory, 5 << 20);
    let result = reset(0);
    let mut again = null_mut();
    let retained = bench.cuDevicePrimaryCtxRetain(&mut again, 0);
    let current = bench.cuCtxSetCurrent(again);
    let freed = bench.cuMemFree_v2(memory);
    let mut fresh = 0;
    let fine = bench.cuMemAlloc_v2(&mut fresh, 5 << 20);
    subject.say(
        "with memory in it",
        result,
        format_args!("had {allocated}, retained {retained} {current}, its memory then {freed}, new memory {fine}"),
    );
    subject.say("bad device", reset(BAD_DEVICE), "");
    bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(null_mut()));
}

fn streams(subject: &Subject, make: impl Fn(*mut Handle, u32) -> u32) {
    let bench = subject.bench;
    for flags in [0, 1, 99] {
        let mut made = null_mut();
        let result = make(&mut made, flags);
        let seen = if result == 0 {
            format!("query {}, destroyed {}", bench.cuStreamQuery(made), bench.cuStreamDestroy_v2(made))
        } else {
            String::new()
        };
        subject.say(format_args!("flags {flags}"), result, seen);
    }
}

pub(crate) fn stream(subject: &Subject, make: extern "C" fn(*mut Handle, u32) -> u32) {
    streams(subject, |out, flags| make(out, flags));
}

pub(crate) fn stream_with_priority(subject: &Subject, make: extern "C" fn(*mut Handle, u32, c_int) -> u32) {
    for priority in [0, -1] {
        streams(subject, |out, flags| make(out, flags, priority));
    }
}

/// `cuGreenCtxStreamCreate`: without a green context.
pub(crate) fn green_stream(subject: &Subject, make: extern "C" fn(*mut Handle, Handle, u32, c_int) -> u32) {
    let mut made = null_mut();
    subject.say("no green context", make(&mut made, null_mut(), 1, 0), "");
}

pub(crate) fn end_stream(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let mut made = null_mut();
    if bench.cuStreamCreate(&mut made, 1) == 0 {
        subject.say("a stream", destroy(made), "");
    }
    subject.say("default stream", destroy(null_mut()), "");
}

/// Ends a capture and says how.
fn captured(bench: &Bench, stream: Handle) -> String {
    let (mut status, mut graph) = (7, null_mut());
    let asked = bench.cuStreamIsCapturing(stream, &mut status);
    let ended = bench.cuStreamEndCapture(stream, &mut graph);
    if ended == 0 {
        bench.note("cuGraphDestroy", bench.cuGraphDestroy(graph));
    }
    format!("capturing {asked} {status}, ended {ended}")
}

pub(crate) fn capture(subject: &Subject, begin: extern "C" fn(Handle, c_int) -> u32) {
    let bench = subject.bench;
    for mode in [0, 1, 2, 7] {
        let result = begin(bench.own_stream(), mode);
        let seen = if result == 0 { captured(bench, bench.own_stream()) } else { String::new() };
        subject.say(format_args!("mode {mode}"), result, seen);
    }
    subject.say("legacy stream", begin(1 as Handle, 0), "");
}

pub(crate) fn old_capture(subject: &Subject, begin: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let result = begin(bench.own_stream());
    let twice = if result == 0 { begin(bench.own_stream()) } else { 0 };
    let seen = if result == 0 { captured(bench, bench.own_stream()) } else { String::new() };
    subject.say("own stream", result, format_args!("{seen}, again {twice}"));
}

pub(crate) fn capture_to_graph(
    subject: &Subject,
    begin: extern "C" fn(Handle, Handle, *const c_void, *const c_void, usize, c_int) -> u32,
) {
    let bench = subject.bench;
    let mut graph = null_mut();
    let made = bench.cuGraphCreate(&mut graph, 0);
    if made == 0 {
        let result = begin(bench.own_stream(), graph, null_mut(), null_mut(), 0, 0);
        let mut ended = null_mut();
        let end = if result == 0 { bench.cuStreamEndCapture(bench.own_stream(), &mut ended) } else { 0 };
        subject.say("a graph", result, format_args!("ended {end}, same graph {}", ended == graph));
        bench.note("cuGraphDestroy", bench.cuGraphDestroy(graph));
    }
    subject.say("no graph", begin(bench.own_stream(), null_mut(), null_mut(), null_mut(), 0, 0), "");
}

pub(crate) fn end_capture(subject: &Subject, end: extern "C" fn(Handle, *mut Handle) -> u32) {
    let bench = subject.bench;
    let mut graph = null_mut();
    if bench.cuStreamBeginCapture_v2(bench.own_stream(), 0) == 0 {
        let result = end(bench.own_stream(), &mut graph);
        subject.say("a capture", result, format_args!("graph {}", !graph.is_null()));
        bench.note("cuGraphDestroy", bench.cuGraphDestroy(graph));
    }
    subject.say("no capture", end(bench.own_stream(), &mut graph), "");
}

pub(crate) fn wait(subject: &Subject, wait: extern "C" fn(Handle, Handle, u32) -> u32) {
    let bench = subject.bench;
    let mut event = null_mut();
    if bench.cuEventCreate(&mut event, 0) == 0 {
        bench.note("cuEventRecord", bench.cuEventRecord(event, bench.own_stream()));
        for stream in bench.streams() {
            subject.say(format_args!("an event, {}", stream.0), wait(stream.1, event, 0), bench.settle());
        }
        subject.say("bad flags", wait(bench.own_stream(), event, 99), "");
        // A stream that waits for an event of a capture becomes part of it.
        let mut other = null_mut();
        if bench.cuStreamCreate(&mut other, 1) == 0 && bench.cuStreamBeginCapture_v2(other, 2) == 0 {
            let recorded = bench.cuEventRecord(event, other);
            let result = wait(bench.own_stream(), event, 0);
            let joined = bench.cuEventRecord(event, bench.own_stream());
            let back = wait(other, event, 0);
            let seen = captured(bench, other);
            subject.say("joins a capture", result, format_args!("{recorded} {joined} {back}, {seen}"));
            bench.note("cuStreamDestroy_v2", bench.cuStreamDestroy_v2(other));
        }
        bench.note("cuEventDestroy_v2", bench.cuEventDestroy_v2(event));
    }
    subject.say("no event", wait(bench.own_stream(), null_mut(), 0), "");
}
