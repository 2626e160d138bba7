//! Keeps the queue short while somebody waits for the GPU: what is queued has to end before it changes hands.
//!
//! Each thread sets an event behind every few launches and waits for the one before the last, so that there
//! are never more than twice as many of its launches in flight, and the GPU never runs dry.

use core::cell::RefCell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUresult, CUstream};

use super::drain::{can_be_asked, handle, new_event};
use super::registry::{Handle, REGISTRY};
use crate::driver::api::{self, CUevent};
use crate::hooks::work::unless_a_capture_begins;
use crate::{gate, gate::activity};

/// How many launches of a thread there are between events, if nobody says otherwise.
const STRIDE: u32 = 16;
static CURRENT_STRIDE: AtomicU32 = AtomicU32::new(STRIDE);

/// Keeps no more launches of a thread than this in flight; none: as many as is usual.
pub(crate) fn set_stride(launches: Option<u32>) {
    CURRENT_STRIDE.store(launches.map_or(STRIDE, |launches| (launches / 2).max(1)), Ordering::Relaxed);
}

/// How long a thread waits for its earlier launches.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// Who waits for longer than this sleeps in between, a part of the time that it has waited: launches that took so long to end
/// have others behind them that take as long. Somebody more urgent may need the processor meanwhile.
const SPIN: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// A thread's last launches in one context.
#[derive(Debug)]
struct Lately {
    context: Handle,
    /// None if none could be made.
    events: Option<[Handle; 2]>,
    /// Which event is set next.
    next: usize,
    /// Whether the other one was set since the thread began to count.
    set: bool,
}

/// What a thread did lately.
#[derive(Debug)]
struct Thread {
    /// Launches since the last event.
    launches: u32,
    /// How many contexts had gone when these were entered: events go with their context.
    departures: usize,
    contexts: Vec<Lately>,
}

thread_local! {
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread { launches: 0, departures: 0, contexts: Vec::new() }) };
}

/// What names the stream of a launch, in the hook table.
pub(crate) trait InStream {
    /// The stream.
    fn stream(self) -> CUstream;
}

impl InStream for CUstream {
    fn stream(self) -> CUstream {
        self
    }
}

/// A `CUlaunchConfig`: seven 32-bit sizes, then the stream.
impl InStream for *const c_void {
    fn stream(self) -> CUstream {
        // SAFETY: the driver has just launched by this configuration.
        unsafe { self.byte_add(32).cast::<CUstream>().read() }
    }
}

/// After a launch of this thread, that the driver has taken or refused, while somebody waits.
#[cold]
pub(crate) fn launched(answer: CUresult, stream: impl InStream) {
    if answer != CUDA_SUCCESS {
        return;
    }
    let stream = stream.stream();
    // A thread that is ending launches little more; nor is there anybody to borrow it twice.
    let _ = THREAD.try_with(|thread| {
        let Ok(mut thread) = thread.try_borrow_mut() else { return };
        thread.launches += 1;
        if thread.launches >= CURRENT_STRIDE.load(Ordering::Relaxed) {
            thread.launches = 0;
            // Another thread may capture: then this thread may use events only if it says that it knows.
            let _relaxed = api::Relaxed::enter();
            if let Some(last) = unless_a_capture_begins(|| thread.mark(stream)) {
                wait_for(last);
            }
        }
    });
}

/// Waits for an event of ours in the current context. Not for ever: that work may wait for something this thread has yet to do.
/// But as long as it is set aside: nothing ends then, and a full queue would have the thread wait inside the driver.
fn wait_for(event: CUevent) {
    let start = Instant::now();
    let is_set_aside = || activity::lets_pass() && gate::is_contended();
    // SAFETY: an event goes with its context, which is current.
    while unsafe { api::event_query(event) } == CUDA_ERROR_NOT_READY {
        match start.elapsed() {
            waited if waited > LONGEST_WAIT && !is_set_aside() => break,
            waited if waited > SPIN => std::thread::sleep((waited / 2).min(LONGEST_SLEEP)),
            _ => std::thread::yield_now(),
        }
    }
}

impl Thread {
    /// Sets an event behind the thread's launches, and gives the one before, if there is one to wait for.
    fn mark(&mut self, stream: CUstream) -> Option<CUevent> {
        let mut context = core::ptr::null_mut();
        // SAFETY: an out-parameter.
        unsafe { api::current(&mut context) };
        let context = context.expose_provenance();
        if context == 0 || !can_be_asked(stream.expose_provenance()) {
            return None;
        }
        let departures = REGISTRY.departures();
        if self.departures != departures {
            self.contexts.clear();
            self.departures = departures;
        }
        match self.contexts.iter_mut().find(|lately| lately.context == context) {
            Some(lately) => lately.mark(stream),
            None => {
                let events = new_event().zip(new_event()).map(|(a, b)| [a, b]);
                self.contexts.push(Lately { context, events, next: 0, set: false });
                None
            }
        }
    }
}

impl Lately {
    fn mark(&mut self, stream: CUstream) -> Option<CUevent> {
        let events = self.events?;
        let (this, last) = (handle(events[self.next]), handle(events[1 - self.next]));
        // SAFETY: an event of ours in the current context, and a stream of the program that does not capture.
        if unsafe { api::event_record(this, stream) } != CUDA_SUCCESS {
            return None;
        }
        self.next = 1 - self.next;
        std::mem::replace(&mut self.set, true).then_some(last)
    }
}
