//! Memory that others are to reach, past its addresses.
//!
//! Calls that Baton refuses although the driver makes them are about the program's own mappings only.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

use crate::bench::{Handle, Subject};
use crate::foreign::Shared;
use crate::graphs::Graph;
use crate::handles::{self, Mapping, UNIT, Use};
use crate::piece::{NOWHERE, Piece, Place, SIZE};
use crate::pools;

/// `cuMemPoolExportPointer`.
pub(crate) fn by_pool(subject: &Subject, export: extern "C" fn(*mut c_void, u64) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    let mut data = [0_u8; 64];
    let mut export = |address| export(data.as_mut_ptr().cast(), address);
    subject.say("memory of no pool", export(memory.at(0)), memory.untouched());
    subject.say("inside of it", export(memory.at(256)), memory.untouched());
    subject.say("null", export(0), "");
}

/// `cuIpcGetMemHandle`.
pub(crate) fn to_process(subject: &Subject, get: extern "C" fn(*mut Shared, u64) -> u32) {
    let mut handle = Shared::NONE;
    let mapping = Mapping::new(subject.bench, Use::Full);
    for (case, address) in [("mapped memory", mapping.at), ("null", 0), ("nowhere", NOWHERE)] {
        subject.say(case, get(&mut handle, address), "");
    }
}

/// `cuIpcGetEventHandle`.
pub(crate) fn event_to_process(subject: &Subject, get: extern "C" fn(*mut Shared, Handle) -> u32) {
    /// `CU_EVENT_DISABLE_TIMING`, without and with `CU_EVENT_INTERPROCESS`.
    const OWN: u32 = 2;
    const SHARED: u32 = 2 | 4;
    let bench = subject.bench;
    let mut handle = Shared::NONE;
    for (case, flags) in [("an event for other processes", SHARED), ("one of its own", OWN)] {
        let mut event = null_mut();
        bench.note("cuEventCreate", bench.cuEventCreate(&mut event, flags));
        subject.say(case, get(&mut handle, event), "");
        subject.say(format_args!("{case}, to nowhere"), get(null_mut(), event), "");
        bench.note("cuEventDestroy_v2", bench.cuEventDestroy_v2(event));
    }
    subject.say("no event", get(&mut handle, null_mut()), "");
}

