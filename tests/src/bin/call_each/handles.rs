//! Handles of device memory that the program maps itself.

use std::ffi::c_void;
use std::ptr::{from_ref, null_mut};

use crate::bench::{Bench, Handle, Subject};
use crate::memory::usable;
use crate::moving::{DEVICE, Location};
use crate::piece::NOWHERE;

/// The unit of memory behind a handle.
pub(crate) const UNIT: usize = 2 << 20;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    kind: u32,
    shared_as: u32,
    location: Location,
    security: u64,
    flags: u64,
}

const PLAIN: Properties = Properties { kind: 1, shared_as: 0, location: DEVICE, security: 0, flags: 0 };

/// `CUmemAccessDesc`.
#[repr(C)]
pub(crate) struct Access {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// True if a mapping can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Read and written.
    Full,
    /// Not at all.
    None,
}

pub(crate) fn pointer<T>(to: &T) -> *const c_void {
    from_ref(to).cast()
}

/// A reservation of twice a handle's size with the handle mapped at its beginning.
pub(crate) struct Mapping<'a> {
    bench: &'a Bench,
    /// 0 where that failed.
    pub(crate) at: u64,
    bytes: usize,
}

impl<'a> Mapping<'a> {
    /// Maps a handle, if there is one; it stays the caller's.
    pub(crate) fn of(bench: &'a Bench, handle: u64, bytes: usize, usable: Use) -> Self {
        let mut at = 0;
        if handle != NOWHERE {
            bench.note("cuMemAddressReserve", bench.cuMemAddressReserve(&mut at, 2 * bytes, 0, 0, 0));
        }
        if at != 0 {
            bench.note("cuMemMap", bench.cuMemMap(at, bytes, 0, handle, 0));
            if usable == Use::Full {
                let access = Access { location: DEVICE, flags: 3 };
                bench.note("cuMemSetAccess", bench.cuMemSetAccess(at, bytes, pointer(&access), 1));
            }
        }
        Self { bench, at, bytes }
    }

    /// Maps a new handle of one unit that the mapping alone keeps.
    pub(crate) fn new(bench: &'a Bench, usable: Use) -> Self {
        let handle = new(bench);
        let mapping = Self::of(bench, handle, UNIT, usable);
        if handle != NOWHERE {
            bench.note("cuMemRelease", bench.cuMemRelease(handle));
        }
        mapping
    }

    /// The handle is not mapped any more: only the addresses are given back.
    pub(crate) fn unmapped(self) {
        self.bench.note("cuMemAddressFree", self.bench.cuMemAddressFree(self.at, 2 * self.bytes));
        std::mem::forget(self);
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        if self.at != 0 {
            self.bench.note("cuMemUnmap", self.bench.cuMemUnmap(self.at, self.bytes));
            self.bench.note("cuMemAddressFree", self.bench.cuMemAddressFree(self.at, 2 * self.bytes));
        }
    }
}

/// A handle of one unit, or [`NOWHERE`].
pub(crate) fn new(bench: &Bench) -> u64 {
    of(bench, &PLAIN)
}

/// The same, which can be shared through a file descriptor.
pub(crate) fn shareable(bench: &Bench) -> u64 {
    of(bench, &Properties { shared_as: 1, ..PLAIN })
}

fn of(bench: &Bench, properties: &Properties) -> u64 {
    let mut handle = NOWHERE;
    bench.note("cuMemCreate", bench.cuMemCreate(&mut handle, UNIT, pointer(properties), 0));
    handle
}

/// `cuMemPoolCreate`.
pub(crate) fn create_pool(subject: &Subject, create: extern "C" fn(*mut Handle, *const c_void) -> u32) {
    let bench = subject.bench;
    // `CUmemPoolProps`: pinned, not to be shared, on a device; the rest is zero.
    let pool = |device: u64| {
        let mut properties = [0u64; 16];
        (properties[0], properties[1]) = (1, 1 | device << 32);
        properties
    };
    for (case, device) in [("a pool of the device", 0), ("a pool of a device that is not there", 77)] {
        let (properties, mut made) = (pool(device), null_mut());
        let result = create(&mut made, pointer(&properties));
        subject.say(case, result, "");
        if result == 0 {
            bench.note("cuMemPoolDestroy", bench.cuMemPoolDestroy(made));
        }
    }
    let mut made = null_mut();
    subject.say("no properties", create(&mut made, std::ptr::null()), "");
    subject.say("nowhere", create(null_mut(), pointer(&pool(0))), "");
}

