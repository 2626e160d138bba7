//! This process's pools ([`crate::memory::pools`]): the questions about them for the driver and the coordinator.
//!
//! The lock is held for the books only. The driver is asked how far a stream has come when another stream could use memory that it has
//! freed. As long as one stream alone uses a pool nothing is put into it, unless it waits for the legacy stream's work: the program that
//! then waits for the stream waits for the free, and so for that work.

use core::ffi::c_int;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_contract::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUdeviceptr, CUmemoryPool, CUresult,
};

use super::contexts::{self, ContextId};
use super::mark::{Mark, is_idle};
use super::{aside, capture, frees};
use crate::driver::api::{self, Handle, Stream};
use crate::gate::Passage;
use crate::link::requests::Requests;
use crate::memory::order::{Free, Recorded, StreamKey, StreamNumber};
use crate::memory::pools::{ALIGNMENT, More, PoolNumber, Pools, Settings, attribute};
use crate::memory::space::{self, NoMemory, Space};
use crate::memory::table::Pooled;
use crate::sys::thread;

/// The context and stream by which the driver is asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    context: Option<ContextId>,
    stream: Stream,
    key: StreamKey,
}

#[derive(Debug, Default)]
struct Books {
    pools: Pools<Asked>,
    /// The GPUs of those.
    devices: BTreeMap<Handle, CUdevice>,
    /// Pools of shared GPUs whose memory belongs to the driver.
    drivers: BTreeMap<Handle, CUdevice>,
    /// The owner of the pool that serves a GPU's allocations, if that was asked.
    current: BTreeMap<CUdevice, Whose>,
    /// The number of times that another pool may have become the current one, or that a pool that is not known yet was given other
    /// settings.
    changes: u64,
}

/// The owner of a pool's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// The pool is ours: its number and its handle, and the GPU whose memory it has.
    Ours(PoolNumber, Handle, CUdevice),
    /// The pool is the driver's, on this GPU, which is shared.
    Drivers(CUdevice),
    /// The pool is on the host, or on a GPU that is not shared; or there is no such pool.
    Nobodys,
}

impl Books {
    fn whose(&self, handle: Handle) -> Option<Whose> {
        let device = || self.devices.get(&handle).copied();
        let ours = self.pools.find(handle).and_then(|pool| Some(Whose::Ours(pool, handle, device()?)));
        ours.or_else(|| self.drivers.get(&handle).copied().map(Whose::Drivers))
    }

    /// Adds a pool that the program did not make, with the settings that it had after `changes` changes. False if there were more changes
    /// meanwhile. Another thread may have added it.
    fn meet(&mut self, handle: Handle, device: CUdevice, settings: Settings, changes: u64) -> bool {
        if self.changes != changes {
            return false;
        }
        if self.whose(handle).is_none() {
            self.add(handle, device, u64::MAX, settings);
        }
        true
    }

    fn add(&mut self, handle: Handle, device: CUdevice, most: u64, settings: Settings) {
        self.pools.add(handle, most, settings);
        self.devices.insert(handle, device);
    }

    /// Records an attribute that the program has set.
    fn set(&mut self, handle: Handle, attribute: c_int, value: u64) {
        if self.whose(handle).is_none() {
            self.changes += 1;
        }
        self.pools.set(handle, attribute, value);
    }
}

static BOOKS: Mutex<Option<Books>> = Mutex::new(None);
/// True if a stream may have yet to reach some of its frees, or a pool has more than it is to keep: for a quick check.
static PENDING: AtomicBool = AtomicBool::new(false);
/// The marks behind frees in streams, the oldest first.
static MARKS: Mutex<BTreeMap<StreamNumber, VecDeque<(u64, Mark)>>> = Mutex::new(BTreeMap::new());

