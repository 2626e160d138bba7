//! Making contexts and ending them. Each case leaves the context current that was so before.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Subject};
use crate::memory::usable;
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// The thread's current context, or null.
fn current(bench: &Bench) -> Handle {
    let mut context = null_mut();
    bench.note("cuCtxGetCurrent", bench.cuCtxGetCurrent(&mut context));
    context
}

/// Gives memory out in the current context and uses it.
fn has_memory(bench: &Bench) -> String {
    let mut address = 0;
    match bench.cuMemAlloc_v2(&mut address, 4096) {
        0 => {
            let seen = usable(bench, address, 4096);
            format!("{seen}, free {}", bench.cuMemFree_v2(address))
        }
        answer => format!("no memory: {answer}"),
    }
}

/// Makes a context, says what it is like, and ends it.
fn made(subject: &Subject, case: &str, make: impl FnOnce(*mut Handle) -> u32) {
    let bench = subject.bench;
    let (before, untouched) = (current(bench), NOWHERE as Handle);
    let mut context = untouched;
    let result = make(&mut context);
    if result != 0 {
        let written = if context == untouched { "untouched" } else { "written" };
        let kept = current(bench) == before;
        return subject.say(case, result, format_args!("{written}, current as before {kept}"));
    }
    let is_current = current(bench) == context;
    let (mut version, mut flags) = (0, 0);
    bench.note("cuCtxGetApiVersion", bench.cuCtxGetApiVersion(context, &mut version));
    bench.note("cuCtxGetFlags", bench.cuCtxGetFlags(&mut flags));
    let memory = has_memory(bench);
    bench.note("cuCtxDestroy_v2", bench.cuCtxDestroy_v2(context));
    let back = current(bench) == before;
    let kind = format!("current {is_current}, version {version}, flags {flags:#x}");
    subject.say(case, result, format_args!("{kind}, {memory}; ended, current as before {back}"));
}

/// Flags and devices that every version is called with.
const WISHES: [(&str, u32, c_int); 7] = [
    ("no flags", 0, 0),
    ("waits that spin", 1, 0),
    ("waits that block", 4, 0),
    ("waits of two kinds", 3, 0),
    ("unknown flags", 0x1_0000, 0),
    ("device 1000", 0, 1000),
    ("device -1", 0, -1),
];

/// `cuCtxCreate` of before CUDA 3.2, and its second version.
pub(crate) fn create(subject: &Subject, create: extern "C" fn(*mut Handle, u32, c_int) -> u32) {
    for (case, flags, device) in WISHES {
        made(subject, case, |out| create(out, flags, device));
    }
}

/// `CUexecAffinityParam`, of the only kind there is: a number of multiprocessors.
#[repr(C)]
struct Affinity {
    kind: u32,
    multiprocessors: u32,
}

/// `cuCtxCreate_v3`.
pub(crate) fn create_3(subject: &Subject, create: extern "C" fn(*mut Handle, *mut c_void, c_int, u32, c_int) -> u32) {
    for (case, flags, device) in WISHES {
        made(subject, case, |out| create(out, null_mut(), 0, flags, device));
    }
    let mut affinity = Affinity { kind: 0, multiprocessors: 8 };
    made(subject, "8 multiprocessors", |out| create(out, (&raw mut affinity).cast(), 1, 0, 0));
}

/// `CUctxCreateParams`.
#[repr(C)]
struct Parameters {
    affinities: *mut Affinity,
    count: c_int,
    graphics: *mut c_void,
}

/// `cuCtxCreate_v4`.
pub(crate) fn create_4(subject: &Subject, create: extern "C" fn(*mut Handle, *mut c_void, u32, c_int) -> u32) {
    for (case, flags, device) in WISHES {
        made(subject, case, |out| create(out, null_mut(), flags, device));
    }
    let mut nothing = Parameters { affinities: null_mut(), count: 0, graphics: null_mut() };
    made(subject, "parameters that say nothing", |out| create(out, (&raw mut nothing).cast(), 0, 0));
    let mut affinity = Affinity { kind: 0, multiprocessors: 8 };
    let mut few = Parameters { affinities: &mut affinity, count: 1, graphics: null_mut() };
    made(subject, "8 multiprocessors", |out| create(out, (&raw mut few).cast(), 0, 0));
    subject.say("no place for the answer", create(null_mut(), null_mut(), 0, 0), "");
}

/// A description of all multiprocessors; null where there can be none.
fn description(bench: &Bench) -> Handle {
    const MULTIPROCESSORS: u32 = 1;
    // Larger than `CUdevResource` is in any version.
    let mut resource = [0_u64; 64];
    let resource: *mut c_void = resource.as_mut_ptr().cast();
    let mut description = null_mut();
    let result = bench.cuDeviceGetDevResource(0, resource, MULTIPROCESSORS);
    bench.note("cuDeviceGetDevResource", result);
    if result == 0 {
        bench.note("cuDevResourceGenerateDesc", bench.cuDevResourceGenerateDesc(&mut description, resource, 1));
    }
    description
}

/// A green context with all multiprocessors; null where there can be none.
pub(crate) fn green(bench: &Bench) -> Handle {
    const DEFAULT_STREAM: u32 = 1;
    let (description, mut green) = (description(bench), null_mut());
    if !description.is_null() {
        bench.note("cuGreenCtxCreate", bench.cuGreenCtxCreate(&mut green, description, 0, DEFAULT_STREAM));
    }
    green
}

