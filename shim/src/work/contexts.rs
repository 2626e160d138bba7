//! The program's contexts and streams, and our own objects in each context: events, streams, pinned memory. A context's objects go with
//! it: the driver has destroyed them, so they are forgotten.
//!
//! A context is known until it is proven that it has ended ([`super::leaving`]). So an id that is no longer in the books belongs to a
//! context that is gone, with all its work. While a context is being left, the state of its work is unknown.
//!
//! Our threads ask the driver about contexts and streams while the program makes and destroys others. No lock is held meanwhile: a thread
//! that asks ([`Asking`]) works on a copy of the books. A thread that destroys a stream or a context, or begins a capture, enters that
//! here first and then waits until earlier questions are answered ([`quiesce`]). That is soon, because a thread that asks makes no call
//! that waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};

use super::aside;
use crate::driver::api::{self, Handle, Stream};

/// Tells a context from all earlier ones with the same handle: handles are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContextId {
    pub(super) handle: Handle,
    serial: u64,
}

impl ContextId {
    /// The driver's handle of the context, as long as the context exists.
    pub(crate) fn handle(self) -> Handle {
        self.handle
    }
}

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    serial: u64,
    /// Its number in the driver, which is never reused; `None` if the driver has no such numbers.
    pub(super) number: Option<u64>,
    /// The number of calls under way that may end it. `has_ended`: one of them reports that it has. `is_gone`: that is proven.
    pub(super) leaving: u32,
    pub(super) has_ended: bool,
    pub(super) is_gone: bool,
    pub(super) device: CUdevice,
    pub(super) streams: BTreeMap<Handle, StreamState>,
    /// An event behind all work of the context from before the first of the captures that are under way; `None` if there is no such event.
    pub(super) before_captures: Option<Handle>,
    /// The unfinished work of destroyed streams.
    pub(super) orphans: Vec<Orphan>,
    /// Events that are not in use.
    events: Vec<Handle>,
    /// An event that is never recorded: a query of it is forbidden by a capture like other such calls, and has no other effect.
    pub(super) unset: Option<Handle>,
    pub(super) reader: Reader,
    /// Device memory is being read in it or copied.
    pub(super) is_read: bool,
    /// Contexts whose memory it can access.
    peers: BTreeSet<Handle>,
}

/// The work of a stream that was destroyed. Another one may have its handle now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) stream: Handle,
    /// An event behind the work; `None` until the event is recorded.
    pub(super) event: Option<Handle>,
}

/// The stream and the buffer that read device memory ([`super::reading`]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reader {
    pub(super) stream: Option<Handle>,
    /// Pinned memory, and its size.
    pub(super) buffer: (Handle, usize),
}

/// A stream that the program made, or a thread's own default stream.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// The legacy stream and this stream do not wait for each other.
    pub(super) is_non_blocking: bool,
    /// Set from before the capture begins until the stream is seen not to capture.
    pub(super) captured: Option<Captured>,
}

impl Context {
    pub(super) fn is_capturing(&self) -> bool {
        self.streams.values().any(|stream| stream.captured.is_some())
    }

    /// True if a stream other than `but` is about to capture: the driver may not report that yet, but will soon.
    pub(super) fn is_beginning_to_capture(&self, but: Option<Handle>) -> bool {
        let is_beginning = |captured: Captured| captured.is_beginning;
        self.streams.iter().any(|(key, stream)| Some(*key) != but && stream.captured.is_some_and(is_beginning))
    }

    /// Takes an unused event. When few are left, more are made on another thread: making one may have to wait for a thread that fills a
    /// stream's queue (measured).
    pub(super) fn take_event(&mut self) -> Option<Handle> {
        let taken = self.events.pop();
        if self.events.len() < FEW_EVENTS && !WANTED.swap(true, Ordering::AcqRel) {
            aside::soon(make_events_ahead);
        }
        taken
    }

    pub(super) fn give_event(&mut self, event: Handle) {
        self.events.push(event);
    }
}