fn with<T>(what: impl FnOnce(&mut Books) -> T) -> T {
    what(BOOKS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn marks() -> MutexGuard<'static, BTreeMap<StreamNumber, VecDeque<(u64, Mark)>>> {
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool that serves an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// The current pool of a GPU.
    Current(CUdevice),
    /// The pool with this handle.
    Pool(Handle),
}

/// Adds a pool that the program has made; its memory is ours. It may have up to `most` bytes, or any number of them (0).
pub(crate) fn made(handle: Handle, device: CUdevice, most: u64) {
    if let Some(settings) = ask_settings(handle) {
        with(|books| books.add(handle, device, if most == 0 { u64::MAX } else { most }, settings));
    }
}

/// Adds a pool whose memory stays the driver's.
pub(crate) fn made_by_the_driver(handle: Handle, device: CUdevice) {
    with(|books| books.drivers.insert(handle, device));
}

/// The GPU of a pool, if its memory is ours.
pub(crate) fn device_of(handle: Handle) -> Option<CUdevice> {
    match with(|books| books.whose(handle)) {
        Some(Whose::Ours(_, _, device)) => Some(device),
        _ => None,
    }
}

/// Asks the driver for a pool's settings.
fn ask_settings(handle: Handle) -> Option<Settings> {
    let pool: CUmemoryPool = api::handle(handle);
    let ask = |attribute: c_int| {
        let mut value = 0u64;
        // SAFETY: a pool of the program's, and room for the longest of all attributes.
        let answer = unsafe { api::pool_attribute(pool, attribute, ptr::from_mut(&mut value).cast()) };
        (answer == CUDA_SUCCESS).then_some(value)
    };
    Some(Settings {
        follow_events: ask(attribute::FOLLOW_EVENTS)? != 0,
        opportunistic: ask(attribute::OPPORTUNISTIC)? != 0,
        internal: ask(attribute::INTERNAL)? != 0,
        threshold: ask(attribute::THRESHOLD)?,
    })
}

/// A GPU's pool as `ask` finds it; 0 if that failed.
fn asked_pool(device: CUdevice, ask: unsafe fn(*mut CUmemoryPool, CUdevice) -> CUresult) -> Handle {
    let mut pool = ptr::null_mut();
    // SAFETY: an out-parameter.
    let answer = unsafe { ask(&mut pool, device) };
    if answer == CUDA_SUCCESS { pool.expose_provenance() } else { 0 }
}

/// Finds the owner of the memory of a pool.
pub(crate) fn find(from: From) -> Whose {
    let known = with(|books| match from {
        From::Current(device) => books.current.get(&device).copied(),
        From::Pool(handle) => books.whose(handle),
    });
    known.unwrap_or_else(|| look_for(from))
}

#[cold]
fn look_for(from: From) -> Whose {
    let changes = with(|books| books.changes);
    let _relaxed = api::Relaxed::enter();
    let handle = match from {
        From::Current(device) => asked_pool(device, api::current_pool),
        From::Pool(handle) => handle,
    };
    let is_default = |device: &CUdevice| handle == asked_pool(*device, api::default_pool);
    let known = with(|books| books.whose(handle));
    if known.is_none()
        && handle != 0
        && let Some(device) = space::all().map(|space| space.device).find(is_default)
    {
        meet(handle, device);
    }
    with(|books| {
        let found = books.whose(handle).unwrap_or(Whose::Nobodys);
        if let From::Current(device) = from
            && handle != 0
            && books.changes == changes
        {
            books.current.insert(device, found);
        }
        found
    })
}

/// Asks for a pool's settings, and adds it.
fn meet(handle: Handle, device: CUdevice) {
    loop {
        let changes = with(|books| books.changes);
        let Some(settings) = ask_settings(handle) else { return };
        if with(|books| books.meet(handle, device, settings, changes)) {
            return;
        }
    }
}

/// Called when the program has made another pool the current one, or may have.
pub(crate) fn current_changed() {
    with(|books| {
        books.current.clear();
        books.changes += 1;
    });
}

/// Records an attribute that the program has set.
pub(crate) fn set(handle: Handle, attribute: c_int, value: u64) {
    with(|books| books.set(handle, attribute, value));
    if attribute == attribute::THRESHOLD {
        PENDING.store(true, Ordering::Release);
    }
}

/// The value of an attribute that tells how much memory a pool has, if that pool is ours.
pub(crate) fn figure(handle: Handle, attribute: c_int) -> Option<u64> {
    with(|books| books.pools.figure(handle, attribute))
}

/// A stream's key in the books; `None` for the default stream of no context.
fn key_of(stream: Stream) -> Option<StreamKey> {
    /// No created stream has this handle, and no thread's own.
    const LEGACY: usize = 1;
    if let Stream::Created(handle) = stream {
        return Some(StreamKey { context: 0, handle });
    }
    let context = api::current_context();
    let handle = capture::key(stream).unwrap_or(LEGACY);
    (context != 0).then_some(StreamKey { context, handle })
}

/// The context and stream by which the driver is asked about a call's stream.
fn asked(stream: Stream, key: StreamKey) -> Asked {
    let context = contexts::of(stream).or_else(|| contexts::id_of(api::current_context()));
    Asked { context, stream, key }
}

/// The number of a stream. An error is the answer of the driver, which is asked about streams that are not known.
fn number_of(stream: Stream) -> Result<StreamNumber, CUresult> {
    let key = key_of(stream).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if let Some(number) = with(|books| books.pools.find_stream(key)) {
        return Ok(number);
    }
    // SAFETY: the stream of a call that the program makes.
    match unsafe { api::check_stream(stream) } {
        CUDA_SUCCESS => {}
        answer => return Err(answer),
    }
    let asked = asked(stream, key);
    Ok(with(|books| books.pools.add_stream(key, asked)))
}

/// The work that a stream has yet to end.
enum Rest {
    Idle,
    Until(Mark),
    Unknown,
}

impl core::convert::From<Option<Mark>> for Rest {
    fn from(mark: Option<Mark>) -> Self {
        mark.map_or(Self::Unknown, Self::Until)
    }
}

impl Asked {
    /// Runs a closure with the stream that has this number, if it still is that stream: it may be destroyed meanwhile, and its handle
    /// reused.
    fn with_stream<T>(&self, number: StreamNumber, what: impl FnOnce() -> T) -> Option<T> {
        let is_it = || with(|books| books.pools.find_stream(self.key)) == Some(number);
        if !is_it() {
            return None;
        }
        let done = what();
        is_it().then_some(done)
    }

    /// Sets a mark behind everything that is in the stream now.
    fn mark(&self, number: StreamNumber) -> Option<Mark> {
        let context = self.context?;
        // Another thread's own stream cannot be named here.
        let can_be_named = self.stream != Stream::PerThread || key_of(self.stream) == Some(self.key);
        let in_stream = || Mark::of_stream(context, self.stream);
        let mark = if can_be_named { self.with_stream(number, in_stream) } else { None };
        Some(mark.unwrap_or_else(|| Mark::of_context(context)))
    }

    /// The stream's work that has yet to end. If a thread is stuck with the stream, the mark covers all of the context.
    fn rest(&self, number: StreamNumber) -> Rest {
        let Some(context) = self.context else { return Rest::Unknown };
        let mut all = Mark::of_context(context);
        if all.look().is_over() {
            return Rest::Idle;
        }
        let this = *self;
        let idle_or_mark = move || if this.is_idle(number) { Rest::Idle } else { Rest::from(this.mark(number)) };
        match aside::unless_stuck(context.handle(), idle_or_mark) {
            None | Some(Rest::Unknown) => Rest::Until(all),
            Some(rest) => rest,
        }
    }

    /// True if nothing is queued in the stream, as far as that can be asked at once.
    fn is_idle(&self, number: StreamNumber) -> bool {
        let (Some(context), Stream::Created(handle)) = (self.context, self.stream) else { return false };
        self.with_stream(number, || is_idle(context, handle)).flatten() == Some(true)
    }
}

/// The last free that a stream has reached; `last` is the last one in it.
fn passed(asked: &Asked, last: Free) -> Option<Free> {
    // The marks are taken out, because the driver is asked meanwhile.
    let mut behind = marks().remove(&last.stream).unwrap_or_default();
    let mut upto = None;
    while let Some((number, mark)) = behind.front_mut() {
        if !mark.look().is_over() {
            break;
        }
        upto = Some(*number);
        behind.pop_front();
    }
    if behind.is_empty() && upto.is_none_or(|upto| upto < last.number) {
        match asked.rest(last.stream) {
            Rest::Idle => upto = Some(last.number),
            Rest::Until(mark) => behind.push_back((last.number, mark)),
            Rest::Unknown => {}
        }
    }
    if !behind.is_empty() {
        put_back(last.stream, behind);
    }
    upto.map(|number| Free { number, ..last })
}

/// The number of marks that are kept of a stream; later frees get a mark only when another stream asks for their memory.
const MOST_MARKS: usize = 64;

/// Keeps a mark behind a free.
fn add_mark(free: Free, mark: Mark) {
    let mut marks = marks();
    let behind = marks.entry(free.stream).or_default();
    if behind.len() < MOST_MARKS && behind.back().is_none_or(|(last, _)| *last < free.number) {
        behind.push_back((free.number, mark));
    }
}

/// Puts marks back that were taken out; others may have been added meanwhile.
fn put_back(stream: StreamNumber, mut behind: VecDeque<(u64, Mark)>) {
    let mut marks = marks();
    let meanwhile = marks.entry(stream).or_default();
    behind.append(meanwhile);
    behind.make_contiguous().sort_by_key(|(number, _)| *number);
    *meanwhile = behind;
}

/// Settles the frees that these streams have reached. False if there are none.
fn look_at(streams: Vec<(Asked, Free)>) -> bool {
    let _relaxed = api::Relaxed::enter();
    let passed: Vec<Free> = streams.iter().filter_map(|(asked, last)| passed(asked, *last)).collect();
    with(|books| books.pools.settle(&passed));
    !passed.is_empty()
}

/// Settles the frees that any stream has reached.
fn look_at_all() {
    look_at(with(|books| books.pools.unsettled(|_| true)));
}

/// Allocates pool memory for a stream. It may be usable in the stream's order only, by work that is queued later.
pub(crate) fn allocate(
    passage: &Passage,
    requests: &Requests,
    space: &'static Space,
    (pool, handle): (PoolNumber, Handle),
    bytes: u64,
    stream: Stream,
) -> Result<CUdeviceptr, NoMemory> {
    const FULL: NoMemory = NoMemory::Answer(CUDA_ERROR_OUT_OF_MEMORY);
    let own = number_of(stream).map_err(NoMemory::Answer)?;
    let size = bytes.checked_next_multiple_of(ALIGNMENT).filter(|size| *size <= space.total()).ok_or(FULL)?;
    let request = Request { passage, requests, space, pool, bytes, size, own };
    let Got { at, is_behind_frees } = request.serve(stream)?.ok_or(FULL)?;
    space.add_pooled(at, bytes, (pool, handle), is_behind_frees.then_some(own));
    Ok(at)
}

/// The time for which a thread sleeps at a time while another thread's growth of the pool is on its way.
const SOON: Duration = Duration::from_micros(50);

/// Allocated memory.
struct Got {
    at: CUdeviceptr,
    /// Some of it was freed in a stream that may have yet to reach the free.
    is_behind_frees: bool,
}

/// A request for an allocation.
struct Request<'a> {
    passage: &'a Passage,
    requests: &'a Requests,
    space: &'static Space,
    pool: PoolNumber,
    /// The bytes that the program asks for, and the bytes that the allocation takes.
    bytes: u64,
    size: u64,
    own: StreamNumber,
}

