//! Memory that processes pass on by descriptors: physical memory (`cuMemExportToShareableHandle`), and pools.
//!
//! Memory of a handle of ours goes on moving: its descriptor is ours too ([`crate::memory::sealed`]), and a process that imports it is lent
//! the same memory. With `BATON_EXPORT=driver` it is the driver's instead, as pools are: the memory is between the driver and the programs
//! then, and stays where it is.
//!
//! Programs that share memory may wait for each other by it, as by events ([`super::ipc`]), so the coordinator has to know which programs
//! do. A process that exports a descriptor of the driver's marks it as its own ([`crate::sys::owner`]), and a process that imports one finds
//! its owner, whichever way it has come.

use core::ffi::{c_int, c_void};
use core::time::Duration;

use baton_contract::cuda::{CUDA_SUCCESS, CUmemoryPool, CUresult};
use baton_contract::settings;

use crate::arrival::{self, Needs};
use crate::driver::api;
use crate::memory::mappings::HandleNumber;
use crate::memory::sealed::Sealed;
use crate::memory::space::NoMemory;
use crate::memory::unmanaged::foreign_made;
use crate::session::{self, Session};
use crate::sys::once::Once;
use crate::sys::{owner, thread, user};

/// The time between two looks at memory that is on its way.
const SOON: Duration = Duration::from_micros(200);

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

/// True if memory is exported by descriptors of the driver's.
pub(super) fn are_the_drivers() -> bool {
    static DRIVERS: Once<bool> = Once::new();
    if let Some(known) = DRIVERS.get() {
        return *known;
    }
    let word = user::setting(settings::EXPORT);
    let (kept, ours) = DRIVERS.keep(word.as_deref().is_some_and(|word| word == "driver"));
    if let (false, true, Some(word)) = (*kept, ours, word) {
        user::warn(&baton_messages::no_such_export(word.display()));
    }
    *kept
}

/// Imports physical memory. Another process's that is not ours is not scanned for pointers.
pub(super) unsafe fn import(original: Import, out: *mut u64, handle: *mut c_void, kind: c_int) -> CUresult {
    let descriptor = c_int::try_from(handle.addr()).ok().filter(|_| kind == api::POSIX_DESCRIPTOR && !out.is_null());
    let imported = descriptor.and_then(Sealed::read).and_then(|sealed| import_ours(&sealed));
    if let Some(imported) = imported {
        return match imported {
            Ok(handle) => {
                // SAFETY: not null, and the program's own out-parameter.
                unsafe { *out = handle };
                CUDA_SUCCESS
            }
            Err(answer) => answer,
        };
    }
    take_in(handle, kind);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(out, handle, kind) };
    if answer == CUDA_SUCCESS {
        foreign_made();
    }
    answer
}

/// Imports memory of ours. `None` if there is no coordinator to have it from: to the driver, the descriptor is none.
fn import_ours(sealed: &Sealed) -> Option<Result<HandleNumber, CUresult>> {
    // This process shares the GPU of that memory from now on, even without a context there.
    let session = session::join_for_memory(sealed.exported.gpu)?;
    // Before this process waits for the GPU: the other one may have it, and keep it until this one has written to that memory.
    meet(session, sealed);
    let passage = match arrival::pass(|_| Needs::Nothing) {
        Ok(passage) => passage,
        Err(answer) => return Some(Err(answer)),
    };
    let imported = session.space.import(&passage, &session.link.requests, sealed);
    drop(passage);
    match imported {
        Ok(handle) => Some(until_here(session, handle, sealed)),
        Err(NoMemory::Answer(answer)) => Some(Err(answer)),
        Err(NoMemory::Alone | NoMemory::TryAgain) => None,
    }
}

/// Has the coordinator know that this process is about to share memory with the one that has exported it.
fn meet(session: &Session, sealed: &Sealed) {
    session.link.requests.meet(sealed.exported.exporter, sealed.exported.key);
}

/// Waits until imported memory is here. If it is not, it comes when the coordinator knows that this process knows of it: the gate is closed,
/// and opened with all memory.
fn until_here(session: &Session, handle: HandleNumber, sealed: &Sealed) -> Result<HandleNumber, CUresult> {
    if !session.space.is_here(handle) {
        meet(session, sealed);
    }
    while !session.space.is_here(handle) {
        if arrival::pass_here(|| Needs::Nothing)?.is_ungated() {
            break;
        }
        thread::sleep(SOON);
    }
    Ok(handle)
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
