//! Whether a stream has nothing to do before what is put into it next: then that is done at once, with what the host has written so far.
//!
//! That nothing is known of is no answer: such a stream counts as busy.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::time::Instant;

use baton_contract::cuda::CUDA_SUCCESS;

use super::contexts::{self, About, Asking};
use super::{aside, capture};
use crate::driver::api::{self, Stream};

/// Since all work had ended, something was queued that may not come to its end before the host does something.
static MAY_WAIT: AtomicBool = AtomicBool::new(false);

/// For how long a stream is asked again that may be about to end: that costs less than to wait for memory. What it has may be a mark of
/// ours, behind which a program that has ended its work was paused.
const ABOUT_TO_END: Duration = Duration::from_millis(1);

/// Something is about to be queued that may wait for the host, or for other work that does: a kernel, a wait, a function of the host's.
pub(crate) fn note_waiting() {
    if !MAY_WAIT.load(Ordering::Relaxed) {
        MAY_WAIT.store(true, Ordering::Release);
    }
}

/// The gate is closed and nobody inside, and it is about to be asked whether all work has ended.
pub(crate) fn about_to_drain() {
    MAY_WAIT.store(false, Ordering::Release);
}

/// Whether nothing in a stream, or in those that it waits for, can wait for the host. A call of the program is about to put something there.
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

/// Whether a stream has nothing to do just now, nor those that it waits for.
fn has_ended(stream: Stream) -> bool {
    // Another context may be capturing, in a way that forbids this thread to ask.
    let _relaxed = api::Relaxed::enter();
    // SAFETY: the stream of the program's call.
    if !unsafe { api::is_of_current_context(stream) } {
        return false;
    }
    let Some((asking, before)) = waited_for_by(stream) else { return false };
    // SAFETY: streams of the context that is current when they are asked, which are not destroyed meanwhile; none of them captures, or
    // begins to.
    let is_over = |stream: Stream| unsafe { api::stream_query(stream) } == CUDA_SUCCESS;
    // A thread's own stream only that thread can ask; it is about to use it.
    let (own, others): (Vec<_>, Vec<_>) = before.into_iter().partition(|stream| *stream == Stream::PerThread);
    let context = api::current_context();
    own.into_iter().all(is_over)
        && aside::unless_stuck(context, move || {
            let _asking = asking;
            api::within(context, || others.into_iter().all(is_over)) == Some(true)
        }) == Some(true)
}

/// The streams of the current context whose work comes before what is put into a stream of it next, that one among them; and what keeps
/// them as they are. None if something captures, or if the stream is not known.
fn waited_for_by(stream: Stream) -> Option<(Asking, Vec<Stream>)> {
    let mut contexts = contexts::lock();
    let (id, _) = contexts.by_handle(api::current_context())?;
    let context = contexts.live(id).ok()?;
    if context.is_capturing() {
        return None;
    }
    let blocking = context.streams.iter().filter(|(_, state)| !state.is_non_blocking);
    let waited_for = match stream {
        // It answers for threads' own.
        Stream::Legacy => blocking.filter_map(|(key, _)| capture::stream_of(*key)).chain([Stream::Legacy]).collect(),
        Stream::PerThread => vec![Stream::Legacy, stream],
        Stream::Created(handle) => match context.streams.get(&handle)?.is_non_blocking {
            true => vec![stream],
            false => vec![Stream::Legacy, stream],
        },
    };
    Some((contexts.begin_asking(id, About::Whole), waited_for))
}
