//! Questions about memory, and memory that the program makes for itself.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::bench::Subject;
use crate::piece::NOWHERE;

pub(crate) fn total(subject: &Subject, total: extern "C" fn(*mut usize, c_int) -> u32) {
    for device in [0, 99] {
        let mut bytes = 0;
        let result = total(&mut bytes, device);
        subject.say(format_args!("device {device}"), result, bytes);
    }
    subject.say("no place for the answer", total(null_mut(), 0), "");
}

pub(crate) fn info(subject: &Subject, info: extern "C" fn(*mut usize, *mut usize) -> u32) {
    let bench = subject.bench;
    let ask = || {
        let (mut free, mut total) = (0, 0);
        let result = info(&mut free, &mut total);
        (result, free, total)
    };
    let (result, before, total) = ask();
    subject.say("at first", result, total);
    let mut memory = 0;
    if bench.cuMemAlloc_v2(&mut memory, 6 << 20) == 0 {
        let (result, free, _) = ask();
        subject.say("with 6 MiB more", result, before - free);
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(memory));
        let (result, free, _) = ask();
        subject.say("without them", result, before - free);
    }
}

pub(crate) fn range(subject: &Subject, range: extern "C" fn(*mut u64, *mut usize, u64) -> u32) {
    let bench = subject.bench;
    for bytes in [1000, 5 << 20] {
        let mut memory = 0;
        if bench.cuMemAlloc_v2(&mut memory, bytes) != 0 {
            continue;
        }
        for (case, offset) in [("start", 0), ("last byte", bytes as u64 - 1), ("behind", bytes as u64)] {
            let (mut base, mut size) = (NOWHERE, 77);
            let result = range(&mut base, &mut size, memory + offset);
            let seen = if result == 0 { format!("{} {size}", base == memory) } else { String::new() };
            subject.say(format_args!("{bytes} bytes, {case}"), result, seen);
        }
        subject.say("no places for the answers", range(null_mut(), null_mut(), memory), "");
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(memory));
        subject.say("after it was freed", range(null_mut(), null_mut(), memory), "");
    }
    subject.say("nowhere", range(null_mut(), null_mut(), NOWHERE), "");
}

/// Attributes whose values can be told without addresses: memory type, managed, ordinal, range size, mapped.
const ATTRIBUTES: [c_int; 5] = [2, 8, 9, 12, 13];
/// An attribute that is an address.
const ADDRESS: c_int = 3;
/// There is no such attribute.
const NONE: c_int = 99;

pub(crate) fn attribute(subject: &Subject, ask: extern "C" fn(*mut c_void, c_int, u64) -> u32) {
    let bench = subject.bench;
    let mut memory = 0;
    if bench.cuMemAlloc_v2(&mut memory, 3000) == 0 {
        for attribute in ATTRIBUTES {
            let mut value = 0u64;
            let result = ask((&raw mut value).cast(), attribute, memory + 100);
            subject.say(format_args!("attribute {attribute}"), result, value);
        }
        let mut value = 0u64;
        let result = ask((&raw mut value).cast(), ADDRESS, memory + 100);
        subject.say("the address", result, value == memory + 100);
        subject.say("no such attribute", ask((&raw mut value).cast(), NONE, memory), "");
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(memory));
        subject.say("after it was freed", ask((&raw mut value).cast(), ATTRIBUTES[0], memory), "");
    }
    let mut value = 0u64;
    subject.say("nowhere", ask((&raw mut value).cast(), ATTRIBUTES[0], NOWHERE), "");
}

pub(crate) fn attributes(subject: &Subject, ask: extern "C" fn(u32, *mut c_int, *mut *mut c_void, u64) -> u32) {
    let bench = subject.bench;
    let mut memory = 0;
    let allocated = bench.cuMemAlloc_v2(&mut memory, 3 << 20) == 0;
    for (case, address) in [("allocated", memory), ("nowhere", NOWHERE)] {
        if address == memory && !allocated {
            continue;
        }
        let mut wanted = ATTRIBUTES;
        let mut values = [0u64; ATTRIBUTES.len()];
        let mut places: Vec<*mut c_void> = values.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        let result = ask(wanted.len() as u32, wanted.as_mut_ptr(), places.as_mut_ptr(), address);
        subject.say(case, result, format_args!("{values:?}"));
    }
    if allocated {
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(memory));
    }
}

/// `CUmemAllocationProp`: kind, handle types, location (kind and id), two words of more.
type Properties = [u32; 8];
const PINNED_ON_DEVICE_0: Properties = [1, 0, 1, 0, 0, 0, 0, 0];

pub(crate) fn create(subject: &Subject, create: extern "C" fn(*mut u64, usize, *const c_void, u64) -> u32) {
    let bench = subject.bench;
    for (case, bytes, flags) in
        [("2 MiB", 2 << 20, 0), ("1000 bytes", 1000, 0), ("nothing", 0, 0), ("flags", 2 << 20, 1)]
    {
        let mut handle = 0;
        let result = create(&mut handle, bytes, PINNED_ON_DEVICE_0.as_ptr().cast(), flags);
        subject.say(case, result, handle != 0);
        if result == 0 {
            bench.note("cuMemRelease", bench.cuMemRelease(handle));
        }
    }
}

pub(crate) fn release(subject: &Subject, release: extern "C" fn(u64) -> u32) {
    let bench = subject.bench;
    let mut handle = 0;
    if bench.cuMemCreate(&mut handle, 2 << 20, PINNED_ON_DEVICE_0.as_ptr().cast(), 0) == 0 {
        subject.say("once", release(handle), "");
        subject.say("twice", release(handle), "");
    }
    subject.say("nothing", release(0), "");
}
