//! Protects threads that the program cancels (`pthread_cancel`): none ends while it waits for us, or makes a request for us.
//!
//! A thread that ended in the middle of a request would leave its answer to the next thread that asks, or its request unmade. So every
//! call of ours that may be a cancellation point of the C library is made with cancellation off (`floors.rs` checks that), and so is every
//! change of mappings. Afterwards, and in the driver's own calls, cancellation is as the program wants it: there, and at its own
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
    /// A thread that was cancelled meanwhile, and may end at any moment (`PTHREAD_CANCEL_ASYNCHRONOUS`), ends in here.
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// While this lives, its thread is not cancelled, in any of the ways that a program can ask for.
#[must_use = "it ends when this is dropped"]
pub(crate) struct Off {
    state: c_int,
    kind: c_int,
    /// It belongs to one thread.
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
        // The state first: otherwise a thread that joins this one would not learn that it was cancelled (glibc before 2.41).
        // SAFETY: the earlier state and kind.
        unsafe {
            pthread_setcancelstate(self.state, ptr::null_mut());
            if self.kind != DEFERRED {
                pthread_setcanceltype(self.kind, ptr::null_mut());
            }
        }
    }
}
