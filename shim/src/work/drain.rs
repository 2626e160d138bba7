//! Whether everything that the program has queued has ended.
//!
//! Asked with the gate closed and nobody inside, so nothing is added meanwhile. Only by questions, never by
//! waiting inside the driver: work may wait for something that the program has yet to do, and then the gate
//! has to be opened again. And never by anything that would disturb a capture: a stream that captures
//! has an event behind the work that it had before, which is asked instead.
//!
//! An event in the legacy default stream comes after all earlier work in the context's other streams, apart
//! from those made with `CU_STREAM_NON_BLOCKING`; those are asked one by one.

use core::ptr;
use core::time::Duration;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUresult, CUstream};

use super::registry::{Context, Handle, REGISTRY};
use crate::real;

/// How often it is asked again, at first and later.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// Waits until all work has ended; gives up at the deadline. Without one, looks once.
pub(crate) fn drain(deadline: Option<Instant>) -> bool {
    let mut pause = FIRST_PAUSE;
    let mut marked = false;
    loop {
        if has_ended(&mut marked) {
            return true;
        }
        if deadline.is_none_or(|deadline| Instant::now() > deadline) {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks about all contexts. `marked` says whether their legacy streams have their marks already: nothing is
/// queued after them.
fn has_ended(marked: &mut bool) -> bool {
    let snapshot = REGISTRY.snapshot();
    let mut ended = true;
    for (context, known) in &snapshot.0 {
        // SAFETY: a context that the snapshot keeps alive.
        if unsafe { real::push(handle(*context)) } != CUDA_SUCCESS {
            // Broken or gone: nothing runs in it.
            continue;
        }
        ended &= context_has_ended(*context, known, *marked);
        let mut popped = ptr::null_mut();
        // SAFETY: an out-parameter.
        unsafe { real::pop(&mut popped) };
    }
    *marked = true;
    ended
}

fn context_has_ended(context: Handle, known: &Context, marked: bool) -> bool {
    let capturing = REGISTRY.is_capturing();
    let legacy = real::STREAM_LEGACY;
    let mut ended = true;
    let Some(mark) = known.mark.or_else(|| new_mark(context)) else { return false };
    let mut legacy_can_be_asked = !capturing || can_be_asked(legacy);
    if legacy_can_be_asked && !marked {
        // SAFETY: an event of ours in this context, and the legacy stream, which does not capture.
        legacy_can_be_asked = unsafe { real::event_record(handle(mark), handle(legacy)) } == CUDA_SUCCESS;
    }
    if legacy_can_be_asked {
        // SAFETY: as above.
        ended &= is_over(unsafe { real::event_query(handle(mark)) });
    }
    for (stream, state) in &known.streams {
        if *stream == legacy && legacy_can_be_asked {
            continue;
        }
        let answer = if !capturing || can_be_asked(*stream) {
            // SAFETY: a stream that the snapshot keeps alive, and which does not capture.
            unsafe { real::stream_query(handle(*stream)) }
        } else if let Some(before) = state.before {
            // SAFETY: an event of ours.
            unsafe { real::event_query(handle(before)) }
        } else {
            // Nothing was queued on it before it began to capture: otherwise it would have an event.
            CUDA_SUCCESS
        };
        ended &= is_over(answer);
    }
    if ended && !capturing {
        // All known work has ended, so this returns at once; should there be a stream that we never heard
        // of, it is waited for.
        // SAFETY: the context is current.
        unsafe { real::synchronize() };
    }
    ended
}

/// An answer that is neither "done" nor "not yet" comes from a broken context, in which nothing runs.
fn is_over(answer: CUresult) -> bool {
    answer != CUDA_ERROR_NOT_READY
}

/// Whether a stream can be asked without disturbing a capture.
pub(super) fn can_be_asked(stream: Handle) -> bool {
    let mut status = real::NOT_CAPTURING;
    // SAFETY: a stream of the current context, and an out-parameter. The question itself disturbs nothing.
    let answer = unsafe { real::is_capturing(handle(stream), &mut status) };
    answer == CUDA_SUCCESS && status == real::NOT_CAPTURING
}

fn new_mark(context: Handle) -> Option<Handle> {
    let event = new_event()?;
    REGISTRY.set_mark(context, event);
    Some(event)
}

/// An event in the current context.
pub(super) fn new_event() -> Option<Handle> {
    let mut event = ptr::null_mut();
    // SAFETY: an out-parameter.
    let answer = unsafe { real::event_create(&mut event, real::EVENT_DISABLE_TIMING) };
    (answer == CUDA_SUCCESS).then(|| event.expose_provenance())
}

/// A handle as the driver takes it.
pub(super) fn handle(number: Handle) -> CUstream {
    ptr::with_exposed_provenance_mut(number)
}
