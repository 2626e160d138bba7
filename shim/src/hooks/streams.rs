//! The driver's functions that make and end streams and captures: their work has to end before the GPU changes hands.

use core::ffi::{c_int, c_uint, c_void};

use baton_contract::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUresult, CUstream};

use crate::arrival::Needs;
use crate::driver::api::{self, Stream};
use crate::work::{capture, contexts, idle, pools};
use crate::{arrival, session};

type StreamCreate = unsafe extern "C-unwind" fn(*mut CUstream, c_uint) -> CUresult;
type StreamWithPriority = unsafe extern "C-unwind" fn(*mut CUstream, c_uint, c_int) -> CUresult;
type GreenStream = unsafe extern "C-unwind" fn(*mut CUstream, *mut c_void, c_uint, c_int) -> CUresult;
type OfStream = unsafe extern "C-unwind" fn(CUstream) -> CUresult;
type WaitEvent = unsafe extern "C-unwind" fn(CUstream, *mut c_void, c_uint) -> CUresult;

/// Enters a stream that was made.
///
/// # Safety
///
/// On success, `out` was written by the driver.
unsafe fn stream_made(answer: CUresult, out: *mut CUstream, flags: c_uint) -> CUresult {
    if answer == CUDA_SUCCESS && !out.is_null() && session::is_any() {
        // SAFETY: by this function's contract.
        contexts::add_stream(unsafe { *out }.expose_provenance(), flags & api::NON_BLOCKING != 0);
    }
    answer
}

pub(super) unsafe fn stream_create(original: StreamCreate, out: *mut CUstream, flags: c_uint) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    unsafe { stream_made(original(out, flags), out, flags) }
}

pub(super) unsafe fn stream_with_priority(
    original: StreamWithPriority,
    out: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    unsafe { stream_made(original(out, flags, priority), out, flags) }
}

pub(super) unsafe fn green_stream(
    original: GreenStream,
    out: *mut CUstream,
    green: *mut c_void,
    flags: c_uint,
    priority: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    unsafe { stream_made(original(out, green, flags, priority), out, flags) }
}

pub(super) unsafe fn stream_destroy(original: OfStream, stream: CUstream) -> CUresult {
    if !session::is_any() {
        // SAFETY: the driver's own function with the program's own arguments.
        return unsafe { original(stream) };
    }
    pools::stream_goes(stream.expose_provenance());
    arrival::stream_goes(stream.expose_provenance());
    contexts::remove_stream(stream.expose_provenance());
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(stream) };
    if answer != CUDA_SUCCESS && !stream.is_null() {
        // The stream seems to be there still: asking about it in vain is better than not asking.
        contexts::add_stream(stream.expose_provenance(), false);
    }
    answer
}

/// Begins a capture: from then on the streams that take part cannot be asked about, and perhaps neither can the legacy stream.
fn begun(stream: Stream, begin: impl FnOnce() -> CUresult) -> CUresult {
    // A stream that captures already is refused, and an event put there now would invalidate its capture.
    // SAFETY: the stream of the program's own call.
    if !session::is_any() || unsafe { api::captures(stream) } == Some(true) {
        return begin();
    }
    let beginning = capture::begin(stream);
    let answer = begin();
    beginning.done(answer == CUDA_SUCCESS);
    answer
}

type EndCapture = unsafe extern "C-unwind" fn(CUstream, *mut *mut c_void) -> CUresult;
type BeginCapture = unsafe extern "C-unwind" fn(CUstream, c_int) -> CUresult;
type BeginCaptureV1 = unsafe extern "C-unwind" fn(CUstream) -> CUresult;
type BeginCaptureToCig = unsafe extern "C-unwind" fn(CUstream, *mut c_void) -> CUresult;
type BeginRecapture = unsafe extern "C-unwind" fn(CUstream, c_int, *mut c_void, *const c_void, *mut c_void) -> CUresult;
type BeginCaptureToGraph =
    unsafe extern "C-unwind" fn(CUstream, *mut c_void, *const *mut c_void, *const c_void, usize, c_int) -> CUresult;

pub(super) unsafe fn begin_capture<const INDEX: usize>(
    original: BeginCapture,
    stream: CUstream,
    mode: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    begun(Stream::of::<INDEX>(stream), || unsafe { original(stream, mode) })
}

pub(super) unsafe fn begin_capture_v1<const INDEX: usize>(original: BeginCaptureV1, stream: CUstream) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    begun(Stream::of::<INDEX>(stream), || unsafe { original(stream) })
}

pub(super) unsafe fn begin_capture_to_graph<const INDEX: usize>(
    original: BeginCaptureToGraph,
    stream: CUstream,
    graph: *mut c_void,
    dependencies: *const *mut c_void,
    edges: *const c_void,
    count: usize,
    mode: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    begun(Stream::of::<INDEX>(stream), || unsafe { original(stream, graph, dependencies, edges, count, mode) })
}

pub(super) unsafe fn begin_recapture<const INDEX: usize>(
    original: BeginRecapture,
    stream: CUstream,
    mode: c_int,
    graph: *mut c_void,
    changed: *const c_void,
    data: *mut c_void,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    begun(Stream::of::<INDEX>(stream), || unsafe { original(stream, mode, graph, changed, data) })
}

/// `cuStreamBeginCaptureToCig`: work that goes into a list of a graphics interface runs at a time that the interface chooses: it could not
/// be kept off the GPU, nor could its memory be kept there. So a tenant gets the answer of a driver that does not support this.
pub(super) unsafe fn begin_capture_to_cig(
    original: BeginCaptureToCig,
    stream: CUstream,
    parameters: *mut c_void,
) -> CUresult {
    if session::is_any() {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { original(stream, parameters) }
}

/// `cuStreamWaitEvent`: by waiting for an event of a capture, a stream becomes part of it.
pub(super) unsafe fn wait_event<const INDEX: usize>(
    original: WaitEvent,
    stream: CUstream,
    event: *mut c_void,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(stream, event, flags) };
    let needs = |_| {
        // The stream may wait for another process's work.
        idle::note_waiting();
        Needs::Nothing
    };
    let _passage = match arrival::pass_into(|| stream, needs) {
        Ok(passage) => passage,
        Err(answer) => return answer,
    };
    let stream = Stream::of::<INDEX>(stream);
    if !session::is_any() || !contexts::is_capturing() {
        let event = event.expose_provenance();
        let recorded = pools::before_stream_waits(event);
        let answer = call();
        if let Some(recorded) = recorded
            && answer == CUDA_SUCCESS
        {
            pools::stream_waits(stream, event, recorded);
        }
        return answer;
    }
    let beginning = capture::join(stream);
    let answer = call();
    // SAFETY: the stream of the program's own call.
    beginning.done(answer == CUDA_SUCCESS && unsafe { api::is_capturing(stream) });
    answer
}

pub(super) unsafe fn end_capture(original: EndCapture, stream: CUstream, graph: *mut *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(stream, graph) };
    if contexts::is_capturing() && session::is_any() {
        capture::is_any();
    }
    answer
}
