//! The gate: every call that touches device memory passes it, and it can be closed.
//!
//! A call costs the program a store and a load. Each thread has an **in-call word**; it counts the
//! calls the thread is inside of. To pass, a thread raises its word and then reads the gate.
//! A nested call (from a thread that is inside already) never waits; only a thread
//! whose thread-locals are gone already cannot tell, and waits. A forked child is a new process: its
//! gate is open, and only the thread that forked can be inside.
//!
//! - [`protocol`]: the states, and how the two sides see each other.
//! - `word`: finds a thread's word. `closing`: the session's side.
//! - [`activity`]: saying to other processes that we are at work, and waiting while they are.

pub(crate) mod activity;
mod closing;
pub(crate) mod protocol;
mod sync;
mod word;

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use baton_contract::cuda::{CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_INVALID_VALUE, CUresult};

use crate::sys::futex::{self, Scope};
use protocol::{ARRIVING_CONTENDED, BROKEN, CLOSED, CONTENDED, Gate, OPEN, RESTING, UNDECIDED, passes, state};
use word::Word;

pub(crate) use closing::{
    Held, activity, all_here, arriving, close, decided, finish_holding, hold, inside, is_resting, open, prepare, rest,
    set_broken, set_contended, work_on,
};

static GATE: Gate = Gate::new(UNDECIDED);

/// For threads so late in their life that their thread-locals are gone: shared, so counted atomically.
static LATE: AtomicU32 = AtomicU32::new(0);

/// Whoever opens and closes the gate, as far as calls have to tell it something.
pub(crate) struct Keeper {
    /// A call came before it was decided whether this program joins a coordinator.
    pub(crate) decide: fn(),
    /// A call waits at the closed gate.
    pub(crate) demand: fn(),
    /// The first call after a rest.
    pub(crate) awoke: fn(),
}

static KEEPER: AtomicPtr<Keeper> = AtomicPtr::new(core::ptr::null_mut());

/// From here on calls tell `keeper`. Until then nobody closes the gate.
pub(crate) fn keep(keeper: &'static Keeper) {
    KEEPER.store(core::ptr::from_ref(keeper).cast_mut(), Ordering::Release);
}

fn tell(what: impl FnOnce(&Keeper)) {
    // SAFETY: null, or a reference that lives for ever.
    if let Some(keeper) = unsafe { KEEPER.load(Ordering::Acquire).as_ref() } {
        what(keeper);
    }
}

/// A call's passage; ends when dropped.
#[must_use = "the passage ends when this is dropped"]
pub(crate) struct Passage(Option<&'static Word>);

/// Passes the gate, waiting while it is closed. An error is what the program's call has to answer.
#[inline(always)]
pub(crate) fn pass() -> Result<Passage, CUresult> {
    let Some(word) = word::own_or_new() else { return late() };
    let depth = word.calls.enter();
    if GATE.load() != OPEN && depth == 0 {
        wait(word)?;
    }
    Ok(Passage(Some(word)))
}

/// Passes the gate if it is open just now, and does not ask for it to be opened.
pub(crate) fn pass_if_open() -> Option<Passage> {
    let word = word::own_or_new()?;
    let depth = word.calls.enter();
    if depth == 0 && !matches!(GATE.load(), OPEN | CONTENDED | RESTING) {
        word.calls.step_back();
        return None;
    }
    Some(Passage(Some(word)))
}

/// Whether somebody waits for the GPU while this program has it.
#[inline(always)]
pub(crate) fn is_contended() -> bool {
    matches!(GATE.peek(), CONTENDED | ARRIVING_CONTENDED)
}

/// Asked by who waits inside: an error if nobody will ever pass again.
pub(crate) fn check() -> Result<(), CUresult> {
    if GATE.load() == BROKEN { Err(CUDA_ERROR_DEVICE_UNAVAILABLE) } else { Ok(()) }
}

/// Changes when memory may have gone from under a call that is inside. Work that is queued then finds it back; but a
/// call of which the driver looks at the addresses may have been refused for it, and has to be made again.
#[inline(always)]
pub(crate) fn holds() -> u32 {
    GATE.holds()
}

/// Makes a call of which the driver looks at the addresses. If it was refused, and memory may just have gone from under
/// it, it is made again when that is back: a refused call has done nothing.
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

/// The right to change what memory there is; ends when dropped. Other calls may be left inside when the gate closes:
/// those that map and unmap, give out and take back, are always waited for.
#[must_use = "the right ends when this is dropped"]
pub(crate) struct MappingGuard(());

/// Waits, outside of the gate, until mappings may be changed. An error is what the program's call has to answer.
pub(crate) fn lock_mappings(passage: &Passage) -> Result<MappingGuard, CUresult> {
    loop {
        if let Some(guard) = lock_mappings_if_open() {
            return Ok(guard);
        }
        let mut answer = Ok(());
        passage.outside(|| answer = until_open())?;
        answer?;
    }
}

/// The same, if the gate lets anybody do so just now.
pub(crate) fn lock_mappings_if_open() -> Option<MappingGuard> {
    GATE.begin_mapping().then(|| MappingGuard(()))
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        GATE.end_mapping();
    }
}

