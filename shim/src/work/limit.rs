//! Keeps little in flight while another tenant waits for the GPU: queued work has to end before the GPU changes hands.
//!
//! Each thread records an event after every few launches and waits for the event before the last, so that no more than twice as many of
//! its launches are in flight, and the GPU never runs dry.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use baton_contract::cuda::{CUDA_SUCCESS, CUresult};

use super::contexts::{self, ContextId};
use super::mark::Mark;
use crate::driver::api::{self, Handle, Stream};
use crate::gate::{self, activity};
use crate::sys::thread;

/// The amount of work in flight that is allowed for a more urgent tenant's sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InFlight {
    /// No more urgent tenant is there: the amount that is usual while any other tenant waits.
    Any,
    /// A more urgent tenant is there, and idle: as much as the driver takes.
    Watching,
    /// At most this many launches of a thread.
    Launches(u32),
}

impl InFlight {
    /// The one that allows less.
    pub(crate) fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Launches(one), Self::Launches(other)) => Self::Launches(one.min(other)),
            (Self::Launches(launches), _) | (_, Self::Launches(launches)) => Self::Launches(launches),
            (Self::Watching, Self::Watching) => Self::Watching,
            _ => Self::Any,
        }
    }
}

/// The number of a thread's launches between two marks, unless the coordinator says otherwise.
const STRIDE: u32 = 16;
/// The stride at which no marks are set.
const NO_MARKS: u32 = u32::MAX;
static CURRENT_STRIDE: AtomicU32 = AtomicU32::new(STRIDE);
/// A more urgent tenant may come at any time.
static IS_FOR_URGENT: AtomicBool = AtomicBool::new(false);

/// Sets the most work that is in flight while the gate is contended.
pub(crate) fn set(in_flight: InFlight) {
    let stride = match in_flight {
        InFlight::Any => STRIDE,
        InFlight::Watching => NO_MARKS,
        InFlight::Launches(launches) => (launches / 2).max(1),
    };
    CURRENT_STRIDE.store(stride, Ordering::Relaxed);
    IS_FOR_URGENT.store(matches!(in_flight, InFlight::Launches(_)), Ordering::Relaxed);
}

/// True if little is to be in flight because a more urgent tenant may come at any time, and not only because others wait for a turn.
pub(crate) fn is_for_somebody_urgent() -> bool {
    IS_FOR_URGENT.load(Ordering::Relaxed)
}

/// The longest wait of a thread for its earlier launches.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// A thread that waits for longer than this sleeps in between, for a part of the time that it has waited: launches that took so long have
/// others behind them that take as long. A more urgent tenant may need the processor meanwhile.
const SPIN: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// A thread's recent launches.
#[derive(Debug, Default)]
struct Thread {
    /// Launches since the last mark.
    launches: u32,
    /// The context of its last launches, also by handle, so that it is only looked up when it changes.
    context: Option<(Handle, ContextId)>,
    /// The count of departed contexts at that time.
    departures: usize,
    last: Option<Mark>,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Called after a launch of this thread while another tenant waits; `answer` is the driver's.
#[cold]
pub(crate) fn launched(answer: CUresult, stream: Stream) {
    let stride = CURRENT_STRIDE.load(Ordering::Relaxed);
    if answer != CUDA_SUCCESS || stride == NO_MARKS {
        return;
    }
    // A thread that is ending launches little more; and no other call borrows the cell at the same time.
    let _ = THREAD.try_with(|thread| {
        let Ok(mut thread) = thread.try_borrow_mut() else { return };
        thread.launches += 1;
        if thread.launches >= stride {
            thread.launches = 0;
            // Another thread may capture: then this thread may use events only after it declares that it knows.
            let _relaxed = api::Relaxed::enter();
            if let Some(last) = thread.mark(stream) {
                wait_for(last);
            }
        }
    });
}

/// Waits for earlier launches, up to a limit: that work may wait for something this thread has yet to do. While the tenant is descheduled
/// the limit does not apply: nothing ends then, and a full queue would have the thread wait inside the driver.
fn wait_for(mut mark: Mark) {
    let start = Instant::now();
    let is_descheduled = || activity::lets_pass() && gate::is_contended();
    while !mark.look().is_over() {
        match start.elapsed() {
            waited if waited > LONGEST_WAIT && !is_descheduled() => break,
            waited if waited > SPIN => thread::sleep((waited / 2).min(LONGEST_SLEEP)),
            _ => std::thread::yield_now(),
        }
    }
}

impl Thread {
    /// Sets a mark behind the thread's launches, and returns the one before.
    fn mark(&mut self, stream: Stream) -> Option<Mark> {
        let here = api::current_context();
        let departures = contexts::departures();
        if self.departures != departures || self.context.is_none_or(|(handle, _)| handle != here) {
            (self.departures, self.last) = (departures, None);
            self.context = contexts::id_of(here).map(|id| (here, id));
        }
        let (_, context) = self.context?;
        let this = Mark::of_launches(context, stream);
        core::mem::replace(&mut self.last, this)
    }
}
