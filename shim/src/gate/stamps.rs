//! The times of work that a tenant stamps into its own page: without any message, so that calls cost little.
//!
//! One stamp tells that the tenant rests in its turn: the coordinator may read its memory then, as long as that lasts.
//!
//! The others tell when a latency tenant's requests begin and end: co-running requests pass without any message, but the coordinator has
//! to know how long they take.
//!
//! A request begins with the first call after rest, where that call is seen: at a gate that rests, or at a closed one. At an open gate
//! calls are not seen. A request that began there is not stamped, or only its rest from the moment when a call has to wait. The thread
//! that watches the program stamps the request's end (`session::requests`).

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

use baton_contract::page::{RequestRing, TenantPage};

use super::activity;

/// The requests' ring in our own page, mapped for ever; null without one.
static RING: AtomicPtr<RequestRing> = AtomicPtr::new(ptr::null_mut());
static RESTS: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Sets our page.
pub(crate) fn use_page(page: &'static TenantPage) {
    RING.store(ptr::from_ref(&page.requests).cast_mut(), Ordering::Release);
    RESTS.store(ptr::from_ref(&page.rests).cast_mut(), Ordering::Release);
}

/// Forgets the page in a forked child, which does not have its parent's page. Async-signal-safe.
pub(super) fn forget() {
    RING.store(ptr::null_mut(), Ordering::Release);
    RESTS.store(ptr::null_mut(), Ordering::Release);
}

fn rests() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a reference that lives for ever.
    unsafe { RESTS.load(Ordering::Acquire).as_ref() }
}

fn ring() -> Option<&'static RequestRing> {
    // SAFETY: null, or a reference that lives for ever.
    unsafe { RING.load(Ordering::Acquire).as_ref() }
}

/// The count of rests: to be read before the gate rests.
pub(crate) fn rests_before() -> Option<u32> {
    rests().map(|rests| rests.load(Ordering::SeqCst))
}

/// Stamps that the program rests in its turn: the gate has rested since the count was read, and no thread was inside. Does nothing if a
/// call has come meanwhile.
pub(crate) fn rest(before: Option<u32>) {
    if let (Some(rests), Some(before)) = (rests(), before.filter(|count| count.is_multiple_of(2))) {
        let _ = rests.compare_exchange(before, before.wrapping_add(1), Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Stamps that the program does not rest, or no longer: before the gate lets any call pass. The next even number cancels a rest that was
/// about to be stamped.
pub(super) fn rest_ends() {
    if let Some(rests) = rests() {
        let next = |count: u32| Some((count | 1).wrapping_add(1));
        let _ = rests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure that lives over the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Begins a request, unless there is one already: the program is at work. Only tenants of class latency have a slot, and only they stamp.
/// The caller has announced before, by the gate or by waiting at it, that there is a call; a thread that ends a request checks for one
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

/// True if there is a request.
pub(crate) fn is_any() -> bool {
    fence(Ordering::SeqCst);
    ring().is_some_and(|ring| ring.present().is_some())
}

/// Ends the request: its work had ended at this time. This also ends a request that has lost its slot meanwhile. Only the control loop
/// calls this, and begins another request if a call has come since.
pub(crate) fn end(at: u64) {
    if let Some(ring) = ring() {
        ring.end(at);
    }
    fence(Ordering::SeqCst);
}
