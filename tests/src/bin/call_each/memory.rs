//! Giving out memory and taking it back.

use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Subject, on};
use crate::piece::{NOWHERE, checksum};

/// Fills memory and reads it back: shows that it is there, and how much of it.
pub(crate) fn usable(bench: &Bench, address: u64, bytes: usize) -> String {
    let settled = bench.settle();
    let filled = bench.cuMemsetD8_v2(address, 0x5a, bytes);
    let mut back = vec![0; bytes];
    let read = bench.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, bytes);
    let (mut base, mut size) = (0, 0);
    let range = bench.cuMemGetAddressRange_v2(&mut base, &mut size, address);
    let whole = base == address;
    format!("{settled}fill {filled}, read {read} {:08x}, range {range} {whole} {size}", checksum(&back))
}

/// The state of an address to be written: a call that fails must not touch it.
pub(crate) fn written(address: u64) -> &'static str {
    if address == NOWHERE { "untouched" } else { "written" }
}

/// `cuMemAlloc_v2`.
pub(crate) fn give(subject: &Subject, give: extern "C" fn(*mut u64, usize) -> u32) {
    let bench = subject.bench;
    for bytes in [1, 300, 1 << 20, 5 << 20] {
        let mut address = NOWHERE;
        let result = give(&mut address, bytes);
        let seen = if result == 0 { usable(bench, address, bytes) } else { written(address).to_owned() };
        subject.say(format_args!("{bytes} bytes"), result, seen);
        if result == 0 {
            bench.note("cuMemFree_v2", bench.cuMemFree_v2(address));
        }
    }
    for (case, bytes) in [("nothing", 0), ("a million GiB", 1 << 50)] {
        let mut address = NOWHERE;
        subject.say(case, give(&mut address, bytes), written(address));
    }
    subject.say("no place for the answer", give(null_mut(), 16), "");
}

/// `cuMemAlloc` of before CUDA 3.2.
pub(crate) fn old_give(subject: &Subject, give: extern "C" fn(*mut u32, u32) -> u32) {
    let mut address = NOWHERE as u32;
    subject.say("nothing", give(&mut address, 0), written(address.into()));
    subject.say("nothing, again", give(&mut address, 0), written(address.into()));
}

/// `cuMemAllocPitch_v2`.
pub(crate) fn give_rows(subject: &Subject, give: extern "C" fn(*mut u64, *mut usize, usize, usize, u32) -> u32) {
    let bench = subject.bench;
    for (width, height, element) in [(100, 4, 4), (1000, 3, 8), (5000, 2, 16)] {
        let (mut address, mut pitch) = (NOWHERE, 0);
        let result = give(&mut address, &mut pitch, width, height, element);
        let seen = if result == 0 {
            format!("pitch {pitch}, {}", usable(bench, address, pitch * (height - 1) + width))
        } else {
            written(address).to_owned()
        };
        subject.say(format_args!("{height} rows of {width} bytes"), result, seen);
        if result == 0 {
            bench.note("cuMemFree_v2", bench.cuMemFree_v2(address));
        }
    }
    for (case, width, height, element) in
        [("elements of 3", 100, 4, 3), ("no width", 0, 4, 4), ("no height", 100, 0, 4)]
    {
        let (mut address, mut pitch) = (NOWHERE, 7);
        subject.say(case, give(&mut address, &mut pitch, width, height, element), format_args!("pitch {pitch}"));
        if address != NOWHERE && address != 0 {
            bench.note("cuMemFree_v2", bench.cuMemFree_v2(address));
        }
    }
    let mut pitch = 7;
    subject.say("no place for the address", give(null_mut(), &mut pitch, 100, 4, 4), "");
}

/// `cuMemAllocPitch` of before CUDA 3.2.
pub(crate) fn old_give_rows(subject: &Subject, give: extern "C" fn(*mut u32, *mut u32, u32, u32, u32) -> u32) {
    for (case, width, element) in [("no width", 0, 4), ("elements of 3", 0, 3)] {
        let (mut address, mut pitch) = (NOWHERE as u32, 7);
        let result = give(&mut address, &mut pitch, width, 4, element);
        subject.say(case, result, written(address.into()));
    }
}

