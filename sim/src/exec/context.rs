//! Contexts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::common::Common;
use super::event::Stamp;
use super::locks::Locks;
use super::stream::{Kind, Stream, Ticket};
use crate::device::Device;
use crate::errors::{Outcome, Status};
use crate::memory::view::{Peers, View, Who};

/// The legacy default stream's handle.
pub(crate) const STREAM_LEGACY: usize = 1;
/// The handle of the calling thread's default stream.
pub(crate) const STREAM_PER_THREAD: usize = 2;

/// The version of the API that contexts are of, with 64-bit addresses and sizes; and that of the ones
/// from the 32-bit `cuCtxCreate`.
pub(crate) const API_VERSION: u32 = 3020;
pub(crate) const API_VERSION_OLD: u32 = 3010;

/// One context.
pub(crate) struct Context {
    pub(crate) common: &'static Common,
    pub(crate) device: &'static Device,
    pub(crate) handle: usize,
    /// Unique in the process; a primary context that is made again has the old handle and a new id.
    pub(crate) id: u64,
    pub(crate) flags: AtomicU32,
    pub(crate) api_version: u32,
    pub(crate) primary: bool,
    pub(crate) settings: Mutex<Settings>,
    pub(crate) peers: Peers,
    pub(crate) locks: Locks,
    /// Held while work is put into streams: it fixes the order between the legacy stream and others.
    order: Mutex<()>,
    streams: Mutex<Vec<Arc<Stream>>>,
    /// Where events of the whole context are recorded: it is behind other work only where it is told to be.
    marker: OnceLock<Arc<Stream>>,
    /// Points that all work waits for which is submitted from now on.
    ahead: Mutex<Vec<Ticket>>,
    ending: AtomicBool,
}

/// A program may set these in a context and read them back.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// `CUlimit` values by number.
    pub(crate) limits: [usize; 10],
    /// A `CUfunc_cache`.
    pub(crate) cache: u32,
    /// A `CUsharedconfig`.
    pub(crate) shared_banks: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        // Stack, printf buffer, heap, sync depth, pending launches, L2 fetch, persisting L2, and three
        // that need what is not simulated.
        let limits = [1024, 7 << 20, 8 << 20, 2, 2048, 64, 0, 0, 0, 0];
        Settings { limits, cache: 0, shared_banks: 0 }
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static DEFAULT_STREAMS: RefCell<ThreadStreams> = RefCell::default();
}

/// A thread's default streams, by context; they end with the thread.
#[derive(Default)]
struct ThreadStreams(HashMap<u64, Arc<Stream>>);

impl Drop for ThreadStreams {
    fn drop(&mut self) {
        for stream in self.0.values() {
            if let Ok(context) = Context::of(stream) {
                context.forget(stream);
            }
        }
    }
}

impl Context {
    pub(crate) fn new(
        common: &'static Common,
        device: &'static Device,
        handle: usize,
        flags: u32,
        api_version: u32,
        primary: bool,
    ) -> Arc<Context> {
        let context = Arc::new(Context {
            common,
            device,
            handle,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            flags: AtomicU32::new(flags),
            api_version,
            primary,
            settings: Mutex::default(),
            peers: Peers::default(),
            locks: Locks::default(),
            order: Mutex::default(),
            streams: Mutex::default(),
            marker: OnceLock::new(),
            ahead: Mutex::default(),
            ending: AtomicBool::new(false),
        });
        let legacy = context.make_stream(Kind::Legacy, 0);
        context.streams().push(legacy);
        context
    }

    /// Fails if the context is being destroyed, or if a kernel has failed before, in whichever context.
    pub(crate) fn check(&self) -> Outcome {
        if self.is_ending() { Err(Status::CONTEXT_IS_DESTROYED) } else { self.common.check() }
    }

    /// Tells that work in this context failed. Work that an ending context gives up is no failure.
    pub(crate) fn fail(&self, status: Status) {
        if !self.is_ending() {
            self.common.fail(status);
        }
    }

