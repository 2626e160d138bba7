//! Whether everything that the program has queued has ended.
//!
//! Asked with the gate closed and nobody inside, so nothing is added meanwhile. Only by questions, never by
//! waiting inside the driver: work may wait for something that the program has yet to do, and then the gate
//! has to be opened again. And never by anything that would disturb a capture: a stream that captures
//! has an event behind the work that it had before, which is asked instead.
//!
//! The legacy default stream, asked, answers for all blocking streams of its context and for every thread's
//! default stream (measured); those made with `CU_STREAM_NON_BLOCKING` are asked one by one. While a blocking
//! stream captures the legacy stream cannot be asked; then the drain goes on when that capture has ended.

use core::ptr;
use core::time::Duration;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUdevice, CUresult, CUstream};

use super::registry::{Before, Context, Handle, REGISTRY};
use crate::driver::api;

/// How often it is asked again, at first and later.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_micros(500);
/// How long the driver is asked about a context before it is waited for.
const LONGEST_ASKING: Duration = Duration::from_millis(2);

/// Waits until all work has ended; gives up at the deadline. Without one, looks once.
pub(crate) fn drain(deadline: Option<Instant>) -> bool {
    let mut pause = FIRST_PAUSE;
    loop {
        if has_ended(None) {
            return true;
        }
        if deadline.is_none_or(|deadline| Instant::now() > deadline) {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until all work of a context has ended that is queued now, as the driver does when memory is freed. An answer
/// other than success is that of a broken context.
///
/// To wait inside the driver for a context is refused while something captures, and ends that capture. So no capture
/// begins meanwhile: whoever wants to waits for us. That it need not wait for long, the driver is asked first for a while.
pub(crate) fn drain_context(context: Handle) -> CUresult {
    let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        let ended = {
            let asking = REGISTRY.snapshot();
            let ask = || {
                let has_ended = asking.0.get(&context).is_none_or(|known| context_has_ended(known, false));
                match (REGISTRY.is_capturing(), has_ended || start.elapsed() > LONGEST_ASKING) {
                    (true, _) => has_ended.then_some(CUDA_SUCCESS),
                    // SAFETY: the context is current.
                    (false, true) => Some(unsafe { api::synchronize() }),
                    (false, false) => None,
                }
            };
            super::within(context, ask).unwrap_or(Some(CUDA_SUCCESS))
        };
        if let Some(answer) = ended {
            return answer;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether nothing is queued on a GPU, asked while calls may come in: never waits.
pub(crate) fn looks_idle(device: CUdevice) -> bool {
    has_ended(Some(device))
}

/// Asks about all contexts while nobody adds anything: they may use each other's memory. Or about those of one GPU, while
/// calls may come in.
fn has_ended(only: Option<CUdevice>) -> bool {
    let snapshot = REGISTRY.snapshot();
    let mut ended = true;
    for (context, known) in &snapshot.0 {
        // SAFETY: a context that the snapshot keeps alive.
        if unsafe { api::push(handle(*context)) } != CUDA_SUCCESS {
            // Broken or gone: nothing runs in it.
            continue;
        }
        if only.is_none_or(is_current) {
            ended &= context_has_ended(known, only.is_none());
        }
        let mut popped = ptr::null_mut();
        // SAFETY: an out-parameter.
        unsafe { api::pop(&mut popped) };
    }
    ended
}

/// Whether the current context is one of this GPU.
fn is_current(device: CUdevice) -> bool {
    let mut found = device;
    // SAFETY: an out-parameter. Where it is refused, the context is broken, and says so when it is asked.
    unsafe { api::current_device(&mut found) };
    found == device
}

fn context_has_ended(known: &Context, closed: bool) -> bool {
    let capturing = REGISTRY.is_capturing();
    let legacy = api::STREAM_LEGACY;
    if capturing && !can_be_asked(legacy) {
        // A blocking stream captures. Without the legacy stream nobody can tell about the per-thread ones.
        return false;
    }
    // SAFETY: the legacy stream, beside which no blocking stream captures.
    let mut ended = is_over(unsafe { api::stream_query(handle(legacy)) });
    for (stream, state) in &known.streams {
        let answer = if !capturing || can_be_asked(*stream) {
            // SAFETY: a stream that the snapshot keeps alive, and which does not capture.
            unsafe { api::stream_query(handle(*stream)) }
        } else {
            match state.before {
                Before::Nothing => CUDA_SUCCESS,
                // SAFETY: an event of ours.
                Before::Event(event) => unsafe { api::event_query(handle(event)) },
                // Not before the capture has ended.
                Before::Unknown => CUDA_ERROR_NOT_READY,
            }
        };
        ended &= is_over(answer);
    }
    if closed && ended && !capturing {
        // All known work has ended, so this returns at once; should there be a stream that we never heard
        // of, it is waited for.
        // SAFETY: the context is current.
        unsafe { api::synchronize() };
    }
    ended
}

/// An answer that is neither "done" nor "not yet" comes from a broken context, in which nothing runs.
fn is_over(answer: CUresult) -> bool {
    answer != CUDA_ERROR_NOT_READY
}

/// Whether a stream can be asked without disturbing a capture.
pub(crate) fn can_be_asked(stream: Handle) -> bool {
    let mut status = api::NOT_CAPTURING;
    // SAFETY: a stream of the current context, and an out-parameter. The question itself disturbs nothing.
    let answer = unsafe { api::is_capturing(handle(stream), &mut status) };
    answer == CUDA_SUCCESS && status == api::NOT_CAPTURING
}

/// An event in the current context.
pub(crate) fn new_event() -> Option<Handle> {
    let mut event = ptr::null_mut();
    // SAFETY: an out-parameter.
    let answer = unsafe { api::event_create(&mut event, api::EVENT_DISABLE_TIMING) };
    (answer == CUDA_SUCCESS).then(|| event.expose_provenance())
}

/// A handle as the driver takes it.
pub(crate) fn handle(number: Handle) -> CUstream {
    ptr::with_exposed_provenance_mut(number)
}
