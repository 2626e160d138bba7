//! Moving memory that is already there, throwing its contents away, and attaching it to streams.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Stream, Subject, on};
use crate::piece::{NOWHERE, Piece, Place, checksum};

/// Bytes of managed memory: little, and a whole page of every kind.
const MANAGED: usize = 64 << 10;

/// `CUmemLocation`, passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

/// Device 0.
pub(crate) const DEVICE: Location = Location { kind: 1, id: 0 };
/// The host.
const HOST: Location = Location { kind: 2, id: 0 };

/// Managed memory with known contents; at address 0 where the driver has none.
struct Managed<'a> {
    bench: &'a Bench,
    address: u64,
}

impl<'a> Managed<'a> {
    fn new(bench: &'a Bench) -> Self {
        let mut address = 0;
        bench.note("cuMemAllocManaged", bench.cuMemAllocManaged(&mut address, MANAGED, 1));
        if address != 0 {
            bench.note("cuMemsetD8_v2", bench.cuMemsetD8_v2(address, 0x77, MANAGED));
            bench.note("cuCtxSynchronize", bench.cuCtxSynchronize());
        }
        Self { bench, address }
    }

    /// Tells whether the contents are as before.
    fn seen(&self) -> String {
        let settled = self.bench.settle();
        if self.address == 0 {
            return format!("{settled}no memory");
        }
        let mut now = vec![0; MANAGED];
        let result = self.bench.cuMemcpyDtoH_v2(now.as_mut_ptr().cast(), self.address, MANAGED);
        format!("{settled}read {result} {:08x}", checksum(&now))
    }
}

impl Drop for Managed<'_> {
    fn drop(&mut self) {
        if self.address != 0 {
            self.bench.note("cuMemFree_v2", self.bench.cuMemFree_v2(self.address));
        }
    }
}

/// The cases of moving one range; `prefetch` gets the address, bytes, place, flags, stream.
fn ranges(subject: &Subject, prefetch: impl Fn(u64, usize, Location, u32, Handle) -> u32) {
    let bench = subject.bench;
    let streams = bench.streams();
    let run = |case: &str, bytes, to, flags, stream: Stream| {
        let memory = Managed::new(bench);
        let result = prefetch(memory.address, bytes, to, flags, stream.1);
        subject.say(format_args!("{case}{}", on(stream)), result, memory.seen());
    };
    for stream in streams {
        run("managed memory to the device", MANAGED, DEVICE, 0, stream);
    }
    run("managed memory to the host", MANAGED, HOST, 0, streams[0]);
    run("to device 99", MANAGED, Location { kind: 1, id: 99 }, 0, streams[0]);
    run("nothing", 0, DEVICE, 0, streams[0]);
    let plain = Piece::source(bench, Place::Device);
    let result = prefetch(plain.at(0), 1024, DEVICE, 0, streams[0].1);
    subject.say("plain device memory", result, plain.untouched());
    subject.say("null", prefetch(0, 4096, DEVICE, 0, streams[0].1), bench.settle());
}

/// `cuMemPrefetchAsync` of before CUDA 13: -1 is the host.
pub(crate) fn old_prefetch(subject: &Subject, prefetch: extern "C" fn(u64, usize, i32, Handle) -> u32) {
    ranges(subject, |address, bytes, to, _, stream| {
        prefetch(address, bytes, if to.kind == HOST.kind { -1 } else { to.id }, stream)
    });
}

/// `cuMemPrefetchAsync_v2`.
pub(crate) fn prefetch(subject: &Subject, prefetch: extern "C" fn(u64, usize, Location, u32, Handle) -> u32) {
    ranges(subject, |address, bytes, to, flags, stream| prefetch(address, bytes, to, flags, stream));
    let memory = Managed::new(subject.bench);
    let stream = subject.bench.own_stream();
    subject.say("unknown flags", prefetch(memory.address, MANAGED, DEVICE, 99, stream), memory.seen());
    let unknown = Location { kind: 99, id: 0 };
    subject.say("unknown kind of place", prefetch(memory.address, MANAGED, unknown, 0, stream), memory.seen());
}

/// The cases of advice about one range; `advise` gets the address, bytes, advice, place.
fn advised(subject: &Subject, advise: impl Fn(u64, usize, c_int, Location) -> u32) {
    const READ_MOSTLY: c_int = 1;
    const PREFERRED_LOCATION: c_int = 3;
    const ACCESSED_BY: c_int = 5;
    let bench = subject.bench;
    let run = |case: &str, bytes, advice, place| {
        let memory = Managed::new(bench);
        subject.say(case, advise(memory.address, bytes, advice, place), memory.seen());
    };
    run("read mostly", MANAGED, READ_MOSTLY, DEVICE);
    run("better on the device", MANAGED, PREFERRED_LOCATION, DEVICE);
    run("better on the host", MANAGED, PREFERRED_LOCATION, HOST);
    run("used by the device", MANAGED, ACCESSED_BY, DEVICE);
    run("unknown advice", MANAGED, 99, DEVICE);
    run("about nothing", 0, READ_MOSTLY, DEVICE);
    let plain = Piece::source(bench, Place::Device);
    for (case, advice) in [("plain device memory", READ_MOSTLY), ("plain device memory, place", PREFERRED_LOCATION)] {
        subject.say(case, advise(plain.at(0), 1024, advice, DEVICE), plain.untouched());
    }
    subject.say("null", advise(0, 4096, READ_MOSTLY, DEVICE), "");
}

