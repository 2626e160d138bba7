//! The driver's names for memory, as far as they are ours to answer.
//!
//! A call is ours if there is a session, and the thread's context is on the GPU that is shared. Whatever is odd
//! about it (a null pointer, no context, no bytes) is left to the driver, which knows the right answer.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use baton_contract::cuda::*;
use baton_contract::memory::GRANULE;

use crate::arrival::footprint::Needs;
use crate::gate::Passage;
use crate::memory::space::{self, NoMemory};
use crate::memory::table::Allocation;
use crate::session::{self, Session};
use crate::{arrival, driver::api, gate, work};

type Alloc = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize) -> CUresult;
type AllocPitch = unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> CUresult;
type Free = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;
type GetInfo = unsafe extern "C-unwind" fn(*mut usize, *mut usize) -> CUresult;
type TotalMemory = unsafe extern "C-unwind" fn(*mut usize, CUdevice) -> CUresult;
type AddressRange = unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> CUresult;
type Attribute = unsafe extern "C-unwind" fn(*mut c_void, c_int, CUdeviceptr) -> CUresult;
type Attributes = unsafe extern "C-unwind" fn(c_uint, *mut c_int, *mut *mut c_void, CUdeviceptr) -> CUresult;
type PoolCreate = unsafe extern "C-unwind" fn(*mut CUmemoryPool, *const c_void) -> CUresult;

/// Passes the gate, or ends the call with what the gate says. With an address: while memory is on its way, waits for
/// what is there.
macro_rules! passage {
    () => {
        match gate::pass() {
            Ok(passage) => passage,
            Err(answer) => return answer,
        }
    };
    ($address:expr) => {
        match pass_with($address) {
            Ok(passage) => passage,
            Err(answer) => return answer,
        }
    };
}

/// Passes the gate when the memory at this address is here.
fn pass_with(address: CUdeviceptr) -> Result<Passage, CUresult> {
    arrival::pass_with(|| Needs::These(vec![address]))
}

/// The session, and the thread's context, if that is on the shared GPU.
fn ours() -> Option<(&'static Session, usize)> {
    let session = session::get()?;
    let (mut context, mut device) = (ptr::null_mut(), -1);
    // SAFETY: out-parameters.
    let known = unsafe {
        api::current(&mut context) == CUDA_SUCCESS
            && !context.is_null()
            && api::current_device(&mut device) == CUDA_SUCCESS
    };
    (known && device == session.device).then(|| (session, context.expose_provenance()))
}

/// What the driver says to an allocation here and now: a capture may forbid it, a broken context fails it.
/// Cheap enough to be asked only when something is captured.
fn is_allowed() -> Result<(), CUresult> {
    if !work::is_capturing() {
        return Ok(());
    }
    let mut memory = 0;
    // SAFETY: an out-parameter; what was given is given back.
    match unsafe { api::alloc(&mut memory, 1) } {
        CUDA_SUCCESS => {
            // SAFETY: the allocation above.
            unsafe { api::free(memory) };
            Ok(())
        }
        // A GPU without a byte left beside the arena says nothing about captures.
        CUDA_ERROR_OUT_OF_MEMORY => Ok(()),
        answer => Err(answer),
    }
}

pub(crate) unsafe fn alloc(drivers: Alloc, out: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let passage = passage!();
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { drivers(out, bytes) };
    if out.is_null() || bytes == 0 {
        return pass_on();
    }
    let Some((session, context)) = ours() else { return pass_on() };
    if let Err(answer) = is_allowed() {
        return answer;
    }
    let answer = match session.space.allocate(&passage, &session.requests, bytes as u64, context) {
        Ok(at) => {
            // SAFETY: not null, and the program's own out-parameter.
            unsafe { *out = at };
            CUDA_SUCCESS
        }
        Err(NoMemory::Answer(answer)) => answer,
        Err(NoMemory::Alone | NoMemory::Later) => return pass_on(),
    };
    session.show_taken();
    answer
}

