//! Captures: a capturing stream cannot be asked whether its work has ended, because the question would end the capture. So an event is put
//! behind its earlier work, if that adds no order to the program's.
//!
//! The legacy stream cannot be asked either while a blocking stream captures. Nothing can be queued in it then, and its earlier work is
//! behind an event of the whole context, where the driver supports such events.

use std::sync::atomic::{AtomicUsize, Ordering};

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUresult};

use super::contexts::{self, About, Before, CAPTURING, Captured, ContextId, event_or_new};
use crate::driver::api::{self, Handle, Stream};
use crate::gate::KeptOff;

/// A stream that is about to capture, if the driver lets it.
#[must_use = "says how it went"]
pub(crate) struct Beginning(Option<Entered>);

struct Entered {
    context: ContextId,
    key: Handle,
    /// The stream's state before this call: it may capture already.
    was: Option<Captured>,
}

/// Enters a stream that is about to capture: from here on, no thread asks about it. The stream may belong to another context than the
/// current one.
pub(crate) fn begin(stream: Stream) -> Beginning {
    enter_and(stream, |entered| {
        set_context_event(entered);
        before(entered, stream).or_else(|| set_event(entered, stream))
    })
}

/// Enters a stream that becomes part of a capture by waiting for an event. It may have work that ends only after a later call of the
/// program; such a call never waits in the driver, and does not wait here.
pub(crate) fn join(stream: Stream) -> Beginning {
    enter_and(stream, |entered| before(entered, stream))
}

fn enter_and(stream: Stream, look: impl FnOnce(&Entered) -> Option<Before>) -> Beginning {
    let Some(entered) = enter(stream) else { return Beginning(None) };
    contexts::quiesce_stream(entered.context, entered.key);
    // Another context may be capturing in a way that forbids this thread to ask.
    let _relaxed = api::Relaxed::enter();
    // No other thread puts an event there now, and the capture has not begun.
    let found = api::within(entered.context.handle, || look(&entered)).flatten();
    if let Some(found) = found
        && let Some(context) = contexts::lock().get(entered.context)
        && let Some(captured) = context.streams.get_mut(&entered.key).and_then(|state| state.captured.as_mut())
    {
        captured.before = found;
    }
    Beginning(Some(entered))
}

fn enter(stream: Stream) -> Option<Entered> {
    let key = key(stream)?;
    let here = api::current_context();
    let mut contexts = contexts::lock();
    // A thread has its own default stream in each context, all with one key.
    let is_created = matches!(stream, Stream::Created(_));
    let of_stream = is_created.then(|| contexts.of_stream(key).map(|(id, _)| id)).flatten();
    let id = of_stream.or_else(|| contexts.by_handle(here).map(|(id, _)| id))?;
    let state = contexts.get(id)?.streams.entry(key).or_default();
    let was = state.captured;
    let before = was.map_or(Before::Unknown, |was| was.before);
    state.captured = Some(Captured { before, is_beginning: true });
    if was.is_none() {
        CAPTURING.fetch_add(1, Ordering::AcqRel);
    }
    Some(Entered { context: id, key, was })
}

/// A number that no handle has, for each thread's own default stream.
struct OwnKey(Handle);

/// A bit that no handle has: handles are addresses.
const IS_PER_THREAD: Handle = 1 << 63;
static KEYS: AtomicUsize = AtomicUsize::new(IS_PER_THREAD);

thread_local! {
    static OWN_KEY: OwnKey = OwnKey(KEYS.fetch_add(1, Ordering::Relaxed));
}

impl Drop for OwnKey {
    fn drop(&mut self) {
        // The key leaves the books of every context.
        while contexts::remove_from_books(self.0, |_| false).is_some() {}
    }
}

/// The key of a stream in the books. A thread's own default stream belongs to that thread alone, and has no handle of its own.
pub(crate) fn key(stream: Stream) -> Option<Handle> {
    match stream {
        // The legacy stream cannot capture.
        Stream::Legacy => None,
        Stream::Created(stream) => Some(stream),
        Stream::PerThread => OWN_KEY.try_with(|key| key.0).ok(),
    }
}

/// The stream that has this key, if this thread can name it.
pub(super) fn stream_of(stream: Handle) -> Option<Stream> {
    match stream & IS_PER_THREAD {
        0 => Some(Stream::Created(stream)),
        _ => (key(Stream::PerThread) == Some(stream)).then_some(Stream::PerThread),
    }
}

/// Finds the end of the work that a stream had before its capture, as far as a question can tell that. The context is current.
fn before(entered: &Entered, stream: Stream) -> Option<Before> {
    // SAFETY: a stream that the program is about to use, of this context.
    if unsafe { api::is_capturing(stream) } {
        return entered.was.map(|was| was.before);
    }
    // SAFETY: as above, and it does not capture.
    if unsafe { api::stream_query(stream) } == CUDA_SUCCESS {
        return Some(Before::Nothing);
    }
    let mut contexts = contexts::lock();
    let context = contexts.get(entered.context)?;
    // Only the first capture of a context comes after all earlier work.
    (is_first(context) && context.before_captures.is_some()).then_some(Before::Context)
}

/// True if no more than one stream of a context captures or is about to.
fn is_first(context: &contexts::Context) -> bool {
    context.streams.values().filter(|state| state.captured.is_some()).count() == 1
}

