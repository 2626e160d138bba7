//! A place behind queued work: it tells whether everything has ended that was queued when the mark was set.
//!
//! Most marks are one event: behind a stream's work, or behind all work of a context (`cuCtxRecordEvent`, which orders nothing, and also
//! covers streams that are not in the books). During a capture in the context there can be no such event, and older drivers have none:
//! then each stream has to be seen without work once.

use core::time::Duration;

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUresult};

use super::contexts::{self, About, Absent, Before, ContextId, ask, event, event_or_new, has_per_thread_streams};
use super::{aside, capture};
use crate::driver::api::{self, Handle, Stream};
use crate::gate::KeptOff;

/// The state of the work before a mark. Unknown work does not count as ended: only a context that is proven to be gone has no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Yes,
    NotYet,
    /// The context is being left, or something forbids the question.
    Unknown,
    /// The context is broken: nothing runs in it, and this is the driver's answer.
    Failed(CUresult),
}

/// The longest wait for an answer about streams.
const SOON: Duration = Duration::from_millis(20);

/// The errors about captures (`CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` to `…_WRONG_THREAD`): they tell nothing about work.
const OF_CAPTURES: core::ops::RangeInclusive<CUresult> = 900..=908;

impl Ended {
    fn of(answer: CUresult) -> Self {
        match answer {
            CUDA_SUCCESS => Self::Yes,
            CUDA_ERROR_NOT_READY => Self::NotYet,
            answer if OF_CAPTURES.contains(&answer) => Self::Unknown,
            answer => Self::Failed(answer),
        }
    }

    /// True if nothing of it can run.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Yes | Self::Failed(_))
    }
}

/// A place behind the work that is queued in a context, or in one of its streams.
#[derive(Debug)]
pub(crate) struct Mark {
    context: ContextId,
    waits: Waits,
}

#[derive(Debug)]
enum Waits {
    /// Waits for an event of ours.
    Event(Handle),
    /// Waits for an event that is not recorded yet: a call is inside that keeps others out of the driver, or the context is being left, or
    /// it has no event at the moment.
    Later,
    /// Waits until each of these was seen without work.
    Streams(Vec<Waiting>),
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// The legacy stream, which answers for all blocking streams and for all threads' own.
    Legacy,
    /// A stream, or the unfinished work of a destroyed one.
    Stream(Handle),
    /// All work from before the first of the captures that are under way, including that of destroyed streams.
    Context,
}

impl Mark {
    /// Sets a mark behind everything that is queued in a context.
    pub(crate) fn of_context(id: ContextId) -> Self {
        let set = contexts::within(id, || {
            capture::refresh(id);
            Self::by_event(id)
        });
        match set {
            Ok(Ok(mark)) => mark,
            Ok(Err(Unset::Never)) => Self::by_streams(id),
            _ => Self { context: id, waits: Waits::Later },
        }
    }

    /// Sets a mark behind everything that is queued in a stream; for the legacy stream, and for one that captures, in all of its context.
    pub(crate) fn of_stream(id: ContextId, stream: Stream) -> Self {
        let set = contexts::within(id, || Self::in_stream(id, stream));
        set.ok().flatten().unwrap_or_else(|| Self::of_context(id))
    }

    /// Sets a mark behind everything that is queued in the legacy stream of a context. That stream waits for the blocking streams' work,
    /// and they wait for it from then on: this serves a call of the program that orders its streams in this way. An error is the call's
    /// answer.
    pub(crate) fn in_legacy(id: ContextId) -> Result<Self, CUresult> {
        let record = move || {
            let Some(event) = event_or_new(id) else { return Ok(None) };
            // SAFETY: an event of the current context, for a call that the program makes in its legacy stream.
            let answer = unsafe { api::event_record_in_legacy(event) };
            let mark = Self::with_event(id, event, answer == CUDA_SUCCESS);
            if answer == CUDA_SUCCESS { Ok(mark) } else { Err(answer) }
        };
        // The mark has to be behind this thread's queued work, and the context does not end meanwhile; so nothing is asked.
        let set = aside::unless_stuck(id.handle, move || api::within(id.handle, record));
        Ok(set.flatten().transpose()?.flatten().unwrap_or_else(|| Self::of_context(id)))
    }

