//! When a latency tenant's requests begin and end, in its own page: co-running requests pass without any message, and the
//! coordinator is to know all the same how long they take.
//!
//! A request begins with the first call after rest, where that call is seen: at a gate that rests, or at a closed one. At an open
//! gate nobody looks. Of a request that began there nothing is stamped, or what is left of it when a call has to wait. Whoever
//! watches the program says that it has ended (`session::requests`).

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering, fence};

use baton_contract::page::RequestRing;

use super::activity;

/// In our own page, mapped for ever; null without one.
static RING: AtomicPtr<RequestRing> = AtomicPtr::new(ptr::null_mut());

/// Takes the ring into use.
pub(crate) fn use_ring(ring: &'static RequestRing) {
    RING.store(ptr::from_ref(ring).cast_mut(), Ordering::Release);
}

/// In a forked child, which does not have its parent's page. Async-signal-safe.
pub(super) fn forget() {
    RING.store(ptr::null_mut(), Ordering::Release);
}

fn ring() -> Option<&'static RequestRing> {
    // SAFETY: null, or a reference that lives for ever.
    unsafe { RING.load(Ordering::Acquire).as_ref() }
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure that lives over the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The program is at work: a request begins, unless there is one already. Only tenants of class latency have a slot, and only they
/// stamp. Whoever calls this has said before, by the gate or by waiting at it, that there is a call; who ends a request looks for one
/// afterwards.
pub(crate) fn begin() {
    fence(Ordering::SeqCst);
    if let Some(ring) = ring()
        && activity::has_slot()
        && ring.present().is_none()
    {
        ring.begin(now());
    }
    fence(Ordering::SeqCst);
}

/// Whether there is a request.
pub(crate) fn is_any() -> bool {
    fence(Ordering::SeqCst);
    ring().is_some_and(|ring| ring.present().is_some())
}

/// The request's work had ended at this time. Also of one that has lost its slot meanwhile. Only the control loop calls this, and
/// begins another request if a call has come since.
pub(crate) fn end(at: u64) {
    if let Some(ring) = ring() {
        ring.end(at);
    }
    fence(Ordering::SeqCst);
}