pub(crate) unsafe fn alloc_pitch(
    drivers: AllocPitch,
    out: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    let passage = passage!();
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { drivers(out, pitch, width, height, element) };
    if out.is_null() || pitch.is_null() || height == 0 {
        return pass_on();
    }
    let Some((session, context)) = ours() else { return pass_on() };
    // The driver knows the pitch: one row of it is asked for, and given back.
    let (mut row, mut step) = (0, 0);
    // SAFETY: two out-parameters.
    match unsafe { api::alloc_pitch(&mut row, &mut step, width, 1, element) } {
        // SAFETY: the allocation just made.
        CUDA_SUCCESS => unsafe { api::free(row) },
        answer => return answer,
    };
    let Some(bytes) = step.checked_mul(height) else { return CUDA_ERROR_OUT_OF_MEMORY };
    let answer = match session.space.allocate(&passage, &session.requests, bytes as u64, context) {
        Ok(at) => {
            // SAFETY: not null, and the program's own out-parameters.
            unsafe {
                *out = at;
                *pitch = step;
            }
            CUDA_SUCCESS
        }
        Err(NoMemory::Answer(answer)) => answer,
        Err(NoMemory::Alone | NoMemory::Later) => return pass_on(),
    };
    session.show_taken();
    answer
}

pub(crate) unsafe fn free(drivers: Free, address: CUdeviceptr) -> CUresult {
    let passage = passage!(address);
    let session = session::get().filter(|session| session.space.is_allocation(address));
    let Some(session) = session else {
        unpin(address);
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(address) };
    };
    give_back(&passage, session, address)
}

/// Takes an allocation back. As the driver does: all earlier work of the context ends first.
fn give_back(passage: &Passage, session: &Session, address: CUdeviceptr) -> CUresult {
    if let Err(answer) = is_allowed() {
        return answer;
    }
    // That of the allocation, whichever is current: when it goes, its allocations go with it.
    let context = session.space.find(address).map_or(0, |(_, found)| found.context);
    let waited = {
        let _relaxed = api::Relaxed::enter();
        work::drain_context(context)
    };
    if waited != CUDA_SUCCESS {
        return waited;
    }
    let answer = session.space.free(passage, &session.requests, address, session.total() / 16);
    session.show_taken();
    answer
}

pub(crate) unsafe fn get_info(drivers: GetInfo, free: *mut usize, total: *mut usize) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(free, total) };
    if answer != CUDA_SUCCESS || free.is_null() || total.is_null() {
        return answer;
    }
    if let Some((session, _)) = ours() {
        let all = session.total();
        // SAFETY: not null, and the driver has just written to them.
        unsafe {
            *total = all as usize;
            *free = all.saturating_sub(session.space.taken()) as usize;
        }
    }
    answer
}

pub(crate) unsafe fn total_memory(drivers: TotalMemory, bytes: *mut usize, device: CUdevice) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(bytes, device) };
    if answer == CUDA_SUCCESS
        && !bytes.is_null()
        && let Some(total) = session::total_of(device)
    {
        // SAFETY: not null, and the driver has just written to it.
        unsafe { *bytes = total as usize };
    }
    answer
}

pub(crate) unsafe fn address_range(
    drivers: AddressRange,
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    let Some((at, found)) = ours().and_then(|(session, _)| session.space.find(address)) else {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(base, size, as_unknown(address)) };
    };
    // SAFETY: null, or the program's own out-parameters.
    unsafe {
        if let Some(base) = base.as_mut() {
            *base = at;
        }
        if let Some(size) = size.as_mut() {
            *size = found.bytes as usize;
        }
    }
    CUDA_SUCCESS
}

/// Whether a copy or fill would touch addresses of ours without an allocation, or go beyond the end of one: the
/// driver refuses that for its own allocations, and cannot know the ends of ours.
#[inline]
pub(crate) fn is_outside(address: CUdeviceptr, bytes: usize) -> bool {
    space::is_window(address) && reaches_outside(address, bytes)
}

