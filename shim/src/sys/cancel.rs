//! Threads that the program cancels (`pthread_cancel`): not while they wait or talk for us.
//!
//! A thread that ends in the middle of our talk leaves an answer for the next one that asks, or nobody who asks again. So whatever may be a
//! cancellation point of the C library's is done with cancellation off (`floors.rs` looks for those), and so is all that changes
//! what memory there is. It is as the program wants it again afterwards, and in the driver's own calls: there, and at its own
//! cancellation points, a thread ends as it would without us.

use core::ffi::c_int;
use core::marker::PhantomData;
use core::ptr;

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    /// Puts back what was: a thread that is to end at any moment (`PTHREAD_CANCEL_ASYNCHRONOUS`) ends in here.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While this lives, its thread is not cancelled, whichever way the program has asked for.
#[must_use = "it ends when this is dropped"]
pub(crate) struct Off {
    before: c_int,
    /// Of one thread.
    thread: PhantomData<*const ()>,
}

impl Off {
    pub(crate) fn begin() -> Self {
        let mut before = DISABLE;
        // SAFETY: a valid state, and a place for the one before.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self { before, thread: PhantomData }
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        // SAFETY: the state that was.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}