/// The state of a stream that captures or is about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) before: Before,
    /// The capture is just beginning: the driver may still report that the stream does not capture.
    pub(super) is_beginning: bool,
}

/// A stream's work from before its capture began. An event that was once recorded is kept, so it never becomes unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// There was none.
    Nothing,
    /// The context's event is behind all of it.
    Context,
    /// This event is behind all of it.
    Event(Handle),
    /// No event could be recorded there, or only one that would have added an order to the program's.
    Unknown,
}

impl Captured {
    /// Gives the events back: the stream captures no more, or is destroyed.
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

/// A device's primary context, and the program's calls that retain and release it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Primary {
    /// The driver's handle; 0 if it is not in the books.
    pub(super) context: Handle,
    /// The number of retains without a release: the driver's count is at least this.
    pub(super) retained: u32,
    /// The number of calls under way that retain it.
    pub(super) retaining: u32,
    /// The number of calls under way that release it while others retain it.
    pub(super) releasing: u32,
}

/// All contexts.
#[derive(Debug)]
pub(super) struct Contexts {
    all: BTreeMap<Handle, Context>,
    pub(super) primaries: BTreeMap<CUdevice, Primary>,
    /// The questions under way.
    asking: Vec<(ContextId, About)>,
    serials: u64,
}

static CONTEXTS: Mutex<Contexts> =
    Mutex::new(Contexts { all: BTreeMap::new(), primaries: BTreeMap::new(), asking: Vec::new(), serials: 0 });
/// Signals that a call that may end a context, or one that retains or releases it, is over.
static SETTLED: Condvar = Condvar::new();
/// A context has few events left.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The number of streams that are entered as capturing, for a quick check.
pub(super) static CAPTURING: AtomicUsize = AtomicUsize::new(0);
/// Changes when contexts go: state that is cached for a context is forgotten then.
static DEPARTURES: AtomicUsize = AtomicUsize::new(0);
/// True if there ever was a stream that the legacy stream waits for: one of the program's, or a thread's own.
static BLOCKING: AtomicBool = AtomicBool::new(false);
/// True if the program may use threads' own default streams, about which only their threads can ask.
static PER_THREAD: AtomicBool = AtomicBool::new(false);

pub(super) fn lock() -> MutexGuard<'static, Contexts> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contexts {
    pub(super) fn get(&mut self, id: ContextId) -> Option<&mut Context> {
        self.all.get_mut(&id.handle).filter(|context| context.serial == id.serial)
    }

    /// Returns a context if the driver can be asked about its work.
    pub(super) fn live(&mut self, id: ContextId) -> Result<&mut Context, Absent> {
        match self.get(id) {
            None => Err(Absent::Gone),
            Some(context) if context.is_gone => Err(Absent::Gone),
            Some(context) if context.leaving != 0 => Err(Absent::Unknown),
            Some(context) => Ok(context),
        }
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

    fn add(&mut self, handle: Handle, device: CUdevice, number: Option<u64>) {
        self.serials += 1;
        let context = Context {
            serial: self.serials,
            number,
            leaving: 0,
            has_ended: false,
            is_gone: false,
            device,
            streams: BTreeMap::new(),
            before_captures: None,
            orphans: Vec::new(),
            events: Vec::new(),
            unset: None,
            reader: Reader::default(),
            is_read: false,
            peers: BTreeSet::new(),
        };
        self.all.insert(handle, context);
    }

    /// Begins a question: from here on, a thread that changes its subject waits for it. Drop it with the books unlocked.
    pub(super) fn begin_asking(&mut self, id: ContextId, about: About) -> Asking {
        self.asking.push((id, about));
        Asking(id, about)
    }

    /// Removes a context that has ended, with our own objects in it.
    pub(super) fn remove(&mut self, handle: Handle) {
        let Some(gone) = self.all.remove(&handle) else { return };
        for other in self.all.values_mut() {
            other.peers.remove(&handle);
        }
        let captures = gone.streams.values().filter(|stream| stream.captured.is_some()).count();
        CAPTURING.fetch_sub(captures, Ordering::AcqRel);
        DEPARTURES.fetch_add(1, Ordering::AcqRel);
    }

    /// The primary context with this handle.
    pub(super) fn primary_mut(&mut self, context: Handle) -> Option<&mut Primary> {
        self.primaries.values_mut().find(|primary| primary.context == context)
    }
}

