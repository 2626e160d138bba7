//! Memory that processes pass on by descriptors: physical memory (`cuMemExportToShareableHandle`), and pools.
//!
//! It is between the driver and the programs, and stays where it is. But programs that share memory may wait for each other by it, as by
//! events ([`super::ipc`]), so the coordinator has to know which do. Who exports a descriptor marks it as its own
//! ([`crate::sys::owner`]), and who imports one looks whose it is, whichever way it has come.

use core::ffi::{c_int, c_void};

use baton_contract::cuda::{CUDA_SUCCESS, CUmemoryPool, CUresult};

use crate::arrival;
use crate::driver::api;
use crate::memory::unmanaged::foreign_made;
use crate::session;
use crate::sys::owner;

type ExportPool = unsafe extern "C-unwind" fn(*mut c_void, CUmemoryPool, c_int, u64) -> CUresult;
type Import = unsafe extern "C-unwind" fn(*mut u64, *mut c_void, c_int) -> CUresult;
type ImportPool = unsafe extern "C-unwind" fn(*mut CUmemoryPool, *mut c_void, c_int, u64) -> CUresult;

/// A descriptor leaves this process: those who import it find that it came from here.
pub(super) fn give_out(descriptor: c_int) {
    if let Some((session, process)) = session::get().zip(owner::this_process()) {
        owner::own(descriptor);
        session.link.requests.export_descriptors(process);
    }
}

/// Exports something of a kind by `call`.
///
/// # Safety
///
/// On success, and if it is a descriptor, `call` has written it there.
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

/// A descriptor comes into this process. Whoever has exported it is no longer kept from running while this program waits. That is said
/// from outside of the gate: it may have the GPU, and keep it until this program has written to what it imports.
fn take_in(handle: *mut c_void, kind: c_int) {
    let descriptor = c_int::try_from(handle.addr()).ok().filter(|_| kind == api::POSIX_DESCRIPTOR);
    if let Some(owner) = descriptor.and_then(owner::other_owner)
        && arrival::is_here()
        && let Some(session) = session::get()
    {
        session.link.requests.import_descriptor(owner);
    }
}

/// Physical memory; nobody looks into it for pointers.
pub(super) unsafe fn import(original: Import, out: *mut u64, handle: *mut c_void, kind: c_int) -> CUresult {
    take_in(handle, kind);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(out, handle, kind) };
    if answer == CUDA_SUCCESS {
        foreign_made();
    }
    answer
}

/// A pool: what of it is used is imported by itself.
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
