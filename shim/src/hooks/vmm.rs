//! The driver's functions for handles of memory and mappings of them.
//!
//! A handle of device memory is ours: a row of extents, which are mapped wherever the program maps the handle. Handles of other memory are
//! the driver's (the host's, that of a GPU that is not shared, those of another process), and so are the addresses: reserving some costs no memory.
//!
//! The driver is asked whenever it knows the answer. For that all memory is here while such a call is made: then the driver has the
//! mappings and the access that the program wants, only in more pieces. Calls that only a single piece would allow are refused: a handle
//! is mapped and unmapped as a whole (measured: 801 by `cuMemMap`, 1 by the others).

use core::ffi::{c_int, c_void};
use std::os::fd::{AsFd as _, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use baton_contract::cuda::*;
use baton_contract::memory::{GRANULE, Unmanaged};

use super::descriptors;
use super::escapes::{self, REFUSED};
use super::memory::join_for;
use super::retry::retried;
use super::unmanaged::{ask, make_on};
use crate::arrival::{self, Needs};
use crate::driver::api;
use crate::gate::MappingGuard;
use crate::memory::bounds::NOTHING;
use crate::memory::mappings::{HandleNumber, Memory, Properties, RDMA, Reach, is_handle};
use crate::memory::space::{self, NoMemory, Space};
use crate::memory::{unmanaged, vmm as books};
use crate::session::{self, Session};

type Create = unsafe extern "C-unwind" fn(*mut u64, usize, *const c_void, u64) -> CUresult;
type Reserve = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64) -> CUresult;
type OfHandle = unsafe extern "C-unwind" fn(u64) -> CUresult;
type Retain = unsafe extern "C-unwind" fn(*mut u64, *mut c_void) -> CUresult;
type Map = unsafe extern "C-unwind" fn(CUdeviceptr, usize, usize, u64, u64) -> CUresult;
type OfRange = unsafe extern "C-unwind" fn(CUdeviceptr, usize) -> CUresult;
type SetAccess = unsafe extern "C-unwind" fn(CUdeviceptr, usize, *const CUmemAccessDesc, usize) -> CUresult;
type OfProperties = unsafe extern "C-unwind" fn(*mut c_void, u64) -> CUresult;
type Bind = unsafe extern "C-unwind" fn(u64, usize, u64, usize, usize, u64) -> CUresult;
type Export = unsafe extern "C-unwind" fn(*mut c_void, u64, c_int, u64) -> CUresult;

/// True if this process has handles of ours: without them, the driver's call alone is enough.
fn has_handles() -> bool {
    session::is_any() && books::has_handles()
}

/// The driver's answers to handles of the smallest size whose properties are not plain: some machines cannot make all of them.
static ANSWERS: Mutex<Vec<(c_int, [u8; 8], CUresult)>> = Mutex::new(Vec::new());

fn is_made(properties: &CUmemAllocationProp) -> CUresult {
    let key = (properties.handle_types, properties.flags);
    if key == (0, [0; 8]) {
        return CUDA_SUCCESS;
    }
    let answers = || ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = answers().iter().find(|(types, flags, _)| (*types, *flags) == key).map(|(_, _, answer)| *answer);
    known.unwrap_or_else(|| {
        let mut handle = 0;
        // SAFETY: an out-parameter, and a structure of cuda.h's layout.
        let answer = retried(|| unsafe { api::create(&mut handle, GRANULE as usize, properties, 0) });
        if answer == CUDA_SUCCESS {
            // SAFETY: just made.
            unsafe { api::release(handle) };
        }
        if answer != CUDA_ERROR_OUT_OF_MEMORY {
            answers().push((key.0, key.1, answer));
        }
        answer
    })
}

/// Makes a handle that cannot be a row of extents. A handle of host memory, or of a GPU that is not shared, is not ours.
///
/// # Safety
///
/// As for [`make_on`].
unsafe fn make_other(
    out: *mut u64,
    bytes: usize,
    properties: *const c_void,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    // SAFETY: null, or the program's own structure.
    let location = unsafe { properties.cast::<CUmemAllocationProp>().as_ref() }.map(|properties| properties.location);
    let on_gpu = location.filter(|location| location.kind == CU_MEM_LOCATION_TYPE_DEVICE);
    // SAFETY: by this function's contract.
    unsafe { make_on(on_gpu.and_then(|gpu| session::of(gpu.id)), Unmanaged::Other, bytes as u64, 0, out, call) }
}

/// No machine has so many places from which memory could be used.
const MOST_PLACES: usize = 4096;

