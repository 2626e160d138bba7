//! Objects of the program's that live as long as the graphs that use them.

use std::sync::{Mutex, PoisonError};

use crate::errors::{Outcome, Status};

/// A destructor that is called when no reference to the object is left.
pub(crate) struct UserObject {
    destroy: extern "C" fn(usize),
    data: usize,
    /// References of the program's own.
    count: Mutex<u32>,
}

impl UserObject {
    pub(crate) fn new(destroy: extern "C" fn(usize), data: usize, count: u32) -> UserObject {
        UserObject { destroy, data, count: Mutex::new(count) }
    }

    /// Adds references.
    pub(crate) fn retain(&self, more: u32) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += more;
    }

    /// Drops references. Returns true if the program has none left.
    pub(crate) fn release(&self, less: u32) -> Outcome<bool> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.checked_sub(less).ok_or(Status::INVALID_VALUE)?;
        Ok(*count == 0)
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        (self.destroy)(self.data);
    }
}
