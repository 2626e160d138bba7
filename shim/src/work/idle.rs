//! Tells whether a stream is idle before its next work is queued: then that work runs at once, with what the host has written so far.
//!
//! A stream whose state is unknown counts as busy.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::time::Instant;

use baton_contract::cuda::CUDA_SUCCESS;

use super::contexts::{self, About, Asking};
use super::{aside, capture};
use crate::driver::api::{self, Stream};

/// Set when work was queued, after all earlier work had ended, that may not end before the host does something.
static MAY_WAIT: AtomicBool = AtomicBool::new(false);

/// A stream that may be about to end is asked again for this long, which costs less than waiting for memory. Its work may be a mark of
/// ours, behind which a program that had ended its work was paused.
const ABOUT_TO_END: Duration = Duration::from_millis(1);

/// Notes that work is about to be queued that may wait for the host, or for other work that does: a kernel, a wait, a function of the
/// host's.
pub(crate) fn note_waiting() {
    if !MAY_WAIT.load(Ordering::Relaxed) {
        MAY_WAIT.store(true, Ordering::Release);
    }
}

/// Called before all work is drained. The gate is closed and no thread is inside.
pub(crate) fn about_to_drain() {
    MAY_WAIT.store(false, Ordering::Release);
}

/// True if nothing in a stream, or in those that it waits for, can wait for the host. A call of the program is about to queue work in it.
#[cold]
pub(crate) fn is_idle(stream: Stream) -> bool {
    if !MAY_WAIT.load(Ordering::Acquire) {
        return true;
    }
    let start = Instant::now();
    loop {
        let is_idle = has_ended(stream);
        if is_idle || start.elapsed() > ABOUT_TO_END {
            return is_idle;
        }
        std::thread::yield_now();
    }
}

/// True if a stream is idle at the moment, and so are those that it waits for.
fn has_ended(stream: Stream) -> bool {
    // Another context may be capturing in a way that forbids this thread to ask.
    let _relaxed = api::Relaxed::enter();
    // SAFETY: the stream of the program's call.
    if !unsafe { api::is_of_current_context(stream) } {
        return false;
    }
    let Some((asking, before)) = waited_for_by(stream) else { return false };
    // SAFETY: streams of the context that is current when they are asked, which are not destroyed meanwhile; none of them captures, or
    // begins to.
    let is_over = |stream: Stream| unsafe { api::stream_query(stream) } == CUDA_SUCCESS;
    // Only the thread itself can ask about its own stream; it is about to use it.
    let (own, others): (Vec<_>, Vec<_>) = before.into_iter().partition(|stream| *stream == Stream::PerThread);
    let context = api::current_context();
    own.into_iter().all(is_over)
        && aside::unless_stuck(context, move || {
            let _asking = asking;
            api::within(context, || others.into_iter().all(is_over)) == Some(true)
        }) == Some(true)
}

/// The streams of the current context, `stream` included, whose work precedes the next work in `stream`; and a guard that keeps them as
/// they are. `None` if a stream captures, or if `stream` is not known.
fn waited_for_by(stream: Stream) -> Option<(Asking, Vec<Stream>)> {
    let mut contexts = contexts::lock();
    let (id, _) = contexts.by_handle(api::current_context())?;
    let context = contexts.live(id).ok()?;
    if context.is_capturing() {
        return None;
    }
    let blocking = context.streams.iter().filter(|(_, state)| !state.is_non_blocking);
    let waited_for = match stream {
        // The legacy stream answers for threads' own streams.
        Stream::Legacy => blocking.filter_map(|(key, _)| capture::stream_of(*key)).chain([Stream::Legacy]).collect(),
        Stream::PerThread => vec![Stream::Legacy, stream],
        Stream::Created(handle) => match context.streams.get(&handle)?.is_non_blocking {
            true => vec![stream],
            false => vec![Stream::Legacy, stream],
        },
    };
    Some((contexts.begin_asking(id, About::Whole), waited_for))
}
