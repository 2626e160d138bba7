//! Closing and opening: the session's side. Programs without a session never close their gate.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use super::{
    ARRIVING, BROKEN, CLOSED, CONTENDED, CONTENDED_LATER, GATE, HOLDS, KEEPING, LATE, NEXT_CLOSING, OPEN, RESTING,
    UNDECIDED, word,
};

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers the process for [`close`]. Without it, or on a kernel that has none, the gate cannot be closed.
pub(crate) fn prepare() -> bool {
    word::watch_forks();
    membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Lets nobody in any more and waits until nobody is inside; gives up at the deadline, and leaves the gate
/// closed: the caller opens it again.
pub(crate) fn close(deadline: Option<Instant>) -> bool {
    shut() && is_left(inside, deadline)
}

/// How a gate is closed that does not wait for all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// All have left.
    Empty,
    /// Some are still inside.
    WithCalls,
    /// Somebody is still changing what memory there is: to be asked again.
    NotYet,
}

/// Lets nobody in any more. Calls that are still inside at the deadline stay there, and memory may go from under them.
pub(crate) fn hold(deadline: Instant) -> Held {
    if shut() && is_left(inside, Some(deadline)) { Held::Empty } else { finish_holding() }
}

/// From here on memory may go from under the calls that are inside, unless somebody changes what there is.
pub(crate) fn finish_holding() -> Held {
    if KEEPING.load(Ordering::SeqCst) != 0 {
        return Held::NotYet;
    }
    HOLDS.fetch_add(1, Ordering::SeqCst);
    Held::WithCalls
}

/// Closes the gate: every thread sees that, or is seen inside. False on a system without barriers.
fn shut() -> bool {
    static CLOSINGS: AtomicU32 = AtomicU32::new(0);
    let closing = CLOSINGS.fetch_add(NEXT_CLOSING, Ordering::Relaxed);
    GATE.0.store(closing | CLOSED, Ordering::SeqCst);
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Waits until there are none any more, or for as long as allowed.
fn is_left(count: impl Fn() -> u32, deadline: Option<Instant>) -> bool {
    let mut tries = 0u32;
    while count() != 0 {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return false;
        }
        // Most calls end in microseconds; those that do not are waiting for the GPU.
        tries += 1;
        if tries < 100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    true
}

/// Lets everybody in again; `contended` if somebody waits for the GPU meanwhile.
pub(crate) fn open(contended: bool) {
    set(if contended { CONTENDED } else { OPEN });
}

/// This program joins nobody: calls need not ask any more.
pub(crate) fn decided() {
    let _ = GATE.0.compare_exchange(UNDECIDED, OPEN, Ordering::AcqRel, Ordering::Relaxed);
}

/// Lets everybody in, while memory is still on its way.
pub(crate) fn arriving() {
    set(ARRIVING);
}

/// All memory is here: nobody has to ask for it any more. `contended` if somebody waits for the GPU meanwhile.
pub(crate) fn all_here(contended: bool) {
    let to = if contended { CONTENDED } else { OPEN };
    // Closed meanwhile, or open before: then there is nothing to change.
    let _ = GATE.0.compare_exchange(ARRIVING, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// Marks an open gate as contended, or no longer so.
pub(crate) fn set_contended(contended: bool) {
    CONTENDED_LATER.store(contended, Ordering::Relaxed);
    let (from, to) = if contended { (OPEN, CONTENDED) } else { (CONTENDED, OPEN) };
    // Not open: then there is nothing to mark.
    let _ = GATE.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// Has the first call from here on say that we are at work. False if the gate is not simply open. Whoever calls this looks
/// afterwards whether a call came in before.
pub(crate) fn rest() -> bool {
    GATE.0.compare_exchange(OPEN, RESTING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Whether no call has come in since [`rest`].
pub(crate) fn is_resting() -> bool {
    GATE.0.load(Ordering::SeqCst) == RESTING
}

/// We are at work after all.
pub(crate) fn work_on() {
    // Open already, if a call came; closed, by nobody but the pager.
    let _ = GATE.0.compare_exchange(RESTING, OPEN, Ordering::AcqRel, Ordering::Relaxed);
}

/// Makes every call answer an error from now on.
pub(crate) fn set_broken() {
    set(BROKEN);
}

fn set(to: u32) {
    GATE.0.store(to, Ordering::Release);
    // SAFETY: FUTEX_WAKE on our own word.
    unsafe { libc::syscall(libc::SYS_futex, GATE.0.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}

/// How many threads are inside.
pub(crate) fn inside() -> u32 {
    LATE.load(Ordering::Acquire) + word::all().filter(|word| word.depth() != 0).count() as u32
}

/// Changes whenever a call has passed the gate.
pub(crate) fn activity() -> u32 {
    word::all().fold(0, |sum, word| sum.wrapping_add(word.passed()))
}