/// Why the driver cannot be asked about the work of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It has ended, with all its work.
    Gone,
    /// It is being left or is unresponsive: its work may run.
    Unknown,
}

/// The subject of a question, or the object that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The context's existence, and our own objects in it.
    Life,
    /// All of its streams; or an event is put behind them, which would break a capture.
    Whole,
    /// One stream. If a thread is stuck with it, the question is stuck too, and delays no other thread.
    Stream(Handle),
}

/// While this lives, its subject is not destroyed, and no stream of it begins to capture.
pub(super) struct Asking(ContextId, About);

impl Drop for Asking {
    fn drop(&mut self) {
        let mut contexts = lock();
        if let Some(at) = contexts.asking.iter().position(|asked| *asked == (self.0, self.1)) {
            contexts.asking.swap_remove(at);
        }
        drop(contexts);
        settled();
    }
}

/// Keeps a context alive for a question.
pub(super) fn ask(id: ContextId) -> Result<Asking, Absent> {
    let mut contexts = lock();
    contexts.live(id)?;
    Ok(contexts.begin_asking(id, About::Life))
}

/// Runs a closure with a context current, which stays alive meanwhile.
pub(crate) fn within<T>(id: ContextId, what: impl FnOnce() -> T) -> Result<T, Absent> {
    let _asking = ask(id)?;
    api::within(id.handle, what).ok_or_else(|| confirm(id))
}

/// Finds out why the driver refused a context, or answered unexpectedly for it: it is gone, or its state is unknown.
pub(super) fn confirm(id: ContextId) -> Absent {
    let number = lock().get(id).and_then(|context| context.number);
    let is_gone = number.is_some_and(|number| is_gone(id.handle, number));
    match lock().live(id) {
        Err(absent) => absent,
        // A number is believed only while the context is not being left: meanwhile the driver may report its end too early.
        Ok(_) if is_gone => Absent::Gone,
        Ok(_) => Absent::Unknown,
    }
}

/// True if a context with this number has certainly ended: numbers are never reused.
pub(super) fn is_gone(handle: Handle, number: u64) -> bool {
    match api::context_number(handle) {
        Ok(now) => now != number,
        Err(answer) => api::is_of_no_context(answer),
    }
}

/// Waits until a condition on the books holds, and returns them locked.
pub(super) fn wait_until(mut is_settled: impl FnMut(&mut Contexts) -> bool) -> MutexGuard<'static, Contexts> {
    let mut contexts = lock();
    while !is_settled(&mut contexts) {
        contexts = SETTLED.wait(contexts).unwrap_or_else(PoisonError::into_inner);
    }
    contexts
}

/// Wakes the threads that wait for the books to change.
pub(super) fn settled() {
    SETTLED.notify_all();
}

/// Waits until all earlier questions about a context that are in the way are answered. The caller has entered its change before, so that
/// later questions respect it.
pub(super) fn quiesce(id: ContextId, is_in_the_way: impl Fn(About) -> bool) {
    drop(wait_until(|contexts| !contexts.asking.iter().any(|(asked, about)| *asked == id && is_in_the_way(*about))));
}

/// Waits until all earlier questions that touch a stream are answered.
pub(super) fn quiesce_stream(id: ContextId, stream: Handle) {
    quiesce(id, |about| matches!(about, About::Whole) || about == About::Stream(stream));
}

