//! Memory that the program has freed while work may still use it: it is taken back when that work has ended.
//!
//! Such memory is freed in a stream's order (`cuMemFreeAsync`), or during a capture, when no thread can wait for the context.

use core::ops::Range;
use core::time::Duration;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUdeviceptr, CUresult};

use super::mark::Mark;
use crate::driver::api;
use crate::gate::{self, Passage};
use crate::memory::space::{self, GivenUp, Space};
use crate::sys::thread;

/// An allocation that is being freed, and the marks behind all that may use it.
struct Deferred {
    space: &'static Space,
    at: CUdeviceptr,
    number: u64,
    /// Empty if nothing can use the memory any more.
    marks: Vec<Mark>,
}

#[derive(Default)]
struct Frees {
    deferred: Vec<Deferred>,
    /// Memory that pools have given up: it is unused.
    given_up: Vec<(&'static Space, Range<CUdeviceptr>)>,
    has_thread: bool,
}

static FREES: Mutex<Frees> = Mutex::new(Frees { deferred: Vec::new(), given_up: Vec::new(), has_thread: false });
static DEFERRED: Condvar = Condvar::new();

impl Frees {
    fn len(&self) -> usize {
        self.deferred.len() + self.given_up.len()
    }

    fn see_to(&mut self) {
        if !self.has_thread {
            // Without a thread, memory is taken back at the next allocation, or when the gate closes.
            self.has_thread = thread::start("baton-frees", run);
        }
    }
}

fn lock() -> MutexGuard<'static, Frees> {
    FREES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first and the longest pause between two scans.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Defers a free until the work before all of the marks has ended. [`collect`] takes the memory back.
pub(crate) fn defer(at: CUdeviceptr, number: u64, marks: Vec<Mark>, space: &'static Space) {
    let mut frees = lock();
    frees.deferred.push(Deferred { space, at, number, marks });
    frees.see_to();
    drop(frees);
    DEFERRED.notify_one();
}

/// Queues unused memory that pools have given up; it is given back as soon as mappings may be changed.
pub(crate) fn give_up(ranges: Vec<Range<CUdeviceptr>>) {
    if ranges.is_empty() {
        return;
    }
    let mut frees = lock();
    frees.given_up.extend(ranges.into_iter().filter_map(|range| Some((space::at(range.start)?, range))));
    frees.see_to();
    drop(frees);
    DEFERRED.notify_one();
}

/// Takes back memory that is no longer used; `tell` tells the coordinator of that GPU. The caller may change mappings: it has a guard, or
/// has closed the gate.
pub(crate) fn collect(mut tell: impl FnMut(&'static Space, GivenUp<'_>)) {
    let (deferred, given_up) = {
        let mut frees = lock();
        (core::mem::take(&mut frees.deferred), core::mem::take(&mut frees.given_up))
    };
    // Memory that is away, or on its way, can only be given back once it is here.
    let (here, away): (Vec<_>, Vec<_>) = given_up.into_iter().partition(|(space, range)| space.is_all_mapped(range));
    for space in space::all() {
        let ranges: Vec<_> =
            here.iter().filter(|(of, _)| of.device == space.device).map(|(_, range)| range.clone()).collect();
        if !ranges.is_empty() {
            space.shrink_areas(&ranges, |given_up| tell(space, given_up));
        }
    }
    lock().given_up.extend(away);
    if deferred.is_empty() {
        return;
    }
    // The driver is asked, so the lock is not held.
    let (mut left, mut ended) = (Vec::new(), Vec::new());
    for mut free in deferred {
        free.marks.retain_mut(|mark| !mark.look().is_over());
        if free.marks.is_empty() { ended.push(free) } else { left.push(free) }
    }
    lock().deferred.append(&mut left);
    for Deferred { space, at, number, .. } in ended {
        // A broken context keeps its memory until the process ends.
        let _ = space.finish_free(at, number, |given_up| tell(space, given_up));
    }
}

/// Takes memory back before an allocation: memory freed in a stream's order may be free by now, and so is the memory that pools have given
/// up.
pub(crate) fn collect_first(passage: &Passage) -> Result<(), CUresult> {
    if lock().len() > 0 {
        let _guard = gate::lock_mappings(passage)?;
        let _relaxed = api::Relaxed::enter();
        collect(Space::give_to_coordinator);
    }
    Ok(())
}

/// The thread that takes memory back when no call does. It outlives the connection to the coordinator.
fn run() {
    // Never undone: nothing this thread does disturbs a capture.
    core::mem::forget(api::Relaxed::enter());
    let mut pause = FIRST_PAUSE;
    loop {
        {
            let mut frees = lock();
            while frees.len() == 0 {
                pause = FIRST_PAUSE;
                frees = DEFERRED.wait(frees).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let before = lock().len();
        if let Some(_passage) = gate::pass_if_open()
            && let Some(_guard) = gate::lock_mappings_if_open()
        {
            collect(Space::give_to_coordinator);
        }
        pause = if lock().len() < before { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        thread::sleep(pause);
    }
}