    /// Sets a mark by an event in the stream. The context is current.
    fn in_stream(id: ContextId, stream: Stream) -> Option<Self> {
        let ordered = stream.ordered()?;
        let event = event(id)?;
        let set = not_capturing(id, Some(stream), || {
            // SAFETY: a stream that the program uses, of the current context, and an event of it.
            !unsafe { api::is_capturing(stream) } && unsafe { api::event_record(event, ordered) } == CUDA_SUCCESS
        });
        Self::with_event(id, event, set == Ok(true))
    }

    /// Sets a mark behind a thread's launches in a stream of the current context, where that takes no more than an event.
    pub(crate) fn of_launches(id: ContextId, stream: Stream) -> Option<Self> {
        if stream.ordered().is_some() { Self::in_stream(id, stream) } else { Self::by_event(id).ok() }
    }

    /// Sets a mark by an event behind all work. The context is current.
    fn by_event(id: ContextId) -> Result<Self, Unset> {
        if !api::has_context_events() {
            return Err(Unset::Never);
        }
        let event = event(id).ok_or(Unset::Later)?;
        let set = not_capturing(id, None, || {
            // SAFETY: the current context and an event of it; nothing in it captures.
            unsafe { api::context_record(api::handle(id.handle), api::handle(event)) == CUDA_SUCCESS }
        });
        Self::with_event(id, event, set == Ok(true)).ok_or(set.err().unwrap_or(Unset::Never))
    }

    fn with_event(id: ContextId, event: Handle, is_set: bool) -> Option<Self> {
        let mark = Self { context: id, waits: Waits::Event(event) };
        // A mark that is dropped gives its event back.
        is_set.then_some(mark)
    }

    fn by_streams(id: ContextId) -> Self {
        let mut contexts = contexts::lock();
        let Some(context) = contexts.get(id) else { return Self { context: id, waits: Waits::Later } };
        let orphans = context.orphans.iter().map(|orphan| &orphan.stream);
        let streams = context.streams.keys().chain(orphans).map(|stream| Waiting::Stream(*stream));
        let rest = [Waiting::Legacy].into_iter().chain(api::has_context_events().then_some(Waiting::Context));
        let waits = Waits::Streams(streams.chain(rest).collect());
        Self { context: id, waits }
    }

    /// Makes a stream of the current context wait for the mark, as a part of a call of the program in that stream. False if that cannot be
    /// done.
    pub(crate) fn keep_waiting(&self, stream: Stream) -> bool {
        let Waits::Event(event) = self.waits else { return false };
        // SAFETY: a stream of the program's call, and an event of ours, which is set.
        ask(self.context).is_ok_and(|_asking| unsafe { api::wait_event(stream, event) } == CUDA_SUCCESS)
    }

    /// Tells whether everything before the mark has ended. Does not wait.
    pub(crate) fn look(&mut self) -> Ended {
        let ended = match self.ask() {
            Ok(Ended::Failed(answer)) => match contexts::confirm(self.context) {
                Absent::Gone => Err(Absent::Gone),
                Absent::Unknown => Ok(Ended::Failed(answer)),
            },
            ended => ended,
        };
        match ended {
            Ok(ended) => ended,
            Err(Absent::Gone) => Ended::Yes,
            Err(Absent::Unknown) => Ended::Unknown,
        }
    }

