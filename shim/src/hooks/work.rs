//! The driver's names by which contexts, streams and captures come and go.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUdevice, CUresult, CUstream};

use crate::work::drain::{can_be_asked, handle, new_event};
use crate::work::registry::{Before, Handle, REGISTRY};
use crate::{arrival, driver::api, gate, session};

/// What a context takes beside the arena: asked for before one is made, so that the arena can shrink. Less
/// on a small GPU.
const CONTEXT_BYTES: u64 = 640 << 20;

pub(crate) fn current() -> Handle {
    let mut context = ptr::null_mut();
    // SAFETY: an out-parameter.
    unsafe { api::current(&mut context) };
    context.expose_provenance()
}

/// Calls the driver with room for `bytes` beside the arena; once more if that was not enough.
fn with_room(bytes: u64, call: impl Fn() -> CUresult) -> CUresult {
    let Some(session) = session::get() else { return call() };
    let bytes = bytes.min(session.total() / 16);
    session.requests.room(bytes);
    match call() {
        CUDA_ERROR_OUT_OF_MEMORY => {
            session.requests.room(bytes * 2);
            call()
        }
        answer => answer,
    }
}

/// Calls the driver for something that may need memory beside the arena: if there was none, makes room and
/// calls once more.
pub(crate) fn retried(call: impl Fn() -> CUresult) -> CUresult {
    match (call(), session::get()) {
        (CUDA_ERROR_OUT_OF_MEMORY, Some(session)) => {
            session.requests.room((128 << 20).min(session.total() / 16));
            call()
        }
        (answer, _) => answer,
    }
}

/// A context was made.
///
/// # Safety
///
/// On success, `out` was written by the driver.
unsafe fn made(answer: CUresult, out: *mut CUcontext) -> CUresult {
    if answer == CUDA_SUCCESS
        && !out.is_null()
        && let Some(session) = session::get()
    {
        // SAFETY: by this function's contract.
        REGISTRY.add_context(unsafe { *out }.expose_provenance());
        session.channels_changed();
    }
    answer
}

type Create = unsafe extern "C-unwind" fn(*mut CUcontext, c_uint, CUdevice) -> CUresult;
type CreateV3 = unsafe extern "C-unwind" fn(*mut CUcontext, *mut c_void, c_int, c_uint, CUdevice) -> CUresult;
type CreateV4 = unsafe extern "C-unwind" fn(*mut CUcontext, *mut c_void, c_uint, CUdevice) -> CUresult;
type Retain = unsafe extern "C-unwind" fn(*mut CUcontext, CUdevice) -> CUresult;
type GreenCreate = unsafe extern "C-unwind" fn(*mut *mut c_void, *mut c_void, CUdevice, c_uint) -> CUresult;
type FromGreen = unsafe extern "C-unwind" fn(*mut CUcontext, *mut c_void) -> CUresult;
type OfContext = unsafe extern "C-unwind" fn(CUcontext) -> CUresult;
type OfDevice = unsafe extern "C-unwind" fn(CUdevice) -> CUresult;

pub(crate) unsafe fn create(drivers: Create, out: *mut CUcontext, flags: c_uint, device: CUdevice) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = with_room(CONTEXT_BYTES, || unsafe { drivers(out, flags, device) });
    // SAFETY: the driver has written it.
    unsafe { made(answer, out) }
}

pub(crate) unsafe fn create_v3(
    drivers: CreateV3,
    out: *mut CUcontext,
    affinity: *mut c_void,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = with_room(CONTEXT_BYTES, || unsafe { drivers(out, affinity, count, flags, device) });
    // SAFETY: the driver has written it.
    unsafe { made(answer, out) }
}

pub(crate) unsafe fn create_v4(
    drivers: CreateV4,
    out: *mut CUcontext,
    parameters: *mut c_void,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = with_room(CONTEXT_BYTES, || unsafe { drivers(out, parameters, flags, device) });
    // SAFETY: the driver has written it.
    unsafe { made(answer, out) }
}