/// `CU_MEM_HANDLE_TYPE_FABRIC`: only the driver knows whether the machine is part of a fabric, and can export to it.
const FABRIC: c_int = 8;

/// True if a handle with these properties can be a row of extents: plain memory of a shared GPU.
fn can_move(properties: &CUmemAllocationProp, bytes: usize, flags: u64) -> bool {
    let is_plain = properties.flags.iter().enumerate().all(|(at, flag)| at == RDMA || *flag == 0);
    properties.kind == CU_MEM_ALLOCATION_TYPE_PINNED
        && properties.handle_types & FABRIC == 0
        && properties.location.kind == CU_MEM_LOCATION_TYPE_DEVICE
        && is_plain
        && properties.windows.is_null()
        && flags == 0
        && bytes != 0
        && (bytes as u64).is_multiple_of(GRANULE)
}

pub(super) unsafe fn create(
    original: Create,
    out: *mut u64,
    bytes: usize,
    properties: *const c_void,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's own properties, which the driver is about to read.
    unsafe { join_for(properties) };
    let pass_on = || {
        // SAFETY: the driver's own function with the program's own arguments; it writes the handle on success.
        let answer = unsafe { make_other(out, bytes, properties, || original(out, bytes, properties, flags)) };
        if answer == CUDA_SUCCESS {
            unmanaged::foreign_made();
        }
        answer
    };
    // SAFETY: null, or the program's own structure.
    let wanted = unsafe { properties.cast::<CUmemAllocationProp>().as_ref() };
    let shared = wanted.and_then(|wanted| Some((wanted, session::of(wanted.location.id)?)));
    let Some((wanted, session)) = shared else { return pass_on() };
    if out.is_null() || !can_move(wanted, bytes, flags) {
        return pass_on();
    }
    match is_made(wanted) {
        CUDA_SUCCESS => {}
        answer => return answer,
    }
    let passage = match arrival::pass_here(|| Needs::Nothing) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    let mut properties = *wanted;
    properties.flags[RDMA] = u8::from(properties.flags[RDMA] != 0);
    match session.space.create(&passage, &session.link.requests, bytes as u64, Properties(properties)) {
        Ok(handle) => {
            // SAFETY: not null, and the program's own out-parameter.
            unsafe { *out = handle };
            CUDA_SUCCESS
        }
        Err(NoMemory::Answer(answer)) => answer,
        Err(NoMemory::Alone | NoMemory::TryAgain) => pass_on(),
    }
}

pub(super) unsafe fn release(original: OfHandle, handle: u64) -> CUresult {
    match space::of_handle(handle) {
        Some(space) => {
            arrival::with_all_here(|guard| space.release_handle(handle, guard)).unwrap_or_else(|answer| answer)
        }
        // A handle that is still mapped keeps its memory, so the memory is uncounted a little early.
        // SAFETY: the driver's own function with the program's own arguments.
        None => unmanaged::remove(handle, || unsafe { original(handle) }),
    }
}

pub(super) unsafe fn retain(original: Retain, out: *mut u64, address: *mut c_void) -> CUresult {
    let at = address.addr() as CUdeviceptr;
    if escapes::is_ours(at, 1) {
        return REFUSED;
    }
    let of_ours = if has_handles() && !out.is_null() { books::with_mapping(at) } else { None };
    let Some((space, _)) = of_ours else {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { original(out, address) };
    };
    match space.retain(at) {
        Some(handle) => {
            // SAFETY: not null, and the program's own out-parameter.
            unsafe { *out = handle };
            CUDA_SUCCESS
        }
        // Another thread has just unmapped it.
        None => CUDA_ERROR_INVALID_VALUE,
    }
}