/// The contexts of a GPU.
pub(super) fn of_device(device: CUdevice) -> Vec<ContextId> {
    let contexts = lock();
    let here = contexts.all.iter().filter(|(_, context)| context.device == device);
    here.map(|(handle, context)| ContextId { handle: *handle, serial: context.serial }).collect()
}

/// The contexts of the GPU that a context is on; empty if that context has ended.
pub(crate) fn of_same_device(context: Handle) -> Vec<ContextId> {
    device_of(context).map(of_device).unwrap_or_default()
}

/// The main context of a GPU: the primary one, or else the first.
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

/// The GPU of a context, if it is known.
pub(crate) fn device_of(context: Handle) -> Option<CUdevice> {
    lock().by_handle(context).map(|(_, context)| context.device)
}

/// The program allows one context to access another's allocations, or ends that.
pub(crate) fn let_reach(context: Handle, peer: Handle, reaches: bool) {
    if let Some((_, context)) = lock().by_handle(context) {
        if reaches {
            context.peers.insert(peer)
        } else {
            context.peers.remove(&peer)
        };
    }
}

/// True if the program has allowed one context to access another's allocations.
pub(crate) fn reaches(context: Handle, peer: Handle) -> bool {
    lock().by_handle(context).is_some_and(|(_, context)| context.peers.contains(&peer))
}

/// The context that this handle means now, if it is known.
pub(crate) fn id_of(handle: Handle) -> Option<ContextId> {
    lock().by_handle(handle).map(|(id, _)| id)
}

/// The number of events in a new context, and the number below which more are made.
const EVENTS: usize = 64;
const FEW_EVENTS: usize = EVENTS / 2;

/// Adds a context that was made or found. True if another context was known by this handle, and has ended unseen.
pub(crate) fn add(context: Handle, device: CUdevice) -> bool {
    let number = api::context_number(context).ok();
    // An earlier context with this handle stays in the books until all of it is forgotten.
    let mut contexts = wait_until(|contexts| contexts.all.get(&context).is_none_or(|known| known.leaving == 0));
    let is_another = match contexts.all.get(&context) {
        Some(known) if known.number.is_some() && number.is_some() && known.number != number => true,
        Some(_) => return false,
        None => false,
    };
    contexts.remove(context);
    contexts.add(context, device, number);
    let id = contexts.by_handle(context).map(|(id, _)| id);
    drop(contexts);
    if let Some(id) = id {
        // The program is making the context, and waits for that anyway.
        api::within(context, || {
            let unset = api::new_event();
            if let Some(context) = lock().get(id) {
                context.unset = unset;
            }
            make_events(id);
        });
    }
    is_another
}

/// Fills a context's stock of events up to the usual number. The context is current. May wait.
fn make_events(id: ContextId) {
    while lock().get(id).is_some_and(|context| context.events.len() < EVENTS)
        && let Some(event) = api::new_event()
        && let Some(context) = lock().get(id)
    {
        context.give_event(event);
    }
}

/// Makes events in the contexts that have few left. This may wait as long as the driver takes, but delays no other thread: not even a
/// context's end, which may happen meanwhile.
fn make_events_ahead() {
    WANTED.store(false, Ordering::Release);
    let few = |context: &Context| context.leaving == 0 && context.events.len() < FEW_EVENTS;
    let wanted: Vec<ContextId> = {
        let contexts = lock();
        let few = contexts.all.iter().filter(|(_, context)| few(context));
        few.map(|(handle, context)| ContextId { handle: *handle, serial: context.serial }).collect()
    };
    for id in wanted {
        api::within(id.handle, || make_events(id));
    }
}

/// Makes sure that a context has an event, for a call that itself waits for everything in the context that the making of an event could
/// wait for.
pub(crate) fn provide_event(id: ContextId) {
    if lock().live(id).is_ok_and(|context| context.events.is_empty()) {
        api::within(id.handle, || make_events(id));
    }
}

/// Adds a device's primary context that was made. Its handle is needed when it is left, and cannot be asked for then. Returns like
/// [`add`].
pub(crate) fn add_primary(context: Handle, device: CUdevice) -> bool {
    lock().primaries.entry(device).or_default().context = context;
    add(context, device)
}

