//! Calls wait for these locks inside the driver, beside the work that they are about.
//!
//! Measured on an H200 with driver 580. A call that waits for all of a context's work (freeing memory, loading and unloading
//! code) keeps others out of the context meanwhile: those that make or end objects, and those that submit work or record
//! events. A thread that is stuck because a stream's queue is full keeps others out of that stream, and from making or ending
//! objects. Questions, changes of mappings, and `cuMemFreeAsync` and waits for events in other streams never wait.
//!
//! ```text
//! held by                              objects   submission   stream
//! cuMemFree, cuModuleLoadData, ...       x          x
//! a launch into a full queue             x                      x
//! passed by
//! cuMemAlloc, cuStreamCreate, ...        x
//! cuStreamBeginCapture                   x
//! launches, copies, records                         x           x
//! cuMemFreeAsync, cuStreamWaitEvent                             x
//! cuStreamQuery                                                 x
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The locks of a context.
#[derive(Default)]
pub(crate) struct Locks {
    objects: Mutex<()>,
    submission: Mutex<()>,
}

/// A call that waits for all of a context's work holds these locks.
#[must_use]
pub(crate) struct Exclusive<'a> {
    _objects: MutexGuard<'a, ()>,
    _submission: MutexGuard<'a, ()>,
}

impl Locks {
    /// For a call that waits for all of the context's work: no other call makes, ends or submits anything meanwhile.
    pub(crate) fn exclude(&self) -> Exclusive<'_> {
        Exclusive { _objects: take(&self.objects), _submission: take(&self.submission) }
    }

    /// For a call that makes or ends something.
    pub(crate) fn pass_objects(&self) {
        drop(self.hold_objects());
    }

    /// For a call that submits something.
    pub(crate) fn pass_submission(&self) {
        drop(take(&self.submission));
    }

    /// True while a call keeps others from submitting.
    #[cfg(test)]
    pub(crate) fn is_submission_held(&self) -> bool {
        self.submission.try_lock().is_err()
    }

    /// For a thread that is stuck with a full queue.
    pub(crate) fn hold_objects(&self) -> MutexGuard<'_, ()> {
        take(&self.objects)
    }
}

/// Takes a lock that guards no data: a thread that panicked with it left nothing behind.
pub(crate) fn take(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