pub(super) unsafe fn map(
    original: Map,
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> CUresult {
    if escapes::is_ours(address, bytes) {
        return REFUSED;
    }
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { original(address, bytes, offset, handle, flags) };
    let space = space::of_handle(handle);
    if !has_handles() {
        // A number of ours must not reach the driver.
        return if is_handle(handle) { CUDA_ERROR_INVALID_VALUE } else { pass_on() };
    }
    if !is_handle(handle) && !space::has_mapped(address, bytes as u64) {
        // If the handle is a multicast object's, the driver waits for other processes.
        return pass_on();
    }
    arrival::with_all_here(|guard| {
        if !is_handle(handle) {
            return pass_on();
        }
        let known = space.and_then(|space| Some((space, space.handle(handle)?)));
        let Some((space, (_, whole, _))) = known else { return CUDA_ERROR_INVALID_VALUE };
        if flags != 0 || bytes == 0 {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if offset != 0 || bytes as u64 != whole {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        space.map_handle(handle, address, guard).map_or_else(|answer| answer, |()| CUDA_SUCCESS)
    })
    .unwrap_or_else(|answer| answer)
}

pub(super) unsafe fn unmap(original: OfRange, address: CUdeviceptr, bytes: usize) -> CUresult {
    if escapes::is_ours(address, bytes) {
        return REFUSED;
    }
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { original(address, bytes) };
    if !has_handles() {
        return pass_on();
    }
    arrival::with_all_here(|guard| {
        if books::cuts_mapping(address, bytes as u64) {
            return REFUSED;
        }
        books::unmap(address, bytes as u64, guard, pass_on)
    })
    .unwrap_or_else(|answer| answer)
}

pub(super) unsafe fn set_access(
    original: SetAccess,
    address: CUdeviceptr,
    bytes: usize,
    access: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    if escapes::is_ours(address, bytes) {
        return REFUSED;
    }
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { original(address, bytes, access, count) };
    if !has_handles() {
        return pass_on();
    }
    let is_list = !access.is_null() && count <= MOST_PLACES;
    // SAFETY: the program's own list, which the driver is about to read.
    let list = if is_list { unsafe { core::slice::from_raw_parts(access, count) } } else { &[] };
    let by_host = |one: &CUmemAccessDesc| {
        one.location.kind != CU_MEM_LOCATION_TYPE_DEVICE && one.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE
    };
    let is_for_host = list.iter().any(by_host);
    arrival::with_all_here(|guard| {
        if !space::has_mapped(address, bytes as u64) || list.is_empty() {
            return pass_on();
        }
        if books::cuts_mapping(address, bytes as u64) {
            return REFUSED;
        }
        if is_for_host && let Err(answer) = make_mappings_stay((address, bytes as u64), Reach::Mappings, guard) {
            return answer;
        }
        let answer = pass_on();
        books::access_changed(address, bytes as u64, list, guard);
        answer
    })
    .unwrap_or_else(|answer| answer)
}

/// Makes the memory of the mappings in a range stay where it is, because others are about to access it.
fn make_mappings_stay(range: (CUdeviceptr, u64), reach: Reach, guard: &MappingGuard) -> Result<(), CUresult> {
    let mut sessions = session::all();
    sessions.try_for_each(|session| session.space.make_mappings_stay(&session.link.requests, range, reach, guard))
}

pub(super) unsafe fn reserve(
    original: Reserve,
    out: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    wish: CUdeviceptr,
    flags: u64,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, except for the wish where the program has none.
    let ask = |wish| unsafe { original(out, bytes, alignment, wish, flags) };
    let Some(session) = session::all().next().filter(|_| !out.is_null()) else { return ask(wish) };
    let is_plain = alignment == 0 || alignment.is_power_of_two();
    let beside = if wish == 0 && is_plain { session.space.beside(alignment as u64) } else { None };
    let answer = match beside.map(ask) {
        Some(CUDA_SUCCESS) => CUDA_SUCCESS,
        _ => ask(wish),
    };
    if answer == CUDA_SUCCESS {
        // SAFETY: the driver has just written it.
        space::add_reservation(unsafe { *out }, bytes as u64);
    }
    answer
}

pub(super) unsafe fn address_free(original: OfRange, address: CUdeviceptr, bytes: usize) -> CUresult {
    if escapes::is_ours(address, bytes) {
        return REFUSED;
    }
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { original(address, bytes) };
    let answer = match has_handles() && space::has_mapped(address, bytes as u64) {
        true => arrival::with_all_here(|_| pass_on()).unwrap_or_else(|answer| answer),
        false => pass_on(),
    };
    if answer == CUDA_SUCCESS {
        space::remove_reservation(address);
    }
    answer
}

/// The session for the GPU of a handle of ours.
fn session_of(handle: HandleNumber) -> Option<&'static Session> {
    space::of_handle(handle).and_then(|space| session::of(space.device))
}

/// The properties that a handle of ours was made with.
fn properties_of(handle: HandleNumber) -> Option<CUmemAllocationProp> {
    space::of_handle(handle)?.handle(handle).map(|(_, _, properties)| properties)
}

pub(super) unsafe fn properties(original: OfProperties, out: *mut c_void, handle: u64) -> CUresult {
    if !is_handle(handle) || out.is_null() {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { original(out, handle) };
    }
    let Some(properties) = properties_of(handle) else { return CUDA_ERROR_INVALID_VALUE };
    // SAFETY: not null, and the program's own out-parameter.
    unsafe { *out.cast() = properties };
    CUDA_SUCCESS
}

pub(super) unsafe fn export(original: Export, out: *mut c_void, handle: u64, kind: c_int, flags: u64) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, or with a handle that stands for the program's. It writes the
    // descriptor.
    let by_driver = |handle| unsafe { descriptors::exported(out, kind, || original(out, handle, kind, flags)) };
    if !is_handle(handle) {
        return by_driver(handle);
    }
    let (Some(properties), Some(session)) = (properties_of(handle), session_of(handle)) else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    if out.is_null() || flags != 0 || kind != api::POSIX_DESCRIPTOR || properties.handle_types & kind == 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if let Some(piece) = piece_of(session.space, handle) {
        return by_driver(piece);
    }
    let exported = match descriptors::are_the_drivers() {
        false => session.space.export(session.link, handle).map(Some),
        true => export_in_place(session, handle).inspect(|in_place| {
            if let Some(descriptor) = in_place {
                descriptors::give_out(descriptor.as_raw_fd());
            }
        }),
    };
    match exported {
        Ok(Some(descriptor)) => {
            // SAFETY: not null, and the program's own place for a descriptor.
            unsafe { *out.cast::<c_int>() = descriptor.into_raw_fd() };
            CUDA_SUCCESS
        }
        Ok(None) => consolidate(session, handle, &properties).map_or_else(|answer| answer, by_driver),
        Err(answer) => answer,
    }
}

/// A descriptor of the driver's, if a handle's memory can stay where it is.
fn export_in_place(session: &Session, handle: HandleNumber) -> Result<Option<OwnedFd>, CUresult> {
    let export = |guard: &MappingGuard| session.space.export_in_place(&session.link.requests, handle, guard);
    arrival::with_all_here(export).flatten()
}

/// The driver's handle of memory that is in one piece.
fn piece_of(space: &Space, handle: HandleNumber) -> Option<u64> {
    match space.handle(handle)? {
        (Memory::InOnePiece(piece), _, _) => Some(piece),
        _ => None,
    }
}

/// Moves a handle's memory into one piece beside the arena, and returns the driver's handle of that piece.
fn consolidate(session: &Session, handle: HandleNumber, properties: &CUmemAllocationProp) -> Result<u64, CUresult> {
    let (device, space) = (session.device, session.space);
    let (_, bytes, _) = space.handle(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if !ask(device, Unmanaged::Exported, bytes)? {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    // The coordinator fills it.
    let properties =
        CUmemAllocationProp { handle_types: properties.handle_types | api::POSIX_DESCRIPTOR, ..*properties };
    let mut piece = 0;
    // SAFETY: an out-parameter, and a structure of cuda.h's layout.
    match unsafe { api::create(&mut piece, bytes as usize, &properties, 0) } {
        CUDA_SUCCESS => {}
        answer => {
            unmanaged::give_back(device, Unmanaged::Exported, bytes);
            return Err(answer);
        }
    }
    let descriptor = api::descriptor_of(piece);
    match descriptor.and_then(|descriptor| session.consolidate(handle, piece, descriptor.as_fd())) {
        Ok(()) => Ok(piece),
        Err(answer) => {
            unmanaged::give_back(device, Unmanaged::Exported, bytes);
            // SAFETY: just made, and mapped nowhere. Data that the coordinator copies there is not used.
            unsafe { api::release(piece) };
            // Another thread may have exported it meanwhile.
            piece_of(space, handle).ok_or(answer)
        }
    }
}

/// Moves the exportable handles that are mapped in a range into one piece each, before others access them and they have to stay.
fn consolidate_in(session: &Session, address: CUdeviceptr, bytes: usize) -> Result<(), CUresult> {
    let mut handles = session.space.exportable_in_pieces(address, bytes as u64).into_iter();
    handles.try_for_each(|handle| one_piece(session, handle).map(drop))
}

/// Binds a handle to an object by which others access memory: its memory becomes one piece, which stays. The call waits until other
/// processes have added their GPUs, so the gate must not know about it.
fn bound(handle: u64, bind: impl FnOnce(u64) -> CUresult) -> CUresult {
    if !is_handle(handle) {
        return bind(handle);
    }
    let Some(session) = session_of(handle) else { return CUDA_ERROR_INVALID_VALUE };
    one_piece(session, handle).map_or_else(|answer| answer, bind)
}

/// Binds the memory of a mapping to such an object. Allocated memory cannot be bound; only the driver knows whether binding is possible at
/// all.
fn bound_at(address: CUdeviceptr, bytes: usize, bind: impl Fn(CUdeviceptr) -> CUresult) -> CUresult {
    if escapes::is_ours(address, bytes) {
        return match bind(NOTHING) {
            CUDA_SUCCESS => REFUSED,
            answer => answer,
        };
    }
    let mapped = books::mapping(address).and_then(|mapping| Some((session_of(mapping.handle)?, mapping.handle)));
    let Some((session, handle)) = mapped else { return bind(address) };
    one_piece(session, handle).map_or_else(|answer| answer, |_| bind(address))
}

pub(super) unsafe fn bind(
    original: Bind,
    object: u64,
    at: usize,
    handle: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, or with a handle that stands for the program's.
    bound(handle, |handle| unsafe { original(object, at, handle, offset, bytes, flags) })
}

type BindFor = unsafe extern "C-unwind" fn(u64, CUdevice, usize, u64, usize, usize, u64) -> CUresult;

#[expect(clippy::too_many_arguments, reason = "the driver's")]
pub(super) unsafe fn bind_for(
    original: BindFor,
    object: u64,
    device: CUdevice,
    at: usize,
    handle: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: as in `bind`.
    bound(handle, |handle| unsafe { original(object, device, at, handle, offset, bytes, flags) })
}

type BindEndpoint = unsafe extern "C-unwind" fn(u32, CUdevice, u64, u64, u64, u64, u64) -> CUresult;

#[expect(clippy::too_many_arguments, reason = "the driver's")]
pub(super) unsafe fn bind_endpoint(
    original: BindEndpoint,
    endpoint: u32,
    device: CUdevice,
    at: u64,
    handle: u64,
    offset: u64,
    bytes: u64,
    flags: u64,
) -> CUresult {
    // SAFETY: as in `bind`.
    bound(handle, |handle| unsafe { original(endpoint, device, at, handle, offset, bytes, flags) })
}

type BindAddress = unsafe extern "C-unwind" fn(u64, usize, CUdeviceptr, usize, u64) -> CUresult;

pub(super) unsafe fn bind_address(
    original: BindAddress,
    object: u64,
    at: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, or about an address where nothing is.
    bound_at(address, bytes, |address| unsafe { original(object, at, address, bytes, flags) })
}

type BindAddressFor = unsafe extern "C-unwind" fn(u64, CUdevice, usize, CUdeviceptr, usize, u64) -> CUresult;

pub(super) unsafe fn bind_address_for(
    original: BindAddressFor,
    object: u64,
    device: CUdevice,
    at: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: as in `bind_address`.
    bound_at(address, bytes, |address| unsafe { original(object, device, at, address, bytes, flags) })
}

type BindEndpointAddress = unsafe extern "C-unwind" fn(u32, CUdevice, u64, *mut c_void, u64, u64) -> CUresult;

pub(super) unsafe fn bind_endpoint_address(
    original: BindEndpointAddress,
    endpoint: u32,
    device: CUdevice,
    at: u64,
    address: *mut c_void,
    bytes: u64,
    flags: u64,
) -> CUresult {
    // SAFETY: as in `bind_address`.
    bound_at(address.expose_provenance() as CUdeviceptr, bytes as usize, |address| unsafe {
        original(endpoint, device, at, core::ptr::with_exposed_provenance_mut(address as usize), bytes, flags)
    })
}

/// Makes a handle's memory one piece, which stays, and returns the driver's handle of it.
fn one_piece(session: &Session, handle: HandleNumber) -> Result<u64, CUresult> {
    if let Some(piece) = piece_of(session.space, handle) {
        return Ok(piece);
    }
    let properties = properties_of(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    consolidate(session, handle, &properties)
}

/// `cuMemGetHandleForAddressRange`: returns a descriptor by which other devices on the bus access memory, of the program's own mappings or
/// not.
pub(super) unsafe fn to_a_handle(
    original: escapes::RangeHandle,
    out: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    kind: c_int,
    flags: u64,
) -> CUresult {
    if !has_handles() || !space::has_mapped(address, bytes as u64) {
        // SAFETY: the same promise.
        return unsafe { escapes::to_a_handle(original, out, address, bytes, kind, flags) };
    }
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(out, address, bytes, kind, flags) };
    let_in(address, bytes as u64, call).unwrap_or_else(|answer| answer)
}

/// Lets others access the mappings in a range past their addresses, by the handle that `call` returns: the memory is here, and stays.
pub(super) fn let_in(address: CUdeviceptr, bytes: u64, call: impl FnOnce() -> CUresult) -> Result<CUresult, CUresult> {
    session::all().try_for_each(|session| consolidate_in(session, address, bytes as usize))?;
    arrival::with_all_here(|guard| {
        make_mappings_stay((address, bytes), Reach::Past, guard)?;
        Ok(call())
    })
    .flatten()
}
