//! Passing the gate: the program's side.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use core::time::Duration;

use baton_contract::cuda::{CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_INVALID_VALUE, CUdevice, CUresult};

use super::activity;
use super::exclusive::{self, Inside};
use super::protocol::{ARRIVING_CONTENDED, BROKEN, CLOSED, CONTENDED, Gate, OPEN, RESTING, UNDECIDED, passes, state};
use super::stamps;
use super::word::{self, Word};
use crate::sys::futex::{self, Scope};
use crate::sys::{cancel, process, thread};

pub(super) static GATE: Gate = Gate::new(UNDECIDED);

/// The count of threads so late in their life that their thread-locals are gone: shared, so counted atomically.
pub(super) static LATE: AtomicU32 = AtomicU32::new(0);

/// The session's functions that calls at the gate run.
pub(crate) struct Keeper {
    /// A call came before it was decided whether this program joins a coordinator.
    pub(crate) decide: fn(),
    /// A call waits at the closed gate.
    pub(crate) demand: fn(),
    /// The first call after a rest: there is a request to be watched.
    pub(crate) awoke: fn(),
    /// A call is the first for this GPU.
    pub(crate) begin_work_on: fn(CUdevice),
}

static KEEPER: AtomicPtr<Keeper> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the keeper. Until then the gate is never closed.
pub(crate) fn keep(keeper: &'static Keeper) {
    KEEPER.store(core::ptr::from_ref(keeper).cast_mut(), Ordering::Release);
}

fn tell(what: impl FnOnce(&Keeper)) {
    // SAFETY: null, or a reference that lives for ever.
    if let Some(keeper) = unsafe { KEEPER.load(Ordering::Acquire).as_ref() } {
        what(keeper);
    }
}

/// Called before the first call for a GPU passes.
#[cold]
pub(crate) fn begin_work_on(device: CUdevice) {
    tell(|keeper| (keeper.begin_work_on)(device));
}

/// A call's passage; ends when dropped.
#[must_use = "the passage ends when this is dropped"]
pub(crate) struct Passage(Way);

