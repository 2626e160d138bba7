//! The program's contexts and streams.
//!
//! Our threads ask the driver about them while the program makes and destroys others. No lock is held meanwhile: who asks
//! ([`Asking`]) works on what it has read, and whoever destroys a stream or a context, or begins a capture, enters that here
//! first and then waits until those who began to ask before are done ([`quiesce`]). They are soon, because nothing that they
//! call waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};

use crate::driver::api::{self, Handle, Stream};
use crate::sys::thread;

/// Which of all contexts that ever were: handles are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContextId {
    pub(super) handle: Handle,
    serial: u64,
}

impl ContextId {
    /// What the driver calls it, as long as it is there.
    pub(crate) fn handle(self) -> Handle {
        self.handle
    }
}

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    serial: u64,
    pub(super) device: CUdevice,
    pub(super) streams: BTreeMap<Handle, StreamState>,
    /// Behind all work of the context from before the first of the captures that are under way: none if there is no such
    /// event.
    pub(super) before_captures: Option<Handle>,
    /// Behind the work of streams that were destroyed.
    pub(super) orphans: Vec<Handle>,
    /// Events that nobody uses.
    events: Vec<Handle>,
    /// Contexts whose memory it can reach.
    peers: BTreeSet<Handle>,
}

/// A stream that the program made, or a thread's own.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// The legacy stream does not wait for it, nor it for that.
    pub(super) is_non_blocking: bool,
    /// Set from before it begins to capture until it is seen not to capture any more.
    pub(super) captured: Option<Captured>,
}

impl Context {
    pub(super) fn is_capturing(&self) -> bool {
        self.streams.values().any(|stream| stream.captured.is_some())
    }

    /// Whether a stream is about to capture, other than this one: the driver may not say so yet, and then it does.
    pub(super) fn is_beginning_to_capture(&self, but: Option<Handle>) -> bool {
        let is_beginning = |captured: Captured| captured.is_beginning;
        self.streams.iter().any(|(key, stream)| Some(*key) != but && stream.captured.is_some_and(is_beginning))
    }

    /// An event that is not in use; made if there is none. The context is current.
    pub(super) fn take_event(&mut self) -> Option<Handle> {
        self.events.pop()
    }

    pub(super) fn give_event(&mut self, event: Handle) {
        self.events.push(event);
    }
}

/// What is known of a stream that captures, or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) before: Before,
    /// It is just beginning: the driver may say that it does not capture.
    pub(super) is_beginning: bool,
}

/// A stream's work from before it began to capture. That an event is unknown although one was set before cannot be: it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// There was none.
    Nothing,
    /// What the context keeps is behind all of it.
    Context,
    /// This event is behind all of it.
    Event(Handle),
    /// No event could be put there, or only one that would have added an order to the program's.
    Unknown,
}

