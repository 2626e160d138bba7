//! Threads that the program cancels (`pthread_cancel`): not while they wait or talk for us.
//!
//! A thread that ends in the middle of our talk leaves its answer to the next one that asks, or its question unasked. So every call that may be a
//! cancellation point of the C library's is made with cancellation off (`floors.rs` looks for those), and so is all that changes
//! what memory there is. It is as the program wants it again afterwards, and in the driver's own calls: there, and at its own
//! cancellation points, a thread ends as it would without us.

use core::ffi::c_int;
use core::marker::PhantomData;
use core::ptr;

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;
/// `PTHREAD_CANCEL_DEFERRED`: a thread ends at cancellation points only.
const DEFERRED: c_int = 0;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    /// A thread that was to end meanwhile, and may at any moment (`PTHREAD_CANCEL_ASYNCHRONOUS`), ends in here.
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// While this lives, its thread is not cancelled, whichever way the program has asked for.
#[must_use = "it ends when this is dropped"]
pub(crate) struct Off {
    state: c_int,
    kind: c_int,
    /// Of one thread.
    thread: PhantomData<*const ()>,
}

impl Off {
    pub(crate) fn begin() -> Self {
        let (mut state, mut kind) = (DISABLE, DEFERRED);
        // SAFETY: a valid state and kind, and places for those before.
        unsafe {
            pthread_setcancelstate(DISABLE, &mut state);
            pthread_setcanceltype(DEFERRED, &mut kind);
        }
        Self { state, kind, thread: PhantomData }
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        // The state first: a thread that ended by that would not be known as cancelled to whoever joins it (glibc before 2.41).
        // SAFETY: what there was.
        unsafe {
            pthread_setcancelstate(self.state, ptr::null_mut());
            if self.kind != DEFERRED {
                pthread_setcanceltype(self.kind, ptr::null_mut());
            }
        }
    }
}
