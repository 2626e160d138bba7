//! Mappings of the program's own memory, and what comes of such calls about memory that was allocated.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::bench::{Bench, Subject};
use crate::handles::{self, Access, Mapping, UNIT, Use, pointer};
use crate::memory::{usable, written};
use crate::moving::DEVICE;
use crate::piece::{NOWHERE, Piece, Place};

const FULL: Access = Access { location: DEVICE, flags: 3 };

/// Addresses for two units; 0 where there are none to be had.
fn reserve(bench: &Bench) -> u64 {
    let mut at = 0;
    bench.note("cuMemAddressReserve", bench.cuMemAddressReserve(&mut at, 2 * UNIT, 0, 0, 0));
    at
}

/// A description of addresses that were reserved and perhaps mapped.
fn used(bench: &Bench, at: u64) -> String {
    if at == 0 {
        return "no addresses".to_owned();
    }
    bench.note("cuMemSetAccess", bench.cuMemSetAccess(at, UNIT, pointer(&FULL), 1));
    usable(bench, at, UNIT)
}

fn release(bench: &Bench, handle: u64) {
    if handle != NOWHERE {
        bench.note("cuMemRelease", bench.cuMemRelease(handle));
    }
}

fn give_back(bench: &Bench, at: u64, is_mapped: bool) {
    if at == 0 {
        return;
    }
    if is_mapped {
        bench.note("cuMemUnmap", bench.cuMemUnmap(at, UNIT));
    }
    bench.note("cuMemAddressFree", bench.cuMemAddressFree(at, 2 * UNIT));
}

/// `cuMemAddressReserve`.
pub(crate) fn reserve_addresses(subject: &Subject, reserve: extern "C" fn(*mut u64, usize, usize, u64, u64) -> u32) {
    let bench = subject.bench;
    for (case, bytes, alignment, wish, flags) in [
        ("anywhere", UNIT, 0, 0, 0),
        ("aligned", UNIT, 64 * UNIT, 0, 0),
        ("by a wish", UNIT, 0, 1 << 44, 0),
        ("no bytes", 0, 0, 0, 0),
        ("half a unit", UNIT / 2, 0, 0, 0),
        ("an odd alignment", UNIT, 3 * UNIT, 0, 0),
        ("with flags", UNIT, 0, 0, 1),
    ] {
        let mut at = NOWHERE;
        let result = reserve(&mut at, bytes, alignment, wish, flags);
        if result != 0 {
            subject.say(case, result, written(at));
            continue;
        }
        subject.say(
            case,
            result,
            if at.is_multiple_of(alignment.max(UNIT) as u64) { "aligned" } else { "not aligned" },
        );
        bench.note("cuMemAddressFree", bench.cuMemAddressFree(at, bytes));
    }
    subject.say("nowhere to put it", reserve(null_mut(), UNIT, 0, 0, 0), "");
}

/// `cuMemMap`.
pub(crate) fn map(subject: &Subject, map: extern "C" fn(u64, usize, usize, u64, u64) -> u32) {
    let bench = subject.bench;
    let handle = handles::new(bench);
    let at = reserve(bench);
    let result = map(at, UNIT, 0, handle, 0);
    subject.say("a handle", result, used(bench, at));
    if result == 0 {
        subject.say("where one is mapped", map(at, UNIT, 0, handle, 0), used(bench, at));
    }
    let memory = Piece::source(bench, Place::Device);
    subject.say("onto memory", map(memory.at(0), UNIT, 0, handle, 0), memory.untouched());
    drop(memory);
    for (case, to, bytes, flags) in [
        ("nothing", at, 0, 0),
        ("half a unit", at + UNIT as u64, UNIT / 2, 0),
        ("with flags", at + UNIT as u64, UNIT, 1),
        ("to null", 0, UNIT, 0),
        ("to addresses of nobody's", NOWHERE, UNIT, 0),
    ] {
        subject.say(case, map(to, bytes, 0, handle, flags), "");
    }
    give_back(bench, at, result == 0);
    release(bench, handle);
}