impl Request<'_> {
    fn serve(&self, stream: Stream) -> Result<Option<Got>, NoMemory> {
        if let Some(at) = self.take() {
            return Ok(Some(at));
        }
        let Some(settings) = with(|books| books.pools.settings(self.pool)) else { return Ok(None) };
        if settings.opportunistic
            && look_at(with(|books| books.pools.unsettled_of(self.pool, self.own)))
            && let Some(at) = self.take()
        {
            return Ok(Some(at));
        }
        if let Some(at) = self.grow()? {
            return Ok(Some(at));
        }
        // Other pools give up unused memory.
        look_at_all();
        frees::give_up(with(|books| books.pools.trim_all()));
        if let Some(at) = self.grow()? {
            return Ok(Some(at));
        }
        Ok(if settings.internal { self.take_behind_waits(stream) } else { None })
    }

    fn take(&self) -> Option<Got> {
        let taken = with(|books| books.pools.take(self.pool, self.size, self.bytes, self.own))?;
        Some(Got { at: taken.at, is_behind_frees: taken.is_behind_frees() })
    }

    /// Allocates with more memory for the pool; `None` if there is no more.
    fn grow(&self) -> Result<Option<Got>, NoMemory> {
        frees::collect_first(self.passage).map_err(NoMemory::Answer)?;
        let mut has_more_addresses = false;
        loop {
            let returned = take_returned();
            let more = with(|books| {
                books.pools.on_returned(&returned);
                books.pools.grow(self.pool, self.size, self.own)
            });
            match more {
                More::Full => return Ok(None),
                More::Coming => {
                    self.passage.outside(|| thread::sleep(SOON)).map_err(NoMemory::Answer)?;
                    if let Some(got) = self.take() {
                        return Ok(Some(got));
                    }
                }
                More::Lacks if has_more_addresses => return Ok(None),
                More::Lacks => {
                    has_more_addresses = true;
                    let _relaxed = api::Relaxed::enter();
                    let area = self.space.take_area(self.space.total()).or_else(|| self.space.take_area(self.size));
                    let Some(area) = area else { return Ok(None) };
                    with(|books| books.pools.add_area(self.pool, area));
                }
                More::Grows(growing) => {
                    return match self.space.grow_area(self.passage, self.requests, &growing.ranges()) {
                        Ok(()) => {
                            let at = with(|books| books.pools.grown(&growing, self.bytes));
                            Ok(Some(Got { at, is_behind_frees: growing.is_behind_frees() }))
                        }
                        Err(error) => {
                            with(|books| books.pools.not_grown(growing));
                            match error {
                                NoMemory::Answer(CUDA_ERROR_OUT_OF_MEMORY) => Ok(None),
                                error => Err(error),
                            }
                        }
                    };
                }
            }
        }
    }

    /// Allocates memory that other streams have freed and not reached yet: the stream is made to wait for them.
    fn take_behind_waits(&self, stream: Stream) -> Option<Got> {
        let _relaxed = api::Relaxed::enter();
        let taken = with(|books| books.pools.take_any(self.pool, self.size, self.bytes, self.own))?;
        if taken.after.iter().all(|free| keep_waiting(stream, *free)) {
            return Some(Got { at: taken.at, is_behind_frees: taken.is_behind_frees() });
        }
        with(|books| books.pools.not_taken(taken));
        None
    }
}

