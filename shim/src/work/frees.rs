//! Memory that the program has freed while work may still use it: taken back when that has ended.
//!
//! Freed in a stream's order (`cuMemFreeAsync`), and while something captures: then nobody can wait for the context.

use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::CUdeviceptr;
use baton_contract::messages::ExtentId;

use super::contexts::{ContextId, StreamId};
use super::mark::{Ended, Mark};
use crate::driver::api;
use crate::gate;
use crate::memory::space::{Space, give_to_coordinator};
use crate::sys::thread;

/// What may use an allocation that is being freed.
pub(crate) enum Users {
    /// What is before a mark; nothing if there is none.
    Before(Option<Mark>),
    /// Work of a stream: no mark is set yet. The program's thread does not do so, because that may have to wait in the driver for
    /// other threads, and `cuMemFreeAsync` never does (measured).
    In(StreamId),
    /// Any work of a context, likewise.
    InAll(ContextId),
}

/// An allocation that is being freed.
struct Deferred {
    at: CUdeviceptr,
    number: u64,
    users: Users,
}

#[derive(Default)]
struct Frees {
    deferred: Vec<Deferred>,
    /// How many more there are whose marks are being set.
    marking: usize,
    has_thread: bool,
}

static FREES: Mutex<Frees> = Mutex::new(Frees { deferred: Vec::new(), marking: 0, has_thread: false });
/// Held by whoever sets marks.
static MARKING: Mutex<()> = Mutex::new(());
static DEFERRED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Frees> {
    FREES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How soon it is asked again, at first and later.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// An allocation was freed; it is taken back when nothing uses it any more.
pub(crate) fn defer(at: CUdeviceptr, number: u64, users: Users, space: &'static Space) {
    let mut frees = lock();
    frees.deferred.push(Deferred { at, number, users });
    if !frees.has_thread {
        // Without a thread it is done at the next allocation, or when the gate closes.
        frees.has_thread = thread::start("baton-frees", move || run(space));
    }
    drop(frees);
    DEFERRED.notify_one();
}

/// Takes back what nothing uses any more; `tell` tells the coordinator. Whoever calls this may change mappings: it has a guard, or
/// has closed the gate.
pub(crate) fn collect(space: &Space, mut tell: impl FnMut(Vec<ExtentId>)) {
    let deferred = core::mem::take(&mut lock().deferred);
    if deferred.is_empty() {
        return;
    }
    // Not under the lock: the driver is asked.
    let (mut left, mut ended) = (Vec::new(), Vec::new());
    for mut free in deferred {
        let is_used = match &mut free.users {
            Users::Before(mark) => mark.as_mut().is_some_and(|mark| mark.look() == Ended::NotYet),
            Users::In(_) | Users::InAll(_) => true,
        };
        if is_used { left.push(free) } else { ended.push(free) }
    }
    lock().deferred.append(&mut left);
    for free in ended {
        // A broken context keeps its memory until the process ends.
        let _ = space.finish_free(free.at, free.number, &mut tell);
    }
}

/// Sets the marks that are not set yet. Waits in the driver for a thread that waits there for all work, as `cuMemAlloc` does.
pub(crate) fn mark() {
    let _marking = MARKING.lock().unwrap_or_else(PoisonError::into_inner);
    set_marks();
}

/// The same, but not for a thread that is at it.
pub(crate) fn mark_if_possible() {
    if let Ok(_marking) = MARKING.try_lock() {
        set_marks();
    }
}

fn set_marks() {
    let is_unmarked = |free: &mut Deferred| !matches!(free.users, Users::Before(_));
    let unmarked: Vec<Deferred> = {
        let mut frees = lock();
        let unmarked: Vec<Deferred> = frees.deferred.extract_if(.., is_unmarked).collect();
        frees.marking = unmarked.len();
        unmarked
    };
    for mut free in unmarked {
        free.users = Users::Before(match free.users {
            Users::Before(mark) => mark,
            Users::In(stream) => Mark::of_known(stream),
            Users::InAll(context) => Mark::of_context(context),
        });
        let mut frees = lock();
        frees.deferred.push(free);
        frees.marking -= 1;
    }
}

/// Whether anything waits to be taken back.
pub(crate) fn is_any() -> bool {
    let frees = lock();
    !frees.deferred.is_empty() || frees.marking > 0
}

/// The thread that takes memory back when nobody else comes by. It outlives the connection to the coordinator.
fn run(space: &Space) {
    // For good: nothing this thread does disturbs a capture.
    core::mem::forget(api::Relaxed::enter());
    let mut pause = FIRST_PAUSE;
    loop {
        {
            let mut frees = lock();
            while frees.deferred.is_empty() {
                pause = FIRST_PAUSE;
                frees = DEFERRED.wait(frees).unwrap_or_else(PoisonError::into_inner);
            }
        }
        // Outside of the gate, because it may have to wait.
        mark();
        let before = lock().deferred.len();
        if let Some(_passage) = gate::pass_if_open()
            && let Some(_guard) = gate::lock_mappings_if_open()
        {
            collect(space, give_to_coordinator);
        }
        pause = if lock().deferred.len() < before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        std::thread::sleep(pause);
    }
}