/// `cuMemUnmap`.
pub(crate) fn unmap(subject: &Subject, unmap: extern "C" fn(u64, usize) -> u32) {
    let bench = subject.bench;
    let mapping = Mapping::new(bench, Use::Full);
    let at = mapping.at;
    subject.say("half of a mapping", unmap(at, UNIT / 2), used(bench, at));
    subject.say("addresses without one", unmap(at + UNIT as u64, UNIT), used(bench, at));
    let result = unmap(at, UNIT);
    subject.say("a mapping", result, "");
    if result == 0 {
        mapping.unmapped();
    }
    let memory = Piece::source(bench, Place::Device);
    subject.say("memory", unmap(memory.at(0), UNIT), memory.untouched());
    subject.say("a part of memory", unmap(memory.at(0), memory.before.len()), memory.untouched());
    subject.say("null", unmap(0, UNIT), "");
}

/// `cuMemSetAccess`.
pub(crate) fn set_access(subject: &Subject, set: extern "C" fn(u64, usize, *const c_void, usize) -> u32) {
    let bench = subject.bench;
    let mapping = Mapping::new(bench, Use::None);
    let at = mapping.at;
    let seen = || if at == 0 { "no addresses".to_owned() } else { usable(bench, at, UNIT) };
    subject.say("a mapping", set(at, UNIT, pointer(&FULL), 1), seen());
    subject.say("no list", set(at, UNIT, null(), 1), seen());
    subject.say("an empty list", set(at, UNIT, pointer(&FULL), 0), seen());
    let unknown = Access { location: DEVICE, flags: 99 };
    subject.say("unknown access", set(at, UNIT, pointer(&unknown), 1), seen());
    subject.say("addresses without a mapping", set(at + UNIT as u64, UNIT, pointer(&FULL), 1), seen());
    let memory = Piece::source(bench, Place::Device);
    for (case, flags) in [("memory", 3), ("memory, no access", 0)] {
        let access = Access { location: DEVICE, flags };
        subject.say(case, set(memory.at(0), UNIT, pointer(&access), 1), memory.untouched());
    }
    subject.say("null", set(0, UNIT, pointer(&FULL), 1), "");
}

/// `cuMemAddressFree`.
pub(crate) fn free_addresses(subject: &Subject, free: extern "C" fn(u64, usize) -> u32) {
    let bench = subject.bench;
    let at = reserve(bench);
    subject.say("a part of addresses", free(at, UNIT), "");
    subject.say("addresses", free(at, 2 * UNIT), "");
    let mapping = Mapping::new(bench, Use::Full);
    subject.say("addresses with a mapping", free(mapping.at, 2 * UNIT), used(bench, mapping.at));
    drop(mapping);
    let memory = Piece::source(bench, Place::Device);
    subject.say("memory", free(memory.at(0), UNIT), memory.untouched());
    subject.say("null", free(0, UNIT), "");
}

/// `cuMemRetainAllocationHandle`.
pub(crate) fn retain(subject: &Subject, retain: extern "C" fn(*mut u64, *mut c_void) -> u32) {
    let bench = subject.bench;
    let ask = |case: &str, address: u64| {
        let mut handle = NOWHERE;
        let result = retain(&mut handle, address as *mut c_void);
        if result != 0 {
            return subject.say(case, result, written(handle));
        }
        let elsewhere = Mapping::of(bench, handle, UNIT, Use::Full);
        subject.say(case, result, used(bench, elsewhere.at));
        drop(elsewhere);
        release(bench, handle);
    };
    let mapping = Mapping::new(bench, Use::Full);
    ask("a mapping", mapping.at);
    ask("inside of a mapping", mapping.at + 100);
    ask("addresses without a mapping", mapping.at + UNIT as u64);
    subject.say("no place for the answer", retain(null_mut(), mapping.at as *mut c_void), "");
    drop(mapping);
    for (case, place) in
        [("memory", Place::Device), ("pinned memory", Place::Pinned), ("the host's memory", Place::Pageable)]
    {
        ask(case, Piece::source(bench, place).at(0));
    }
    ask("null", 0);
}
