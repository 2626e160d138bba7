//! Closing and opening: the session's side. Programs without a session never close their gate.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use super::passage::{self, ALONE, GATE, LATE};
use super::protocol::{ARRIVING, ARRIVING_CONTENDED, BROKEN, CONTENDED, OPEN, RESTING, UNDECIDED};
use super::{stamps, word};
use crate::sys::futex::{self, Scope};
use crate::sys::thread;

const MEMBARRIER_CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers the process for [`close`]. Without it, or on a kernel that has none, the gate cannot be closed.
pub(crate) fn prepare() -> bool {
    membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Closes the gate and waits until no thread is inside; gives up at the deadline, and leaves the gate closed: the caller opens it again.
/// `beat` is called now and then.
pub(crate) fn close(deadline: Option<Instant>, beat: impl Fn()) -> bool {
    shut() && is_left(inside, deadline, beat)
}

/// Lets the calls through that waited when the gate opened, before it is closed again; gives up at the deadline. A thread takes longer to
/// wake up than the gate may stay open, and queued work may wait for the next call of just that thread.
pub(crate) fn let_through(deadline: Instant, beat: impl Fn()) {
    is_left(passage::waiting, Some(deadline), beat);
}

/// The result of closing a gate without waiting for all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// All have left.
    Empty,
    /// Some are still inside.
    WithCalls,
    /// A thread is still changing mappings: the caller asks again.
    NotYet,
}

/// Closes the gate. Calls that are still inside at the deadline stay there, and memory may be evicted under them.
pub(crate) fn hold(deadline: Instant) -> Held {
    if shut() && is_left(inside, Some(deadline), || ()) { Held::Empty } else { finish_holding() }
}

/// From here on memory may be evicted under the calls that are inside, unless a thread is changing mappings.
pub(crate) fn finish_holding() -> Held {
    if GATE.leave_calls_inside() { Held::WithCalls } else { Held::NotYet }
}

/// Closes the gate: every thread sees that, or is seen inside. False on a system without barriers.
fn shut() -> bool {
    GATE.close();
    membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Waits until the count is 0, or for as long as allowed.
fn is_left(count: impl Fn() -> u32, deadline: Option<Instant>, beat: impl Fn()) -> bool {
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
            beat();
            thread::sleep(Duration::from_micros(50));
        }
    }
    true
}

/// Opens the gate; `contended` if another tenant waits for the GPU meanwhile.
pub(crate) fn open(contended: bool) {
    set(if contended { CONTENDED } else { OPEN });
}

/// Records that this program joins no coordinator: calls need not ask any more.
pub(crate) fn decided() {
    GATE.change(UNDECIDED, OPEN);
}

/// Opens the gate while memory is still on its way.
pub(crate) fn arriving(contended: bool) {
    set(if contended { ARRIVING_CONTENDED } else { ARRIVING });
}

/// Ends an arrival: all memory is here, and calls need not ask for it any more. A gate that was closed meanwhile, or open before, stays as
/// it is.
pub(crate) fn all_here() {
    let _ = GATE.change(ARRIVING, OPEN) || GATE.change(ARRIVING_CONTENDED, CONTENDED);
}

/// Marks an open gate as contended, or no longer so.
pub(crate) fn set_contended(contended: bool) {
    for (quiet, marked) in [(OPEN, CONTENDED), (ARRIVING, ARRIVING_CONTENDED)] {
        let (from, to) = if contended { (quiet, marked) } else { (marked, quiet) };
        if GATE.change(from, to) {
            return;
        }
    }
}

/// Makes the first call from here on declare us at work. False if the gate is not simply open. The caller checks afterwards whether a call
/// came in before.
pub(crate) fn rest() -> bool {
    rests(false)
}

/// Rests a program that does not co-run: only the control loop is told of the first call.
pub(crate) fn rest_alone() -> bool {
    rests(true)
}

fn rests(alone: bool) -> bool {
    ALONE.store(alone, Ordering::Relaxed);
    GATE.change(OPEN, RESTING) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// True if no call has come in since [`rest`].
pub(crate) fn is_resting() -> bool {
    GATE.load() == RESTING
}

/// Ends a rest. The gate is open already if a call came; only the caller could have closed it.
pub(crate) fn work_on() {
    stamps::rest_ends();
    GATE.change(RESTING, OPEN);
}

/// Makes every call answer an error from now on.
pub(crate) fn set_broken() {
    set(BROKEN);
}

fn set(to: u32) {
    GATE.set(to);
    futex::wake_all(GATE.word(), Scope::Process);
}

/// The number of threads inside.
pub(crate) fn inside() -> u32 {
    LATE.load(Ordering::Acquire) + word::all().filter(|word| word.calls.depth() != 0).count() as u32
}

/// Changes whenever a call has passed the gate.
pub(crate) fn activity() -> u32 {
    word::all().fold(0, |sum, word| sum.wrapping_add(word.calls.passed()))
}
