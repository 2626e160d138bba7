//! The driver's functions for memory, as far as the shim answers them.
//!
//! The shim answers a call if there is a session for the GPU of the thread's context, or of the memory that the call names. A call with an error (a null pointer, no
//! context, no bytes) is left to the driver, which knows the right answer.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::time::{Duration, Instant};

use baton_contract::cuda::*;
use baton_contract::memory::GRANULE;

use crate::arrival::Needs;
use crate::driver::api::{self, Stream};
use crate::gate::Passage;
use crate::memory::bounds::as_unknown;
use crate::memory::mappings::Mapping;
use crate::memory::pools::STEP;
use crate::memory::reported;
use crate::memory::space::{self, NoMemory, Space, is_window};
use crate::memory::table::Facts;
use crate::memory::{unmanaged, vmm};
use crate::session::{self, Relation, Session};
use crate::sys::thread;
use crate::work::drain::Pauses;
use crate::work::mark::{Ended, Mark};
use crate::work::{capture, contexts, frees, leaving};
use crate::{arrival, gate};

type Alloc = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize) -> CUresult;
type AllocPitch = unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> CUresult;
type Free = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;
type GetInfo = unsafe extern "C-unwind" fn(*mut usize, *mut usize) -> CUresult;
type TotalMemory = unsafe extern "C-unwind" fn(*mut usize, CUdevice) -> CUresult;
type AddressRange = unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> CUresult;
type Attribute = unsafe extern "C-unwind" fn(*mut c_void, c_int, CUdeviceptr) -> CUresult;
type Attributes = unsafe extern "C-unwind" fn(c_uint, *mut c_int, *mut *mut c_void, CUdeviceptr) -> CUresult;

/// Passes the gate, or ends the call with the gate's answer. With an address: while memory is on its way, waits for the memory there.
macro_rules! passage {
    () => {
        passage!(=> arrival::pass(|_| Needs::Nothing))
    };
    ($address:expr) => {
        // Other memory is not ours, whichever GPU is current.
        match is_window($address) {
            true => passage!(=> arrival::pass_here(|| Needs::at($address))),
            false => passage!(),
        }
    };
    (=> $pass:expr) => {
        match $pass {
            Ok(passage) => passage,
            Err(answer) => return answer,
        }
    };
}

/// The session for the GPU of the thread's context, if that is shared, and the context.
pub(super) fn ours() -> Option<(&'static Session, usize)> {
    if !session::is_any() {
        return None;
    }
    let (mut context, mut device) = (ptr::null_mut(), -1);
    // SAFETY: out-parameters.
    let known = unsafe {
        api::current(&mut context) == CUDA_SUCCESS
            && !context.is_null()
            && api::current_device(&mut device) == CUDA_SUCCESS
    };
    let session = if known { session::of(device)? } else { return None };
    let context = context.expose_provenance();
    if contexts::id_of(context).is_none() {
        // Memory that is allocated in it is freed when its work has ended.
        leaving::adopt(context, device);
    }
    Some((session, context))
}

/// The memory that has an address among those for allocations, if this process is a tenant.
pub(super) fn space_at(address: CUdeviceptr) -> Option<&'static Space> {
    if session::is_any() { space::at(address) } else { None }
}

/// The mapping of the program's own that an address lies in.
fn mapping_at(address: CUdeviceptr) -> Option<Mapping> {
    if session::is_any() { vmm::mapping(address) } else { None }
}

/// The allocation that an address lies in, where it begins, and the memory that it is part of.
fn allocation(address: CUdeviceptr) -> Option<(&'static Space, CUdeviceptr, Facts)> {
    let space = space_at(address)?;
    space.find(address).map(|(at, found)| (space, at, found))
}

/// The driver's answer to a call, here and now, that a capture may forbid, such as allocating or freeing memory; a broken context fails
/// it.
pub(super) fn is_allowed() -> Result<(), CUresult> {
    if !contexts::is_capturing() {
        return Ok(());
    }
    match capture::ask_as_unsafe_call() {
        CUDA_SUCCESS => Ok(()),
        answer => Err(answer),
    }
}

