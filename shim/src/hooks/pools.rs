//! The driver's functions for pools, and for memory that streams allocate in their order.
//!
//! A pool of a shared GPU is the driver's, and so are its settings; the memory is ours. The driver is always asked first, for its answer
//! to any error in a call. Pools that are made for other processes, or on the host, are the driver's with all their memory: that memory is
//! unmanaged, and the ledger is asked first. So is memory that a graph allocates.

use core::ffi::{c_int, c_uint, c_void};

use baton_contract::cuda::*;
use baton_contract::memory::Unmanaged;

use super::memory::{self, is_allowed, join_for};
use super::unmanaged;
use crate::arrival::{self, Needs};
use crate::driver::api::{self, Handle, Stream};
use crate::gate::Passage;
use crate::memory::pools::attribute;
use crate::memory::space::{self, NoMemory, Space, is_window};
use crate::memory::unmanaged::graph_allocates;
use crate::session;
use crate::work::pools::{self, Awaited, From, Whose};
use crate::work::{capture, contexts};

type PoolCreate = unsafe extern "C-unwind" fn(*mut CUmemoryPool, *const c_void) -> CUresult;
type OfPool = unsafe extern "C-unwind" fn(CUmemoryPool) -> CUresult;
type TrimTo = unsafe extern "C-unwind" fn(CUmemoryPool, usize) -> CUresult;
type Attribute = unsafe extern "C-unwind" fn(CUmemoryPool, c_int, *mut c_void) -> CUresult;
type SetAccess = unsafe extern "C-unwind" fn(CUmemoryPool, *const CUmemAccessDesc, usize) -> CUresult;
type SetDevicePool = unsafe extern "C-unwind" fn(CUdevice, CUmemoryPool) -> CUresult;
type SetPool = unsafe extern "C-unwind" fn(*mut CUmemLocation, c_int, CUmemoryPool) -> CUresult;
type AllocAsync = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult;
type AllocFromPool = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream) -> CUresult;
type Free = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;
type FreeAsync = unsafe extern "C-unwind" fn(CUdeviceptr, CUstream) -> CUresult;
type OfStream = unsafe extern "C-unwind" fn(CUstream) -> CUresult;
type OfEvent = unsafe extern "C-unwind" fn(*mut c_void) -> CUresult;
type OfContext = unsafe extern "C-unwind" fn(CUcontext) -> CUresult;
type Synchronize = unsafe extern "C-unwind" fn() -> CUresult;
type Record = unsafe extern "C-unwind" fn(*mut c_void, CUstream) -> CUresult;
type RecordWithFlags = unsafe extern "C-unwind" fn(*mut c_void, CUstream, c_uint) -> CUresult;

/// The users and the place of a pool's memory.
enum Kind {
    /// A pool of this process alone, on this GPU, which is shared, of at most this many bytes (0 is no limit).
    Plain { device: CUdevice, most: u64 },
    /// Other processes too, on this GPU, which is shared.
    Shared { device: CUdevice },
    /// On the host, or on a GPU that is not shared.
    Elsewhere,
}

/// The kind of a pool with these properties (`CUmemPoolProps`, cuda.h).
///
/// # Safety
///
/// A `CUmemPoolProps` that the driver has taken.
unsafe fn kind_of(properties: *const c_void) -> Kind {
    /// `CUmemPoolProps::maxSize`: behind type, handle types, location and a pointer.
    const MOST: usize = 24;
    // SAFETY: by this function's contract; the fields up to the location are the same in both.
    let (properties, most) = unsafe {
        (&*properties.cast::<CUmemAllocationProp>(), properties.byte_add(MOST).cast::<usize>().read_unaligned())
    };
    let CUmemLocation { kind, id: device } = properties.location;
    if kind != CU_MEM_LOCATION_TYPE_DEVICE
        || session::of(device).is_none()
        || properties.kind != CU_MEM_ALLOCATION_TYPE_PINNED
    {
        Kind::Elsewhere
    } else if properties.handle_types == 0 {
        Kind::Plain { device, most: most as u64 }
    } else {
        Kind::Shared { device }
    }
}