/// `cuMemExportToShareableHandle`.
pub(crate) fn by_handle(subject: &Subject, export: extern "C" fn(*mut c_void, u64, c_int, u64) -> u32) {
    const DESCRIPTOR: c_int = 1;
    let bench = subject.bench;
    let (shared, own) = (handles::shareable(bench), handles::new(bench));
    for (case, handle, kind, flags) in [
        ("a handle to be shared", shared, DESCRIPTOR, 0),
        ("once more", shared, DESCRIPTOR, 0),
        ("an unknown kind", shared, 99, 0),
        ("with flags", shared, DESCRIPTOR, 1),
        ("a handle that is not to be shared", own, DESCRIPTOR, 0),
        ("no handle", NOWHERE, DESCRIPTOR, 0),
    ] {
        let mut descriptor: c_int = -1;
        let result = export((&raw mut descriptor).cast(), handle, kind, flags);
        subject.say(case, result, if descriptor == -1 { "untouched" } else { "written" });
        if result == 0 {
            // SAFETY: a descriptor that the driver has just made, and which no other code knows.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    subject.say("to nowhere", export(null_mut(), shared, DESCRIPTOR, 0), "");
    for handle in [shared, own] {
        bench.note("cuMemRelease", bench.cuMemRelease(handle));
    }
}

/// `cuMemPoolExportToShareableHandle`.
pub(crate) fn whole_pool(subject: &Subject, export: extern "C" fn(*mut c_void, Handle, c_int, u64) -> u32) {
    const DESCRIPTOR: c_int = 1;
    let bench = subject.bench;
    let (shared, own) = (pools::new(bench, DESCRIPTOR), pools::new(bench, 0));
    for (case, pool, kind, flags) in [
        ("a pool to be shared", shared, DESCRIPTOR, 0),
        ("once more", shared, DESCRIPTOR, 0),
        ("an unknown kind", shared, 99, 0),
        ("with flags", shared, DESCRIPTOR, 1),
        ("a pool that is not to be shared", own, DESCRIPTOR, 0),
    ] {
        let mut descriptor: c_int = -1;
        let result = export((&raw mut descriptor).cast(), pool, kind, flags);
        subject.say(case, result, if descriptor == -1 { "untouched" } else { "written" });
        if result == 0 {
            // SAFETY: a descriptor that the driver has just made, and which no other code knows.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    subject.say("to nowhere", export(null_mut(), shared, DESCRIPTOR, 0), "");
    for pool in [shared, own] {
        bench.note("cuMemPoolDestroy", bench.cuMemPoolDestroy(pool));
    }
}

/// `cuCheckpointProcessLock`, `cuCheckpointProcessCheckpoint`: of this process itself, and of none.
pub(crate) fn suspend(subject: &Subject, suspend: extern "C" fn(c_int, *mut c_void) -> u32) {
    let mut arguments = [0u64; 8];
    let own = c_int::try_from(std::process::id()).expect("numbers of processes are small");
    for (what, process) in [("this process", own), ("no process", -1)] {
        subject.say(what, suspend(process, arguments.as_mut_ptr().cast()), "");
    }
}

/// `cuMulticastBindMem`.
pub(crate) fn handle_to_multicast(subject: &Subject, bind: extern "C" fn(u64, usize, u64, usize, usize, u64) -> u32) {
    let handle = handles::shareable(subject.bench);
    subject.say("to no object", bind(0, 0, handle, 0, UNIT, 0), "");
    subject.bench.note("cuMemRelease", subject.bench.cuMemRelease(handle));
}

/// `cuMulticastBindAddr`.
pub(crate) fn to_multicast(subject: &Subject, bind: extern "C" fn(u64, usize, u64, usize, u64) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    subject.say("to no object", bind(0, 0, memory.at(0), SIZE, 0), memory.untouched());
}

/// The first GPU, that of our memory.
const FIRST: c_int = 0;

/// `cuMulticastBindMem_v2`.
pub(crate) fn handle_to_multicast_2(
    subject: &Subject,
    bind: extern "C" fn(u64, c_int, usize, u64, usize, usize, u64) -> u32,
) {
    let handle = handles::shareable(subject.bench);
    subject.say("to no object", bind(0, FIRST, 0, handle, 0, UNIT, 0), "");
    subject.bench.note("cuMemRelease", subject.bench.cuMemRelease(handle));
}

/// `cuMulticastBindAddr_v2`.
pub(crate) fn to_multicast_2(subject: &Subject, bind: extern "C" fn(u64, c_int, usize, u64, usize, u64) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    subject.say("to no object", bind(0, FIRST, 0, memory.at(0), SIZE, 0), memory.untouched());
}

/// `cuLogicalEndpointBindMem`.
pub(crate) fn handle_to_endpoint(subject: &Subject, bind: extern "C" fn(u32, c_int, u64, u64, u64, u64, u64) -> u32) {
    let handle = handles::shareable(subject.bench);
    subject.say("to no endpoint", bind(0, FIRST, 0, handle, 0, UNIT as u64, 0), "");
    subject.bench.note("cuMemRelease", subject.bench.cuMemRelease(handle));
}

/// `cuLogicalEndpointBindAddr`.
pub(crate) fn to_endpoint(subject: &Subject, bind: extern "C" fn(u32, c_int, u64, *mut c_void, u64, u64) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    subject.say("to no endpoint", bind(0, FIRST, 0, memory.at(0) as *mut c_void, SIZE as u64, 0), memory.untouched());
}

/// `cuMemGetHandleForAddressRange`.
pub(crate) fn to_device(subject: &Subject, get: extern "C" fn(*mut c_void, u64, usize, c_int, u64) -> u32) {
    const DMA_BUFFER: c_int = 1;
    let mapping = Mapping::new(subject.bench, Use::Full);
    for (case, address, bytes, kind, flags) in [
        ("mapped memory", mapping.at, UNIT, DMA_BUFFER, 0),
        ("more than is mapped", mapping.at, 2 * UNIT, DMA_BUFFER, 0),
        ("an unknown kind", mapping.at, UNIT, 99, 0),
        ("unknown flags", mapping.at, UNIT, DMA_BUFFER, 99),
        ("null", 0, UNIT, DMA_BUFFER, 0),
    ] {
        let mut descriptor: c_int = -1;
        let result = get((&raw mut descriptor).cast(), address, bytes, kind, flags);
        subject.say(case, result, if descriptor == -1 { "untouched" } else { "written" });
        if result == 0 {
            // SAFETY: a descriptor that the driver has just made, and which no other code knows.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
}

/// `cuGraphAddMemFreeNode`.
pub(crate) fn by_graph(subject: &Subject, add: extern "C" fn(*mut Handle, Handle, *const Handle, usize, u64) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    for (case, address) in [("memory of no graph", memory.at(0)), ("inside of it", memory.at(256))] {
        let graph = Graph::new(subject.bench);
        let mut node = NOWHERE as Handle;
        let result = add(&mut node, graph.handle, null(), 0, address);
        subject.say(case, result, memory.untouched());
    }
}