pub(crate) unsafe fn from_green(drivers: FromGreen, out: *mut CUcontext, green: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and what it has written.
    unsafe { made(drivers(out, green), out) }
}

pub(crate) unsafe fn green_create(
    drivers: GreenCreate,
    out: *mut *mut c_void,
    description: *mut c_void,
    device: CUdevice,
    flags: c_uint,
) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    with_room(CONTEXT_BYTES, || unsafe { drivers(out, description, device, flags) })
}

/// Takes a context into the books that was made in a way that we do not see.
pub(crate) fn adopt(context: CUcontext, device: CUdevice) {
    let mut primary = ptr::null_mut();
    // SAFETY: an out-parameter; what is retained is released.
    unsafe {
        if primary_is_active(device) && api::primary_retain(&mut primary, device) == CUDA_SUCCESS {
            api::primary_release(device);
        }
    }
    if primary == context {
        REGISTRY.add_primary(device, context.expose_provenance());
    } else {
        REGISTRY.add_context(context.expose_provenance());
    }
    if let Some(session) = session::get() {
        session.channels_changed();
    }
}

pub(crate) unsafe fn retain(drivers: Retain, out: *mut CUcontext, device: CUdevice) -> CUresult {
    session::join(device);
    // Most calls find the context made already.
    let call = || {
        // SAFETY: the driver's own function with the program's own arguments.
        unsafe { drivers(out, device) }
    };
    let known = primary_is_active(device);
    let answer = if known { call() } else { with_room(CONTEXT_BYTES, call) };
    if answer == CUDA_SUCCESS
        && !out.is_null()
        && let Some(session) = session::get()
    {
        // SAFETY: the driver has written it.
        REGISTRY.add_primary(device, unsafe { *out }.expose_provenance());
        if !known {
            session.channels_changed();
        }
    }
    answer
}

fn primary_is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: two out-parameters.
    unsafe { api::primary_state(device, &mut flags, &mut active) == CUDA_SUCCESS && active != 0 }
}

/// Passes the gate to end a context: the pager is kept out, and all memory has come, because the coordinator takes back
/// only what is here. A broken gate has no pager any more, and nobody to be told.
fn pass_to_end() -> Option<gate::Passage> {
    let passage = gate::pass().ok()?;
    if gate::may_lack() {
        let _ = arrival::wait(&passage, arrival::footprint::Needs::Everything);
    }
    Some(passage)
}

/// A context is gone, and all that was in it.
fn gone(passage: Option<&gate::Passage>, context: Handle) {
    if let Some(session) = session::get() {
        arrival::context_gone();
        arrival::roots::context_goes(context);
        session.space.free_context(passage, &session.requests, context);
        session.show_taken();
        session.channels_changed();
    }
}

pub(crate) unsafe fn destroy(drivers: OfContext, context: CUcontext) -> CUresult {
    if session::get().is_none() {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(context) };
    }
    // Inside the gate: while the driver waits for the context's work, that work must not be taken for ended.
    let passage = pass_to_end();
    let number = context.expose_provenance();
    let known = REGISTRY.remove_context(number);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(context) };
    match known {
        _ if answer == CUDA_SUCCESS => gone(passage.as_ref(), number),
        Some(known) => REGISTRY.put_back(number, known),
        None => {}
    }
    answer
}

/// `cuCtxDetach`: ends a context only if nobody else is attached to it.
pub(crate) unsafe fn detach(drivers: OfContext, context: CUcontext) -> CUresult {
    if session::get().is_none() {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(context) };
    }
    let passage = pass_to_end();
    let number = context.expose_provenance();
    let known = REGISTRY.remove_context(number);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(context) };
    // SAFETY: the driver refuses a context that is no more.
    let lives = unsafe { api::push(context) } == CUDA_SUCCESS;
    if lives {
        let mut popped = ptr::null_mut();
        // SAFETY: an out-parameter.
        unsafe { api::pop(&mut popped) };
    }
    match known {
        Some(known) if lives => REGISTRY.put_back(number, known),
        _ if answer == CUDA_SUCCESS && !lives => {
            gone(passage.as_ref(), number);
        }
        _ => {}
    }
    answer
}