pub(super) unsafe fn alloc(original: Alloc, out: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let passage = passage!();
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { original(out, bytes) };
    if out.is_null() || bytes == 0 {
        return pass_on();
    }
    let Some((session, context)) = ours() else { return pass_on() };
    if let Err(answer) = is_allowed() {
        return answer;
    }
    match allocate(&passage, session, bytes as u64, context) {
        Ok(at) => {
            // SAFETY: not null, and the program's own out-parameter.
            unsafe { *out = at };
            CUDA_SUCCESS
        }
        Err(NoMemory::Answer(answer)) => answer,
        Err(NoMemory::Alone | NoMemory::TryAgain) => pass_on(),
    }
}

fn allocate(passage: &Passage, session: &Session, bytes: u64, context: usize) -> Result<CUdeviceptr, NoMemory> {
    frees::collect_first(passage).map_err(NoMemory::Answer)?;
    session.space.allocate(passage, &session.link.requests, bytes, context)
}

pub(super) unsafe fn alloc_pitch(
    original: AllocPitch,
    out: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    let passage = passage!();
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unsafe { original(out, pitch, width, height, element) };
    if out.is_null() || pitch.is_null() || width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return pass_on();
    }
    let Some((session, context)) = ours() else { return pass_on() };
    if let Err(answer) = is_allowed() {
        return answer;
    }
    let Some(step) = width.checked_next_multiple_of(PITCH) else { return pass_on() };
    let Some(bytes) = step.checked_mul(height) else { return CUDA_ERROR_OUT_OF_MEMORY };
    match allocate(&passage, session, bytes as u64, context) {
        Ok(at) => {
            // SAFETY: not null, and the program's own out-parameters.
            unsafe {
                *out = at;
                *pitch = step;
            }
            CUDA_SUCCESS
        }
        Err(NoMemory::Answer(answer)) => answer,
        Err(NoMemory::Alone | NoMemory::TryAgain) => pass_on(),
    }
}

/// The driver's alignment of rows (measured).
const PITCH: usize = 512;

pub(super) unsafe fn free(original: Free, address: CUdeviceptr) -> CUresult {
    let passage = passage!(address);
    match space_at(address).and_then(|space| Some((space, space.get(address)?))) {
        Some((space, found)) => free_ours(&passage, space, address, found),
        None if space_at(address).is_some_and(|space| space.is_freeing(address)) => {
            let _relaxed = api::Relaxed::enter();
            finish_freeing(&passage, address)
        }
        None => {
            let _exclusive = arrival::enter_in_any_state();
            // SAFETY: the driver's own function with the program's own arguments.
            unmanaged::remove(address, || unsafe { original(address) })
        }
    }
}

/// Frees memory again that was freed in a stream's order: the driver waits for the first free, and takes this one for the second.
fn finish_freeing(passage: &Passage, address: CUdeviceptr) -> CUresult {
    let mut pauses = Pauses::new();
    while space_at(address).is_some_and(|space| space.is_freeing(address)) {
        match gate::lock_mappings(passage) {
            Ok(_guard) => frees::collect(Space::give_to_coordinator),
            Err(answer) => return answer,
        }
        if let Err(answer) = passage.outside(|| thread::sleep(pauses.next())) {
            return answer;
        }
    }
    CUDA_SUCCESS
}

fn free_ours(passage: &Passage, space: &'static Space, address: CUdeviceptr, found: Facts) -> CUresult {
    if found.is_opened {
        // Opened memory is closed instead.
        return CUDA_ERROR_INVALID_VALUE;
    }
    let_go(passage, space, address, found.context, || begin_free(space, address))
}

/// The result of beginning a free: the number of the allocation to be taken back. `None` if the program keeps the allocation for now.
type Begun = Result<Option<u64>, CUresult>;