impl Captured {
    /// The stream captures no more, or is no more.
    pub(super) fn give_back(self, context: &mut Context) {
        CAPTURING.fetch_sub(1, Ordering::AcqRel);
        if let Before::Event(event) = self.before {
            context.give_event(event);
        }
        if !context.is_capturing()
            && let Some(event) = context.before_captures.take()
        {
            context.give_event(event);
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Contexts {
    all: BTreeMap<Handle, Context>,
    /// The primary contexts, by device.
    primaries: BTreeMap<CUdevice, Handle>,
    serials: u64,
}

static CONTEXTS: Mutex<Contexts> =
    Mutex::new(Contexts { all: BTreeMap::new(), primaries: BTreeMap::new(), serials: 0 });
/// How many ask just now.
static ASKING: AtomicUsize = AtomicUsize::new(0);
/// How many streams are entered as capturing, for a quick look.
pub(super) static CAPTURING: AtomicUsize = AtomicUsize::new(0);
/// Changes when contexts go: whoever remembers something that belongs to one forgets it then.
static DEPARTURES: AtomicUsize = AtomicUsize::new(0);
/// Whether there ever was a stream that the legacy stream waits for, of the program's or a thread's own.
static BLOCKING: AtomicBool = AtomicBool::new(false);
/// Whether the program may use threads' own default streams, about which only their threads can ask.
static PER_THREAD: AtomicBool = AtomicBool::new(false);

pub(super) fn lock() -> MutexGuard<'static, Contexts> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contexts {
    pub(super) fn get(&mut self, id: ContextId) -> Option<&mut Context> {
        self.all.get_mut(&id.handle).filter(|context| context.serial == id.serial)
    }

    pub(super) fn by_handle(&mut self, handle: Handle) -> Option<(ContextId, &mut Context)> {
        let context = self.all.get_mut(&handle)?;
        Some((ContextId { handle, serial: context.serial }, context))
    }

    /// The context that a stream was made in.
    pub(super) fn of_stream(&mut self, stream: Handle) -> Option<(ContextId, &mut Context)> {
        self.all.iter_mut().find_map(|(handle, context)| {
            let has = context.streams.contains_key(&stream);
            has.then_some((ContextId { handle: *handle, serial: context.serial }, context))
        })
    }

    /// Says whether it is new.
    fn add(&mut self, handle: Handle, device: CUdevice) -> bool {
        let is_new = !self.all.contains_key(&handle);
        if is_new {
            self.serials += 1;
            let context = Context {
                serial: self.serials,
                device,
                streams: BTreeMap::new(),
                before_captures: None,
                orphans: Vec::new(),
                events: Vec::new(),
                peers: BTreeSet::new(),
            };
            self.all.insert(handle, context);
        }
        is_new
    }
}

/// While this lives nothing that was known when it began is destroyed, and nothing that did not capture then begins to.
pub(super) struct Asking(());

impl Asking {
    /// Under the lock: whoever changes something afterwards sees it.
    pub(super) fn begin(_: &Contexts) -> Self {
        ASKING.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, Ordering::Release);
    }
}

/// Waits until all who began to ask before are done. What they must not be asking about any more was entered before.
pub(super) fn quiesce() {
    fence(Ordering::SeqCst);
    while ASKING.load(Ordering::Acquire) != 0 {
        thread::sleep(Duration::from_micros(20));
    }
}

/// The contexts of a GPU.
pub(super) fn of_device(device: CUdevice) -> Vec<ContextId> {
    let contexts = lock();
    let here = contexts.all.iter().filter(|(_, context)| context.device == device);
    here.map(|(handle, context)| ContextId { handle: *handle, serial: context.serial }).collect()
}

/// The context of a GPU that a program mostly has: the primary one, or else the first.
pub(crate) fn main_of(device: CUdevice) -> Option<ContextId> {
    primary(device).and_then(id_of).or_else(|| of_device(device).first().copied())
}

/// All contexts.
pub(super) fn all() -> Vec<ContextId> {
    lock().all.iter().map(|(handle, context)| ContextId { handle: *handle, serial: context.serial }).collect()
}

/// The context that a stream was made in.
pub(crate) fn of(stream: Stream) -> Option<ContextId> {
    let Stream::Created(stream) = stream else { return None };
    lock().of_stream(stream).map(|(id, _)| id)
}

/// The GPU that a stream was made on, if it is known.
pub(crate) fn device_of_stream(stream: Handle) -> Option<CUdevice> {
    let mut contexts = lock();
    let (id, _) = contexts.of_stream(stream)?;
    contexts.get(id).map(|context| context.device)
}

/// Whether there ever was one.
pub(crate) fn were_any() -> bool {
    lock().serials > 0
}

/// Whether a context is there, and nobody is about to leave it.
pub(super) fn is_known(id: ContextId) -> bool {
    lock().get(id).is_some()
}

/// The GPU of a context, if it is known.
pub(crate) fn device_of(context: Handle) -> Option<CUdevice> {
    lock().by_handle(context).map(|(_, context)| context.device)
}

/// The program lets one context reach what is allocated in another one, or does so no more.
pub(crate) fn let_reach(context: Handle, peer: Handle, reaches: bool) {
    if let Some((_, context)) = lock().by_handle(context) {
        if reaches {
            context.peers.insert(peer)
        } else {
            context.peers.remove(&peer)
        };
    }
}

/// Whether the program has let one context reach what is allocated in another one.
pub(crate) fn reaches(context: Handle, peer: Handle) -> bool {
    lock().by_handle(context).is_some_and(|(_, context)| context.peers.contains(&peer))
}

/// Which context this handle means now, if it is one of those that are known.
pub(crate) fn id_of(handle: Handle) -> Option<ContextId> {
    lock().by_handle(handle).map(|(id, _)| id)
}

/// How many events a new context is given: later, to make one may have to wait for a thread that fills a stream's queue
/// (measured).
const EVENTS: usize = 16;

/// A context was made.
pub(crate) fn add(context: Handle, device: CUdevice) {
    if lock().add(context, device) {
        let made = api::within(context, || (0..EVENTS).map_while(|_| api::new_event()).collect::<Vec<_>>());
        if let Some((_, context)) = lock().by_handle(context) {
            context.events.extend(made.unwrap_or_default());
        }
    }
}

/// A device's primary context was made; its handle is needed when it is left, and cannot be asked for then.
pub(crate) fn add_primary(context: Handle, device: CUdevice) {
    lock().primaries.insert(device, context);
    add(context, device);
}

/// Takes a context into the books that was made in a way that we do not see.
pub(crate) fn adopt(context: Handle, device: CUdevice) {
    if api::primary_of(device) == Some(context) { add_primary(context, device) } else { add(context, device) }
}

/// A device's primary context, if it was made.
pub(crate) fn primary(device: CUdevice) -> Option<Handle> {
    lock().primaries.get(&device).copied()
}

/// A context that is known no more, in case that it is not destroyed after all.
pub(crate) struct Removed(Handle, Context);

/// A context is about to be destroyed, or may be: it is asked about no more.
pub(crate) fn remove(context: Handle) -> Option<Removed> {
    let removed = {
        let mut contexts = lock();
        let removed = contexts.all.remove(&context)?;
        for other in contexts.all.values_mut() {
            other.peers.remove(&context);
        }
        let captures = removed.streams.values().filter(|stream| stream.captured.is_some()).count();
        CAPTURING.fetch_sub(captures, Ordering::AcqRel);
        removed
    };
    DEPARTURES.fetch_add(1, Ordering::AcqRel);
    quiesce();
    Some(Removed(context, removed))
}

/// It was not destroyed. What was made in it meanwhile stays.
pub(crate) fn put_back(removed: Removed) {
    let Removed(handle, mut context) = removed;
    let mut contexts = lock();
    if let Some(meanwhile) = contexts.all.remove(&handle) {
        for (stream, state) in meanwhile.streams {
            context.streams.entry(stream).or_insert(state);
        }
        context.events.extend(meanwhile.events);
        context.peers.extend(meanwhile.peers);
    }
    let captures = context.streams.values().filter(|stream| stream.captured.is_some()).count();
    CAPTURING.fetch_add(captures, Ordering::AcqRel);
    contexts.all.insert(handle, context);
}

/// Counts the contexts that went.
pub(super) fn departures() -> usize {
    DEPARTURES.load(Ordering::Acquire)
}

/// A stream was made in the current context.
pub(crate) fn add_stream(stream: Handle, is_non_blocking: bool) {
    let context = api::current_context();
    if !is_non_blocking {
        BLOCKING.store(true, Ordering::Relaxed);
    }
    if let Some((_, context)) = lock().by_handle(context) {
        context.streams.entry(stream).or_default().is_non_blocking = is_non_blocking;
    }
}

/// A stream is about to be destroyed: it is asked about no more. Its work goes on: where nothing else tells about that, an event
/// is left behind it.
pub(crate) fn remove_stream(stream: Handle) {
    let Some((id, was_capturing)) = remove_from_books(stream) else { return };
    quiesce();
    if was_capturing || (api::has_context_events() && !is_capturing()) {
        return;
    }
    let left = api::within(id.handle, || {
        let event = event(id)?;
        // SAFETY: a stream of this context that the program is about to destroy, and an event of it.
        let set = unsafe { api::event_record(event, Stream::Created(stream).ordered()?) } == CUDA_SUCCESS;
        Some((event, set))
    });
    if let Some((event, set)) = left.flatten()
        && let Some(context) = lock().get(id)
    {
        if set { context.orphans.push(event) } else { context.give_event(event) }
    }
}

/// An event of a context, which is current.
pub(super) fn event(id: ContextId) -> Option<Handle> {
    let kept = lock().get(id)?.take_event();
    kept.or_else(api::new_event)
}

/// Takes a stream out of the books; says whose it was, and whether it was capturing.
pub(super) fn remove_from_books(stream: Handle) -> Option<(ContextId, bool)> {
    let mut contexts = lock();
    let (id, context) = contexts.of_stream(stream)?;
    let captured = context.streams.remove(&stream).and_then(|state| state.captured);
    if let Some(captured) = captured {
        captured.give_back(context);
    }
    Some((id, captured.is_some()))
}

/// Whether some stream of the program may be capturing.
pub(crate) fn is_capturing() -> bool {
    CAPTURING.load(Ordering::Acquire) != 0
}

/// The program calls functions of which the default stream is the thread's own.
pub(crate) fn note_per_thread_streams() {
    PER_THREAD.store(true, Ordering::Relaxed);
}

/// Whether what is put into the legacy stream may order other streams.
pub(crate) fn is_legacy_ordering() -> bool {
    BLOCKING.load(Ordering::Relaxed) || has_per_thread_streams()
}

/// Whether what is put into a stream waits for what the legacy stream has: the stream without it may be idle long before.
pub(super) fn is_behind_legacy(stream: Stream) -> bool {
    match stream {
        Stream::Legacy => false,
        Stream::PerThread => true,
        Stream::Created(handle) => {
            let mut contexts = lock();
            let found = contexts.of_stream(handle).and_then(|(_, context)| context.streams.get(&handle));
            found.is_none_or(|stream| !stream.is_non_blocking)
        }
    }
}

pub(super) fn has_per_thread_streams() -> bool {
    PER_THREAD.load(Ordering::Relaxed)
}

/// In a forked child.
pub(super) fn start_anew() {
    ASKING.store(0, Ordering::Release);
}