    /// True once the context is being destroyed: work that waits on the device gives up.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// The address space as its kernels and fills see it.
    pub(crate) fn view(&self) -> View<'_> {
        View::new(&self.common.space, self.device.gpu, Who::Kernels(&self.peers))
    }

    /// The address space as its copies see it, between two GPUs or wherever.
    pub(crate) fn copies_view(&self, between: Option<[usize; 2]>) -> View<'_> {
        View::new(&self.common.space, self.device.gpu, between.map_or(Who::Copies, Who::Between))
    }

    /// The order of submissions, held while something is put into streams.
    pub(crate) fn ordered(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The legacy default stream.
    pub(crate) fn legacy(&self) -> Outcome<Arc<Stream>> {
        self.streams().first().cloned().ok_or(Status::CONTEXT_IS_DESTROYED)
    }

    /// The calling thread's default stream.
    pub(crate) fn per_thread(self: &Arc<Context>) -> Arc<Stream> {
        DEFAULT_STREAMS.with_borrow_mut(|all| {
            let make = || self.add_stream(Kind::PerThread, 0);
            all.0.entry(self.id).or_insert_with(make).clone()
        })
    }

    fn make_stream(self: &Arc<Context>, kind: Kind, priority: i32) -> Arc<Stream> {
        let owner: Weak<Context> = Arc::downgrade(self);
        Stream::new(owner, self.id, kind, priority)
    }

    /// The context of a stream.
    pub(crate) fn of(stream: &Stream) -> Outcome<Arc<Context>> {
        let owner = stream.owner.upgrade().ok_or(Status::CONTEXT_IS_DESTROYED)?;
        owner.downcast().map_err(|_| Status::CONTEXT_IS_DESTROYED)
    }

    /// Makes a stream of this context.
    pub(crate) fn add_stream(self: &Arc<Context>, kind: Kind, priority: i32) -> Arc<Stream> {
        let stream = self.make_stream(kind, priority);
        self.sweep();
        self.streams().push(stream.clone());
        stream
    }

    /// Ends a stream: queued work is still done.
    pub(crate) fn forget(&self, stream: &Arc<Stream>) {
        stream.close();
        // One that still works stays known, so that synchronising the context waits for it.
        self.sweep();
    }

    /// Forgets streams that are closed and have no work left. Memory that they freed becomes free for all streams first: a thread that
    /// synchronises the context meanwhile finds the one or the other.
    fn sweep(&self) {
        let gone: Vec<Ticket> = self.streams().iter().filter(|stream| stream.is_finished()).map(Stream::last).collect();
        if !gone.is_empty() {
            self.common.observe(&gone);
            self.streams().retain(|stream| !gone.iter().any(|point| point.stream() == stream.id));
        }
    }

    /// All streams of the context, the legacy one first.
    pub(crate) fn streams(&self) -> MutexGuard<'_, Vec<Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a call that makes or ends something: it may wait, and does so if it is told to.
    pub(crate) fn pass_objects(&self) {
        self.locks.pass_objects();
        if self.common.waiting {
            self.everything().iter().for_each(Ticket::wait);
        }
    }

    /// Notes when everything is done that was submitted so far, in any stream: at once if that is done already. No other work
    /// waits for it.
    pub(crate) fn mark(self: &Arc<Context>, stamp: Arc<Stamp>) -> Ticket {
        self.locks.pass_submission();
        let _ordered = self.ordered();
        let marker = self.marker.get_or_init(|| self.add_stream(Kind::Made { non_blocking: true }, 0));
        let everything = self.everything();
        if everything.is_empty() {
            stamp.set();
            return marker.last();
        }
        marker.push(everything, Box::new(stamp))
    }

    /// Has all work that is submitted from now on wait for a point, in streams that are yet to be made too.
    pub(crate) fn put_ahead(&self, point: Ticket) {
        let streams = self.streams().clone();
        streams.iter().for_each(|stream| stream.pass_entrance());
        let _ordered = self.ordered();
        self.ahead().push(point);
    }

    /// The points that work has to wait for which is submitted now. The order is held.
    pub(crate) fn points_ahead(&self) -> Vec<Ticket> {
        let mut ahead = self.ahead();
        ahead.retain(|point| !point.is_done());
        ahead.clone()
    }

    fn ahead(&self) -> MutexGuard<'_, Vec<Ticket>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything submitted so far in any stream.
    pub(crate) fn everything(&self) -> Vec<Ticket> {
        self.streams().iter().filter(|stream| stream.is_busy()).map(Stream::last).collect()
    }

    /// As [`Context::synchronize`], for a call that keeps others out of the context meanwhile.
    pub(crate) fn synchronize_alone(&self) -> Outcome {
        let _alone = self.locks.exclude();
        self.synchronize()
    }

    /// Waits for everything submitted so far, and tells whether it went well.
    pub(crate) fn synchronize(&self) -> Outcome {
        let points: Vec<Ticket> = self.streams().iter().map(Stream::last).collect();
        points.iter().for_each(Ticket::wait);
        self.common.observe(&points);
        self.check()
    }

    /// The settings of the program's.
    pub(crate) fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the context's work, which is given up or done, and its streams. All else is [`crate::state::Driver::end`]'s.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        for ticket in self.everything() {
            ticket.wait();
        }
        for stream in self.streams().drain(..) {
            stream.close();
        }
    }
}