/// `cuGreenCtxCreate`. Null is asked about only where the driver describes no part of the GPU.
pub(crate) fn create_green(subject: &Subject, create: extern "C" fn(*mut Handle, Handle, i32, u32) -> u32) {
    const DEFAULT_STREAM: u32 = 1;
    let bench = subject.bench;
    let description = description(bench);
    for (case, device) in [("the device", 0), ("a device that is not there", 77)] {
        let mut green = null_mut();
        let result = create(&mut green, description, device, DEFAULT_STREAM);
        subject.say(case, result, format_args!("something {}", !green.is_null()));
        if result == 0 {
            bench.note("cuGreenCtxDestroy", bench.cuGreenCtxDestroy(green));
        }
    }
}

/// `cuCtxFromGreenCtx`. Null is asked about only where the driver has made no green context.
pub(crate) fn from_green(subject: &Subject, from: extern "C" fn(*mut Handle, Handle) -> u32) {
    let bench = subject.bench;
    let (before, green, untouched) = (current(bench), green(bench), NOWHERE as Handle);
    let mut first = untouched;
    let result = from(&mut first, green);
    if result == 0 {
        let kept = current(bench) == before;
        bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(first));
        let memory = has_memory(bench);
        bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(before));
        subject.say("a green context", result, format_args!("current as before {kept}, {memory}"));
        let mut second = untouched;
        let result = from(&mut second, green);
        subject.say("a green context, again", result, format_args!("the same {}", first == second));
    } else {
        let written = if first == untouched { "untouched" } else { "written" };
        subject.say(if green.is_null() { "no green context" } else { "a green context" }, result, written);
    }
    if !green.is_null() {
        bench.note("cuGreenCtxDestroy", bench.cuGreenCtxDestroy(green));
    }
}

/// `cuGreenCtxDestroy`. Null is asked about only where the driver has made no green context.
pub(crate) fn destroy_green(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let (bench, green) = (subject.bench, green(subject.bench));
    let mut context = null_mut();
    if !green.is_null() {
        bench.note("cuCtxFromGreenCtx", bench.cuCtxFromGreenCtx(&mut context, green));
    }
    let case = if green.is_null() { "no green context" } else { "a green context and the context made of it" };
    subject.say(case, destroy(green), format_args!("one of it {}", !context.is_null()));
}

/// A context that is current, or null where there can be none.
fn new(bench: &Bench) -> Handle {
    let mut context = null_mut();
    bench.note("cuCtxCreate_v2", bench.cuCtxCreate_v2(&mut context, 0, 0));
    context
}

/// `cuCtxDestroy` and its second version.
pub(crate) fn destroy(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let before = current(bench);
    let back = || format!("current as before {}", current(bench) == before);
    subject.say("null", destroy(null_mut()), back());

    let context = new(bench);
    subject.say("the current one", destroy(context), back());

    let context = new(bench);
    let mut popped = null_mut();
    if !context.is_null() {
        bench.note("cuCtxPopCurrent_v2", bench.cuCtxPopCurrent_v2(&mut popped));
    }
    let result = destroy(context);
    subject.say("one that is not current", result, format_args!("popped it {}, {}", popped == context, back()));

    let context = new(bench);
    let mut address = NOWHERE;
    bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut address, 1 << 20));
    bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(address, 1, 1 << 20, null_mut()));
    let result = destroy(context);
    let range = bench.cuMemGetAddressRange_v2(null_mut(), null_mut(), address);
    subject.say("one with memory and work", result, format_args!("{}, its memory {range}", back()));
}

/// `cuCtxDetach`, of a context that was attached to once more, so that it is there after it.
pub(crate) fn detach(subject: &Subject, detach: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let before = current(bench);
    let context = new(bench);
    let mut attached = null_mut();
    let answer = bench.cuCtxAttach(&mut attached, 0);
    bench.note("cuCtxAttach", answer);
    let memory = Piece::target(bench, Place::Device);
    // One that was not attached to could end here, and it might not be asked about any more.
    if answer == 0 || context.is_null() {
        let result = detach(context);
        let kept = current(bench) == context;
        bench.note("cuMemsetD8_v2", bench.cuMemsetD8_v2(memory.at(0), 0x22, SIZE));
        let seen = memory.seen(&[0x22; SIZE]);
        let same = attached == context;
        subject.say("attached once more", result, format_args!("the same {same}, current {kept}, {seen}"));
    }
    drop(memory);
    if !context.is_null() {
        bench.note("cuCtxDestroy_v2", bench.cuCtxDestroy_v2(context));
    }
    let back = current(bench) == before;
    bench.note("current as before", u32::from(!back));
}

/// `cuCtxEnablePeerAccess`, of a context of the same GPU, which is no peer, and of none.
pub(crate) fn enable_peer(subject: &Subject, enable: extern "C" fn(Handle, u32) -> u32) {
    let bench = subject.bench;
    let before = current(bench);
    let context = new(bench);
    let [same, other, none] = [context, before, null_mut()].map(|peer| enable(peer, 0));
    subject.say("the current one", same, format_args!("another one of its GPU {other}, none {none}"));
    if !context.is_null() {
        bench.note("cuCtxDestroy_v2", bench.cuCtxDestroy_v2(context));
    }
}

/// `cuCtxDisablePeerAccess`, of contexts that are no peers.
pub(crate) fn disable_peer(subject: &Subject, disable: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let before = current(bench);
    let context = new(bench);
    let [same, other, none] = [context, before, null_mut()].map(|peer| disable(peer));
    subject.say("the current one", same, format_args!("another one of its GPU {other}, none {none}"));
    if !context.is_null() {
        bench.note("cuCtxDestroy_v2", bench.cuCtxDestroy_v2(context));
    }
}