fn begin_free(space: &Space, address: CUdeviceptr) -> Begun {
    // Another thread may have been faster.
    space.begin_free(address).map(Some).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Frees memory as the driver does: all earlier work of the allocation's context ends first, whichever context is current. During a
/// capture no thread can wait for that: then the memory is taken back later.
pub(super) fn let_go(
    passage: &Passage,
    space: &'static Space,
    address: CUdeviceptr,
    context: usize,
    begin: impl FnOnce() -> Begun,
) -> CUresult {
    if let Err(answer) = is_allowed() {
        return answer;
    }
    let _relaxed = api::Relaxed::enter();
    // A context that is not in the books has ended, with all its work.
    let context = contexts::id_of(context);
    // The driver waits in the context too.
    context.inspect(|context| contexts::provide_event(*context));
    let mark = context.map(Mark::of_context);
    if contexts::is_capturing() {
        return defer(passage, space, address, mark.into_iter().collect(), begin);
    }
    if let Some(mut mark) = mark
        && let Err(answer) = wait_for(passage, &mut mark)
    {
        return answer;
    }
    let _guard = match arrival::lock_mappings(passage, Needs::at(address)) {
        Ok(guard) => guard,
        Err(answer) => return answer,
    };
    match begin() {
        Ok(Some(number)) => space.finish_free(address, number, |given_up| space.give_to_coordinator(given_up)),
        Ok(None) => CUDA_SUCCESS,
        Err(answer) => answer,
    }
}

/// The time for which a mark is polled before the thread sleeps: most memory is freed when little or nothing is queued.
const SPIN: Duration = Duration::from_micros(10);

/// Waits, outside the gate, until the work before a mark has ended.
fn wait_for(passage: &Passage, mark: &mut Mark) -> Result<(), CUresult> {
    let (start, mut pauses) = (Instant::now(), Pauses::new());
    loop {
        match mark.look() {
            Ended::Yes => return Ok(()),
            Ended::Failed(answer) => return Err(answer),
            Ended::NotYet | Ended::Unknown if start.elapsed() < SPIN => std::hint::spin_loop(),
            Ended::NotYet | Ended::Unknown => passage.outside(|| thread::sleep(pauses.next()))?,
        }
    }
}

/// Frees an allocation once the work before all of the marks has ended.
fn defer(
    passage: &Passage,
    space: &'static Space,
    address: CUdeviceptr,
    marks: Vec<Mark>,
    begin: impl FnOnce() -> Begun,
) -> CUresult {
    let _guard = match arrival::lock_mappings(passage, Needs::at(address)) {
        Ok(guard) => guard,
        Err(answer) => return answer,
    };
    match begin() {
        Ok(Some(number)) => {
            frees::defer(address, number, marks, space);
            CUDA_SUCCESS
        }
        Ok(None) => CUDA_SUCCESS,
        Err(answer) => answer,
    }
}

/// `cuMemGetInfo`: the coordinator's shared page has the figures, so no request is made.
pub(super) unsafe fn get_info(original: GetInfo, free: *mut usize, total: *mut usize) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(free, total) };
    if answer != CUDA_SUCCESS || free.is_null() || total.is_null() {
        return answer;
    }
    if let Some((session, _)) = ours() {
        let (all, left) = told_now(session);
        // SAFETY: not null, and the driver has just written to them.
        unsafe {
            *total = all as usize;
            *free = left as usize;
        }
    }
    answer
}

/// The total and the free memory that the program is told.
fn told_now(session: &Session) -> (u64, u64) {
    let (device, all) = (session.device, session.link.total());
    // Memory that the program has beside its allocations counts as its own too, as without Baton.
    let (could_have, taken) = (session.link.could_have(), session.space.taken());
    (all, reported::free(device, all, could_have, taken, unmanaged::used(device)).min(all))
}

/// The total and the free memory of a GPU by its UUID, even before the program has joined; `None` if the GPU is not shared.
pub(crate) fn memory_of(uuid: [u8; 16]) -> Option<(u64, u64)> {
    Some(match session::relation_to(uuid)? {
        Relation::Session(session) => told_now(session),
        Relation::Offer(bytes) => (bytes, bytes),
    })
}

pub(super) unsafe fn total_memory(original: TotalMemory, bytes: *mut usize, device: CUdevice) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(bytes, device) };
    if answer == CUDA_SUCCESS
        && !bytes.is_null()
        && let Some(total) = session::total_of(device)
    {
        // SAFETY: not null, and the driver has just written to it.
        unsafe { *bytes = total as usize };
    }
    answer
}

/// True if the current context can access an allocation: one of another GPU only if the program allowed it.
fn is_reached(space: &Space, found: Facts) -> bool {
    session::current().is_some_and(|session| session.device == space.device)
        || contexts::reaches(api::current_context(), found.context)
}