/// Makes a stream wait until another has reached one of its frees.
fn keep_waiting(stream: Stream, free: Free) -> bool {
    let behind = marks().remove(&free.stream);
    if let Some(behind) = behind {
        let mark = behind.iter().find(|(number, _)| *number >= free.number);
        let is_kept = mark.is_some_and(|(_, mark)| mark.keep_waiting(stream));
        put_back(free.stream, behind);
        if is_kept {
            return true;
        }
    }
    let Some((asked, last)) = with(|books| books.pools.last(free.stream)) else {
        // All work of that stream has ended.
        return true;
    };
    let stream_of_free = free.stream;
    let mark = asked
        .context
        .and_then(|context| aside::unless_stuck(context.handle(), move || asked.mark(stream_of_free)).flatten());
    let Some(mark) = mark else { return false };
    let is_kept = mark.keep_waiting(stream);
    put_back(free.stream, VecDeque::from([(last.number, mark)]));
    is_kept
}

/// Frees memory of a pool in a stream, for the program. An error is the call's answer, and then nothing is freed.
pub(crate) fn free(space: &Space, at: CUdeviceptr, stream: Stream) -> Result<(), CUresult> {
    let number = number_of(stream)?;
    let asked = || key_of(stream).map(|key| asked(stream, key));
    let mut mark = None;
    if stream == Stream::Legacy && contexts::is_legacy_ordering() {
        // Other streams may rely on the order that such a call makes.
        let here = asked().and_then(|asked| asked.context).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let before = with(|books| books.pools.now());
        mark = Some((before + 1, Mark::in_legacy(here)?));
    }
    let Some(freed) = space.remove_pooled(at).filter(|freed| !is_lost(freed)) else { return Ok(()) };
    let comes_later = contexts::is_behind_legacy(stream);
    let marked = with(|books| books.pools.give(freed.pool, at, freed.bytes, freed.asked, number, comes_later));
    PENDING.store(true, Ordering::Release);
    let Some(free) = marked else { return Ok(()) };
    // If another thread's free came in between, the mark is not behind this free.
    let mark = mark.filter(|(next, _)| *next == free.number).map(|(_, mark)| mark);
    // If a thread is stuck with this stream, the driver waits for it too.
    if let Some(mark) = mark.or_else(|| api::where_nobody_is_stuck(|| asked()?.mark(number))) {
        add_mark(free, mark);
    }
    Ok(())
}

