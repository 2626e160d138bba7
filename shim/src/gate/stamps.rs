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

use core::sync::atomic::{AtomicU32, Ordering, fence};

use baton_contract::cuda::CUdevice;
use baton_contract::page::{RequestRing, TenantPage};

use super::activity;
use crate::sys::by_device::ByDevice;

/// Our own pages: one for each GPU that is shared, as each has a coordinator that reads them.
static PAGES: ByDevice<TenantPage> = ByDevice::new();

/// Sets our page of a GPU.
pub(crate) fn use_page(device: CUdevice, page: &'static TenantPage) {
    PAGES.set(device, page);
}

/// Forgets the pages in a forked child, which does not have its parent's. Async-signal-safe.
pub(super) fn forget() {
    PAGES.clear();
}

fn rings() -> impl Iterator<Item = &'static RequestRing> {
    PAGES.all().map(|page| &page.requests)
}

/// The counts of rests: to be read before the gate rests.
pub(crate) struct Rests(Vec<(&'static AtomicU32, u32)>);

/// Reads the counts of rests.
pub(crate) fn rests_before() -> Rests {
    Rests(PAGES.all().map(|page| (&page.rests, page.rests.load(Ordering::SeqCst))).collect())
}

/// Stamps that the program rests in its turn: the gate has rested since the counts were read, and no thread was inside. Does nothing if a
/// call has come meanwhile.
pub(crate) fn rest(before: &Rests) {
    for (rests, before) in before.0.iter().filter(|(_, count)| count.is_multiple_of(2)) {
        let _ = rests.compare_exchange(*before, before.wrapping_add(1), Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Stamps that the program does not rest, or no longer: before the gate lets any call pass. The next even number cancels a rest that was
/// about to be stamped.
pub(super) fn rest_ends() {
    for page in PAGES.all() {
        let next = |count: u32| Some((count | 1).wrapping_add(1));
        let _ = page.rests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
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
    if activity::has_slot() {
        for ring in rings().filter(|ring| ring.present().is_none()) {
            ring.begin(now());
        }
    }
    fence(Ordering::SeqCst);
}

/// True if there is a request.
pub(crate) fn is_any() -> bool {
    fence(Ordering::SeqCst);
    rings().any(|ring| ring.present().is_some())
}

/// Ends the request: its work had ended at this time. This also ends a request that has lost its slot meanwhile. Only the control loop
/// calls this, and begins another request if a call has come since.
pub(crate) fn end(at: u64) {
    rings().for_each(|ring| ring.end(at));
    fence(Ordering::SeqCst);
}