pub(super) unsafe fn address_range(
    original: AddressRange,
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    let answer = |at: CUdeviceptr, bytes: u64| {
        // SAFETY: null, or the program's own out-parameters.
        unsafe {
            if let Some(base) = base.as_mut() {
                *base = at;
            }
            if let Some(size) = size.as_mut() {
                *size = bytes as usize;
            }
        }
    };
    // SAFETY: the driver's own function with the program's own arguments.
    let ask = |address| unsafe { original(base, size, address) };
    if let Some(mapping) = mapping_at(address) {
        // The driver knows which contexts can access it, and mappings of smaller pieces.
        let asked = arrival::ask_about(address, || ask(address));
        if asked == CUDA_SUCCESS {
            answer(mapping.at, mapping.bytes);
        }
        return asked;
    }
    let Some((space, at, found)) = allocation(address) else { return ask(as_unknown(address)) };
    if !is_reached(space, found) {
        return CUDA_ERROR_NOT_FOUND;
    }
    answer(at, found.bytes);
    CUDA_SUCCESS
}

/// `CUpointer_attribute` values in which mapped memory differs from allocated memory.
mod attribute {
    use core::ffi::c_int;

    pub(super) const CONTEXT: c_int = 1;
    pub(super) const DEVICE_POINTER: c_int = 3;
    pub(super) const SYNC_MEMOPS: c_int = 6;
    pub(super) const NUMBER: c_int = 7;
    pub(super) const LEGACY_IPC: c_int = 10;
    pub(super) const RANGE_START: c_int = 11;
    pub(super) const RANGE_SIZE: c_int = 12;
    pub(super) const HANDLE_TYPES: c_int = 14;
    pub(super) const RDMA: c_int = 15;
    pub(super) const POOL: c_int = 17;
    pub(super) const MAPPING_SIZE: c_int = 18;
    pub(super) const MAPPING_BASE: c_int = 19;
}

/// Corrects the driver's answer about memory that it knows as a mapping, and the program as an allocation.
///
/// # Safety
///
/// `out` is null or the place of this attribute, which the driver has just written.
unsafe fn correct(attribute: c_int, out: *mut c_void, address: CUdeviceptr, at: CUdeviceptr, found: Facts) {
    if out.is_null() {
        return;
    }
    // For a pool's memory: the range that the driver would have mapped there at once.
    let mapping = match found.pool {
        0 => (at - at % GRANULE, found.bytes.next_multiple_of(GRANULE)),
        _ => (address - address % STEP, STEP),
    };
    // Memory that the driver itself allocates by `cuMemAlloc` can be exported, and accessed over the bus.
    let is_own = found.pool == 0 && !found.is_opened;
    // SAFETY: by this function's contract; these attributes are of these types.
    unsafe {
        match attribute {
            attribute::CONTEXT => *out.cast::<usize>() = found.context,
            attribute::SYNC_MEMOPS => *out.cast::<c_uint>() = found.is_synchronous.into(),
            attribute::NUMBER => *out.cast::<u64>() = found.number,
            attribute::LEGACY_IPC | attribute::RDMA => *out.cast::<c_uint>() = is_own.into(),
            attribute::RANGE_START => *out.cast::<CUdeviceptr>() = at,
            attribute::RANGE_SIZE => *out.cast::<usize>() = found.bytes as usize,
            attribute::MAPPING_SIZE => *out.cast::<usize>() = mapping.1 as usize,
            attribute::MAPPING_BASE => *out.cast::<CUdeviceptr>() = mapping.0,
            attribute::POOL => *out.cast::<usize>() = found.pool,
            _ => {}
        }
    }
}

/// Corrects the driver's answer about a mapping of the program's own: the driver knows it in smaller pieces, of memory that is made to be
/// exported.
///
/// # Safety
///
/// As for [`correct`].
unsafe fn correct_mapping(attribute: c_int, out: *mut c_void, mapping: Mapping) {
    if out.is_null() {
        return;
    }
    // SAFETY: by this function's contract; these attributes are of these types.
    unsafe {
        match attribute {
            attribute::NUMBER => *out.cast::<u64>() = mapping.number,
            attribute::SYNC_MEMOPS => *out.cast::<c_uint>() = mapping.is_synchronous.into(),
            attribute::MAPPING_BASE => *out.cast::<CUdeviceptr>() = mapping.at,
            attribute::MAPPING_SIZE => *out.cast::<usize>() = mapping.bytes as usize,
            attribute::RDMA => *out.cast::<c_uint>() = mapping.rdma.into(),
            attribute::HANDLE_TYPES => *out.cast::<u64>() = mapping.handle_types as u64,
            _ => {}
        }
    }
}

