//! The program's contexts and streams, and all that we have in each context: events, streams, pinned memory. What a context owned goes
//! with it: the driver has destroyed that, so it is forgotten.
//!
//! A context is known until it is proven that it has ended ([`super::leaving`]). So an id that is not in the books any more is that of a
//! context which is gone, with all its work; while one is being left, nobody can say.
//!
//! Our threads ask the driver about them while the program makes and destroys others. No lock is held meanwhile: who asks
//! ([`Asking`]) works on what it has read, and whoever destroys a stream or a context, or begins a capture, enters that here
//! first and then waits until those who began to ask before are done ([`quiesce`]). They are soon, because nothing that they
//! call waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};

use super::aside;
use crate::driver::api::{self, Handle, Stream};

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
    /// Its number in the driver, which no other ever gets; none from a driver that has no such.
    pub(super) number: Option<u64>,
    /// How many calls are under way that may end it, whether one of them says that it has, and whether that is proven.
    pub(super) leaving: u32,
    pub(super) has_ended: bool,
    pub(super) is_gone: bool,
    pub(super) device: CUdevice,
    pub(super) streams: BTreeMap<Handle, StreamState>,
    /// Behind all work of the context from before the first of the captures that are under way: none if there is no such
    /// event.
    pub(super) before_captures: Option<Handle>,
    /// What streams that were destroyed have left.
    pub(super) orphans: Vec<Orphan>,
    /// Events that nobody uses.
    events: Vec<Handle>,
    /// One that is never set: asking about it does what a call does that a capture may forbid, and nothing else.
    pub(super) unset: Option<Handle>,
    pub(super) reader: Reader,
    /// Device memory is being read in it, or copied.
    pub(super) is_read: bool,
    /// Contexts whose memory it can reach.
    peers: BTreeSet<Handle>,
}

/// The work of a stream that was destroyed. Another one may have its handle now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) stream: Handle,
    /// What is behind it; none as long as that is being set.
    pub(super) event: Option<Handle>,
}

/// What device memory is read by ([`super::reading`]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reader {
    pub(super) stream: Option<Handle>,
    /// Pinned memory, and its size.
    pub(super) buffer: (Handle, usize),
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

    /// An event that is not in use. When few are left, more are made elsewhere: to make one may have to wait for a thread that fills a
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

/// A device's primary context, and what the program has done with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Primary {
    /// What the driver calls it; 0 if it is not in the books.
    pub(super) context: Handle,
    /// How often it was retained and not released: the driver counts at least that.
    pub(super) retained: u32,
    /// How many calls are under way that retain it.
    pub(super) retaining: u32,
    /// How many are that release it while others retain it.
    pub(super) releasing: u32,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Contexts {
    all: BTreeMap<Handle, Context>,
    pub(super) primaries: BTreeMap<CUdevice, Primary>,
    /// What is asked about just now.
    asking: Vec<(ContextId, About)>,
    serials: u64,
}

static CONTEXTS: Mutex<Contexts> =
    Mutex::new(Contexts { all: BTreeMap::new(), primaries: BTreeMap::new(), asking: Vec::new(), serials: 0 });
/// A context is left no more, or a call that retains or releases one is over.
static SETTLED: Condvar = Condvar::new();
/// A context has few events left.
static WANTED: AtomicBool = AtomicBool::new(false);
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

    /// The same of one about whose work the driver can be asked.
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

    /// From here on whoever changes something of this waits for who asks. Dropped with the books unlocked.
    pub(super) fn begin_asking(&mut self, id: ContextId, about: About) -> Asking {
        self.asking.push((id, about));
        Asking(id, about)
    }

    /// A context has ended, and with it what we had there.
    pub(super) fn remove(&mut self, handle: Handle) {
        let Some(gone) = self.all.remove(&handle) else { return };
        for other in self.all.values_mut() {
            other.peers.remove(&handle);
        }
        let captures = gone.streams.values().filter(|stream| stream.captured.is_some()).count();
        CAPTURING.fetch_sub(captures, Ordering::AcqRel);
        DEPARTURES.fetch_add(1, Ordering::AcqRel);
    }

    /// The GPU whose primary context this is.
    pub(super) fn primary_mut(&mut self, context: Handle) -> Option<&mut Primary> {
        self.primaries.values_mut().find(|primary| primary.context == context)
    }
}

/// Why the driver cannot be asked about the work of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It has ended, with all its work.
    Gone,
    /// It is being left, or does not answer: its work may run.
    Unknown,
}

/// What somebody asks about, or uses to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// That the context is there, and what we have in it.
    Life,
    /// All of its streams; or something is put behind them, which would break a capture.
    Whole,
    /// One stream. If a thread is stuck with that, the question is too, and is in nobody else's way.
    Stream(Handle),
}

/// While this lives nothing that it is about is destroyed, and nothing of it that did not capture begins to.
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

/// Keeps what is asked about alive.
pub(super) fn ask(id: ContextId) -> Result<Asking, Absent> {
    let mut contexts = lock();
    contexts.live(id)?;
    Ok(contexts.begin_asking(id, About::Life))
}

/// Asks something in a context, which is current and stays meanwhile.
pub(crate) fn within<T>(id: ContextId, what: impl FnOnce() -> T) -> Result<T, Absent> {
    let _asking = ask(id)?;
    api::within(id.handle, what).ok_or_else(|| confirm(id))
}

