//! Questions about memory: how much there is, and what an address belongs to.

use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null, null_mut};

use crate::bench::Subject;
use crate::handles::{Mapping, UNIT, Use};
use crate::moving::{DEVICE, Location};
use crate::piece::{NOWHERE, Piece, Place, SIZE};
use crate::pinned::{Own, PAGE};

/// An answer's value before the call.
const UNTOUCHED: usize = 77;

/// `cuDeviceTotalMem_v2`.
pub(crate) fn total(subject: &Subject, total: extern "C" fn(*mut usize, c_int) -> u32) {
    for device in [0, -1, 1000] {
        let mut bytes = UNTOUCHED;
        let result = total(&mut bytes, device);
        let (mut free, mut whole) = (0, 0);
        let answer = subject.bench.cuMemGetInfo_v2(&mut free, &mut whole);
        let seen = match bytes {
            UNTOUCHED => "untouched".to_owned(),
            bytes if answer == 0 => format!("as cuMemGetInfo {}", bytes == whole),
            bytes => format!("something {}", bytes > UNIT),
        };
        subject.say(format_args!("device {device}"), result, seen);
    }
}

/// `cuMemGetInfo_v2`.
pub(crate) fn info(subject: &Subject, info: extern "C" fn(*mut usize, *mut usize) -> u32) {
    const BYTES: usize = 64 << 20;
    let bench = subject.bench;
    let ask = || {
        let (mut free, mut total) = (UNTOUCHED, UNTOUCHED);
        let result = info(&mut free, &mut total);
        (result, free, total)
    };
    let (result, before, total) = ask();
    let seen = match (before, total) {
        (UNTOUCHED, UNTOUCHED) => "untouched".to_owned(),
        _ => format!("some are free {}, all are more {}", before > 0, before <= total),
    };
    subject.say("now", result, seen);

    let mut address = 0;
    bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut address, BYTES));
    let (result, during, still) = ask();
    let taken = address == 0 || before.saturating_sub(during) >= BYTES;
    subject.say("64 MiB given out", result, format_args!("taken {taken}, all are the same {}", still == total));
    if address != 0 {
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(address));
    }
    let (result, after, still) = ask();
    let back = address == 0 || after.saturating_sub(during) >= BYTES;
    subject.say("and taken back", result, format_args!("back {back}, all are the same {}", still == total));
}

/// `cuMemGetAddressRange_v2`.
pub(crate) fn range(subject: &Subject, range: extern "C" fn(*mut u64, *mut usize, u64) -> u32) {
    let bench = subject.bench;
    let ask = |case: &str, start: u64, address: u64| {
        let (mut base, mut bytes) = (NOWHERE, UNTOUCHED);
        let result = range(&mut base, &mut bytes, address);
        let from = match base {
            NOWHERE => "untouched",
            base if base == start => "the start",
            0 => "null",
            _ => "something else",
        };
        subject.say(case, result, format_args!("{from}, {bytes} bytes"));
    };

    let mut memory = 0;
    bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut memory, 1000));
    ask("memory", memory, memory);
    ask("the 10th byte", memory, memory + 10);
    ask("the last byte", memory, memory + 999);
    ask("past the end", memory, memory + 1000);
    let (mut base, mut bytes) = (NOWHERE, UNTOUCHED);
    let result = range(&mut base, null_mut(), memory);
    subject.say("memory, only its start", result, base == memory);
    let result = range(null_mut(), &mut bytes, memory);
    subject.say("memory, only its size", result, format_args!("{bytes} bytes"));
    subject.say("memory, neither of them", range(null_mut(), null_mut(), memory), "");
    if memory != 0 {
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(memory));
    }
    ask("freed memory", memory, memory);

    for (case, place) in [("pinned memory", Place::Pinned), ("the host's memory", Place::Pageable)] {
        let piece = Piece::target(bench, place);
        ask(case, piece.at(0), piece.at(SIZE / 2));
    }
    let mapping = Mapping::new(bench, Use::Full);
    ask("mapped memory", mapping.at, mapping.at + 10);
    ask("reserved addresses", mapping.at, mapping.at + UNIT as u64);
    drop(mapping);
    let mapping = Mapping::new(bench, Use::None);
    ask("memory mapped without access", mapping.at, mapping.at + 10);
    drop(mapping);
    ask("null", 0, 0);
    ask("nowhere", NOWHERE, NOWHERE);
}

/// `cuMemGetAccess`.
pub(crate) fn access(subject: &Subject, access: extern "C" fn(*mut u64, *const Location, u64) -> u32) {
    let bench = subject.bench;
    let ask = |case: &str, place: Location, address: u64| {
        let mut flags = UNTOUCHED as u64;
        let result = access(&mut flags, from_ref(&place), address);
        subject.say(case, result, format_args!("flags {flags}"));
    };
    let memory = Piece::source(bench, Place::Device);
    ask("memory", DEVICE, memory.at(10));
    ask("memory, the host", Location { kind: 2, id: 0 }, memory.at(10));
    ask("memory, device 99", Location { kind: 1, id: 99 }, memory.at(10));
    drop(memory);
    let mapping = Mapping::new(bench, Use::Full);
    ask("mapped memory", DEVICE, mapping.at);
    ask("inside of mapped memory", DEVICE, mapping.at + 10);
    ask("mapped memory, device 99", Location { kind: 1, id: 99 }, mapping.at);
    ask("reserved addresses", DEVICE, mapping.at + UNIT as u64);
    subject.say("no place for the answer", access(null_mut(), from_ref(&DEVICE), mapping.at), "");
    let mut flags = UNTOUCHED as u64;
    subject.say("no place asked about", access(&mut flags, null(), mapping.at), flags);
    drop(mapping);
    let mapping = Mapping::new(bench, Use::None);
    ask("memory mapped without access", DEVICE, mapping.at);
    drop(mapping);
    ask("null", DEVICE, 0);
    ask("nowhere", DEVICE, NOWHERE);
}

/// Asks about all kinds of memory, as about the host's.
fn as_hosts(subject: &Subject, ask: impl Fn(&str, *mut c_void)) {
    let bench = subject.bench;
    for (case, place) in [("pinned memory", Place::Pinned), ("the host's memory", Place::Pageable)] {
        ask(case, Piece::target(bench, place).pointer());
    }
    let mut own = Own::new();
    let page = own.page();
    bench.note("cuMemHostRegister_v2", bench.cuMemHostRegister_v2(page, PAGE, 0));
    ask("a page that was pinned", page);
    bench.note("cuMemHostUnregister", bench.cuMemHostUnregister(page));
    let memory = Piece::target(bench, Place::Device);
    ask("device memory", memory.pointer());
    drop(memory);
    ask("mapped memory", Mapping::new(bench, Use::Full).at as *mut c_void);
    ask("null", null_mut());
}

/// `cuMemHostGetDevicePointer_v2`.
pub(crate) fn device_pointer(subject: &Subject, get: extern "C" fn(*mut u64, *mut c_void, u32) -> u32) {
    as_hosts(subject, |case, at| {
        let mut address = NOWHERE;
        let result = get(&mut address, at, 0);
        let seen = match address {
            NOWHERE => "untouched",
            address if address == at as u64 => "the same",
            _ => "another",
        };
        subject.say(case, result, seen);
    });
}

/// `cuMemHostGetFlags`.
pub(crate) fn host_flags(subject: &Subject, get: extern "C" fn(*mut u32, *mut c_void) -> u32) {
    as_hosts(subject, |case, at| {
        let mut flags = UNTOUCHED as u32;
        let result = get(&mut flags, at);
        subject.say(case, result, format_args!("flags {flags}"));
    });
}
