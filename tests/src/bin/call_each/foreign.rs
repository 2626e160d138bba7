//! Memory that comes from elsewhere.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use crate::bench::{Handle, Subject, on};
use crate::handles::{self, Mapping, UNIT, Use};
use crate::memory::{usable, written};
use crate::piece::{NOWHERE, Piece, Place};
use crate::pools;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: c_int = 1;

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Shared([u8; 64]);

impl Shared {
    pub(crate) const NONE: Self = Self([0; 64]);
}

/// `cuMemImportFromShareableHandle`.
pub(crate) fn import(subject: &Subject, import: extern "C" fn(*mut u64, *mut c_void, c_int) -> u32) {
    let bench = subject.bench;
    let own = handles::shareable(bench);
    if own != NOWHERE {
        let mut descriptor: c_int = -1;
        let exported = bench.cuMemExportToShareableHandle((&raw mut descriptor).cast(), own, DESCRIPTOR, 0);
        bench.note("cuMemExportToShareableHandle", exported);
        bench.note("cuMemRelease", bench.cuMemRelease(own));
        let mut handle = NOWHERE;
        let result = import(&mut handle, without_provenance_mut(descriptor as usize), DESCRIPTOR);
        if result == 0 {
            let mapping = Mapping::of(bench, handle, UNIT, Use::Full);
            subject.say("a descriptor", result, usable(bench, mapping.at, UNIT));
            drop(mapping);
            bench.note("cuMemRelease", bench.cuMemRelease(handle));
        } else {
            subject.say("a descriptor", result, written(handle));
        }
        // SAFETY: a descriptor that the driver has just made, and which no other code knows.
        drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) });
    }
    for (case, descriptor, kind) in [("no descriptor", usize::MAX, DESCRIPTOR), ("of an unknown kind", 0, 99)] {
        let mut handle = NOWHERE;
        let result = import(&mut handle, without_provenance_mut(descriptor), kind);
        subject.say(case, result, written(handle));
    }
}

/// `cuMemPoolImportFromShareableHandle`.
pub(crate) fn import_pool(subject: &Subject, import: extern "C" fn(*mut Handle, *mut c_void, c_int, u64) -> u32) {
    let bench = subject.bench;
    let own = pools::new(bench, DESCRIPTOR);
    let mut descriptor: c_int = -1;
    let exported = bench.cuMemPoolExportToShareableHandle((&raw mut descriptor).cast(), own, DESCRIPTOR, 0);
    bench.note("cuMemPoolExportToShareableHandle", exported);
    for (case, descriptor, kind, flags) in [
        ("a descriptor", descriptor as usize, DESCRIPTOR, 0),
        ("with flags", descriptor as usize, DESCRIPTOR, 1),
        ("no descriptor", usize::MAX, DESCRIPTOR, 0),
        ("of an unknown kind", 0, 99, 0),
    ] {
        let mut pool = NOWHERE as Handle;
        let result = import(&mut pool, without_provenance_mut(descriptor), kind, flags);
        subject.say(case, result, if pool as u64 == NOWHERE { "untouched" } else { "written" });
        if result == 0 {
            bench.note("cuMemPoolDestroy", bench.cuMemPoolDestroy(pool));
        }
    }
    if exported == 0 {
        // SAFETY: a descriptor that the driver has just made, and which no other code knows.
        drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) });
    }
    bench.note("cuMemPoolDestroy", bench.cuMemPoolDestroy(own));
}

/// `cuIpcCloseMemHandle`.
pub(crate) fn close(subject: &Subject, close: extern "C" fn(u64) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    subject.say("memory of its own", close(memory.at(0)), memory.untouched());
    subject.say("inside of it", close(memory.at(256)), memory.untouched());
    subject.say("null", close(0), "");
    subject.say("nowhere", close(NOWHERE), "");
}

/// `cuIpcOpenEventHandle`.
pub(crate) fn event_of_process(subject: &Subject, open: extern "C" fn(*mut Handle, Shared) -> u32) {
    let mut event = NOWHERE as Handle;
    let result = open(&mut event, Shared::NONE);
    subject.say("of no process", result, if event as u64 == NOWHERE { "untouched" } else { "written" });
    subject.say("no place for the answer", open(null_mut(), Shared::NONE), "");
}

/// `cuIpcOpenMemHandle`.
pub(crate) fn of_process(subject: &Subject, open: extern "C" fn(*mut u64, Shared, u32) -> u32) {
    let mut address = NOWHERE;
    subject.say("of no process", open(&mut address, Shared::NONE, 1), written(address));
    subject.say("no place for the answer", open(null_mut(), Shared::NONE, 1), "");
}

/// `cuMemPoolImportPointer`.
pub(crate) fn of_pool(subject: &Subject, import: extern "C" fn(*mut u64, Handle, *mut c_void) -> u32) {
    let mut data = [0_u8; 64];
    let mut address = NOWHERE;
    subject.say("no pool", import(&mut address, null_mut(), data.as_mut_ptr().cast()), written(address));
}

/// `cuExternalMemoryGetMappedBuffer`.
pub(crate) fn of_external(subject: &Subject, get: extern "C" fn(*mut u64, Handle, *const c_void) -> u32) {
    let mut address = NOWHERE;
    subject.say("no memory", get(&mut address, null_mut(), null()), written(address));
}

/// `cuGraphicsMapResources` and its kin: of none.
pub(crate) fn resources(subject: &Subject, map: extern "C" fn(u32, *mut c_void, Handle) -> u32) {
    for stream in subject.bench.streams() {
        subject.say(format_args!("no resources{}", on(stream)), map(0, null_mut(), stream.1), "");
    }
}

/// `cuSignalExternalSemaphoresAsync` and its kin: of none.
pub(crate) fn semaphores(subject: &Subject, queue: extern "C" fn(*mut c_void, *const c_void, u32, Handle) -> u32) {
    for stream in subject.bench.streams() {
        subject.say(format_args!("no semaphores{}", on(stream)), queue(null_mut(), null(), 0, stream.1), "");
    }
}

/// `cuGraphicsResourceGetMappedPointer_v2`.
pub(crate) fn of_graphics(subject: &Subject, get: extern "C" fn(*mut u64, *mut usize, Handle) -> u32) {
    let (mut address, mut bytes) = (NOWHERE, 77);
    let result = get(&mut address, &mut bytes, null_mut());
    subject.say("no resource", result, format_args!("size {bytes}, {}", written(address)));
}

/// `cuGraphAddMemAllocNode`.
pub(crate) fn of_graph(
    subject: &Subject,
    add: extern "C" fn(*mut Handle, Handle, *const Handle, usize, *mut c_void) -> u32,
) {
    let mut node = null_mut();
    let result = add(&mut node, null_mut(), null(), 0, null_mut());
    subject.say("no graph", result, if node.is_null() { "untouched" } else { "written" });
}