/// Whether memory may still be on its way, asked inside: also when the gate is being closed while it is.
#[inline(always)]
pub(crate) fn may_lack() -> bool {
    !matches!(GATE.peek(), OPEN | CONTENDED | RESTING | UNDECIDED)
}

impl Passage {
    /// Sleeps outside of the gate, so that it can be closed meanwhile, and passes it again. A nested call
    /// sleeps inside: it cannot step back from the one around it.
    pub(crate) fn outside(&self, sleep: impl FnOnce()) -> Result<(), CUresult> {
        let Some(word) = self.0 else {
            sleep();
            return Ok(());
        };
        word.calls.step_back();
        sleep();
        let depth = word.calls.enter();
        if depth == 0 && !passes(GATE.load()) {
            return wait(word).inspect_err(|_| {
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
            Some(word) => word.calls.leave(),
            None => drop(LATE.fetch_sub(1, Ordering::Release)),
        }
    }
}

/// In a forked child, where the other threads are gone: nobody but this thread is inside, and whoever
/// closed the gate was the parent's. The child has no coordinator. Async-signal-safe.
pub(crate) fn start_anew() {
    word::release_others();
    LATE.store(0, Ordering::Relaxed);
    WAITING.store(0, Ordering::Relaxed);
    GATE.start_anew();
}

#[cold]
fn late() -> Result<Passage, CUresult> {
    if GATE.load() == UNDECIDED {
        tell(|keeper| (keeper.decide)());
    }
    loop {
        LATE.fetch_add(1, Ordering::SeqCst);
        core::sync::atomic::fence(Ordering::SeqCst);
        if passes(GATE.load()) {
            return Ok(Passage(None));
        }
        LATE.fetch_sub(1, Ordering::Release);
        until_open()?;
    }
}

/// What a call does that found the gate not simply open: if it is closed, steps back, sleeps until it opens,
/// and passes.
#[cold]
fn wait(word: &Word) -> Result<(), CUresult> {
    let mut is_asked = false;
    loop {
        let gate = GATE.load();
        if gate == UNDECIDED && !std::mem::replace(&mut is_asked, true) {
            // Outside: joining closes the gate.
            word.calls.step_back();
            tell(|keeper| (keeper.decide)());
            word.calls.enter();
            continue;
        }
        if gate == RESTING {
            // In this order: who brought us to rest looks at the gate after saying so.
            GATE.change(RESTING, OPEN);
            activity::begin();
            tell(|keeper| (keeper.awoke)());
            return Ok(());
        }
        let must_yield = matches!(gate, CONTENDED | ARRIVING_CONTENDED) && activity::must_yield();
        if passes(gate) && !must_yield {
            return Ok(());
        }
        // Outside, so that the gate can be closed meanwhile.
        word.calls.step_back();
        if must_yield {
            let _waiting = Waiting::begin();
            activity::wait();
        } else {
            until_open()?;
        }
        word.calls.enter();
    }
}

/// Threads that wait at the closed gate, or have yet to wake up at the open one.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Whether anybody waits at the gate, or is about to pass it: then the program is not idle, even if on a busy machine it
/// takes its thread long to wake up.
pub(crate) fn is_waited_at() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

struct Waiting;

impl Waiting {
    fn begin() -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says that somebody wants in, and sleeps while the gate is closed.
fn until_open() -> Result<(), CUresult> {
    let _waiting = Waiting::begin();
    loop {
        let gate = GATE.load();
        match state(gate) {
            CLOSED => {}
            BROKEN => return Err(CUDA_ERROR_DEVICE_UNAVAILABLE),
            _ => return Ok(()),
        }
        tell(|keeper| (keeper.demand)());
        futex::wait(GATE.word(), gate, None, Scope::Process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;

    /// There is one gate a process, so tests take turns with it.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn nobody_is_inside_after_the_gate_is_closed() {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        assert!(prepare());
        static INSIDE: AtomicU64 = AtomicU64::new(0);
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let passage = pass().expect("not broken");
                        INSIDE.fetch_add(1, Ordering::Relaxed);
                        PASSED.fetch_add(1, Ordering::Relaxed);
                        INSIDE.fetch_sub(1, Ordering::Relaxed);
                        drop(passage);
                    }
                });
            }
            for _ in 0..500 {
                assert!(closing::close(None));
                assert_eq!(INSIDE.load(Ordering::Relaxed), 0);
                let passed = PASSED.load(Ordering::Relaxed);
                thread::yield_now();
                assert_eq!(PASSED.load(Ordering::Relaxed), passed, "somebody passed a closed gate");
                closing::open(false);
                while PASSED.load(Ordering::Relaxed) == passed {
                    thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_call_made_inside_a_call_does_not_wait_for_the_gate() {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        assert!(prepare());
        let outer = pass().expect("not broken");
        thread::scope(|scope| {
            let closer = scope.spawn(|| closing::close(None));
            while GATE.peek() == OPEN {
                thread::yield_now();
            }
            drop(pass().expect("not broken"));
            assert!(!closer.is_finished(), "closed while a thread was inside");
            drop(outer);
        });
        closing::open(false);
        assert_eq!(closing::inside(), 0);
    }

    #[test]
    fn a_thread_that_ends_leaves_its_word_to_the_next() {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        let word = || {
            drop(pass().expect("not broken"));
            word::own_or_new().map(|word| ptr::from_ref(word) as usize)
        };
        let first = thread::spawn(word).join().expect("the thread ran");
        let second = thread::spawn(word).join().expect("the thread ran");
        assert_eq!(first, second);
    }

    unsafe extern "C-unwind" {
        /// As the driver's calls may: returns when a signal came, or ends the thread when it is cancelled.
        fn pause() -> libc::c_int;
    }

    #[test]
    fn a_thread_that_is_cancelled_inside_is_inside_no_more() {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        unsafe extern "C-unwind" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
            let _passage = pass().expect("not broken");
            // SAFETY: no arguments.
            unsafe { pause() };
            ptr::null_mut()
        }
        // SAFETY: two function types that differ in what unwinding may do, which C does not tell apart.
        let body = unsafe {
            core::mem::transmute::<
                unsafe extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
                extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
            >(body)
        };
        let mut thread = 0;
        // SAFETY: a plain thread without attributes or argument, joined below.
        unsafe {
            assert_eq!(libc::pthread_create(&mut thread, ptr::null(), body, ptr::null_mut()), 0);
            while closing::inside() == 0 {
                thread::yield_now();
            }
            assert_eq!(libc::pthread_cancel(thread), 0);
            assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
        }
        assert_eq!(closing::inside(), 0);
    }

    #[test]
    fn a_forked_child_has_an_open_gate_with_nobody_inside() {
        let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        let (inside, leave) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _passage = pass().expect("not broken");
                inside.store(true, Ordering::Release);
                while !leave.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            });
            while !inside.load(Ordering::Acquire) {
                thread::yield_now();
            }
            GATE.close();
            extern "C" fn in_the_child() {
                start_anew();
            }
            // SAFETY: the handler stores to atomics that live for ever, nothing else.
            unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
            // SAFETY: the child only looks at atomics and leaves.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let anew = closing::inside() == 0 && GATE.load() == OPEN;
                // SAFETY: ends the child at once, without the harness's exit handlers.
                unsafe { libc::_exit(if anew { 0 } else { 1 }) };
            }
            closing::open(false);
            leave.store(true, Ordering::Release);
            let mut status = -1;
            // SAFETY: our own child and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        });
    }
}
