//! Stream capture: calls become nodes of a graph instead of work.
//!
//! A capture begins in one stream and spreads to others that wait for an event recorded inside it. While
//! one goes on, calls that the capture cannot hold are refused, and make it invalid, as the rules of its
//! mode and of the calling thread say.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use super::recapture::{Changed, Recapture};
use super::{Graph, Work};
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::Op;
use crate::exec::stream::{Kind, Stream};
use crate::exec::tail::Tail;
use crate::state;

/// `CUstreamCaptureMode`: the threads that may make unsafe calls meanwhile.
pub(crate) const MODE_GLOBAL: u32 = 0;
pub(crate) const MODE_THREAD_LOCAL: u32 = 1;
pub(crate) const MODE_RELAXED: u32 = 2;

/// One capture.
pub(crate) struct Capture {
    pub(crate) id: u64,
    pub(crate) graph: Arc<Graph>,
    /// If the graph has its nodes already.
    again: Option<Recapture>,
    mode: u32,
    thread: ThreadId,
    origin: u64,
    invalid: AtomicBool,
    /// Every stream that takes part, the origin too.
    members: Mutex<Vec<Weak<Stream>>>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static ACTIVE: Mutex<Vec<Weak<Capture>>> = Mutex::new(Vec::new());

thread_local! {
    static THREAD_MODE: Cell<u32> = const { Cell::new(MODE_GLOBAL) };
}

/// Sets the calling thread's mode; the one before.
pub(crate) fn exchange_mode(mode: u32) -> Outcome<u32> {
    if mode > MODE_RELAXED {
        return Err(Status::INVALID_VALUE);
    }
    Ok(THREAD_MODE.replace(mode))
}

/// Begins a capture, into a new graph or after nodes of a given one.
pub(crate) fn begin(stream: &Arc<Stream>, mode: u32, graph: Arc<Graph>, after: Vec<usize>) -> Outcome {
    start(stream, mode, graph, after, None)
}

/// Begins a capture of what a graph holds already: its nodes get what is captured now, in their order.
pub(crate) fn begin_again(stream: &Arc<Stream>, mode: u32, graph: Arc<Graph>, changed: Changed) -> Outcome {
    let again = Recapture::new(&graph, changed);
    start(stream, mode, graph.clone(), Vec::new(), Some(again))?;
    graph.objects().clear();
    Ok(())
}

fn start(stream: &Arc<Stream>, mode: u32, graph: Arc<Graph>, after: Vec<usize>, again: Option<Recapture>) -> Outcome {
    if stream.kind == Kind::Legacy {
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    }
    if mode > MODE_RELAXED {
        return Err(Status::INVALID_VALUE);
    }
    let mut tail = lock(stream);
    if tail.is_some() {
        return Err(Status::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        again,
        mode,
        thread: std::thread::current().id(),
        origin: stream.id,
        invalid: AtomicBool::new(false),
        members: Mutex::new(vec![Arc::downgrade(stream)]),
    });
    active().push(Arc::downgrade(&capture));
    *tail = Some(Tail { capture, after });
    Ok(())
}

/// Ends the capture that began in this stream; its graph.
pub(crate) fn end(stream: &Arc<Stream>) -> Outcome<Arc<Graph>> {
    let tail = lock(stream).clone().ok_or(Status::ILLEGAL_STATE)?;
    let capture = Capture::of(&tail);
    if capture.origin != stream.id {
        capture.invalidate();
        return Err(Status::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != MODE_RELAXED && capture.thread != std::thread::current().id() {
        return Err(Status::STREAM_CAPTURE_WRONG_THREAD);
    }
    let mut joined = true;
    let members = std::mem::take(&mut *capture.members());
    for member in members {
        let Some(member) = member.upgrade() else { continue };
        let Some(its) = lock(&member).take() else { continue };
        joined &= capture.graph.all_lead_to(&its.after, &tail.after);
    }
    active().retain(|other| other.upgrade().is_some_and(|other| other.id != capture.id));
    if capture.is_invalid() {
        return Err(Status::STREAM_CAPTURE_INVALIDATED);
    }
    if capture.again.as_ref().is_some_and(|again| !again.is_over()) {
        return Err(Status::GRAPH_RECAPTURE_FAILURE);
    }
    if joined { Ok(capture.graph.clone()) } else { Err(Status::STREAM_CAPTURE_UNJOINED) }
}

/// Adds an operation to the graph that the stream is captured into. Returns true if it is captured.
pub(crate) fn append(stream: &Arc<Stream>, op: &Op) -> Outcome<bool> {
    let Some(tail) = lock(stream).clone() else { return Ok(false) };
    let capture = Capture::of(&tail);
    let mut after = tail.after.clone();
    capture.check()?;
    // A stream whose context is gone takes nothing any more.
    Context::of(stream)?;
    let graphs = &state::driver()?.graphs;
    let ops: &[Op] = match op {
        Op::Batch(ops) => ops,
        Op::Callback(_) => {
            capture.invalidate();
            return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
        }
        op => std::slice::from_ref(op),
    };
    for op in ops {
        let work = Work::Op(op.clone());
        let node = match &capture.again {
            None => capture.graph.add(graphs, work, after)?,
            // Not under the stream's lock: the program may be asked.
            Some(again) => again.next(&capture.graph, work, &after).inspect_err(|_| capture.invalidate())?,
        };
        after = vec![node];
    }
    if let Some(tail) = &mut *lock(stream) {
        tail.after = after;
    }
    Ok(true)
}

/// Where the stream is in its capture, if it is captured.
pub(crate) fn tail(stream: &Stream) -> Outcome<Option<Tail>> {
    let tail = lock(stream);
    if let Some(tail) = &*tail {
        Capture::of(tail).check()?;
    }
    Ok(tail.clone())
}

/// The stream's capture, valid or not, without leaving the lock: for what is shown to the program.
pub(crate) fn lock(stream: &Stream) -> MutexGuard<'_, Option<Tail>> {
    stream.capture.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Brings a stream into a capture, or two of its branches together.
pub(crate) fn join(stream: &Arc<Stream>, other: &Tail) -> Outcome {
    let capture = Capture::of(other);
    capture.check()?;
    if stream.kind == Kind::Legacy {
        capture.invalidate();
        return Err(Status::STREAM_CAPTURE_IMPLICIT);
    }
    let mut tail = lock(stream);
    match tail.as_mut() {
        None => {
            // A capture that ended leaves events behind that cannot be waited for any more.
            if !active().iter().any(|active| std::ptr::eq(active.as_ptr(), capture)) {
                return Err(Status::CAPTURED_EVENT);
            }
            capture.members().push(Arc::downgrade(stream));
            *tail = Some(other.clone());
        }
        Some(tail) if Capture::of(tail).id == capture.id => {
            for node in &other.after {
                if !tail.after.contains(node) {
                    tail.after.push(*node);
                }
            }
        }
        Some(tail) => {
            Capture::of(tail).invalidate();
            capture.invalidate();
            return Err(Status::STREAM_CAPTURE_MERGE);
        }
    }
    Ok(())
}

/// Makes the stream's capture invalid, if there is one.
pub(crate) fn invalidate(stream: &Stream) {
    if let Some(tail) = &*lock(stream) {
        Capture::of(tail).invalidate();
    }
}

/// For calls that a captured stream cannot take, such as waiting for it.
pub(crate) fn forbid(stream: &Stream) -> Outcome {
    let tail = lock(stream);
    let Some(tail) = &*tail else { return Ok(()) };
    Capture::of(tail).check()?;
    Capture::of(tail).invalidate();
    Err(Status::STREAM_CAPTURE_UNSUPPORTED)
}

/// For work in the legacy stream: it would wait for blocking streams, so none may be in a capture.
pub(crate) fn check_legacy(stream: &Stream) -> Outcome {
    let in_the_way = behind_legacy(stream)?;
    in_the_way.iter().for_each(|capture| capture.invalidate());
    if in_the_way.is_empty() { Ok(()) } else { Err(Status::STREAM_CAPTURE_IMPLICIT) }
}

/// For asking about the legacy stream: refused as work in it is, but no capture suffers.
pub(crate) fn check_legacy_is_free(stream: &Stream) -> Outcome {
    if behind_legacy(stream)?.is_empty() { Ok(()) } else { Err(Status::STREAM_CAPTURE_IMPLICIT) }
}

/// The captures of blocking streams, if this is the legacy stream.
fn behind_legacy(stream: &Stream) -> Outcome<Vec<Arc<Capture>>> {
    if stream.kind != Kind::Legacy || active().is_empty() {
        return Ok(Vec::new());
    }
    let context = Context::of(stream)?;
    let streams = context.streams();
    let blocking = streams.iter().filter(|other| other.is_blocking());
    Ok(blocking
        .filter_map(|other| lock(other).as_ref().and_then(|tail| tail.capture.clone().downcast().ok()))
        .collect())
}

/// For calls that may wait for the device in ways a capture cannot hold (allocating, freeing, waiting for
/// streams and events and asking whether they are done): refused if a capture is going on that the calling
/// thread's mode makes it mind.
pub(crate) fn forbid_unsafe_call() -> Outcome {
    let mode = THREAD_MODE.get();
    if mode == MODE_RELAXED {
        return Ok(());
    }
    let here = std::thread::current().id();
    let mut met = false;
    for capture in active().iter().filter_map(Weak::upgrade) {
        let minds = match capture.mode {
            MODE_RELAXED => false,
            MODE_THREAD_LOCAL => capture.thread == here,
            _ => mode == MODE_GLOBAL || capture.thread == here,
        };
        if minds {
            capture.invalidate();
            met = true;
        }
    }
    if met { Err(Status::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// For calls about all of a context: refused while one of its streams is captured, wherever that capture began.
pub(crate) fn forbid_in_context(context: &Context) -> Outcome {
    let mut met = false;
    for capture in active().iter().filter_map(Weak::upgrade) {
        let members: Vec<_> = capture.members().iter().filter_map(Weak::upgrade).collect();
        if members.iter().any(|member| member.context_id == context.id) {
            capture.invalidate();
            met = true;
        }
    }
    if met { Err(Status::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

impl Capture {
    /// The capture that a point is in.
    pub(crate) fn of(tail: &Tail) -> &Capture {
        tail.capture.downcast_ref().expect("points are made of captures")
    }

    /// True if a call made it invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Acquire)
    }

    pub(crate) fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    pub(crate) fn check(&self) -> Outcome {
        if self.is_invalid() { Err(Status::STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Weak<Stream>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn active() -> MutexGuard<'static, Vec<Weak<Capture>>> {
    let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    active.retain(|capture| capture.strong_count() > 0);
    active
}