/// True if the freed memory stays accessible to others for ever: it is not reused.
fn is_lost(freed: &Pooled) -> bool {
    if freed.has_escaped {
        with(|books| books.pools.lose(freed.pool, freed.asked));
    }
    freed.has_escaped
}

/// Frees memory of a pool that the program thereby declares unused: like the driver, this waits for nothing.
pub(crate) fn free_now(freed: &Pooled, at: CUdeviceptr) {
    if is_lost(freed) {
        return;
    }
    let gone = with(|books| books.pools.give_at_once(freed.pool, at, freed.bytes, freed.asked, freed.behind));
    if freed.behind.is_some() {
        PENDING.store(true, Ordering::Release);
    }
    give_up(gone);
}

/// Gives up these ranges of pools, and removes pools that are gone with them.
fn give_up(ranges: Vec<Range<CUdeviceptr>>) {
    frees::give_up(ranges);
    sweep();
}

/// The subject of the program's wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    Stream(Stream),
    Event(Handle),
    /// All work in a context.
    Context(Handle),
}

/// The state that is known before the program waits.
pub(crate) struct Waiting {
    /// Memory freed up to this number may be free for all streams after the wait.
    upto: u64,
    recorded: Option<Recorded>,
}

/// Called before the program waits. `None` if the wait cannot free anything.
#[inline]
pub(crate) fn before_waiting(awaited: Awaited) -> Option<Waiting> {
    let wait = |books: &mut Books| Waiting {
        upto: books.pools.now(),
        recorded: if let Awaited::Event(event) = awaited { books.pools.recorded(event) } else { None },
    };
    PENDING.load(Ordering::Acquire).then(|| with(wait))
}