pub(super) unsafe fn create(original: PoolCreate, out: *mut CUmemoryPool, properties: *const c_void) -> CUresult {
    // SAFETY: the program's own properties, which the driver is about to read.
    unsafe { join_for(properties) };
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(out, properties) };
    if answer == CUDA_SUCCESS && session::is_any() {
        // SAFETY: the driver has written it.
        let pool = unsafe { *out }.expose_provenance();
        // SAFETY: the driver has taken them.
        match unsafe { kind_of(properties) } {
            Kind::Plain { device, most } => pools::made(pool, device, most),
            Kind::Shared { device } => pools::made_by_the_driver(pool, device),
            Kind::Elsewhere => {}
        }
    }
    answer
}

pub(super) unsafe fn destroy(original: OfPool, pool: CUmemoryPool) -> CUresult {
    let leaving = pools::leaves(pool.expose_provenance());
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(pool) };
    match leaving {
        Some(leaving) => pools::has_left(leaving, answer == CUDA_SUCCESS),
        // It may be the current pool.
        None => pools::current_changed(),
    }
    answer
}

pub(super) unsafe fn trim(original: TrimTo, pool: CUmemoryPool, bytes: usize) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(pool, bytes) };
    if answer == CUDA_SUCCESS {
        pools::trim(pool.expose_provenance(), bytes as u64);
    }
    answer
}

pub(super) unsafe fn attribute(
    original: Attribute,
    pool: CUmemoryPool,
    attribute: c_int,
    value: *mut c_void,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(pool, attribute, value) };
    if answer == CUDA_SUCCESS
        && let Some(figure) = pools::figure(pool.expose_provenance(), attribute)
    {
        // SAFETY: the driver has just written 64 bits there.
        unsafe { value.cast::<u64>().write_unaligned(figure) };
    }
    answer
}

pub(super) unsafe fn set_attribute(
    original: Attribute,
    pool: CUmemoryPool,
    attribute: c_int,
    value: *mut c_void,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(pool, attribute, value) };
    if answer == CUDA_SUCCESS && !value.is_null() {
        // SAFETY: the driver has just read it: 64 bits, or 32 for switches.
        let value = unsafe {
            match attribute {
                attribute::FOLLOW_EVENTS | attribute::OPPORTUNISTIC | attribute::INTERNAL => {
                    u64::from(value.cast::<u32>().read_unaligned())
                }
                _ => value.cast::<u64>().read_unaligned(),
            }
        };
        pools::set(pool.expose_provenance(), attribute, value);
    }
    answer
}

/// `cuMemPoolSetAccess`: other GPUs may access a pool's memory, or no longer. If they may, they get access to all memory of ours.
pub(super) unsafe fn set_access(
    original: SetAccess,
    pool: CUmemoryPool,
    access: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(pool, access, count) };
    let of_ours = || pools::device_of(pool.expose_provenance()).and_then(space::of);
    let Some(space) = (answer == CUDA_SUCCESS).then(of_ours).flatten() else { return answer };
    for n in 0..count {
        // SAFETY: an array of `count`, which the driver has just read.
        let CUmemAccessDesc { location, flags } = unsafe { *access.add(n) };
        if location.kind == CU_MEM_LOCATION_TYPE_DEVICE
            && flags != CU_MEM_ACCESS_FLAGS_PROT_NONE
            && let Err(answer) = arrival::expose(space, location.id)
        {
            return answer;
        }
    }
    answer
}

pub(super) unsafe fn set_device_pool(original: SetDevicePool, device: CUdevice, pool: CUmemoryPool) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(device, pool) };
    pools::current_changed();
    answer
}

pub(super) unsafe fn set_pool(
    original: SetPool,
    location: *mut CUmemLocation,
    kind: c_int,
    pool: CUmemoryPool,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(location, kind, pool) };
    pools::current_changed();
    answer
}

pub(super) unsafe fn alloc_async<const INDEX: usize>(
    original: AllocAsync,
    out: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(out, bytes, stream) };
    // SAFETY: the program's own out-parameter.
    unsafe { allocate::<INDEX>(None, out, bytes, stream, call) }
}