    fn ask(&mut self) -> Result<Ended, Absent> {
        let id = self.context;
        if !matches!(self.waits, Waits::Event(_)) {
            // An event covers everything: it is set as soon as one can be.
            match contexts::within(id, || Self::by_event(id))? {
                Ok(mut set) => core::mem::swap(&mut self.waits, &mut set.waits),
                Err(Unset::Never) if matches!(self.waits, Waits::Later) => *self = Self::by_streams(id),
                Err(_) => {}
            }
        }
        match &mut self.waits {
            Waits::Later => Ok(Ended::NotYet),
            Waits::Event(event) => {
                let _asking = ask(id)?;
                // SAFETY: an event of a context that is not destroyed meanwhile, which need not be current.
                Ok(Ended::of(unsafe { api::event_query(api::handle(*event)) }))
            }
            Waits::Streams(streams) => {
                let mut asked = streams.clone();
                // A thread may be stuck with one of them, which then cannot be asked.
                let answer = aside::ask(SOON, move || (contexts::within(id, || look_at(id, &mut asked)), asked));
                let Some((ended, left)) = answer else { return Ok(Ended::NotYet) };
                *streams = left;
                ended
            }
        }
    }
}

/// Asks about the streams that have yet to be seen without work. Their context is current.
fn look_at(id: ContextId, streams: &mut Vec<Waiting>) -> Ended {
    let mut failed = None;
    streams.retain(|waiting| match waiting.look(id) {
        Ended::Yes => false,
        Ended::NotYet | Ended::Unknown => true,
        Ended::Failed(answer) => {
            failed = Some(answer);
            false
        }
    });
    match failed {
        Some(answer) => Ended::Failed(answer),
        None if streams.is_empty() => Ended::Yes,
        None => Ended::NotYet,
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Waits::Event(event) = self.waits
            && let Some(context) = contexts::lock().get(self.context)
        {
            context.give_event(event);
        }
    }
}

/// True if nothing is queued in a stream that the program has made; `None` if it cannot be asked, or is destroyed.
pub(crate) fn is_idle(id: ContextId, stream: Handle) -> Option<bool> {
    let look = || {
        let _asking = {
            let mut contexts = contexts::lock();
            contexts.get(id)?.streams.get(&stream).filter(|state| state.captured.is_none())?;
            contexts.begin_asking(id, About::Stream(stream))
        };
        // SAFETY: a stream of the current context which is not destroyed meanwhile, and does not begin to capture.
        Some(unsafe { api::stream_query(Stream::Created(stream)) } == CUDA_SUCCESS)
    };
    contexts::within(id, look).ok()?
}

/// The reason why a mark could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unset {
    /// It cannot be set by an event here and now, because of a capture or because of the driver.
    Never,
    /// It can be set soon: there is no event at the moment, or a call is inside that keeps others out of the driver.
    Later,
}

/// Runs a closure that must not meet a capture, in a stream or anywhere in the context. Does nothing if there is a capture.
fn not_capturing<T>(id: ContextId, stream: Option<Stream>, what: impl FnOnce() -> T) -> Result<T, Unset> {
    let _asking = {
        let mut contexts = contexts::lock();
        let context = contexts.get(id).ok_or(Unset::Never)?;
        let is_capturing = match stream {
            None | Some(Stream::Legacy) => context.is_capturing(),
            // A destroyed stream takes no event.
            Some(Stream::Created(stream)) => context.streams.get(&stream).is_none_or(|state| state.captured.is_some()),
            // The stream is this thread's own, in which only this thread can begin a capture.
            Some(Stream::PerThread) => false,
        };
        if is_capturing {
            return Err(Unset::Never);
        }
        let about = stream.and_then(capture::key).map_or(About::Whole, About::Stream);
        contexts.begin_asking(id, about)
    };
    // Work that is submitted here must not wait in the driver, because others wait for this thread meanwhile.
    let _kept_off = KeptOff::begin_if_none_is_inside(id.handle()).ok_or(Unset::Later)?;
    Ok(what())
}

