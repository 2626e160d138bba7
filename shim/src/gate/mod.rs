//! The gate: every call that touches device memory passes it, and it can be closed.
//!
//! A call costs the program a store and a load. Each thread has an **in-call word**; it counts the
//! calls the thread is inside of. To pass, a thread raises its word and then reads the gate:
//!
//! ```text
//! program's thread            whoever closes
//! word = 1                    gate = CLOSED
//! (compiler barrier)          membarrier: every thread of the process passes a full barrier
//! read gate: open, go on      wait until every word is 0
//! ```
//!
//! Of the two, at least one sees the other: either the thread reads CLOSED and steps back, or its word
//! is seen raised and waited for. `membarrier` pays for the barrier on the rare side, so the thread's
//! side needs none. A nested call (from a thread that is inside already) never waits; only a thread
//! whose thread-locals are gone already cannot tell, and waits. A forked child is a new process: its
//! gate is open, and only the thread that forked can be inside.

pub(crate) mod activity;
mod closing;
mod word;

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use baton_contract::cuda::{CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_INVALID_VALUE, CUresult};

use crate::{session, work};
use word::Word;

pub(crate) use closing::{
    Held, activity, all_here, arriving, close, decided, finish_holding, hold, inside, is_resting, open, prepare, rest,
    set_broken, set_contended, work_on,
};

/// Everybody passes.
const OPEN: u32 = 0;
/// Everybody passes, and launches are counted because somebody waits for the GPU ([`crate::work::queue`]).
const CONTENDED: u32 = 1;
/// Nobody passes. Counts, in the bits above, how often the gate was closed: who is about to sleep at one
/// closing must not sleep through the next, for which it has not said that it waits.
const CLOSED: u32 = 2;
const NEXT_CLOSING: u32 = 8;
const STATE: u32 = 7;
/// Nobody will ever pass again: the coordinator is gone, and with it memory of this program.
const BROKEN: u32 = 3;
/// Everybody passes, but memory is still on its way: calls wait for what they need ([`crate::arrival`]).
const ARRIVING: u32 = 4;

/// Everybody passes, and the first to do so says on the board that we are at work ([`crate::gate::activity`]).
const RESTING: u32 = 5;
/// It is not decided yet whether this program joins a coordinator: a call that finds a context does that first.
const UNDECIDED: u32 = 6;

/// What threads wait on while it is [`CLOSED`]; [`OPEN`] and [`CONTENDED`] are all of the word. A cache line of its own, because all threads read it.
#[repr(align(128))]
struct Gate(AtomicU32);

static GATE: Gate = Gate(AtomicU32::new(UNDECIDED));

/// For threads so late in their life that their thread-locals are gone: shared, so counted atomically.
static LATE: AtomicU32 = AtomicU32::new(0);