pub(super) unsafe fn alloc_from_pool<const INDEX: usize>(
    original: AllocFromPool,
    out: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(out, bytes, pool, stream) };
    // SAFETY: the program's own out-parameter.
    unsafe { allocate::<INDEX>(Some(pool.expose_provenance()), out, bytes, stream, call) }
}

/// Allocates memory in a stream's order, of ours or by `call` of the driver's: from this pool, or from the current one of the stream's GPU.
///
/// # Safety
///
/// `out` is the program's own out-parameter.
unsafe fn allocate<const INDEX: usize>(
    pool: Option<Handle>,
    out: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    call: impl Fn() -> CUresult,
) -> CUresult {
    let of_call = Stream::of::<INDEX>(stream);
    if let Some(pool) = pool.filter(|_| arrival::gpus::are_several())
        && let Whose::Ours(.., device) | Whose::Drivers(device) = pools::find(From::Pool(pool))
    {
        arrival::gpus::begin_work_on(device);
    }
    let passage = match arrival::pass_into(|| stream, |_| Needs::Nothing) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    if out.is_null() || bytes == 0 || passage.is_ungated() || !session::is_any() {
        return call();
    }
    let of_stream = || match arrival::gpus::are_several() {
        true => arrival::gpus::of_stream(stream).or_else(arrival::gpus::current),
        false => session::current().map(|session| session.device),
    };
    let from = match pool {
        Some(pool) => From::Pool(pool),
        None => match of_stream() {
            Some(device) => From::Current(device),
            None => return call(),
        },
    };
    let _must_not_wait = api::MustNotWait::begin();
    match give(&passage, from, bytes as u64, of_call) {
        Ok(Given::Ours(at)) => {
            // SAFETY: not null, and the program's own out-parameter.
            unsafe { *out = at };
            CUDA_SUCCESS
        }
        Ok(Given::Graphs) => {
            graph_allocates();
            call()
        }
        Ok(Given::Drivers(device)) => {
            // The room is asked for outside the gate.
            drop(passage);
            let call = || match arrival::pass_into(|| stream, |_| Needs::Nothing) {
                Ok(_passage) => call(),
                Err(answer) => answer,
            };
            // SAFETY: the driver writes the address on success.
            unsafe { unmanaged::make_on(session::of(device), Unmanaged::Pool, bytes as u64, 0, out, call) }
        }
        Ok(Given::Hosts) => call(),
        Err(answer) => answer,
    }
}

/// The owner of an allocation's memory.
enum Given {
    /// The memory is ours: its address.
    Ours(CUdeviceptr),
    /// The driver allocates it, from a pool of this GPU that is not ours.
    Drivers(CUdevice),
    /// The driver allocates it, on the host or on a GPU that is not shared; or it reports the error in the call.
    Hosts,
    /// A graph, which the stream is recorded into.
    Graphs,
}

/// Allocates memory of ours, or returns its other owner. An error is the call's answer.
fn give(passage: &Passage, from: From, bytes: u64, stream: Stream) -> Result<Given, CUresult> {
    if capture::captures(stream) {
        return Ok(Given::Graphs);
    }
    let is_nowhere = !matches!(stream, Stream::Created(_)) && api::current_context() == 0;
    let (pool, device) = match pools::find(from) {
        Whose::Ours(pool, handle, device) if !is_nowhere => ((pool, handle), device),
        Whose::Drivers(device) => return Ok(Given::Drivers(device)),
        _ => return Ok(Given::Hosts),
    };
    let Some(session) = session::of(device) else { return Ok(Given::Hosts) };
    is_allowed()?;
    match pools::allocate(passage, &session.link.requests, session.space, pool, bytes, stream) {
        // Memory that another allocation has left may still be on its way.
        Ok(at) => arrival::wait_for(passage, at, bytes).map(|()| Given::Ours(at)),
        Err(NoMemory::Answer(answer)) => Err(answer),
        Err(NoMemory::Alone | NoMemory::TryAgain) => Ok(Given::Drivers(device)),
    }
}

