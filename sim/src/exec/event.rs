//! Events: points in streams that can be waited for and timed.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::shared_event::SharedEvent;
use super::stream::{Ticket, Work};
use super::tail::Tail;
use crate::errors::{Outcome, Status};

const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// One event.
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) flags: u32,
    pub(crate) context_id: u64,
    /// If other processes can have it.
    pub(crate) shared: Option<Arc<SharedEvent>>,
    last: Mutex<Last>,
}

/// The place of the event's last record.
#[derive(Default, Clone)]
enum Last {
    #[default]
    Never,
    Stream(Ticket, Arc<Stamp>),
    Captured(Tail),
}

/// The time at which a record was reached.
#[derive(Default, Debug)]
pub(crate) struct Stamp(OnceLock<Instant>);

impl Stamp {
    /// Notes that it is reached now.
    pub(crate) fn set(&self) {
        let _ = self.0.set(Instant::now());
    }
}

impl Work for Arc<Stamp> {
    fn run(self: Box<Self>) {
        self.set();
    }
}

impl Event {
    pub(crate) fn new(handle: usize, flags: u32, context_id: u64) -> Event {
        Event { handle, flags, context_id, shared: None, last: Mutex::default() }
    }

    /// One that other processes can have too, or have.
    pub(crate) fn shared(handle: usize, context_id: u64, shared: SharedEvent) -> Event {
        let shared = Some(Arc::new(shared));
        Event { handle, flags: DISABLE_TIMING | INTERPROCESS, context_id, shared, last: Mutex::default() }
    }

    /// Makes a point in a stream the event's.
    pub(crate) fn record(&self, ticket: Ticket, stamp: Arc<Stamp>) {
        *self.lock() = Last::Stream(ticket, stamp);
    }

    /// Makes a point in a capture the event's.
    pub(crate) fn record_captured(&self, tail: Tail) {
        *self.lock() = Last::Captured(tail);
    }

    /// The point in a capture, if that is what was recorded last.
    pub(crate) fn captured(&self) -> Option<Tail> {
        match &*self.lock() {
            Last::Captured(tail) => Some(tail.clone()),
            _ => None,
        }
    }

    /// The point to wait for; none if it was never recorded.
    pub(crate) fn ticket(&self) -> Outcome<Option<Ticket>> {
        match &*self.lock() {
            Last::Never => Ok(None),
            Last::Stream(ticket, _) => Ok(Some(ticket.clone())),
            Last::Captured(_) => Err(Status::CAPTURED_EVENT),
        }
    }

    /// The time from one event to another.
    pub(crate) fn elapsed(start: &Event, end: &Event) -> Outcome<Span> {
        if (start.flags | end.flags) & DISABLE_TIMING != 0 {
            return Err(Status::INVALID_HANDLE);
        }
        let (start, end) = (start.reached()?, end.reached()?);
        Ok(match end.checked_duration_since(start) {
            Some(later) => Span { negative: false, length: later },
            None => Span { negative: true, length: start.duration_since(end) },
        })
    }

    fn reached(&self) -> Outcome<Instant> {
        match &*self.lock() {
            Last::Never => Err(Status::INVALID_HANDLE),
            Last::Captured(_) => Err(Status::CAPTURED_EVENT),
            Last::Stream(ticket, stamp) => stamp.0.get().copied().filter(|_| ticket.is_done()).ok_or(Status::NOT_READY),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A length of time with a sign: events may be asked about in the wrong order.
pub(crate) struct Span {
    negative: bool,
    length: Duration,
}

impl Span {
    /// In milliseconds, as the driver tells it.
    pub(crate) fn milliseconds(&self) -> f32 {
        let length = self.length.as_secs_f64() * 1e3;
        (if self.negative { -length } else { length }) as f32
    }
}