/// The way in which a call is inside.
#[derive(Clone, Copy)]
enum Way {
    /// Its thread's word counts it.
    Word(&'static Word),
    /// The thread has no word any more.
    Late,
    /// It is not inside: it is not decided yet whether there is a session.
    Ungated,
}

/// Passes the gate, waiting while it is closed. An error is the answer to the program's call.
#[inline(always)]
pub(crate) fn pass() -> Result<Passage, CUresult> {
    let Some(word) = word::own_or_new() else { return late() };
    let depth = word.calls.enter();
    if GATE.load() != OPEN && depth == 0 {
        return wait(word).map(Passage);
    }
    Ok(Passage(Way::Word(word)))
}

/// Passes the gate if it is open at the moment, and does not ask for it to be opened.
pub(crate) fn pass_if_open() -> Option<Passage> {
    let word = word::own_or_new()?;
    let depth = word.calls.enter();
    if depth == 0 && !matches!(GATE.load(), OPEN | CONTENDED | RESTING) {
        word.calls.step_back();
        return None;
    }
    Some(Passage(Way::Word(word)))
}

/// A call that may keep others out of its context while it waits in the driver; ends when dropped.
#[must_use = "it ends when this is dropped"]
pub(crate) struct Exclusive {
    _inside: Inside,
    _passage: Passage,
}

/// Enters, in any state of the gate, for a call in this context that touches no memory of ours: the gate only counts the call as inside.
/// The driver may keep all others from queueing there meanwhile, so such a call waits while the driver is being asked whether work has
/// ended.
pub(crate) fn enter_in_any_state(context: usize) -> Exclusive {
    const SOON: Duration = Duration::from_micros(50);
    // As long as nothing is decided, this cannot be on a shared GPU.
    let word = if GATE.load() != UNDECIDED { word::own_or_new() } else { None };
    loop {
        let passage = Passage(word.map_or(Way::Ungated, Way::Word));
        let depth = word.map_or(0, |word| word.calls.enter());
        // In this order: a thread that keeps such calls off announces it, and then checks if any is inside.
        let inside = Inside::begin(context);
        // The thread that closes the gate waits for the call that this one is a part of.
        if !exclusive::is_kept_off(context, depth == 0) {
            return Exclusive { _inside: inside, _passage: passage };
        }
        drop(inside);
        // The passage has not been inside.
        core::mem::forget(passage);
        if let Some(word) = word {
            word.calls.step_back();
        }
        thread::sleep(SOON);
    }
}

/// True if another tenant waits for the GPU while this program has it.
#[inline(always)]
pub(crate) fn is_contended() -> bool {
    matches!(GATE.peek(), CONTENDED | ARRIVING_CONTENDED)
}

/// Checks the gate for a call that waits inside: an error if no call will ever pass again.
pub(crate) fn check() -> Result<(), CUresult> {
    if GATE.load() == BROKEN { Err(CUDA_ERROR_DEVICE_UNAVAILABLE) } else { Ok(()) }
}

/// Changes when memory may have been evicted under a call that is inside. Work that is queued then finds it back; but a call in which the
/// driver checks the addresses may have been refused for it, and has to be repeated.
#[inline(always)]
fn holds() -> u32 {
    GATE.holds()
}

/// Makes a call in which the driver checks the addresses. If it was refused, and memory may just have been evicted under it, it is
/// repeated when that is back: a refused call has done nothing.
#[inline]
pub(crate) fn checked(pass: impl Fn() -> Result<Passage, CUresult>, call: impl Fn() -> CUresult) -> CUresult {
    loop {
        let holds = holds();
        let _passage = match pass() {
            Ok(passage) => passage,
            Err(answer) => return answer,
        };
        let answer = call();
        if answer != CUDA_ERROR_INVALID_VALUE || self::holds() == holds {
            return answer;
        }
    }
}

/// The right to change mappings; ends when dropped. Other calls may be left inside when the gate closes: calls that map and unmap,
/// allocate and free, are always waited for.
#[must_use = "the right ends when this is dropped"]
pub(crate) struct MappingGuard {
    /// A thread that ended in the middle would leave the books half written.
    _uncancelled: cancel::Off,
}

/// Waits, outside the gate, until mappings may be changed. An error is the answer to the program's call.
pub(crate) fn lock_mappings(passage: &Passage) -> Result<MappingGuard, CUresult> {
    let mut waiting = None;
    loop {
        if let Some(guard) = lock_mappings_if_open() {
            drop(waiting);
            return Ok(guard);
        }
        passage.outside(|| waiting = Some(until_open()))?;
        if let Some(Err(answer)) = waiting {
            return Err(answer);
        }
    }
}

/// Gets the right to change mappings, if the gate allows that at the moment.
pub(crate) fn lock_mappings_if_open() -> Option<MappingGuard> {
    let uncancelled = cancel::Off::begin();
    GATE.begin_mapping().then(|| MappingGuard { _uncancelled: uncancelled })
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        GATE.end_mapping();
    }
}

/// True if memory may still be on its way, for a caller inside: even when the gate is being closed while it is.
#[inline(always)]
pub(crate) fn may_lack() -> bool {
    !matches!(GATE.peek(), OPEN | CONTENDED | RESTING | UNDECIDED)
}

impl Passage {
    /// The passage of a call of a process that has yet to join, if it ever does.
    pub(crate) fn ungated() -> Self {
        Self(Way::Ungated)
    }

    /// True if it belongs to such a call.
    pub(crate) fn is_ungated(&self) -> bool {
        matches!(self.0, Way::Ungated)
    }

    /// Sleeps outside the gate, so that it can be closed meanwhile, and passes it again. A nested call sleeps inside: it cannot step back
    /// from the one around it.
    pub(crate) fn outside(&self, sleep: impl FnOnce()) -> Result<(), CUresult> {
        let Way::Word(word) = self.0 else {
            sleep();
            return Ok(());
        };
        word.calls.step_back();
        sleep();
        let depth = word.calls.enter();
        if depth == 0 && !passes(GATE.load()) {
            // The program has joined: otherwise no memory could be away.
            return wait(word).map(|_| ()).inspect_err(|_| {
                // The passage has yet to end.
                word.calls.enter();
            });
        }
        Ok(())
    }
}

impl Drop for Passage {
    #[inline(always)]
    fn drop(&mut self) {
        match self.0 {
            Way::Word(word) => word.calls.leave(),
            Way::Late => drop(LATE.fetch_sub(1, Ordering::Release)),
            Way::Ungated => {}
        }
    }
}

/// Resets the gate in a forked child, where the other threads are gone: only this thread is inside, and the gate was closed by the
/// parent's session, if at all. The child has no coordinator. Async-signal-safe.
pub(crate) fn start_anew() {
    word::release_others();
    LATE.store(0, Ordering::Relaxed);
    WAITING.store(0, Ordering::Relaxed);
    YIELDING.store(0, Ordering::Relaxed);
    exclusive::start_anew();
    stamps::forget();
    GATE.start_anew();
}