#[cold]
fn reaches_outside(address: CUdeviceptr, bytes: usize) -> bool {
    let Some(session) = session::get().filter(|session| session.space.is_reserved(address)) else { return false };
    match session.space.find(address) {
        Some((at, found)) => bytes as u64 > at + found.bytes - address,
        None => bytes > 0,
    }
}

/// An address to ask the driver about. One of ours without an allocation may be mapped all the same, as a part of a
/// shared extent or as freed memory that is kept; the program is to be told that nothing is there.
fn as_unknown(address: CUdeviceptr) -> CUdeviceptr {
    const NOTHING: CUdeviceptr = 8;
    let is_ours = session::get().is_some_and(|session| session.space.is_reserved(address));
    if is_ours { NOTHING } else { address }
}

/// `CUpointer_attribute` values in which mapped memory differs from allocated memory.
mod attribute {
    use core::ffi::c_int;

    pub(super) const CONTEXT: c_int = 1;
    pub(super) const NUMBER: c_int = 7;
    pub(super) const RANGE_START: c_int = 11;
    pub(super) const RANGE_SIZE: c_int = 12;
    pub(super) const MAPPING_SIZE: c_int = 18;
    pub(super) const MAPPING_BASE: c_int = 19;
}

/// Corrects what the driver says of memory that it knows as a mapping, and the program as an allocation.
///
/// # Safety
///
/// `out` is null or the place of this attribute, which the driver has just written.
unsafe fn correct(attribute: c_int, out: *mut c_void, at: CUdeviceptr, found: &Allocation) {
    if out.is_null() {
        return;
    }
    // SAFETY: by this function's contract; these attributes are of these types.
    unsafe {
        match attribute {
            attribute::CONTEXT => *out.cast::<usize>() = found.context,
            attribute::NUMBER => *out.cast::<u64>() = found.number,
            attribute::RANGE_START => *out.cast::<CUdeviceptr>() = at,
            attribute::RANGE_SIZE => *out.cast::<usize>() = found.bytes as usize,
            attribute::MAPPING_SIZE => *out.cast::<usize>() = found.bytes.next_multiple_of(GRANULE) as usize,
            attribute::MAPPING_BASE => *out.cast::<CUdeviceptr>() = at - at % GRANULE,
            _ => {}
        }
    }
}

pub(crate) unsafe fn pointer_attribute(
    drivers: Attribute,
    out: *mut c_void,
    attribute: c_int,
    address: CUdeviceptr,
) -> CUresult {
    let Some((at, found)) = session::get().and_then(|session| session.space.find(address)) else {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(out, attribute, as_unknown(address)) };
    };
    // The driver is asked, and knows nothing of memory that is not mapped.
    // SAFETY: as above.
    let answer = gate::checked(|| pass_with(address), || unsafe { drivers(out, attribute, address) });
    if answer == CUDA_SUCCESS {
        // SAFETY: the driver has just written it.
        unsafe { correct(attribute, out, at, &found) };
    }
    answer
}

pub(crate) unsafe fn pointer_attributes(
    drivers: Attributes,
    count: c_uint,
    attributes: *mut c_int,
    out: *mut *mut c_void,
    address: CUdeviceptr,
) -> CUresult {
    let Some((at, found)) = session::get().and_then(|session| session.space.find(address)) else {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(count, attributes, out, as_unknown(address)) };
    };
    // SAFETY: as above.
    let answer = gate::checked(|| pass_with(address), || unsafe { drivers(count, attributes, out, address) });
    if answer == CUDA_SUCCESS {
        for n in 0..count as usize {
            // SAFETY: two arrays of `count` items, which the driver has just used as such.
            unsafe { correct(*attributes.add(n), *out.add(n), at, &found) };
        }
    }
    answer
}

// Memory that is not virtualised: counted.

/// There is memory now that is neither ours nor counted.
pub(crate) fn foreign_made() {
    if let Some(session) = session::get() {
        session.pinned.foreign_made();
    }
}

