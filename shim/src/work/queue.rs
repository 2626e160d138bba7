//! Keeps the queue short while somebody waits for the GPU: what is queued has to end before it changes hands.
//!
//! Each thread sets an event behind every few launches and waits for the one before the last, so that there
//! are never more than twice as many of its launches in flight, and the GPU never runs dry.

use core::cell::Cell;
use core::ffi::c_void;
use core::time::Duration;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUresult, CUstream};

use super::drain::{can_be_asked, handle, new_event};
use super::registry::Handle;
use crate::real;

/// How many launches of a thread there are between events.
const STRIDE: u32 = 16;
/// How long a thread waits for its earlier launches.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// A thread's last launches.
#[derive(Clone, Copy, Default)]
struct Lately {
    context: Handle,
    events: Option<[Handle; 2]>,
    /// Launches since the last event.
    launches: u32,
    /// Which event is set next.
    next: usize,
    /// Whether the other one was set since the thread began to count.
    set: bool,
}

thread_local! {
    static LATELY: Cell<Lately> = const { Cell::new(Lately {
        context: 0, events: None, launches: 0, next: 0, set: false
    }) };
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
    // A thread that is ending launches little more.
    let _ = LATELY.try_with(|lately| {
        let mut now = lately.get();
        now.launches += 1;
        if now.launches >= STRIDE {
            now.launches = 0;
            now.mark(stream);
        }
        lately.set(now);
    });
}

impl Lately {
    fn mark(&mut self, stream: CUstream) {
        let mut context = core::ptr::null_mut();
        // SAFETY: an out-parameter.
        unsafe { real::current(&mut context) };
        let context = context.expose_provenance();
        if context == 0 || !can_be_asked(stream.expose_provenance()) {
            return;
        }
        if self.context != context {
            // Events belong to a context, and go with it.
            let events = new_event().zip(new_event()).map(|(a, b)| [a, b]);
            *self = Self { context, events, ..Self::default() };
        }
        let Some(events) = self.events else { return };
        // Another thread may capture: then this thread may wait for events only if it says that it knows.
        let _relaxed = real::Relaxed::enter();
        let (this, last) = (handle(events[self.next]), handle(events[1 - self.next]));
        // SAFETY: events of ours in the current context, and a stream of the program that does not capture.
        unsafe {
            if real::event_record(this, stream) != CUDA_SUCCESS {
                return;
            }
            if self.set {
                // Not for ever: that work may wait for something this thread has yet to do.
                let end = Instant::now() + LONGEST_WAIT;
                while real::event_query(last) == CUDA_ERROR_NOT_READY && Instant::now() < end {
                    std::thread::yield_now();
                }
            }
        }
        self.set = true;
        self.next = 1 - self.next;
    }
}