/// `cuMemAdvise` of before CUDA 13: -1 is the host.
pub(crate) fn old_advise(subject: &Subject, advise: extern "C" fn(u64, usize, c_int, c_int) -> u32) {
    advised(subject, |address, bytes, advice, to| {
        advise(address, bytes, advice, if to.kind == HOST.kind { -1 } else { to.id })
    });
}

/// `cuMemAdvise_v2`.
pub(crate) fn advise(subject: &Subject, advise: extern "C" fn(u64, usize, c_int, Location) -> u32) {
    advised(subject, |address, bytes, advice, to| advise(address, bytes, advice, to));
}

/// Where the ranges of a batch go; absent in a batch that only discards.
struct Targets {
    places: *mut Location,
    indexes: *mut usize,
    count: usize,
}

/// The cases of batches of ranges. `keeps` says whether the contents may be looked at afterwards.
fn range_batches(
    subject: &Subject,
    keeps: bool,
    call: impl Fn(*mut u64, *mut usize, usize, Targets, u64, Handle) -> u32,
) {
    let bench = subject.bench;
    let streams = bench.streams();
    let run = |case: &str, place: Location, place_count, flags, stream: Stream| {
        let memory = Managed::new(bench);
        let (mut address, mut bytes, mut place, mut index) = (memory.address, MANAGED, place, 0);
        let targets = Targets { places: &mut place, indexes: &mut index, count: place_count };
        let result = call(&mut address, &mut bytes, 1, targets, flags, stream.1);
        let seen = if keeps || result != 0 { memory.seen() } else { bench.settle() };
        subject.say(format_args!("{case}{}", on(stream)), result, seen);
    };
    for stream in streams {
        run("managed memory", DEVICE, 1, 0, stream);
    }
    run("managed memory, to the host", HOST, 1, 0, streams[0]);
    run("device 99", Location { kind: 1, id: 99 }, 1, 0, streams[0]);
    run("no place", DEVICE, 0, 0, streams[0]);
    run("unknown flags", DEVICE, 1, 99, streams[0]);
    let nothing = Targets { places: null_mut(), indexes: null_mut(), count: 0 };
    subject.say("nothing", call(null_mut(), null_mut(), 0, nothing, 0, streams[0].1), bench.settle());
}

/// The type of `cuMemPrefetchBatchAsync` and `cuMemDiscardAndPrefetchBatchAsync`.
type Prefetches = extern "C" fn(*mut u64, *mut usize, usize, *mut Location, *mut usize, usize, u64, Handle) -> u32;

/// `cuMemPrefetchBatchAsync`.
pub(crate) fn prefetches(subject: &Subject, call: Prefetches) {
    range_batches(subject, true, |addresses, sizes, count, to, flags, stream| {
        call(addresses, sizes, count, to.places, to.indexes, to.count, flags, stream)
    });
}

/// `cuMemDiscardAndPrefetchBatchAsync`.
pub(crate) fn discards_and_prefetches(subject: &Subject, call: Prefetches) {
    range_batches(subject, false, |addresses, sizes, count, to, flags, stream| {
        call(addresses, sizes, count, to.places, to.indexes, to.count, flags, stream)
    });
}

/// `cuMemDiscardBatchAsync`.
pub(crate) fn discards(subject: &Subject, call: extern "C" fn(*mut u64, *mut usize, usize, u64, Handle) -> u32) {
    range_batches(subject, false, |addresses, sizes, count, _, flags, stream| {
        call(addresses, sizes, count, flags, stream)
    });
}

/// `cuMemBatchDecompressAsync`: nothing to do, as compressed data would need a library to make it.
pub(crate) fn decompress(subject: &Subject, call: extern "C" fn(*mut c_void, usize, u32, *mut usize, Handle) -> u32) {
    let stream = subject.bench.own_stream();
    for (case, flags) in [("nothing", 0), ("nothing, unknown flags", 99)] {
        let mut failed = 77;
        let result = call(null_mut(), 0, flags, &mut failed, stream);
        subject.say(case, result, format_args!("{}failed {}", subject.bench.settle(), failed as isize));
    }
}

/// `cuMemMapArrayAsync`: an entry of zeroes names no array.
pub(crate) fn map_arrays(subject: &Subject, call: extern "C" fn(*mut c_void, u32, Handle) -> u32) {
    let stream = subject.bench.own_stream();
    subject.say("nothing", call(null_mut(), 0, stream), subject.bench.settle());
    // CUarrayMapInfo has 96 bytes.
    let mut no_array = [0_u64; 12];
    subject.say("no array", call(no_array.as_mut_ptr().cast(), 1, stream), subject.bench.settle());
}

/// `cuStreamAttachMemAsync`. Without a flag NVIDIA's crashes.
pub(crate) fn attach(subject: &Subject, attach: extern "C" fn(Handle, u64, usize, u32) -> u32) {
    let bench = subject.bench;
    let run = |case: &str, bytes, flags, stream: Stream| {
        let memory = Managed::new(bench);
        let result = attach(stream.1, memory.address, bytes, flags);
        subject.say(format_args!("{case}{}", on(stream)), result, memory.seen());
    };
    let streams = bench.streams();
    for stream in streams {
        run("managed memory to all", 0, 1, stream);
    }
    run("managed memory to this", 0, 4, streams[0]);
    run("managed memory to the default", 0, 4, streams[1]);
    run("a part of it", 4096, 1, streams[0]);
    run("unknown flag", 0, 64, streams[0]);
    let plain = Piece::source(bench, Place::Device);
    subject.say("plain device memory", attach(streams[0].1, plain.at(0), 0, 1), plain.untouched());
    subject.say("nowhere", attach(streams[0].1, NOWHERE, 0, 1), bench.settle());
}