/// Frees memory in the stream's order: from then on the pool may reuse it for work that comes after.
pub(super) unsafe fn free_async<const INDEX: usize>(
    original: FreeAsync,
    address: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    let Some(space) = pool_of(address) else {
        // SAFETY: as this function's.
        return unsafe { memory::free_async::<INDEX>(original, address, stream) };
    };
    let _passage = match arrival::pass_here(|| Needs::Nothing) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    let _must_not_wait = api::MustNotWait::begin();
    let of_call = Stream::of::<INDEX>(stream);
    if capture::captures(of_call) {
        // Only memory of the graph itself can be freed in it; the driver has the answer.
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { original(address, stream) };
    }
    let freed = is_allowed().and_then(|()| pools::free(space, address, of_call));
    freed.map_or_else(|answer| answer, |()| CUDA_SUCCESS)
}

/// Frees memory of a pool at once: `cuMemFree` waits for nothing then (measured: `free-sync-waits`).
pub(super) unsafe fn free(original: Free, address: CUdeviceptr) -> CUresult {
    let Some(space) = pool_of(address) else {
        // SAFETY: as this function's.
        return unsafe { memory::free(original, address) };
    };
    let _passage = match arrival::pass_here(|| Needs::Nothing) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    if let Err(answer) = is_allowed() {
        return answer;
    }
    match space.remove_pooled(address) {
        Some(freed) => {
            pools::free_now(&freed, address);
            CUDA_SUCCESS
        }
        // Another thread was faster.
        None => CUDA_ERROR_INVALID_VALUE,
    }
}

/// The memory of this process, if an allocation of a pool begins at this address.
fn pool_of(address: CUdeviceptr) -> Option<&'static Space> {
    if !is_window(address) {
        return None;
    }
    space::at(address).filter(|space| space.get(address).is_some_and(|found| found.pool != 0))
}

// Waiting: afterwards pools give up unused memory above their thresholds.

/// Waits by `call`.
fn waited(awaited: Awaited, call: impl FnOnce() -> CUresult) -> CUresult {
    let before = pools::before_waiting(awaited);
    let answer = call();
    if let Some(before) = before
        && answer == CUDA_SUCCESS
    {
        pools::has_waited(awaited, before);
    }
    answer
}

pub(super) unsafe fn stream_synchronize<const INDEX: usize>(original: OfStream, stream: CUstream) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    waited(Awaited::Stream(Stream::of::<INDEX>(stream)), || unsafe { original(stream) })
}

pub(super) unsafe fn event_synchronize(original: OfEvent, event: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    waited(Awaited::Event(event.expose_provenance()), || unsafe { original(event) })
}

pub(super) unsafe fn synchronize(original: Synchronize) -> CUresult {
    // SAFETY: the driver's own function.
    waited(Awaited::Context(api::current_context()), || unsafe { original() })
}

pub(super) unsafe fn synchronize_context(original: OfContext, context: CUcontext) -> CUresult {
    let meant = if context.is_null() { api::current_context() } else { context.expose_provenance() };
    // SAFETY: the driver's own function with the program's own arguments.
    waited(Awaited::Context(meant), || unsafe { original(context) })
}

// Events: a stream that waits for one comes after the frees before it.

/// Records an event by `call`.
fn recorded(event: *mut c_void, stream: Stream, call: impl FnOnce() -> CUresult) -> CUresult {
    // An event that becomes a part of a graph keeps no stream waiting.
    let counts = !contexts::is_capturing();
    let recording = pools::before_recording(event.expose_provenance(), stream);
    let answer = call();
    if let Some(recording) = recording {
        pools::has_recorded(recording, counts && answer == CUDA_SUCCESS);
    }
    answer
}

pub(super) unsafe fn event_record<const INDEX: usize>(
    original: Record,
    event: *mut c_void,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    recorded(event, Stream::of::<INDEX>(stream), || unsafe { original(event, stream) })
}

pub(super) unsafe fn event_record_with_flags<const INDEX: usize>(
    original: RecordWithFlags,
    event: *mut c_void,
    stream: CUstream,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    recorded(event, Stream::of::<INDEX>(stream), || unsafe { original(event, stream, flags) })
}

pub(super) unsafe fn event_destroy(original: OfEvent, event: *mut c_void) -> CUresult {
    pools::event_gone(event.expose_provenance());
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { original(event) }
}