#[cold]
fn late() -> Result<Passage, CUresult> {
    // In a bare process, which knows no gate, it would stay closed for ever.
    process::settle_if_bare();
    if GATE.load() == UNDECIDED {
        tell(|keeper| (keeper.decide)());
        if GATE.load() == UNDECIDED {
            return Ok(Passage::ungated());
        }
    }
    let mut waiting = None;
    loop {
        LATE.fetch_add(1, Ordering::SeqCst);
        core::sync::atomic::fence(Ordering::SeqCst);
        if passes(GATE.load()) {
            drop(waiting);
            return Ok(Passage(Way::Late));
        }
        LATE.fetch_sub(1, Ordering::Release);
        waiting = Some(until_open()?);
    }
}

/// Only the control loop is told of the call that ends a rest. Changed while the gate does not rest.
pub(super) static ALONE: AtomicBool = AtomicBool::new(false);

/// Handles a call that found the gate not simply open: if it is closed, the call steps back, sleeps until it opens, and passes.
#[cold]
fn wait(word: &'static Word) -> Result<Way, CUresult> {
    // As above.
    process::settle_if_bare();
    // Held until the call has passed.
    let mut waiting = None;
    loop {
        let gate = GATE.load();
        if gate == UNDECIDED {
            // Outside: joining closes the gate.
            word.calls.step_back();
            tell(|keeper| (keeper.decide)());
            if GATE.load() == UNDECIDED {
                // The call is for a GPU that is not shared: with a context on one that is, this process would have joined. A thread that
                // joins meanwhile, with another GPU, does not wait for this call.
                return Ok(Way::Ungated);
            }
            word.calls.enter();
            continue;
        }
        if gate == RESTING {
            // In this order: the thread that set the rest announces it, and then checks the gate.
            let alone = ALONE.load(Ordering::Relaxed);
            stamps::rest_ends();
            GATE.change(RESTING, OPEN);
            if !alone {
                activity::begin();
                stamps::begin();
            }
            tell(|keeper| (keeper.awoke)());
            return Ok(Way::Word(word));
        }
        let must_yield = matches!(gate, CONTENDED | ARRIVING_CONTENDED) && activity::must_yield();
        if passes(gate) && !must_yield {
            drop(waiting);
            return Ok(Way::Word(word));
        }
        // Outside, so that the gate can be closed meanwhile.
        word.calls.step_back();
        if must_yield {
            waiting = None;
            let _yielding = Waiting::begin(&YIELDING);
            activity::wait();
        } else {
            waiting = Some(until_open()?);
        }
        word.calls.enter();
    }
}

/// Threads that wait at the closed gate, or have yet to wake up at the open one.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// Threads that wait at the open gate while others are at work.
static YIELDING: AtomicU32 = AtomicU32::new(0);

/// True if a thread waits at the gate, or is about to pass it: then the program is not idle, even if its thread takes long to wake up on a
/// busy machine.
pub(crate) fn is_waited_at() -> bool {
    waiting() != 0 || YIELDING.load(Ordering::Relaxed) != 0
}

/// The number of threads that wait at the closed gate, or have yet to wake up at the open one.
pub(super) fn waiting() -> u32 {
    WAITING.load(Ordering::Acquire)
}

struct Waiting(&'static AtomicU32);

impl Waiting {
    fn begin(threads: &'static AtomicU32) -> Self {
        threads.fetch_add(1, Ordering::Relaxed);
        Self(threads)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Demands to pass, and sleeps while the gate is closed. A caller that is to pass keeps the returned guard until then.
fn until_open() -> Result<Waiting, CUresult> {
    let waiting = Waiting::begin(&WAITING);
    loop {
        let gate = GATE.load();
        match state(gate) {
            CLOSED => {}
            BROKEN => return Err(CUDA_ERROR_DEVICE_UNAVAILABLE),
            _ => return Ok(waiting),
        }
        stamps::begin();
        if GATE.load() != gate {
            // The gate was opened since, perhaps by a thread that saw no request to be watched.
            tell(|keeper| (keeper.awoke)());
            continue;
        }
        tell(|keeper| (keeper.demand)());
        futex::wait(GATE.word(), gate, None, Scope::Process);
    }
}