/// A call's passage; ends when dropped.
#[must_use = "the passage ends when this is dropped"]
pub(crate) struct Passage(Option<&'static Word>);

/// Passes the gate, waiting while it is closed. An error is what the program's call has to answer.
#[inline(always)]
pub(crate) fn pass() -> Result<Passage, CUresult> {
    let Some(word) = word::own_or_new() else { return late() };
    let depth = word.enter();
    compiler_fence(Ordering::SeqCst);
    // Acquire: whoever opened it did so after what this call will find.
    if GATE.0.load(Ordering::Acquire) != OPEN && depth == 0 {
        wait(word)?;
    }
    Ok(Passage(Some(word)))
}

/// Whether somebody waits for the GPU while this program has it.
#[inline(always)]
pub(crate) fn is_contended() -> bool {
    match GATE.0.load(Ordering::Relaxed) {
        OPEN => false,
        CONTENDED => true,
        gate => gate == ARRIVING && CONTENDED_LATER.load(Ordering::Relaxed),
    }
}

/// Whether the gate will be contended when all memory is here: then launches are counted before that too.
static CONTENDED_LATER: AtomicBool = AtomicBool::new(false);

/// Asked by who waits inside: an error if nobody will ever pass again.
pub(crate) fn check() -> Result<(), CUresult> {
    if GATE.0.load(Ordering::Acquire) == BROKEN { Err(CUDA_ERROR_DEVICE_UNAVAILABLE) } else { Ok(()) }
}

/// How often the gate was closed while calls may have been inside, which it then did not wait for.
static HOLDS: AtomicU32 = AtomicU32::new(0);

/// Changes when memory may have gone from under a call that is inside. Work that is queued then finds it back; but a
/// call of which the driver looks at the addresses may have been refused for it, and has to be made again.
#[inline(always)]
pub(crate) fn holds() -> u32 {
    HOLDS.load(Ordering::Relaxed)
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

/// How many threads are changing what memory there is.
static KEEPING: AtomicU32 = AtomicU32::new(0);

/// The right to change what memory there is; ends when dropped. Other calls may be left inside when the gate closes:
/// those that change the books, and map and unmap, are always waited for.
#[must_use = "the right ends when this is dropped"]
pub(crate) struct Keeping(());

/// Waits, outside of the gate, until the books may be changed. An error is what the program's call has to answer.
pub(crate) fn keep_books(passage: &Passage) -> Result<Keeping, CUresult> {
    loop {
        KEEPING.fetch_add(1, Ordering::SeqCst);
        let keeping = Keeping(());
        // Whoever closes the gate closes it first and looks then.
        if passes(GATE.0.load(Ordering::SeqCst)) {
            return Ok(keeping);
        }
        drop(keeping);
        let mut answer = Ok(());
        passage.outside(|| answer = until_open())?;
        answer?;
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        KEEPING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether memory may still be on its way, asked inside: also when the gate is being closed while it is.
#[inline(always)]
pub(crate) fn may_lack() -> bool {
    !matches!(GATE.0.load(Ordering::Relaxed), OPEN | CONTENDED | RESTING | UNDECIDED)
}

impl Passage {
    /// Sleeps outside of the gate, so that it can be closed meanwhile, and passes it again. A nested call
    /// sleeps inside: it cannot step back from the one around it.
    pub(crate) fn outside(&self, sleep: impl FnOnce()) -> Result<(), CUresult> {
        let Some(word) = self.0 else {
            sleep();
            return Ok(());
        };
        word.step_back();
        sleep();
        let depth = word.enter();
        compiler_fence(Ordering::SeqCst);
        if depth == 0 && !passes(GATE.0.load(Ordering::Acquire)) {
            return wait(word).inspect_err(|_| {
                // The passage has yet to end.
                word.enter();
            });
        }
        Ok(())
    }
}

impl Drop for Passage {
    #[inline(always)]
    fn drop(&mut self) {
        match self.0 {
            Some(word) => word.leave(),
            None => drop(LATE.fetch_sub(1, Ordering::Release)),
        }
    }
}

/// In a forked child, where the other threads are gone: nobody but this thread is inside, and whoever
/// closed the gate was the parent's. The child has no coordinator.
extern "C" fn start_anew() {
    word::release_others();
    LATE.store(0, Ordering::Relaxed);
    WAITING.store(0, Ordering::Relaxed);
    KEEPING.store(0, Ordering::Relaxed);
    GATE.0.store(OPEN, Ordering::Release);
    work::start_anew();
    session::forget();
}

/// Whether calls pass in this state of the gate.
fn passes(gate: u32) -> bool {
    matches!(gate & STATE, OPEN | CONTENDED | ARRIVING | RESTING | UNDECIDED)
}

#[cold]
fn late() -> Result<Passage, CUresult> {
    if GATE.0.load(Ordering::Acquire) == UNDECIDED {
        session::join_for_current();
    }
    loop {
        LATE.fetch_add(1, Ordering::SeqCst);
        let gate = GATE.0.load(Ordering::SeqCst);
        if passes(gate) {
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
        let gate = GATE.0.load(Ordering::Acquire);
        if gate == UNDECIDED && !std::mem::replace(&mut is_asked, true) {
            // Outside: joining closes the gate.
            word.step_back();
            session::join_for_current();
            word.enter();
            compiler_fence(Ordering::SeqCst);
            continue;
        }
        if gate == RESTING {
            // In this order: the pager looks at the gate after it has left the board.
            let _ = GATE.0.compare_exchange(RESTING, OPEN, Ordering::SeqCst, Ordering::Relaxed);
            activity::take();
            session::wake_pager();
            return Ok(());
        }
        let must_yield = gate == CONTENDED && activity::is_taken();
        if passes(gate) && !must_yield {
            return Ok(());
        }
        // Outside, so that the gate can be closed meanwhile.
        word.step_back();
        if must_yield {
            let _waiting = Waiting::begin();
            activity::wait();
        } else {
            until_open()?;
        }
        word.enter();
        compiler_fence(Ordering::SeqCst);
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
        let gate = GATE.0.load(Ordering::Acquire);
        match gate & STATE {
            CLOSED => {}
            BROKEN => return Err(CUDA_ERROR_DEVICE_UNAVAILABLE),
            _ => return Ok(()),
        }
        session::demand();
        // SAFETY: FUTEX_WAIT on our own aligned word, no timeout; it returns at once if the word has changed.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                GATE.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                gate,
                ptr::null::<libc::timespec>(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            while GATE.0.load(Ordering::Relaxed) == OPEN {
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
            GATE.0.store(CLOSED, Ordering::Release);
            // SAFETY: the child only looks at atomics and leaves.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let anew = closing::inside() == 0 && GATE.0.load(Ordering::Acquire) == OPEN;
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
