//! A stream: a queue and a thread that works it off in order.
//!
//! The thread is made with the first work. Every submitted item has a number in its stream; a
//! [`Ticket`] is a stream and a number, and is what events, other streams and waiting calls hold on to.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use super::known::Known;
use super::locks::{Locks, take};
use super::tail::Tail;

/// The kinds of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The legacy default stream: waits for all blocking streams, and they for it.
    Legacy,
    /// A thread's own default stream; blocking.
    PerThread,
    /// Made by the program.
    Made {
        /// True if it takes no notice of the legacy stream.
        non_blocking: bool,
    },
}

/// One stream.
pub(crate) struct Stream {
    /// Unique in the process.
    pub(crate) id: u64,
    /// Its context ([`super::context::Context::of`]); the queue does not need it.
    pub(super) owner: Weak<dyn Any + Send + Sync>,
    /// The context's own number, which outlives it.
    pub(crate) context_id: u64,
    pub(crate) kind: Kind,
    pub(crate) priority: AtomicI32,
    /// If the stream is being captured: where the next node goes.
    pub(crate) capture: Mutex<Option<Tail>>,
    queue: Mutex<Queue>,
    /// Held by a thread that is stuck because the queue is full.
    entrance: Mutex<()>,
    submitted_or_closed: Condvar,
    completed: Condvar,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    submitted: u64,
    completed: u64,
    thread: bool,
    closed: bool,
    /// All that is submitted now is behind these points.
    known: Known,
}

/// Work for a stream's thread.
pub(crate) trait Work: Send {
    /// Does it. The work itself reports a failure, and catches a panic.
    fn run(self: Box<Self>);
}

struct Item {
    after: Vec<Ticket>,
    work: Box<dyn Work>,
}

/// A point in a stream: everything submitted up to there.
#[derive(Clone)]
pub(crate) struct Ticket {
    stream: Arc<Stream>,
    number: u64,
    /// The other points that are reached by then.
    known: Known,
}

thread_local! {
    static ON_STREAM_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// True if this is a stream's thread: then the program's code on it is a host function or a callback.
pub(crate) fn is_stream_thread() -> bool {
    ON_STREAM_THREAD.get()
}

/// So much work fits into a stream's queue, the one that runs included.
const MOST_QUEUED: u64 = 1022;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Stream {
    pub(super) fn new(owner: Weak<dyn Any + Send + Sync>, context_id: u64, kind: Kind, priority: i32) -> Arc<Stream> {
        Arc::new(Stream {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            owner,
            context_id,
            kind,
            priority: AtomicI32::new(priority),
            capture: Mutex::new(None),
            queue: Mutex::default(),
            entrance: Mutex::default(),
            submitted_or_closed: Condvar::new(),
            completed: Condvar::new(),
        })
    }

    /// True if it orders itself with the legacy stream.
    pub(crate) fn is_blocking(&self) -> bool {
        !matches!(self.kind, Kind::Legacy | Kind::Made { non_blocking: true })
    }

    /// Waits until the queue has room for more; with that, others are kept from making or ending objects of the context.
    pub(crate) fn enter(&self, locks: &Locks) {
        let _entrance = take(&self.entrance);
        let is_full = |queue: &mut Queue| queue.submitted - queue.completed >= MOST_QUEUED;
        let mut queue = self.lock();
        if is_full(&mut queue) {
            drop(queue);
            let _objects = locks.hold_objects();
            queue = self.lock();
            while is_full(&mut queue) {
                queue = self.completed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// For a call about this stream that submits nothing: waits as long as a thread is stuck that does.
    pub(crate) fn pass_entrance(&self) {
        drop(take(&self.entrance));
    }

    /// Queues work behind everything submitted here and behind the tickets.
    pub(crate) fn push(self: &Arc<Stream>, after: Vec<Ticket>, work: Box<dyn Work>) -> Ticket {
        let mut queue = self.lock();
        for ticket in after.iter().filter(|ticket| ticket.stream.id != self.id) {
            queue.known.learn(ticket.stream.id, ticket.number, &ticket.known);
        }
        queue.items.push_back(Item { after, work });
        queue.submitted += 1;
        let (number, known) = (queue.submitted, queue.known.clone());
        if !queue.thread {
            queue.thread = true;
            spawn(self.clone());
        }
        drop(queue);
        self.submitted_or_closed.notify_one();
        Ticket { stream: self.clone(), number, known }
    }

    /// The point after all that is submitted now.
    pub(crate) fn last(self: &Arc<Stream>) -> Ticket {
        let queue = self.lock();
        Ticket { stream: self.clone(), number: queue.submitted, known: queue.known.clone() }
    }

    /// A point that is reached already.
    pub(crate) fn reached(self: &Arc<Stream>) -> Ticket {
        Ticket { stream: self.clone(), number: 0, known: Known::default() }
    }

    /// True if something submitted is not completed.
    pub(crate) fn is_busy(&self) -> bool {
        let queue = self.lock();
        queue.completed < queue.submitted
    }

    /// Lets the thread end once the queue is worked off.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.submitted_or_closed.notify_one();
    }

    /// True if it was closed and all its work is done.
    pub(crate) fn is_finished(&self) -> bool {
        let queue = self.lock();
        queue.closed && queue.completed == queue.submitted
    }

    fn work(self: Arc<Stream>) {
        ON_STREAM_THREAD.set(true);
        loop {
            let mut queue = self.lock();
            while queue.items.is_empty() {
                if queue.closed {
                    queue.thread = false;
                    return;
                }
                queue = self.submitted_or_closed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(item) = queue.items.pop_front() else { continue };
            drop(queue);
            for ticket in item.after {
                ticket.wait();
            }
            item.work.run();
            self.lock().completed += 1;
            self.completed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// The id of the stream that it is a point of.
    pub(crate) fn stream(&self) -> u64 {
        self.stream.id
    }

    /// True if the other point is reached by then, because of what was submitted in which order.
    pub(crate) fn is_behind(&self, other: &Ticket) -> bool {
        let same = self.stream.id == other.stream.id;
        if same { self.number >= other.number } else { self.known.has(other.stream.id, other.number) }
    }

    /// True if that point is reached.
    pub(crate) fn is_done(&self) -> bool {
        self.stream.lock().completed >= self.number
    }

    /// Waits until that point is reached.
    pub(crate) fn wait(&self) {
        let mut queue = self.stream.lock();
        while queue.completed < self.number {
            queue = self.stream.completed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts a stream's thread, with the program's signals left to the program's threads.
#[allow(unsafe_code)]
fn spawn(stream: Arc<Stream>) {
    // SAFETY: the sets are this function's own, and only this thread's mask changes, for a moment.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let name = format!("simcuda-{}", stream.id);
    let work = move || stream.work();
    let spawned = std::thread::Builder::new().name(name).spawn(work);
    // SAFETY: as above; `before` is what `pthread_sigmask` filled in.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    // Without threads there are no streams: the call fails by its panic fence.
    spawned.expect("the system gives a thread for a stream");
}