/// Called after the program has waited. Pools give up unused memory above their thresholds.
pub(crate) fn has_waited(awaited: Awaited, Waiting { upto, recorded }: Waiting) {
    let key = if let Awaited::Stream(stream) = awaited { key_of(stream) } else { None };
    let gone = with(|books| {
        let settled: Vec<Free> = match awaited {
            Awaited::Stream(_) => {
                let stream = key.and_then(|key| books.pools.find_stream(key));
                stream.map(|stream| Free { stream, number: upto }).into_iter().collect()
            }
            Awaited::Event(event) => recorded.map(|recorded| books.pools.still(event, recorded)).unwrap_or_default(),
            Awaited::Context(context) => {
                let here = |asked: &Asked| asked.context.is_some_and(|id| id.handle == context);
                let streams = books.pools.unsettled(here).into_iter();
                streams.map(|(_, last)| Free { number: upto.min(last.number), ..last }).collect()
            }
        };
        books.pools.settle(&settled);
        let gone = books.pools.tidy();
        PENDING.store(books.pools.is_any_pending(), Ordering::Release);
        gone
    });
    forget_marks();
    give_up(gone);
}

/// Forgets marks of settled frees.
fn forget_marks() {
    let behind: Vec<(StreamNumber, u64)> =
        marks().iter().filter_map(|(stream, behind)| Some((*stream, behind.front()?.0))).collect();
    let is_settled = |(stream, number): &(StreamNumber, u64)| {
        with(|books| books.pools.is_settled(&Free { stream: *stream, number: *number }))
    };
    // The marks are dropped after the lock is released.
    let mut dropped = Vec::new();
    for (stream, _) in behind.into_iter().filter(is_settled) {
        let Some(mut queue) = marks().remove(&stream) else { continue };
        while queue.front().is_some_and(|(number, _)| is_settled(&(stream, *number))) {
            dropped.extend(queue.pop_front());
        }
        if !queue.is_empty() {
            put_back(stream, queue);
        }
    }
}

/// An event that is about to be recorded, and the frees before it.
pub(crate) struct Recording(Handle, Vec<Free>);

/// Called before the program records an event. `None` if no free counts before it.
#[inline]
pub(crate) fn before_recording(event: Handle, stream: Stream) -> Option<Recording> {
    if !PENDING.load(Ordering::Acquire) {
        return None;
    }
    let key = key_of(stream)?;
    Some(Recording(event, with(|books| books.pools.begin_record(event, key))))
}

/// Called after the program has recorded an event; `counts` is false if the event keeps no stream waiting.
pub(crate) fn has_recorded(Recording(event, frees): Recording, counts: bool) {
    with(|books| books.pools.end_record(event, frees, counts));
}

/// The frees before an event, read before a stream is to wait for it.
#[inline]
pub(crate) fn before_stream_waits(event: Handle) -> Option<Recorded> {
    if PENDING.load(Ordering::Acquire) { with(|books| books.pools.recorded(event)) } else { None }
}

