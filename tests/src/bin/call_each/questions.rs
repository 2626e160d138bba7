//! Questions about memory: how much there is, and what an address belongs to.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::bench::Subject;
use crate::handles::{Mapping, UNIT, Use};
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// What an answer is before the call.
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