/// `cuMemCreate`.
pub(crate) fn create(subject: &Subject, create: extern "C" fn(*mut u64, usize, *const c_void, u64) -> u32) {
    let bench = subject.bench;
    let exportable = Properties { shared_as: 1, ..PLAIN };
    let rights = [("one unit", UNIT, PLAIN), ("two units", 2 * UNIT, PLAIN), ("one to be shared", UNIT, exportable)];
    for (case, bytes, properties) in rights {
        let mut handle = NOWHERE;
        let result = create(&mut handle, bytes, pointer(&properties), 0);
        if result == 0 {
            let mapping = Mapping::of(bench, handle, bytes, Use::Full);
            subject.say(case, result, usable(bench, mapping.at, bytes));
            drop(mapping);
            bench.note("cuMemRelease", bench.cuMemRelease(handle));
        } else {
            subject.say(case, result, if handle == NOWHERE { "untouched" } else { "written" });
        }
    }
    let of_kind = |kind| Properties { kind, ..PLAIN };
    let located = |kind, id| Properties { location: Location { kind, id }, ..PLAIN };
    let wrongs = [
        ("nothing", 0, PLAIN, 0),
        ("1000 bytes", 1000, PLAIN, 0),
        ("1 PiB", 1 << 50, PLAIN, 0),
        ("of no kind", UNIT, of_kind(0), 0),
        ("of an unknown kind", UNIT, of_kind(99), 0),
        ("nowhere", UNIT, located(0, 0), 0),
        ("on device 1000", UNIT, located(1, 1000), 0),
        ("on device -1", UNIT, located(1, -1), 0),
        ("a flag", UNIT, PLAIN, 1),
    ];
    for (case, bytes, properties, flags) in wrongs {
        let mut handle = NOWHERE;
        let result = create(&mut handle, bytes, pointer(&properties), flags);
        subject.say(case, result, if handle == NOWHERE { "untouched" } else { "written" });
        if result == 0 {
            bench.note("cuMemRelease", bench.cuMemRelease(handle));
        }
    }
}

/// `cuMemGetAllocationPropertiesFromHandle`.
pub(crate) fn properties(subject: &Subject, ask: extern "C" fn(*mut Properties, u64) -> u32) {
    let bench = subject.bench;
    for (case, handle) in [("of a handle", new(bench)), ("of one to be shared", shareable(bench))] {
        let mut found = Properties { kind: 99, shared_as: 99, security: 99, flags: 99, ..PLAIN };
        let result = ask(&mut found, handle);
        subject.say(case, result, format!("{found:?}"));
        subject.say("no place for the answer", ask(null_mut(), handle), "");
        bench.note("cuMemRelease", bench.cuMemRelease(handle));
        subject.say("of one that was released", ask(&mut found, handle), "");
    }
    subject.say("of none", ask(&mut { PLAIN }, NOWHERE), "");
}

/// `cuMemRelease`.
pub(crate) fn release(subject: &Subject, release: extern "C" fn(u64) -> u32) {
    let bench = subject.bench;
    let handle = new(bench);
    subject.say("a handle", release(handle), "");
    subject.say("a handle, again", release(handle), "");

    let handle = new(bench);
    let mapping = Mapping::of(bench, handle, UNIT, Use::Full);
    let result = release(handle);
    subject.say("a mapped handle", result, usable(bench, mapping.at, UNIT));
    subject.say("a mapped handle, again", release(handle), usable(bench, mapping.at, UNIT));
    drop(mapping);
    subject.say("a handle that was mapped", release(handle), "");
    subject.say("null", release(0), "");
}