/// Puts an event behind all work of a context, if this is its first capture. The context is current.
fn set_context_event(entered: &Entered) {
    let id = entered.context;
    if !api::has_context_events() {
        return;
    }
    // Another thread that begins a capture in this context waits until this is done.
    let (_asking, kept) = {
        let mut contexts = contexts::lock();
        let Some(context) = contexts.get(id).filter(|context| is_first(context)) else { return };
        let kept = context.before_captures.take();
        (contexts.begin_asking(id, About::Whole), kept)
    };
    let Some(event) = kept.or_else(|| event_or_new(id)) else { return };
    let set = KeptOff::begin_if_none_is_inside(id.handle()).is_some_and(|_kept_off| {
        // SAFETY: the current context, an event of it, and nothing in it captures.
        unsafe { api::context_record(api::handle(id.handle), api::handle(event)) == CUDA_SUCCESS }
    });
    let mut contexts = contexts::lock();
    let Some(context) = contexts.get(id) else { return };
    if set { context.before_captures = Some(event) } else { context.give_event(event) }
}

/// Puts an event behind a stream's work, unless that would have it wait for other streams. The context is current.
fn set_event(entered: &Entered, stream: Stream) -> Option<Before> {
    let id = entered.context;
    let is_non_blocking = contexts::lock().get(id)?.streams.get(&entered.key)?.is_non_blocking;
    if !is_non_blocking && !is_legacy_idle(entered) {
        return None;
    }
    let ordered = stream.ordered()?;
    let (event, is_new) = match entered.was {
        Some(Captured { before: Before::Event(event), .. }) => (event, false),
        _ => (event_or_new(id)?, true),
    };
    let set = KeptOff::begin_if_none_is_inside(id.handle()).is_some_and(|_kept_off| {
        // SAFETY: a stream that the program is about to use, and an event, both of the current context.
        unsafe { api::event_record(event, ordered) == CUDA_SUCCESS }
    });
    if set {
        return Some(Before::Event(event));
    }
    if is_new {
        contexts::lock().get(id)?.give_event(event);
    }
    None
}

/// True if the legacy stream is known to have no work, so that a blocking stream does not wait for it. The context is current.
fn is_legacy_idle(entered: &Entered) -> bool {
    let _asking = {
        let mut contexts = contexts::lock();
        let other_begins = |context: &mut contexts::Context| context.is_beginning_to_capture(Some(entered.key));
        if contexts.get(entered.context).is_none_or(other_begins) {
            return false;
        }
        contexts.begin_asking(entered.context, About::Whole)
    };
    // SAFETY: the legacy stream is always there, and no blocking stream begins to capture meanwhile.
    unsafe { !api::is_capturing(Stream::Legacy) && api::stream_query(Stream::Legacy) == CUDA_SUCCESS }
}

impl Beginning {
    /// Records the driver's answer: the stream captures now, or it is as it was before.
    pub(crate) fn done(self, begun: bool) {
        let Some(entered) = self.0 else { return };
        let mut contexts = contexts::lock();
        let Some(context) = contexts.get(entered.context) else { return };
        let Some(state) = context.streams.get_mut(&entered.key) else { return };
        if let Some(captured) = &mut state.captured {
            captured.is_beginning = false;
        }
        if !begun
            && entered.was.is_none()
            && let Some(captured) = state.captured.take()
        {
            captured.give_back(context);
        }
    }
}

/// Removes the streams of a context that have ended their captures from the books. The context is current.
pub(super) fn refresh(id: ContextId) {
    if !contexts::is_capturing() {
        return;
    }
    let (asking, entered) = {
        let mut contexts = contexts::lock();
        let Some(context) = contexts.get(id) else { return };
        let settled =
            |state: &&mut super::contexts::StreamState| state.captured.is_some_and(|captured| !captured.is_beginning);
        let entered: Vec<Handle> =
            context.streams.iter_mut().filter(|(_, state)| settled(state)).map(|(key, _)| *key).collect();
        (contexts.begin_asking(id, About::Whole), entered)
    };
    for key in entered {
        let Some(stream) = stream_of(key) else { continue };
        // SAFETY: a stream that is not destroyed while we ask.
        if unsafe { api::is_capturing(stream) } {
            continue;
        }
        let mut contexts = contexts::lock();
        let Some(context) = contexts.get(id) else { break };
        if let Some(state) = context.streams.get_mut(&key)
            && state.captured.is_some_and(|captured| !captured.is_beginning)
            && let Some(captured) = state.captured.take()
        {
            captured.give_back(context);
        }
    }
    drop(asking);
}

/// True if a stream of the program captures. If the books say so, the driver is asked again.
pub(crate) fn is_any() -> bool {
    if contexts::is_capturing() {
        for id in contexts::all() {
            // In a context that is being left, the streams' states stay as they were.
            let _ = contexts::within(id, || refresh(id));
        }
    }
    contexts::is_capturing()
}

/// True if this stream captures.
pub(crate) fn captures(stream: Stream) -> bool {
    // SAFETY: the stream of a call that the program makes.
    contexts::is_capturing() && stream != Stream::Legacy && unsafe { api::is_capturing(stream) }
}

/// Makes a call that a capture forbids as it forbids calls that allocate memory, and that has no other effect (`cuEventQuery`; CUDA Driver
/// API, `cuThreadExchangeStreamCaptureMode`). As after a call that allocates, the driver ends the capture that forbids this one.
pub(crate) fn ask_as_unsafe_call() -> CUresult {
    let unset = || contexts::lock().by_handle(api::current_context())?.1.unset;
    let Some(event) = unset() else { return CUDA_SUCCESS };
    // SAFETY: an event of the current context, which nothing has to happen before.
    let answer = unsafe { api::event_query(api::handle(event)) };
    if answer == CUDA_ERROR_NOT_READY { CUDA_SUCCESS } else { answer }
}
