//! Wakes the server's loop from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor whose poller is woken by it.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes a new one.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes the loop, which finds out the reason by itself.
    pub fn wake(&self) {
        // It can only fail if it is raised already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Lowers it again, before the loop checks the reasons.
    pub fn lower(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