/// `cuMemAllocManaged`.
pub(crate) fn give_managed(subject: &Subject, give: extern "C" fn(*mut u64, usize, u32) -> u32) {
    let bench = subject.bench;
    for (case, flags) in [("for all streams", 1), ("for the host", 2)] {
        let mut address = NOWHERE;
        let result = give(&mut address, 4096, flags);
        let mut seen = String::new();
        if result == 0 {
            seen = usable(bench, address, 4096);
            // SAFETY: managed memory of 4096 bytes, which the host may read once all work has ended.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, 4096) };
            seen = format!("{seen}, by the host {:08x}", checksum(bytes));
            bench.note("cuMemFree_v2", bench.cuMemFree_v2(address));
        }
        subject.say(case, result, seen);
    }
    for (case, bytes, flags) in [("nothing", 0, 1), ("no flag", 4096, 0), ("unknown flag", 4096, 64)] {
        let mut address = NOWHERE;
        subject.say(case, give(&mut address, bytes, flags), "");
    }
    subject.say("no place for the answer", give(null_mut(), 4096, 1), "");
}

/// `cuMemFree_v2`.
pub(crate) fn take(subject: &Subject, take: extern "C" fn(u64) -> u32) {
    let bench = subject.bench;
    let mut address = 0;
    bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut address, 1 << 20));
    if address != 0 {
        subject.say("the 16th byte", take(address + 16), usable(bench, address, 1 << 20));
    }
    subject.say("memory", take(address), "");
    subject.say("memory, again", take(address), "");
    subject.say("null", take(0), "");
    subject.say("nowhere", take(NOWHERE), "");
}

/// `cuMemFree` of before CUDA 3.2.
pub(crate) fn old_take(subject: &Subject, take: extern "C" fn(u32) -> u32) {
    subject.say("null", take(0), "");
    subject.say("nowhere", take(NOWHERE as u32), "");
}

/// The cases of memory that is given out in a stream's order.
fn give_queued(subject: &Subject, give: impl Fn(*mut u64, usize, Handle) -> u32) {
    let bench = subject.bench;
    for stream in bench.streams() {
        let mut address = NOWHERE;
        let result = give(&mut address, 4096, stream.1);
        let mut seen = written(address).to_owned();
        if result == 0 {
            seen = usable(bench, address, 4096);
            bench.note("cuMemFreeAsync", bench.cuMemFreeAsync(address, stream.1));
        }
        subject.say(format_args!("4096 bytes{}", on(stream)), result, seen);
    }
    let stream = bench.own_stream();
    for (case, bytes) in [("nothing", 0), ("a million GiB", 1 << 50)] {
        let mut address = NOWHERE;
        subject.say(case, give(&mut address, bytes, stream), "");
    }
    subject.say("no place for the answer", give(null_mut(), 16, stream), bench.settle());
}

/// `cuMemAllocAsync`.
pub(crate) fn give_async(subject: &Subject, give: extern "C" fn(*mut u64, usize, Handle) -> u32) {
    give_queued(subject, |out, bytes, stream| give(out, bytes, stream));
}

/// `cuMemAllocFromPoolAsync`.
pub(crate) fn give_from_pool(subject: &Subject, give: extern "C" fn(*mut u64, usize, Handle, Handle) -> u32) {
    let bench = subject.bench;
    let mut pool = null_mut();
    bench.note("cuDeviceGetDefaultMemPool", bench.cuDeviceGetDefaultMemPool(&mut pool, 0));
    give_queued(subject, |out, bytes, stream| give(out, bytes, pool, stream));
    let mut address = NOWHERE;
    subject.say("no pool", give(&mut address, 16, null_mut(), bench.own_stream()), "");
}

/// `cuMemFreeAsync`.
pub(crate) fn take_async(subject: &Subject, take: extern "C" fn(u64, Handle) -> u32) {
    let bench = subject.bench;
    for stream in bench.streams() {
        let mut address = 0;
        bench.note("cuMemAllocAsync", bench.cuMemAllocAsync(&mut address, 4096, stream.1));
        let result = take(address, stream.1);
        subject.say(format_args!("memory of a pool{}", on(stream)), result, bench.settle());
    }
    let stream = bench.own_stream();
    let mut address = 0;
    bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut address, 4096));
    let result = take(address, stream);
    subject.say("memory of cuMemAlloc", result, bench.settle());
    if result != 0 && address != 0 {
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(address));
    }
    subject.say("null", take(0, stream), bench.settle());
    subject.say("nowhere", take(NOWHERE, stream), bench.settle());
}