/// `cuDevicePrimaryCtxRelease` and `…Reset`: the context may be gone after it, or not.
pub(crate) unsafe fn leave_primary(drivers: OfDevice, device: CUdevice) -> CUresult {
    if session::get().is_none() {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(device) };
    }
    let passage = pass_to_end();
    let known = REGISTRY.primary(device).and_then(|context| Some((context, REGISTRY.remove_context(context)?)));
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(device) };
    match known {
        Some((context, known)) if primary_is_active(device) => REGISTRY.put_back(context, known),
        Some((context, _)) => gone(passage.as_ref(), context),
        None => {}
    }
    answer
}

type StreamCreate = unsafe extern "C-unwind" fn(*mut CUstream, c_uint) -> CUresult;
type StreamWithPriority = unsafe extern "C-unwind" fn(*mut CUstream, c_uint, c_int) -> CUresult;
type GreenStream = unsafe extern "C-unwind" fn(*mut CUstream, *mut c_void, c_uint, c_int) -> CUresult;
type OfStream = unsafe extern "C-unwind" fn(CUstream) -> CUresult;
type WaitEvent = unsafe extern "C-unwind" fn(CUstream, *mut c_void, c_uint) -> CUresult;

/// A stream was made.
///
/// # Safety
///
/// On success, `out` was written by the driver.
unsafe fn stream_made(answer: CUresult, out: *mut CUstream) -> CUresult {
    if answer == CUDA_SUCCESS && !out.is_null() && session::get().is_some() {
        // SAFETY: by this function's contract.
        REGISTRY.add_stream(current(), unsafe { *out }.expose_provenance());
    }
    answer
}

pub(crate) unsafe fn stream_create(drivers: StreamCreate, out: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and what it has written.
    unsafe { stream_made(drivers(out, flags), out) }
}

pub(crate) unsafe fn stream_with_priority(
    drivers: StreamWithPriority,
    out: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and what it has written.
    unsafe { stream_made(drivers(out, flags, priority), out) }
}

pub(crate) unsafe fn green_stream(
    drivers: GreenStream,
    out: *mut CUstream,
    green: *mut c_void,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and what it has written.
    unsafe { stream_made(drivers(out, green, flags, priority), out) }
}

pub(crate) unsafe fn stream_destroy(drivers: OfStream, stream: CUstream) -> CUresult {
    if session::get().is_none() {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { drivers(stream) };
    }
    REGISTRY.remove_stream(stream.expose_provenance());
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(stream) };
    if answer != CUDA_SUCCESS && !stream.is_null() {
        // Still there, it seems: better asked in vain than not asked.
        REGISTRY.add_stream(current(), stream.expose_provenance());
    }
    answer
}

/// One thread at a time sets events and begins a capture: an event that is set in a stream that has just
/// begun to capture would belong to the capture, and tell nothing about the work before.
static BEGINNING: Mutex<()> = Mutex::new(());

fn beginning() -> MutexGuard<'static, ()> {
    BEGINNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets an event behind a stream's work: it may be about to capture. The stream may be one of another context.
fn remember(stream: Handle) {
    let here = current();
    let (context, before) = REGISTRY.stream(stream).unwrap_or((here, Before::Nothing));
    let other = context != here;
    // SAFETY: a context that has a stream which the program is about to use.
    if other && unsafe { api::push(handle(context)) } != CUDA_SUCCESS {
        return;
    }
    if can_be_asked(stream) {
        let event = if let Before::Event(event) = before { Some(event) } else { new_event() };
        // SAFETY: an event of ours, and a stream that does not capture.
        let set = event.filter(|event| unsafe { api::event_record(handle(*event), handle(stream)) } == CUDA_SUCCESS);
        REGISTRY.set_before(context, stream, set.map_or(Before::Unknown, Before::Event));
    }
    if other {
        let mut popped = ptr::null_mut();
        // SAFETY: an out-parameter.
        unsafe { api::pop(&mut popped) };
    }
}

