//! From a call's stream argument to work in a stream, or to a node of a graph if that is captured.

use std::sync::Arc;

use super::context::{Context, STREAM_LEGACY, STREAM_PER_THREAD};
use super::event::{Event, Stamp};
use super::op::{Job, Op};
use super::stack;
use super::stream::{Kind, Stream, Ticket};
use crate::errors::{Outcome, Status};
use crate::graph::capture;
use crate::state::{self, Driver};

/// Which stream 0 is: the legacy one, or in the `_ptds` and `_ptsz` entry points the thread's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    Legacy,
    PerThread,
}

/// The stream that a call means. A default stream is one of the current context; a stream that the program
/// made brings its own context, so that none has to be current.
pub(crate) fn resolve(default: Default, handle: usize) -> Outcome<Arc<Stream>> {
    match (handle, default) {
        (STREAM_LEGACY, _) | (0, Default::Legacy) => stack::current()?.legacy(),
        (STREAM_PER_THREAD, _) | (0, Default::PerThread) => Ok(stack::current()?.per_thread()),
        _ => {
            let stream = state::driver()?.streams.get(handle);
            // Without a context that is what a wrong handle is told first.
            let stream = stream.or_else(|wrong| stack::current().and(Err(wrong)))?;
            Context::of(&stream)?.check()?;
            Ok(stream)
        }
    }
}

/// Fails as [`resolve`] does where there is no context in working order to make the call in; for calls that
/// look at other things before their stream.
pub(crate) fn need_context(handle: usize) -> Outcome<&'static Driver> {
    let driver = state::driver()?;
    match driver.streams.get(handle) {
        Ok(stream) => Context::of(&stream)?.check()?,
        Err(_) => stack::current().map(drop)?,
    }
    Ok(driver)
}

/// Submits work, or adds it to the graph that the stream is captured into: then there is no ticket.
pub(crate) fn submit(stream: &Arc<Stream>, op: Op) -> Outcome<Option<Ticket>> {
    if capture::append(stream, &op)? {
        return Ok(None);
    }
    capture::check_legacy(stream)?;
    Ok(Some(enqueue(stream, Vec::new(), op)?))
}

/// Submits work and waits for it. Not possible in a stream that is captured.
pub(crate) fn submit_and_wait(stream: &Arc<Stream>, op: Op) -> Outcome {
    capture::forbid(stream)?;
    capture::check_legacy(stream)?;
    enqueue(stream, Vec::new(), op)?.wait();
    Context::of(stream)?.check()
}

/// Waits for all of a stream.
pub(crate) fn synchronize(stream: &Arc<Stream>) -> Outcome {
    capture::forbid(stream)?;
    capture::check_legacy(stream)?;
    capture::forbid_unsafe_call()?;
    let ticket = match stream.kind {
        // The legacy stream is behind all blocking streams.
        Kind::Legacy => enqueue_aside(stream, Vec::new(), Op::Empty)?,
        _ => stream.last(),
    };
    ticket.wait();
    let context = Context::of(stream)?;
    context.common.observe(&[ticket]);
    context.check()
}

/// Fails with `NOT_READY` unless all of a stream is done.
pub(crate) fn query(stream: &Arc<Stream>) -> Outcome {
    capture::forbid(stream)?;
    capture::check_legacy(stream)?;
    capture::forbid_unsafe_call()?;
    let context = Context::of(stream)?;
    let busy = match stream.kind {
        Kind::Legacy => {
            context.streams().iter().any(|other| (other.is_blocking() || other.kind == Kind::Legacy) && other.is_busy())
        }
        _ => {
            stream.pass_entrance();
            stream.is_busy()
        }
    };
    context.check()?;
    if busy { Err(Status::NOT_READY) } else { Ok(()) }
}

/// Records an event in a stream. `external` makes it a node of its own if the stream is captured.
pub(crate) fn record(stream: &Arc<Stream>, event: &Arc<Event>, external: bool) -> Outcome {
    if external && capture::append(stream, &Op::EventRecord(event.clone()))? {
        return Ok(());
    }
    if let Some(tail) = capture::tail(stream)? {
        event.record_captured(tail);
        return Ok(());
    }
    capture::check_legacy(stream)?;
    let stamp = Arc::new(Stamp::default());
    let op = match &event.shared {
        None => Op::Stamp(stamp.clone()),
        Some(shared) => Op::Reach(stamp.clone(), shared.clone(), shared.record()),
    };
    let ticket = enqueue(stream, Vec::new(), op)?;
    event.record(ticket, stamp);
    Ok(())
}

/// Makes a stream wait for an event.
pub(crate) fn wait_event(stream: &Arc<Stream>, event: &Arc<Event>, external: bool) -> Outcome {
    if external && capture::append(stream, &Op::EventWait(event.clone()))? {
        return Ok(());
    }
    if let Some(tail) = event.captured() {
        return capture::join(stream, &tail);
    }
    if capture::tail(stream)?.is_some() {
        // Work outside the capture cannot be waited for inside.
        capture::invalidate(stream);
        return Err(Status::STREAM_CAPTURE_ISOLATION);
    }
    capture::check_legacy(stream)?;
    let after: Vec<Ticket> = event.ticket()?.into_iter().collect();
    if let Some(shared) = &event.shared {
        enqueue_aside(stream, after, Op::Await(shared.clone(), shared.last()))?;
    } else if !after.is_empty() {
        enqueue_aside(stream, after, Op::Empty)?;
    }
    Ok(())
}

/// Puts work into a stream, in order with the legacy stream. Waits while the driver has the calling thread wait.
pub(crate) fn enqueue(stream: &Arc<Stream>, after: Vec<Ticket>, op: Op) -> Outcome<Ticket> {
    let context = Context::of(stream)?;
    context.check()?;
    match stream.kind {
        Kind::Legacy => context.locks.pass_objects(),
        _ => context.locks.pass_submission(),
    }
    put(&context, stream, after, op)
}

/// The same for work that calls do not hold up which wait for all of the context's work.
pub(crate) fn enqueue_aside(stream: &Arc<Stream>, after: Vec<Ticket>, op: Op) -> Outcome<Ticket> {
    put(&Context::of(stream)?, stream, after, op)
}

fn put(context: &Arc<Context>, stream: &Arc<Stream>, mut after: Vec<Ticket>, op: Op) -> Outcome<Ticket> {
    stream.enter(&context.locks);
    let job = Box::new(Job { context: context.clone(), op });
    let _ordered = context.ordered();
    after.extend(behind(context, stream)?);
    Ok(stream.push(after, job))
}

/// The points in other streams that work has to wait for which is submitted to a stream now. Of default streams they may be reached
/// already: the stream is behind them all the same.
fn behind(context: &Context, stream: &Stream) -> Outcome<Vec<Ticket>> {
    let mut after = context.points_ahead();
    if stream.kind == Kind::Legacy {
        after.extend(context.streams().iter().filter(|other| other.is_blocking()).map(Stream::last));
    } else if stream.is_blocking() {
        after.push(context.legacy()?.last());
    }
    Ok(after)
}

/// The points that all later work of a stream comes after: the stream's last one, and those that it has to wait for.
pub(crate) fn known_to(stream: &Arc<Stream>) -> Outcome<Vec<Ticket>> {
    let context = Context::of(stream)?;
    let _ordered = context.ordered();
    let mut points = behind(&context, stream)?;
    points.push(stream.last());
    Ok(points)
}
