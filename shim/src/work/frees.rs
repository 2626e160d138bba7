//! Memory that the program has freed while work may still use it: taken back when that has ended.
//!
//! Freed in a stream's order (`cuMemFreeAsync`), and while something captures: then nobody can wait for the context.

use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::CUdeviceptr;

use super::mark::{Ended, Mark};
use crate::driver::api;
use crate::gate;
use crate::memory::space::{GivenUp, Space, give_to_coordinator};
use crate::sys::thread;

/// An allocation that is being freed, and the mark behind all that may use it.
struct Deferred {
    at: CUdeviceptr,
    number: u64,
    /// None if nothing can use it any more.
    mark: Option<Mark>,
}

#[derive(Default)]
struct Frees {
    deferred: Vec<Deferred>,
    has_thread: bool,
}

static FREES: Mutex<Frees> = Mutex::new(Frees { deferred: Vec::new(), has_thread: false });
static DEFERRED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Frees> {
    FREES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How soon it is asked again, at first and later.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// An allocation was freed; it is taken back when the work before the mark has ended. `take_back` does so.
pub(crate) fn defer(at: CUdeviceptr, number: u64, mark: Option<Mark>, space: &'static Space) {
    let mut frees = lock();
    frees.deferred.push(Deferred { at, number, mark });
    if !frees.has_thread {
        // Without a thread it is done at the next allocation, or when the gate closes.
        frees.has_thread = thread::start("baton-frees", move || run(space));
    }
    drop(frees);
    DEFERRED.notify_one();
}

/// Takes back what nothing uses any more; `tell` tells the coordinator. Whoever calls this may change mappings: it has a guard, or
/// has closed the gate.
pub(crate) fn collect(space: &Space, mut tell: impl FnMut(GivenUp)) {
    let deferred = core::mem::take(&mut lock().deferred);
    if deferred.is_empty() {
        return;
    }
    // Not under the lock: the driver is asked.
    let (mut left, mut ended) = (Vec::new(), Vec::new());
    for mut free in deferred {
        match free.mark.as_mut().map(Mark::look) {
            Some(Ended::NotYet) => left.push(free),
            _ => ended.push(free),
        }
    }
    lock().deferred.append(&mut left);
    for free in ended {
        // A broken context keeps its memory until the process ends.
        let _ = space.finish_free(free.at, free.number, &mut tell);
    }
}

/// Whether anything waits to be taken back.
pub(crate) fn is_any() -> bool {
    !lock().deferred.is_empty()
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
