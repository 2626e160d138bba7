//! Memory that processes pass on by descriptors: physical memory (`cuMemExportToShareableHandle`), and pools.
//!
//! The memory is between the driver and the programs, and stays where it is. But programs that share memory may wait for each other by it,
//! as by events ([`super::ipc`]), so the coordinator has to know which programs do. A process that exports a descriptor marks it as its
//! own ([`crate::sys::owner`]), and a process that imports one finds its owner, whichever way it has come.

use core::ffi::{c_int, c_void};

use baton_contract::cuda::{CUDA_SUCCESS, CUmemoryPool, CUresult};

use crate::driver::api;
use crate::memory::unmanaged::foreign_made;
use crate::session;
use crate::sys::owner;

type ExportPool = unsafe extern "C-unwind" fn(*mut c_void, CUmemoryPool, c_int, u64) -> CUresult;
type Import = unsafe extern "C-unwind" fn(*mut u64, *mut c_void, c_int) -> CUresult;
type ImportPool = unsafe extern "C-unwind" fn(*mut CUmemoryPool, *mut c_void, c_int, u64) -> CUresult;

/// Marks a descriptor that leaves this process: importers find that it came from here.
pub(super) fn give_out(descriptor: c_int) {
    if session::is_any()
        && let Some(process) = owner::this_process()
    {
        owner::own(descriptor);
        session::all().for_each(|session| session.link.requests.export_descriptors(process));
    }
}

/// Exports an object of some kind by `call`.
///
/// # Safety
///
/// On success, and if the kind is a descriptor, `call` has written it to `out`.
pub(super) unsafe fn exported(out: *mut c_void, kind: c_int, call: impl FnOnce() -> CUresult) -> CUresult {
    let answer = call();
    if answer == CUDA_SUCCESS && kind == api::POSIX_DESCRIPTOR {
        // SAFETY: by this function's contract.
        give_out(unsafe { out.cast::<c_int>().read_unaligned() });
    }
    answer
}

pub(super) unsafe fn export_pool(
    original: ExportPool,
    out: *mut c_void,
    pool: CUmemoryPool,
    kind: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments; it writes the descriptor.
    unsafe { exported(out, kind, || original(out, pool, kind, flags)) }
}

/// Takes in a descriptor: the process that exported it is no longer kept from running while this program waits. The coordinator is told
/// from outside the gate: the exporter may have the GPU, and keep it until this program has written to the memory that it imports.
fn take_in(handle: *mut c_void, kind: c_int) {
    let descriptor = c_int::try_from(handle.addr()).ok().filter(|_| kind == api::POSIX_DESCRIPTOR);
    if let Some(owner) = descriptor.and_then(owner::other_owner)
        && let Some(session) = session::current()
    {
        session.link.requests.import_descriptor(owner);
    }
}

/// Imports physical memory, which is not scanned for pointers.
pub(super) unsafe fn import(original: Import, out: *mut u64, handle: *mut c_void, kind: c_int) -> CUresult {
    take_in(handle, kind);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(out, handle, kind) };
    if answer == CUDA_SUCCESS {
        foreign_made();
    }
    answer
}

/// Imports a pool: its allocations are imported by themselves.
pub(super) unsafe fn import_pool(
    original: ImportPool,
    out: *mut CUmemoryPool,
    handle: *mut c_void,
    kind: c_int,
    flags: u64,
) -> CUresult {
    take_in(handle, kind);
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { original(out, handle, kind, flags) }
}
