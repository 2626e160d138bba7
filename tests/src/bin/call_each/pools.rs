//! Pools, and what they go by: waiting for streams and contexts, and events.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use crate::bench::{Bench, Handle, Subject, on};
use crate::moving::{DEVICE, Location};

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`, `…_RESERVED_MEM_CURRENT`, `…_USED_MEM_CURRENT` and `…_USED_MEM_HIGH`.
const THRESHOLD: c_int = 4;
const RESERVED: c_int = 5;
const USED: c_int = 7;
const USED_HIGH: c_int = 8;

const BYTES: usize = 3 << 20;

/// A pool of the device, which processes can be given by handles of these types.
pub(crate) fn new(bench: &Bench, handle_types: c_int) -> Handle {
    // `CUmemPoolProps`: pinned, on device 0; the rest is zero.
    let mut properties = [0u64; 16];
    (properties[0], properties[1]) = (1 | (handle_types as u64) << 32, 1);
    let mut pool = null_mut();
    bench.note("cuMemPoolCreate", bench.cuMemPoolCreate(&mut pool, properties.as_ptr().cast()));
    pool
}

/// A pool of the device that keeps what is freed, and an allocation of it.
struct Filled<'a> {
    bench: &'a Bench,
    pool: Handle,
    at: u64,
}

impl<'a> Filled<'a> {
    fn new(bench: &'a Bench) -> Self {
        let (pool, mut at, mut all) = (new(bench, 0), 0, u64::MAX);
        bench.note("cuMemPoolSetAttribute", bench.cuMemPoolSetAttribute(pool, THRESHOLD, (&raw mut all).cast()));
        let answer = bench.cuMemAllocFromPoolAsync(&mut at, BYTES, pool, bench.own_stream());
        bench.note("cuMemAllocFromPoolAsync", answer);
        Self { bench, pool, at }
    }

    fn figure(&self, attribute: c_int) -> u64 {
        let mut value = 0;
        let answer = self.bench.cuMemPoolGetAttribute(self.pool, attribute, (&raw mut value).cast());
        self.bench.note("cuMemPoolGetAttribute", answer);
        value
    }

    fn free(&mut self) {
        let at = std::mem::take(&mut self.at);
        self.bench.note("cuMemFreeAsync", self.bench.cuMemFreeAsync(at, self.bench.own_stream()));
    }

    /// The bytes that it has reserved and in use.
    fn seen(&self) -> String {
        format!("reserved {}, used {}", self.figure(RESERVED), self.figure(USED))
    }
}

impl Drop for Filled<'_> {
    fn drop(&mut self) {
        if self.at != 0 {
            self.free();
        }
        self.bench.settle();
        if !self.pool.is_null() {
            self.bench.note("cuMemPoolDestroy", self.bench.cuMemPoolDestroy(self.pool));
        }
    }
}

/// `cuMemPoolDestroy`.
pub(crate) fn destroy(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let mut filled = Filled::new(subject.bench);
    let pool = std::mem::replace(&mut filled.pool, null_mut());
    subject.say("one with memory", destroy(pool), subject.bench.settle());
    drop(filled);
    subject.say("none", destroy(null_mut()), "");
}

/// `cuMemPoolTrimTo`.
pub(crate) fn trim(subject: &Subject, trim: extern "C" fn(Handle, usize) -> u32) {
    let mut filled = Filled::new(subject.bench);
    subject.say("all in use", trim(filled.pool, 0), filled.seen());
    filled.free();
    subject.bench.settle();
    subject.say("nothing in use, to what there is", trim(filled.pool, 1 << 30), filled.seen());
    subject.say("nothing in use", trim(filled.pool, 0), filled.seen());
    subject.say("no pool", trim(null_mut(), 0), "");
}

/// `cuMemPoolGetAttribute`.
pub(crate) fn attribute(subject: &Subject, get: extern "C" fn(Handle, c_int, *mut c_void) -> u32) {
    let filled = Filled::new(subject.bench);
    for attribute in [0, 1, 2, 3, 4, 5, 6, 7, 8, 99] {
        let mut value = 0u64;
        let result = get(filled.pool, attribute, (&raw mut value).cast());
        subject.say(format_args!("attribute {attribute}"), result, value);
    }
    subject.say("nowhere", get(filled.pool, USED, null_mut()), "");
    let mut value = 0u64;
    subject.say("no pool", get(null_mut(), USED, (&raw mut value).cast()), "");
}

/// `cuMemPoolSetAttribute`.
pub(crate) fn set_attribute(subject: &Subject, set: extern "C" fn(Handle, c_int, *mut c_void) -> u32) {
    let mut filled = Filled::new(subject.bench);
    for attribute in [0, 1, 2, 3, 4, 5, 7, 99] {
        let mut value = 1u64;
        let result = set(filled.pool, attribute, (&raw mut value).cast());
        subject.say(format_args!("attribute {attribute} to 1"), result, filled.seen());
    }
    filled.free();
    subject.bench.settle();
    let mut zero = 0u64;
    let result = set(filled.pool, USED_HIGH, (&raw mut zero).cast());
    subject.say("the highest figure to 0", result, filled.figure(USED_HIGH));
    subject.say("no pool", set(null_mut(), THRESHOLD, (&raw mut zero).cast()), "");
}

/// `cuMemPoolSetAccess`.
pub(crate) fn set_access(subject: &Subject, set: extern "C" fn(Handle, *const c_void, usize) -> u32) {
    #[repr(C)]
    struct Access {
        location: Location,
        flags: c_int,
    }
    let filled = Filled::new(subject.bench);
    for (case, flags) in [("its own device", 3), ("its own device, to read", 1), ("its own device, none", 0)] {
        let access = Access { location: DEVICE, flags };
        subject.say(case, set(filled.pool, (&raw const access).cast(), 1), filled.seen());
    }
    let access = Access { location: Location { id: 77, ..DEVICE }, flags: 3 };
    subject.say("a device that is not there", set(filled.pool, (&raw const access).cast(), 1), "");
    subject.say("nobody", set(filled.pool, null(), 0), "");
}

/// `cuDeviceSetMemPool`.
pub(crate) fn set_of_device(subject: &Subject, set: extern "C" fn(c_int, Handle) -> u32) {
    set_current(subject, |device, pool| set(device.id, pool));
}

/// `cuMemSetMemPool`.
pub(crate) fn set_of_location(subject: &Subject, set: extern "C" fn(*const Location, c_int, Handle) -> u32) {
    const PINNED: c_int = 1;
    set_current(subject, |device, pool| set(&device, PINNED, pool));
}

fn set_current(subject: &Subject, set: impl Fn(Location, Handle) -> u32) {
    let bench = subject.bench;
    let filled = Filled::new(bench);
    let mut first = null_mut();
    bench.note("cuDeviceGetDefaultMemPool", bench.cuDeviceGetDefaultMemPool(&mut first, 0));
    let use_it = || {
        let mut at = 0;
        bench.note("cuMemAllocAsync", bench.cuMemAllocAsync(&mut at, BYTES, bench.own_stream()));
        let seen = filled.seen();
        bench.note("cuMemFreeAsync", bench.cuMemFreeAsync(at, bench.own_stream()));
        seen
    };
    subject.say("another one", set(DEVICE, filled.pool), use_it());
    subject.say("the default one", set(DEVICE, first), use_it());
    subject.say("none", set(DEVICE, null_mut()), use_it());
    subject.say("of a device that is not there", set(Location { id: 77, ..DEVICE }, filled.pool), use_it());
}

/// A pool that keeps nothing, of which all was freed in a stream: the memory that it has after a wait.
fn after(subject: &Subject, case: impl std::fmt::Display, stream: Handle, wait: impl FnOnce() -> u32) {
    let bench = subject.bench;
    let mut filled = Filled::new(bench);
    let mut zero = 0u64;
    let answer = bench.cuMemPoolSetAttribute(filled.pool, THRESHOLD, (&raw mut zero).cast());
    bench.note("cuMemPoolSetAttribute", answer);
    bench.settle();
    let at = std::mem::take(&mut filled.at);
    bench.note("cuMemFreeAsync", bench.cuMemFreeAsync(at, stream));
    subject.say(case, wait(), filled.seen());
}

/// `cuStreamSynchronize`.
pub(crate) fn stream(subject: &Subject, wait: extern "C" fn(Handle) -> u32) {
    for stream in subject.bench.streams() {
        let meant = subject.meant(stream.1);
        after(subject, format_args!("freed there{}", on(stream)), meant, || wait(stream.1));
    }
    let own = subject.bench.own_stream();
    let mut other = null_mut();
    subject.bench.note("cuStreamCreate", subject.bench.cuStreamCreate(&mut other, 1));
    after(subject, "freed elsewhere", own, || wait(other));
    subject.bench.note("cuStreamDestroy_v2", subject.bench.cuStreamDestroy_v2(other));
}

/// `cuCtxSynchronize`.
pub(crate) fn context(subject: &Subject, wait: extern "C" fn() -> u32) {
    after(subject, "freed there", subject.bench.own_stream(), || wait());
}

/// `cuCtxSynchronize_v2`.
pub(crate) fn one_context(subject: &Subject, wait: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let mut current = null_mut();
    bench.note("cuCtxGetCurrent", bench.cuCtxGetCurrent(&mut current));
    after(subject, "freed there", bench.own_stream(), || wait(current));
}

/// Does something with an event, if one can be made.
fn with_event(bench: &Bench, what: impl FnOnce(Handle)) {
    let mut event = null_mut();
    bench.note("cuEventCreate", bench.cuEventCreate(&mut event, 0));
    what(event);
    if !event.is_null() {
        bench.note("cuEventDestroy_v2", bench.cuEventDestroy_v2(event));
    }
}

/// `cuEventSynchronize`.
pub(crate) fn event(subject: &Subject, wait: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    with_event(bench, |event| {
        subject.say("one never recorded", wait(event), "");
        let own = bench.own_stream();
        after(subject, "recorded behind the free", own, || {
            bench.note("cuEventRecord", bench.cuEventRecord(event, own));
            wait(event)
        });
    });
    subject.say("none", wait(null_mut()), "");
}

/// `cuEventRecord`.
pub(crate) fn record(subject: &Subject, record: extern "C" fn(Handle, Handle) -> u32) {
    recorded(subject, |event, stream| record(event, stream));
}

/// `cuEventRecordWithFlags`.
pub(crate) fn record_with_flags(subject: &Subject, record: extern "C" fn(Handle, Handle, u32) -> u32) {
    recorded(subject, |event, stream| record(event, stream, 0));
    with_event(subject.bench, |event| {
        let result = record(event, subject.bench.own_stream(), 1 << 20);
        subject.say("unknown flags", result, subject.bench.settle());
    });
}

fn recorded(subject: &Subject, record: impl Fn(Handle, Handle) -> u32) {
    let bench = subject.bench;
    for stream in bench.streams() {
        with_event(bench, |event| {
            let case = format_args!("behind a free{}", on(stream)).to_string();
            let mut result = 0;
            after(subject, "what was freed", subject.meant(stream.1), || {
                result = record(event, stream.1);
                bench.cuEventSynchronize(event)
            });
            subject.say(case, result, bench.settle());
        });
    }
    subject.say("no event", record(null_mut(), bench.own_stream()), bench.settle());
}

/// `cuEventDestroy`.
pub(crate) fn event_destroy(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let mut event = null_mut();
    bench.note("cuEventCreate", bench.cuEventCreate(&mut event, 0));
    bench.note("cuEventRecord", bench.cuEventRecord(event, bench.own_stream()));
    subject.say("a recorded one", destroy(event), bench.settle());
    subject.say("none", destroy(null_mut()), "");
}
