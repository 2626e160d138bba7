//! An event that one thread waits for, among other descriptors, and others raise.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::cancel;

/// An `eventfd`.
pub(crate) struct Event(OwnedFd);

impl Event {
    /// Makes an event. `None` if no descriptor is left.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: plain integers; the answer is checked before it is used.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: new, and ours.
        (event >= 0).then(|| Self(unsafe { OwnedFd::from_raw_fd(event) }))
    }

    pub(crate) fn raise(&self) {
        let _uncancelled = cancel::Off::begin();
        // SAFETY: eight bytes that live over the call.
        unsafe { libc::write(self.0.as_raw_fd(), core::ptr::from_ref(&1u64).cast(), size_of::<u64>()) };
    }

    pub(crate) fn lower(&self) {
        let _uncancelled = cancel::Off::begin();
        let mut count = 0u64;
        // SAFETY: as above.
        unsafe { libc::read(self.0.as_raw_fd(), core::ptr::from_mut(&mut count).cast(), size_of::<u64>()) };
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