/// Called when a stream waits for an event that was recorded so.
pub(crate) fn stream_waits(stream: Stream, event: Handle, recorded: Recorded) {
    if let Some(key) = key_of(stream) {
        let asked = asked(stream, key);
        with(|books| books.pools.wait(key, event, recorded, asked));
    }
}

/// Forgets a destroyed event.
#[inline]
pub(crate) fn event_gone(event: Handle) {
    if PENDING.load(Ordering::Acquire) {
        with(|books| books.pools.forget_event(event));
    }
}

/// Called before a stream is destroyed. Its work goes on, and may use memory that it has freed.
pub(crate) fn stream_goes(handle: Handle) {
    let key = StreamKey { context: 0, handle };
    let Some((asked, last)) = with(|books| books.pools.last_of(key)) else { return };
    let _relaxed = api::Relaxed::enter();
    if let Some(mark) = asked.mark(last.stream) {
        put_back(last.stream, VecDeque::from([(last.number, mark)]));
    }
    with(|books| books.pools.forget_stream(key));
}

/// Called when a context is gone, and with it all work of its streams.
pub(crate) fn context_gone(context: Handle) {
    with(|books| {
        let here = |asked: &Asked| asked.key.context == context || asked.context.is_some_and(|id| id.handle == context);
        for (asked, last) in books.pools.streams(here) {
            books.pools.forget_stream(asked.key);
            books.pools.settle(&[last]);
        }
    });
}

/// Trims a pool to `keep` bytes of unused memory.
pub(crate) fn trim(handle: Handle, keep: u64) {
    look_at_all();
    frees::give_up(with(|books| books.pools.trim(handle, keep)));
}

/// A pool that is about to be destroyed, if it is one of ours.
pub(crate) struct Leaving(Handle, PoolNumber);

/// Called before a pool is destroyed: its handle may be reused before we hear that it was.
pub(crate) fn leaves(handle: Handle) -> Option<Leaving> {
    with(|books| {
        books.drivers.remove(&handle);
        books.pools.remove(handle)
    })
    .map(|pool| Leaving(handle, pool))
}

/// Called after the driver has answered: the pool was destroyed, or not.
pub(crate) fn has_left(leaving: Leaving, is_gone: bool) {
    let Leaving(handle, pool) = leaving;
    if !is_gone {
        with(|books| books.pools.put_back(handle, pool));
        return;
    }
    current_changed();
    let gone = with(|books| books.pools.on_destroyed(pool));
    PENDING.store(true, Ordering::Release);
    give_up(gone);
}

/// The addresses of pools that are unmapped again.
fn take_returned() -> Vec<Range<CUdeviceptr>> {
    space::all().flat_map(Space::take_returned).collect()
}

/// Gives back the addresses of pools that have gone.
fn sweep() {
    let returned = take_returned();
    let gone = with(|books| {
        books.pools.on_returned(&returned);
        books.pools.sweep()
    });
    gone.iter().for_each(|area| {
        if let Some(space) = space::at(area.start) {
            space.give_area_back(area);
        }
    });
}

/// All unused memory of pools.
pub(crate) fn free_memory() -> Vec<Range<CUdeviceptr>> {
    with(|books| books.pools.free())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { follow_events: true, opportunistic: true, internal: true, threshold: 0 };

    #[test]
    fn threads_that_meet_a_pool_at_once_mean_the_same() {
        let mut books = Books::default();
        assert!(books.meet(7, 0, SETTINGS, 0));
        let first = books.pools.find(7).expect("it was added");
        assert!(books.meet(7, 0, SETTINGS, 0), "another thread had asked before");
        assert_eq!(books.pools.find(7), Some(first));
    }

    #[test]
    fn a_pool_that_is_met_has_the_settings_of_the_last_change() {
        let mut books = Books::default();
        let changes = books.changes;
        books.set(7, attribute::THRESHOLD, 5);
        assert!(!books.meet(7, 0, SETTINGS, changes), "they may be older");
        assert!(books.meet(7, 0, Settings { threshold: 5, ..SETTINGS }, books.changes));
        books.set(7, attribute::THRESHOLD, 6);
        let pool = books.pools.find(7).expect("it was added");
        assert_eq!(books.pools.settings(pool).map(|settings| settings.threshold), Some(6));
    }
}