/// What the driver says of a context that it does not answer for, or not as one expects.
pub(super) fn confirm(id: ContextId) -> Absent {
    let number = lock().get(id).and_then(|context| context.number);
    let is_gone = number.is_some_and(|number| is_gone(id.handle, number));
    match lock().live(id) {
        Err(absent) => absent,
        // Not because it is just being left: then the driver may say so too early.
        Ok(_) if is_gone => Absent::Gone,
        Ok(_) => Absent::Unknown,
    }
}

/// Whether a context with this number is certainly no more: numbers are never given again.
pub(super) fn is_gone(handle: Handle, number: u64) -> bool {
    match api::context_number(handle) {
        Ok(now) => now != number,
        Err(answer) => api::is_of_no_context(answer),
    }
}

/// Waits for something to be settled, with the books unlocked.
pub(super) fn wait_until(mut is_settled: impl FnMut(&mut Contexts) -> bool) -> MutexGuard<'static, Contexts> {
    let mut contexts = lock();
    while !is_settled(&mut contexts) {
        contexts = SETTLED.wait(contexts).unwrap_or_else(PoisonError::into_inner);
    }
    contexts
}

/// Something was settled.
pub(super) fn settled() {
    SETTLED.notify_all();
}

/// Waits until all who began to ask about a context before are done, as far as that is in the way. What they must not be asking about
/// any more was entered before.
pub(super) fn quiesce(id: ContextId, is_in_the_way: impl Fn(About) -> bool) {
    drop(wait_until(|contexts| !contexts.asking.iter().any(|(asked, about)| *asked == id && is_in_the_way(*about))));
}

/// The same of whoever asks about a stream.
pub(super) fn quiesce_stream(id: ContextId, stream: Handle) {
    quiesce(id, |about| matches!(about, About::Whole) || about == About::Stream(stream));
}

/// The contexts of a GPU.
pub(super) fn of_device(device: CUdevice) -> Vec<ContextId> {
    let contexts = lock();
    let here = contexts.all.iter().filter(|(_, context)| context.device == device);
    here.map(|(handle, context)| ContextId { handle: *handle, serial: context.serial }).collect()
}

/// The contexts of the GPU that a context is on; none if that has ended.
pub(crate) fn of_same_device(context: Handle) -> Vec<ContextId> {
    device_of(context).map(of_device).unwrap_or_default()
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

/// How many events a new context is given, and how few are too few.
const EVENTS: usize = 64;
const FEW_EVENTS: usize = EVENTS / 2;

/// A context was made, or is found. Says whether another one was known by this handle, which has ended unseen.
pub(crate) fn add(context: Handle, device: CUdevice) -> bool {
    let number = api::context_number(context).ok();
    // One that has had this handle before is in the books until all of it is forgotten.
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
        // The program makes the context, and waits for that.
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

/// Makes as many events as are usual in a context, which is current. May wait.
fn make_events(id: ContextId) {
    while lock().get(id).is_some_and(|context| context.events.len() < EVENTS)
        && let Some(event) = api::new_event()
        && let Some(context) = lock().get(id)
    {
        context.give_event(event);
    }
}

/// Makes events where few are left. This waits for as long as the driver likes, and keeps nobody waiting: also not for a context to end,
/// which may do so meanwhile.
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

/// Sees to it that there is an event, for a call that waits in the context for whatever an event would wait for.
pub(crate) fn provide_event(id: ContextId) {
    if lock().live(id).is_ok_and(|context| context.events.is_empty()) {
        api::within(id.handle, || make_events(id));
    }
}

/// A device's primary context was made; its handle is needed when it is left, and cannot be asked for then. As [`add`].
pub(crate) fn add_primary(context: Handle, device: CUdevice) -> bool {
    lock().primaries.entry(device).or_default().context = context;
    add(context, device)
}

/// A device's primary context, if it was made.
pub(crate) fn primary(device: CUdevice) -> Option<Handle> {
    lock().primaries.get(&device).map(|primary| primary.context).filter(|context| *context != 0)
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
    // One that captures has nothing else to do.
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

/// An event of a context; none if there is none just now.
pub(super) fn event(id: ContextId) -> Option<Handle> {
    lock().get(id)?.take_event()
}

/// The same for a call that may wait for one to be made. The context is current.
pub(super) fn event_or_new(id: ContextId) -> Option<Handle> {
    event(id).or_else(api::new_event)
}

/// Takes a stream out of the books, of which it is told whether it was capturing, and says if its work is to be kept there; says whose
/// it was, and that.
pub(super) fn remove_from_books(stream: Handle, has_left: impl FnOnce(bool) -> bool) -> Option<(ContextId, bool)> {
    let mut contexts = lock();
    let (id, context) = contexts.of_stream(stream)?;
    let captured = context.streams.remove(&stream).and_then(|state| state.captured);
    if let Some(captured) = captured {
        captured.give_back(context);
    }
    let has_left = has_left(captured.is_some());
    if has_left {
        // At once: nobody sees the books without the one or the other.
        context.orphans.push(Orphan { stream, event: None });
    }
    Some((id, has_left))
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
