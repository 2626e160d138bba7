//! The driver's older functions for sharing between processes: memory of `cuMemAlloc`, and events.
//!
//! The driver makes no such handle for mapped memory, and ours is mapped. So memory of ours has handles of our own, which the coordinator
//! knows ([`crate::memory::ipc`]), and which the driver never sees. The driver answers for all other handles, and to any error in a call.
//! Events are the driver's; the coordinator only has to know which programs wait for each other by them: if those took turns, one could
//! wait for ever for work of the other.

use core::ffi::{c_uint, c_void};

use baton_contract::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUdeviceptr, CUipcMemHandle, CUresult};

use super::escapes;
use super::memory::{is_allowed, let_go, ours, space_at};
use crate::arrival::{self, Needs};
use crate::driver::api;
use crate::memory::bounds::NOTHING;
use crate::memory::ipc::Exported;
use crate::memory::space::NoMemory;
use crate::memory::unmanaged::foreign_made;
use crate::session;

/// Another process's event (`CUipcEventHandle`), which calls take by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct CUipcEventHandle([u8; 64]);

/// `CUDA_ERROR_INVALID_CONTEXT`.
const INVALID_CONTEXT: CUresult = 201;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, without which no memory is opened. The driver ignores other flags.
const LAZY: c_uint = 1;
/// A handle of no memory.
const NO_HANDLE: CUipcMemHandle = CUipcMemHandle([0; 64]);

type MemoryHandle = unsafe extern "C-unwind" fn(*mut CUipcMemHandle, CUdeviceptr) -> CUresult;
type OpenMemory = unsafe extern "C-unwind" fn(*mut CUdeviceptr, CUipcMemHandle, c_uint) -> CUresult;
type CloseMemory = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;
type EventHandle = unsafe extern "C-unwind" fn(*mut CUipcEventHandle, *mut c_void) -> CUresult;
type OpenEvent = unsafe extern "C-unwind" fn(*mut *mut c_void, CUipcEventHandle) -> CUresult;

/// Returns a handle of the whole allocation that an address lies in.
pub(super) unsafe fn memory_handle(original: MemoryHandle, out: *mut CUipcMemHandle, address: CUdeviceptr) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, or about an address where nothing is.
    let ask = |address| unsafe { original(out, address) };
    if !escapes::is_ours(address, 1) {
        return ask(address);
    }
    let Some(session) = session::at(address).filter(|_| !out.is_null() && api::current_context() != 0) else {
        return ask(NOTHING);
    };
    let here = || Needs::at(address);
    let passage = match arrival::pass_here(here) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    let exported = arrival::lock_mappings(&passage, here())
        .and_then(|guard| session.space.export_allocation(session.link, address, &guard));
    match exported {
        Ok(exported) => {
            // SAFETY: not null, and the program's own out-parameter.
            unsafe { *out = CUipcMemHandle(exported.encode()) };
            CUDA_SUCCESS
        }
        Err(answer) => answer,
    }
}

pub(super) unsafe fn open_memory(
    original: OpenMemory,
    out: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, or with a handle of nothing.
    let by_driver = |handle| unsafe { original(out, handle, flags) };
    let Some(exported) = Exported::decode(&handle.0) else {
        let answer = by_driver(handle);
        if answer == CUDA_SUCCESS {
            foreign_made();
        }
        return answer;
    };
    if out.is_null() || flags & LAZY == 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let Some((here, context)) = ours() else { return by_driver(NO_HANDLE) };
    // Memory of another GPU is opened there: this process shares that from now on, even without a context.
    let Some(session) = session::join_for_memory(exported.gpu) else { return by_driver(NO_HANDLE) };
    if exported.exporter == session.link.tenant {
        return INVALID_CONTEXT;
    }
    if let Err(answer) = is_allowed() {
        return answer;
    }
    if let Err(answer) = arrival::expose(session.space, here.device) {
        return answer;
    }
    let passage = match arrival::pass(|_| Needs::Nothing) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    match session.space.open(&passage, &session.link.requests, &exported, context) {
        Ok(at) => {
            // SAFETY: not null, and the program's own out-parameter.
            unsafe { *out = at };
            CUDA_SUCCESS
        }
        Err(NoMemory::Answer(answer)) => answer,
        Err(NoMemory::Alone | NoMemory::TryAgain) => by_driver(NO_HANDLE),
    }
}

/// Closes opened memory once; the last time, all earlier work of its context ends first, as when memory is freed.
pub(super) unsafe fn close_memory(original: CloseMemory, address: CUdeviceptr) -> CUresult {
    if !escapes::is_ours(address, 1) {
        // SAFETY: the driver's own function with the program's own argument.
        return unsafe { original(address) };
    }
    let passage = match arrival::pass_here(|| Needs::at(address)) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    let opened = space_at(address).and_then(|space| Some((space, space.get(address).filter(|found| found.is_opened)?)));
    let Some((space, found)) = opened else { return CUDA_ERROR_INVALID_VALUE };
    // Another thread may have closed it meanwhile.
    let is_gone = CUDA_ERROR_INVALID_VALUE;
    match space.close_one_of_several(address) {
        Some(true) => CUDA_SUCCESS,
        Some(false) => let_go(&passage, space, address, found.context, || space.begin_close(address).ok_or(is_gone)),
        None => is_gone,
    }
}

/// `cuIpcGetEventHandle`: other processes are to be able to open an event.
pub(super) unsafe fn event_handle(original: EventHandle, out: *mut CUipcEventHandle, event: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(out, event) };
    // SAFETY: null, or the driver has just written it.
    if let Some(handle) = unsafe { out.as_ref() }
        && answer == CUDA_SUCCESS
    {
        session::all().for_each(|session| session.link.requests.export_event(handle.0));
    }
    answer
}

/// `cuIpcOpenEventHandle`: the process that exported the event is no longer kept from running while this program waits.
pub(super) unsafe fn open_event(original: OpenEvent, out: *mut *mut c_void, handle: CUipcEventHandle) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(out, handle) };
    let passage = match arrival::pass_here(|| Needs::Nothing) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    if out.is_null() {
        return call();
    }
    // On a GPU where this process has no more than a context, it has no turns, and asks in vain.
    for session in session::all().filter(|session| arrival::gpus::is_at_work_on(session.device)) {
        let may_open = session.space.before_opening_event(&passage, &session.link.requests, &handle.0);
        // Without a coordinator no tenant takes turns.
        if let Err(NoMemory::Answer(answer)) = may_open {
            return answer;
        }
    }
    call()
}