/// A device's primary context, if it was made.
pub(crate) fn primary(device: CUdevice) -> Option<Handle> {
    lock().primaries.get(&device).map(|primary| primary.context).filter(|context| *context != 0)
}

/// Counts the contexts that have gone.
pub(super) fn departures() -> usize {
    DEPARTURES.load(Ordering::Acquire)
}

/// Adds a stream that was made in the current context.
pub(crate) fn add_stream(stream: Handle, is_non_blocking: bool) {
    let context = api::current_context();
    if !is_non_blocking {
        BLOCKING.store(true, Ordering::Relaxed);
    }
    if let Some((_, context)) = lock().by_handle(context) {
        context.streams.entry(stream).or_default().is_non_blocking = is_non_blocking;
    }
}

/// Removes a stream that is about to be destroyed: it is not asked about any more. Its work goes on; where nothing else tells when that
/// ends, an event is left behind it.
pub(crate) fn remove_stream(stream: Handle) {
    // A stream that captures has no other work.
    let has_left = |captured: bool| !captured && (!api::has_context_events() || is_capturing());
    let Some((id, has_left)) = remove_from_books(stream, has_left) else { return };
    quiesce_stream(id, stream);
    if !has_left {
        return;
    }
    let left = api::within(id.handle, || {
        let event = event_or_new(id)?;
        // SAFETY: a stream of this context that the program is about to destroy, and an event of it.
        let set = unsafe { api::event_record(event, Stream::Created(stream).ordered()?) } == CUDA_SUCCESS;
        Some((event, set))
    });
    let mut contexts = lock();
    let Some(context) = contexts.get(id) else { return };
    let is_it = |orphan: &Orphan| orphan.stream == stream && orphan.event.is_none();
    let Some(at) = context.orphans.iter().position(is_it) else { return };
    match left.flatten() {
        Some((event, true)) => context.orphans[at].event = Some(event),
        Some((event, false)) => {
            context.orphans.swap_remove(at);
            context.give_event(event);
        }
        None => drop(context.orphans.swap_remove(at)),
    }
}

/// Takes an event of a context; `None` if it has none at the moment.
pub(super) fn event(id: ContextId) -> Option<Handle> {
    lock().get(id)?.take_event()
}

/// Takes an event, or makes one, for a call that may wait. The context is current.
pub(super) fn event_or_new(id: ContextId) -> Option<Handle> {
    event(id).or_else(api::new_event)
}

/// Removes a stream from the books. `has_left` gets true if the stream was capturing, and decides whether its work stays in the books.
/// Returns the stream's context and that decision.
pub(super) fn remove_from_books(stream: Handle, has_left: impl FnOnce(bool) -> bool) -> Option<(ContextId, bool)> {
    let mut contexts = lock();
    let (id, context) = contexts.of_stream(stream)?;
    let captured = context.streams.remove(&stream).and_then(|state| state.captured);
    if let Some(captured) = captured {
        captured.give_back(context);
    }
    let has_left = has_left(captured.is_some());
    if has_left {
        // Under the same lock: no thread sees the books without both the stream and its work.
        context.orphans.push(Orphan { stream, event: None });
    }
    Some((id, has_left))
}

/// True if a stream of the program may be capturing.
pub(crate) fn is_capturing() -> bool {
    CAPTURING.load(Ordering::Acquire) != 0
}

/// Notes that the program calls functions whose default stream is the thread's own.
pub(crate) fn note_per_thread_streams() {
    PER_THREAD.store(true, Ordering::Relaxed);
}

/// True if work in the legacy stream may order other streams.
pub(crate) fn is_legacy_ordering() -> bool {
    BLOCKING.load(Ordering::Relaxed) || has_per_thread_streams()
}

/// True if work in a stream waits for the legacy stream's work: the stream by itself may be idle long before that.
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