pub(super) unsafe fn pointer_attribute(
    original: Attribute,
    out: *mut c_void,
    attribute: c_int,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let ask = |address| unsafe { original(out, attribute, address) };
    if let Some(mapping) = mapping_at(address) {
        let answer = arrival::ask_about(address, || ask(address));
        if answer == CUDA_SUCCESS {
            // SAFETY: the driver has just written it.
            unsafe { correct_mapping(attribute, out, mapping) };
        }
        return answer;
    }
    let Some((space, at, found)) = allocation(address) else { return ask(as_unknown(address)) };
    if attribute == attribute::DEVICE_POINTER && !is_reached(space, found) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let answer = arrival::ask_about(address, || ask(address));
    if answer == CUDA_SUCCESS {
        // SAFETY: the driver has just written it.
        unsafe { correct(attribute, out, address, at, found) };
    }
    answer
}

pub(super) unsafe fn pointer_attributes(
    original: Attributes,
    count: c_uint,
    attributes: *mut c_int,
    out: *mut *mut c_void,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let ask = |address| unsafe { original(count, attributes, out, address) };
    if let Some(mapping) = mapping_at(address) {
        let answer = arrival::ask_about(address, || ask(address));
        if answer == CUDA_SUCCESS {
            for n in 0..count as usize {
                // SAFETY: two arrays of `count` items, which the driver has just used as such.
                unsafe { correct_mapping(*attributes.add(n), *out.add(n), mapping) };
            }
        }
        return answer;
    }
    let Some((_, at, found)) = allocation(address) else { return ask(as_unknown(address)) };
    let answer = arrival::ask_about(address, || ask(address));
    if answer == CUDA_SUCCESS {
        for n in 0..count as usize {
            // SAFETY: two arrays of `count` items, which the driver has just used as such.
            unsafe { correct(*attributes.add(n), *out.add(n), address, at, found) };
        }
    }
    answer
}

type FreeAsync = unsafe extern "C-unwind" fn(CUdeviceptr, CUstream) -> CUresult;

/// Frees memory in the stream's order: it is taken back when the stream has reached the free.
pub(super) unsafe fn free_async<const INDEX: usize>(
    original: FreeAsync,
    address: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    let passage = passage!(address);
    let _must_not_wait = api::MustNotWait::begin();
    // SAFETY: the driver's own function with the program's own arguments.
    let pass_on = || unmanaged::remove(address, || unsafe { original(address, stream) });
    let Some((space, found)) = space_at(address).and_then(|space| Some((space, space.get(address)?))) else {
        return pass_on();
    };
    let stream = Stream::of::<INDEX>(stream);
    if capture::captures(stream) {
        // Only memory of the graph itself can be freed in it; the driver has the answer.
        return pass_on();
    }
    // Checked before `api::Relaxed`, from where on this thread's captures forbid nothing.
    if let Err(answer) = is_allowed() {
        return answer;
    }
    if found.is_opened {
        // Opened memory is closed instead.
        return CUDA_ERROR_INVALID_VALUE;
    }
    let _relaxed = api::Relaxed::enter();
    let here = contexts::id_of(api::current_context());
    let marks = match (stream, here) {
        // Others may rely on the order that such a call makes.
        (Stream::Legacy, Some(here)) => match Mark::in_legacy(here) {
            Ok(mark) => vec![mark],
            Err(answer) => return answer,
        },
        _ => match contexts::of(stream).or(here) {
            // If a thread is stuck with this stream, the driver waits for it too.
            Some(id) => vec![api::where_nobody_is_stuck(|| Mark::of_stream(id, stream))],
            // The context is not known: the memory belongs to some context of this GPU.
            None => contexts::of_same_device(found.context).into_iter().map(Mark::of_context).collect(),
        },
    };
    defer(&passage, space, address, marks, || begin_free(space, address))
}

/// Joins before memory of an allocation or of a pool is taken on the device that these properties name. A context may not exist yet.
///
/// # Safety
///
/// Null, or a `CUmemAllocationProp` or `CUmemPoolProps`: both have their location in the same place.
pub(super) unsafe fn join_for(properties: *const c_void) {
    // SAFETY: by this function's contract; the fields up to the location are the same in both.
    let location = unsafe { properties.cast::<CUmemAllocationProp>().as_ref() }.map(|properties| properties.location);
    if let Some(CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id }) = location {
        session::join(id);
        if arrival::gpus::are_several() {
            arrival::gpus::begin_work_on(id);
        }
    }
}