/// Begins a capture: from then on the streams that take part cannot be asked, nor perhaps the legacy one.
///
/// In a passage until the capture has begun: the pager asks about streams only when nobody is inside.
fn begun(stream: CUstream, begin: impl FnOnce() -> CUresult) -> CUresult {
    if session::get().is_none() {
        return begin();
    }
    let _passage = gate::pass();
    let _alone = beginning();
    let context = current();
    {
        let known = REGISTRY.snapshot();
        let streams = known.0.get(&context).map(|context| context.streams.keys().copied()).into_iter().flatten();
        for stream in streams.chain([api::STREAM_LEGACY, stream.expose_provenance()]) {
            if stream != 0 {
                remember(stream);
            }
        }
    }
    REGISTRY.capture_begins();
    let answer = begin();
    if answer != CUDA_SUCCESS {
        REGISTRY.capture_ends();
    }
    answer
}

/// Runs `what` unless some thread begins a capture just now, or another thread is in here.
pub(crate) fn unless_a_capture_begins<T>(what: impl FnOnce() -> Option<T>) -> Option<T> {
    let _alone = BEGINNING.try_lock().ok()?;
    what()
}

type BeginCapture = unsafe extern "C-unwind" fn(CUstream, c_int) -> CUresult;
type BeginCaptureV1 = unsafe extern "C-unwind" fn(CUstream) -> CUresult;
type BeginCaptureToGraph =
    unsafe extern "C-unwind" fn(CUstream, *mut c_void, *const *mut c_void, *const c_void, usize, c_int) -> CUresult;
type EndCapture = unsafe extern "C-unwind" fn(CUstream, *mut *mut c_void) -> CUresult;

pub(crate) unsafe fn begin_capture(drivers: BeginCapture, stream: CUstream, mode: c_int) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    begun(stream, || unsafe { drivers(stream, mode) })
}

pub(crate) unsafe fn begin_capture_v1(drivers: BeginCaptureV1, stream: CUstream) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    begun(stream, || unsafe { drivers(stream) })
}

pub(crate) unsafe fn begin_capture_to_graph(
    drivers: BeginCaptureToGraph,
    stream: CUstream,
    graph: *mut c_void,
    dependencies: *const *mut c_void,
    edges: *const c_void,
    count: usize,
    mode: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    begun(stream, || unsafe { drivers(stream, graph, dependencies, edges, count, mode) })
}

pub(crate) unsafe fn end_capture(drivers: EndCapture, stream: CUstream, graph: *mut *mut c_void) -> CUresult {
    let mut status = api::NOT_CAPTURING;
    // SAFETY: the program's stream, and an out-parameter.
    let was = unsafe { api::is_capturing(stream, &mut status) } == CUDA_SUCCESS && status != api::NOT_CAPTURING;
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(stream, graph) };
    if was && session::get().is_some() {
        let mut after = status;
        // SAFETY: as above.
        let asked = unsafe { api::is_capturing(stream, &mut after) };
        if asked != CUDA_SUCCESS || after == api::NOT_CAPTURING {
            REGISTRY.capture_ends();
        }
    }
    answer
}

/// By waiting for an event of a capture, a stream becomes part of it.
pub(crate) unsafe fn wait_event(drivers: WaitEvent, stream: CUstream, event: *mut c_void, flags: c_uint) -> CUresult {
    let _passage = match gate::pass() {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    if REGISTRY.is_capturing() && session::get().is_some() && !stream.is_null() {
        let _alone = beginning();
        remember(stream.expose_provenance());
    }
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { drivers(stream, event, flags) }
}