/// Tells whether all unfinished work of destroyed streams with this handle has ended.
fn left_by(id: ContextId, stream: Handle) -> Ended {
    loop {
        let (event, _asking) = {
            let mut contexts = contexts::lock();
            let Some(context) = contexts.get(id) else { return Ended::Yes };
            let Some(orphan) = context.orphans.iter().find(|orphan| orphan.stream == stream) else { return Ended::Yes };
            let Some(event) = orphan.event else { return Ended::NotYet };
            (event, contexts.begin_asking(id, About::Life))
        };
        // SAFETY: an event of a context that is not destroyed meanwhile.
        let ended = Ended::of(unsafe { api::event_query(api::handle(event)) });
        if !matches!(ended, Ended::Yes) {
            return ended;
        }
        if let Some(context) = contexts::lock().get(id)
            && let Some(at) = context.orphans.iter().position(|orphan| orphan.event == Some(event))
        {
            context.orphans.swap_remove(at);
            context.give_event(event);
        }
    }
}

impl Waiting {
    /// Tells whether the stream, or the context, has been seen without work. The context is current.
    fn look(self, id: ContextId) -> Ended {
        if let Self::Stream(stream) = self {
            match left_by(id, stream) {
                Ended::Yes => {}
                ended => return ended,
            }
        }
        let (asking, captured, before_captures, is_beginning) = {
            let mut contexts = contexts::lock();
            let Some(context) = contexts.get(id) else { return Ended::Yes };
            let captured = match self {
                Self::Stream(stream) => match context.streams.get(&stream) {
                    Some(state) => state.captured,
                    // The stream was destroyed since.
                    None if context.orphans.iter().any(|orphan| orphan.stream == stream) => return Ended::NotYet,
                    None => return Ended::Yes,
                },
                _ => None,
            };
            let before_captures = context.before_captures.filter(|_| context.is_capturing());
            let is_beginning = context.is_beginning_to_capture(None);
            let about = if let Self::Stream(stream) = self { About::Stream(stream) } else { About::Whole };
            (contexts.begin_asking(id, about), captured, before_captures, is_beginning)
        };
        // SAFETY: events of a context that is not destroyed meanwhile.
        let event = |event| Ended::of(unsafe { api::event_query(api::handle(event)) });
        // SAFETY: as above, of streams; none of them begins to capture meanwhile.
        let stream_ended = |stream| Ended::of(unsafe { api::stream_query(stream) });
        let captures_in_the_way = || {
            // SAFETY: the legacy stream is always there.
            contexts::is_capturing() && unsafe { api::is_capturing(Stream::Legacy) }
        };
        let ended = match self {
            // Without such an event, the captures have to end first.
            Self::Context => before_captures.map_or(Ended::NotYet, event),
            // The question may soon be in the way of that capture.
            Self::Legacy if is_beginning => Ended::NotYet,
            Self::Legacy if captures_in_the_way() => match before_captures {
                // Nothing is queued in it while a blocking stream captures; a thread's own stream may have work.
                Some(before) if !has_per_thread_streams() => event(before),
                _ => Ended::NotYet,
            },
            Self::Legacy => stream_ended(Stream::Legacy),
            Self::Stream(key) => match (captured, capture::stream_of(key)) {
                (None, Some(stream)) => stream_ended(stream),
                // The legacy stream answers for other threads' own streams.
                (None, None) => Ended::Yes,
                (Some(captured), stream) => {
                    // SAFETY: a stream that is not destroyed meanwhile.
                    let captures = captured.is_beginning || stream.is_none_or(|s| unsafe { api::is_capturing(s) });
                    match (captures, captured.before, stream) {
                        (false, _, Some(stream)) => stream_ended(stream),
                        (_, Before::Nothing, _) => Ended::Yes,
                        (_, Before::Event(before), _) => event(before),
                        (_, Before::Context, _) => before_captures.map_or(Ended::NotYet, event),
                        // The capture has to end first.
                        _ => Ended::NotYet,
                    }
                }
            },
        };
        drop(asking);
        ended
    }
}