/// Something pinned that was made, under this address or handle.
fn pin(answer: CUresult, what: u64, bytes: usize) {
    if answer == CUDA_SUCCESS
        && let Some(session) = session::get()
    {
        session.show_unmanaged(session.pinned.add(what, bytes as u64));
    }
}

fn unpin(what: u64) {
    if let Some(session) = session::get()
        && let Some(left) = session.pinned.remove(what)
    {
        session.show_unmanaged(left);
    }
}

/// Reads what the driver has written, if it has.
///
/// # Safety
///
/// On success, `out` was written by the driver.
unsafe fn written(answer: CUresult, out: *const u64) -> u64 {
    if answer == CUDA_SUCCESS && !out.is_null() {
        // SAFETY: by this function's contract.
        unsafe { *out }
    } else {
        0
    }
}

type AllocAsync = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult;
type AllocFromPool = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream) -> CUresult;
type FreeAsync = unsafe extern "C-unwind" fn(CUdeviceptr, CUstream) -> CUresult;
type AllocManaged = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, c_uint) -> CUresult;
type Create = unsafe extern "C-unwind" fn(*mut u64, usize, *const c_void, u64) -> CUresult;
type Release = unsafe extern "C-unwind" fn(u64) -> CUresult;

pub(crate) unsafe fn alloc_async(
    drivers: AllocAsync,
    out: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    let _passage = passage!();
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = super::work::retried(|| unsafe { drivers(out, bytes, stream) });
    // SAFETY: written on success.
    pin(answer, unsafe { written(answer, out) }, bytes);
    answer
}

pub(crate) unsafe fn alloc_from_pool(
    drivers: AllocFromPool,
    out: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let _passage = passage!();
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = super::work::retried(|| unsafe { drivers(out, bytes, pool, stream) });
    // SAFETY: written on success.
    pin(answer, unsafe { written(answer, out) }, bytes);
    answer
}

pub(crate) unsafe fn free_async(drivers: FreeAsync, address: CUdeviceptr, stream: CUstream) -> CUresult {
    let passage = passage!(address);
    if let Some(session) = session::get().filter(|session| session.space.is_allocation(address)) {
        // The driver takes such memory back in the stream's order; later than that is no harm.
        return give_back(&passage, session, address);
    }
    unpin(address);
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { drivers(address, stream) }
}

pub(crate) unsafe fn alloc_managed(
    drivers: AllocManaged,
    out: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    let _passage = passage!();
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = super::work::retried(|| unsafe { drivers(out, bytes, flags) });
    // SAFETY: written on success.
    pin(answer, unsafe { written(answer, out) }, bytes);
    answer
}

/// Memory is about to be taken on the device that these properties name, of an allocation or of a pool. A context may not be
/// there yet.
///
/// # Safety
///
/// Null, or a `CUmemAllocationProp` or `CUmemPoolProps`: both have their location in the same place.
unsafe fn join_for(properties: *const c_void) {
    // SAFETY: by this function's contract; the fields up to the location are the same in both.
    let location = unsafe { properties.cast::<CUmemAllocationProp>().as_ref() }.map(|properties| properties.location);
    if let Some(CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id }) = location {
        session::join(id);
    }
}

pub(crate) unsafe fn pool_create(drivers: PoolCreate, out: *mut CUmemoryPool, properties: *const c_void) -> CUresult {
    // SAFETY: the program's own properties, which the driver is about to read.
    unsafe { join_for(properties) };
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { drivers(out, properties) }
}

pub(crate) unsafe fn create(
    drivers: Create,
    out: *mut u64,
    bytes: usize,
    properties: *const c_void,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's own properties, which the driver is about to read.
    unsafe { join_for(properties) };
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = super::work::retried(|| unsafe { drivers(out, bytes, properties, flags) });
    foreign_made();
    // SAFETY: written on success.
    pin(answer, unsafe { written(answer, out) }, bytes);
    answer
}

pub(crate) unsafe fn release(drivers: Release, handle: u64) -> CUresult {
    // A handle that is still mapped keeps its memory, so this is counted a little early.
    unpin(handle);
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { drivers(handle) }
}
