//! The driver's answers about addresses.
//!
//! Addresses and numbers that differ from run to run are told by what they are.

use std::ffi::{c_int, c_void};

use crate::bench::{Bench, Subject};
use crate::handles::{Mapping, UNIT, Use};
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// The last attribute that the driver knows, and one that it does not.
const LAST: c_int = 21;
const UNKNOWN: c_int = 9999;

/// Attributes that number things, each its own.
const NUMBERS: [c_int; 2] = [7, 20];

/// An address to ask about.
struct Spot {
    name: &'static str,
    /// Where what it belongs to begins.
    start: u64,
    address: u64,
}

/// Asks about all kinds of memory.
fn everywhere(bench: &Bench, ask: impl Fn(&Spot)) {
    const BYTES: usize = 5000;
    const BEHIND: usize = 100;
    let spot = |name, start: u64, behind: usize| ask(&Spot { name, start, address: start + behind as u64 });

    let mut memory = 0;
    bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut memory, BYTES));
    spot("memory", memory, 0);
    spot("inside of memory", memory, BEHIND);
    spot("past the end of memory", memory, BYTES);
    if memory != 0 {
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(memory));
    }

    let mut managed = 0;
    bench.note("cuMemAllocManaged", bench.cuMemAllocManaged(&mut managed, BYTES, 1));
    spot("managed memory", managed, BEHIND);
    if managed != 0 {
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(managed));
    }

    for (name, place) in [("pinned memory", Place::Pinned), ("the host's memory", Place::Pageable)] {
        spot(name, Piece::target(bench, place).at(0), SIZE / 2);
    }
    let mapping = Mapping::new(bench, Use::Full);
    spot("mapped memory", mapping.at, BEHIND);
    spot("reserved addresses", mapping.at, UNIT);
    drop(mapping);
    spot("memory mapped without access", Mapping::new(bench, Use::None).at, BEHIND);
    spot("null", 0, 0);
    spot("nowhere", NOWHERE, 0);
}

/// A place for an attribute, with more room than any needs.
type Room = [u8; 64];

/// The answer that was written to a place that was filled with two different bytes in turn.
fn told(bench: &Bench, attribute: c_int, spot: &Spot, rooms: [&Room; 2]) -> String {
    let written = (0..64).rev().find(|at| rooms[0][*at] == rooms[1][*at]).map_or(0, |at| at + 1);
    let bytes = &rooms[0][..written];
    let value = bytes.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
    let what = match (written, value) {
        (0, _) => "nothing".to_owned(),
        (9.., _) => bytes.chunks(4).map(|word| format!("{word:02x?}")).collect(),
        (_, 0) => "0".to_owned(),
        _ if NUMBERS.contains(&attribute) => "a number".to_owned(),
        (8, value) if value == bench.context as u64 => "the context".to_owned(),
        (8, value) if value == spot.address => "the address".to_owned(),
        (8, value) if value == spot.start => "its start".to_owned(),
        (8, value) if value > u64::from(u32::MAX) && value <= spot.start && spot.start - value < UNIT as u64 => {
            "its block's start".to_owned()
        }
        (8, value) if value > u64::from(u32::MAX) => "something else".to_owned(),
        (_, value) => value.to_string(),
    };
    format!("{written}: {what}")
}

/// `cuPointerGetAttribute`.
pub(crate) fn one(subject: &Subject, ask: extern "C" fn(*mut c_void, c_int, u64) -> u32) {
    let bench = subject.bench;
    everywhere(bench, |spot| {
        for attribute in (0..=LAST + 2).chain([-1, UNKNOWN]) {
            let mut rooms: [Room; 2] = [[0xaa; 64], [0x55; 64]];
            let results = rooms.each_mut().map(|room| ask(room.as_mut_ptr().cast(), attribute, spot.address));
            let seen = told(bench, attribute, spot, [&rooms[0], &rooms[1]]);
            subject.say(format_args!("{attribute} of {}", spot.name), results[0], seen);
        }
    });
}

/// `cuPointerSetAttribute`.
pub(crate) fn set(subject: &Subject, set: extern "C" fn(*const c_void, c_int, u64) -> u32) {
    const MEMORY_TYPE: c_int = 2;
    const SYNC_MEMOPS: c_int = 6;
    let bench = subject.bench;
    let value: u32 = 1;
    let set = |attribute, address| set((&raw const value).cast(), attribute, address);
    let memory = Piece::source(bench, Place::Device);
    for (case, attribute) in [("the kind", MEMORY_TYPE), ("an unknown attribute", UNKNOWN)] {
        subject.say(format_args!("{case} of memory"), set(attribute, memory.at(0)), memory.untouched());
    }
    let mapping = Mapping::new(bench, Use::Full);
    for (case, address) in [("mapped memory", mapping.at), ("null", 0), ("nowhere", NOWHERE)] {
        subject.say(format_args!("order in {case}"), set(SYNC_MEMOPS, address), "");
    }
}

/// `cuPointerGetAttributes`.
pub(crate) fn many(subject: &Subject, ask: extern "C" fn(u32, *mut c_int, *mut *mut c_void, u64) -> u32) {
    let bench = subject.bench;
    let asked = |case: &str, attributes: &[c_int], spot: &Spot| {
        let mut attributes = attributes.to_vec();
        let count = attributes.len() as u32;
        let mut filled = [0xaa, 0x55].map(|byte| vec![[byte; 64]; attributes.len().max(1)]);
        let results = filled.each_mut().map(|rooms| {
            let mut places: Vec<*mut c_void> = rooms.iter_mut().map(|room| room.as_mut_ptr().cast()).collect();
            ask(count, attributes.as_mut_ptr(), places.as_mut_ptr(), spot.address)
        });
        let seen = attributes.iter().zip(filled[0].iter().zip(&filled[1]));
        let seen = seen.map(|(attribute, (first, second))| {
            format!("{attribute}: {}", told(bench, *attribute, spot, [first, second]))
        });
        subject.say(format_args!("{case} of {}", spot.name), results[0], seen.collect::<Vec<_>>().join("; "));
    };
    let all: Vec<_> = (1..=LAST).collect();
    everywhere(bench, |spot| {
        asked("all", &all, spot);
        asked("two", &[2, 9], spot);
        asked("one that is unknown", &[2, UNKNOWN, 9], spot);
    });
    let nothing = Spot { name: "nothing", start: 0, address: 0 };
    asked("none", &[], &nothing);
}
