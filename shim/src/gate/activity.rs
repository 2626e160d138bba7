//! The activity pages of each GPU: tenants that co-run declare here that they are at work, and the others' new calls wait meanwhile. Our
//! own domain's page has the tenants of our user, in our pod or container; the coordinator reports the rest.
//!
//! This costs nothing for the calls of a tenant that co-runs: while it rests its gate is in a state of its own, in which the first call
//! passes through here and opens it. The control loop checks when the program has come to rest again.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;

use baton_contract::cuda::CUdevice;
use baton_contract::page::{ACTIVITY_SLOTS, ActivityPage, ElsewherePage};

use crate::sys::by_device::{MOST, place, places};
use crate::sys::futex::{self, Scope};
use crate::sys::pages;

/// The pages of a GPU's coordinator, and our place there.
struct Seat {
    /// Our domain's page, mapped for ever; null without one.
    page: AtomicPtr<ActivityPage>,
    /// The coordinator's report about the other domains; set before the page is, mapped for ever.
    elsewhere: AtomicPtr<ElsewherePage>,
    /// Our slot; [`ACTIVITY_SLOTS`] if we have none.
    slot: AtomicU32,
}

static SEATS: [Seat; MOST] = [const {
    Seat {
        page: AtomicPtr::new(ptr::null_mut()),
        elsewhere: AtomicPtr::new(ptr::null_mut()),
        slot: AtomicU32::new(ACTIVITY_SLOTS),
    }
}; MOST];
/// A bit for each GPU on which this process is at work.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The time for which a thread polls before it sleeps: others' requests are often as short.
const SPIN: Duration = Duration::from_micros(30);
/// The longest sleep of a thread before it checks the gate again.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

fn seat(device: CUdevice) -> &'static Seat {
    &SEATS[place(device)]
}

/// The places of this process on the GPUs on which it is at work.
fn seats() -> impl Iterator<Item = &'static Seat> {
    places(TAKEN.load(Ordering::Acquire)).map(|place| &SEATS[place])
}

/// This process is at work on a GPU from now on.
pub(crate) fn take_seat(device: CUdevice) {
    TAKEN.fetch_or(1 << place(device), Ordering::AcqRel);
}

/// Sets the report about other domains: before the page.
pub(crate) fn use_elsewhere(device: CUdevice, page: *mut ElsewherePage) {
    seat(device).elsewhere.store(page, Ordering::Release);
}

/// Has another coordinator's report take the place of the last one's. False if it cannot be mapped.
pub(crate) fn replace_elsewhere(device: CUdevice, file: &OwnedFd) -> bool {
    NonNull::new(seat(device).elsewhere.load(Ordering::Acquire)).is_some_and(|page| pages::replace(page, file))
}

/// Sets our domain's page. A slot is only written by the process that has it mapped writable.
pub(crate) fn use_page(device: CUdevice, page: *mut ActivityPage, slot: u32) {
    seat(device).page.store(page, Ordering::Release);
    seat(device).slot.store(slot.min(ACTIVITY_SLOTS), Ordering::Release);
}

/// Gives the slot up: from here on we wait for the others. The page stays as it is mapped: a call may be about to write to it.
pub(crate) fn give_up_slot(device: CUdevice) {
    seat(device).slot.store(ACTIVITY_SLOTS, Ordering::Relaxed);
}

impl Seat {
    fn page(&self) -> Option<&'static ActivityPage> {
        // SAFETY: null, or mapped for ever and made of atomics.
        unsafe { self.page.load(Ordering::Acquire).as_ref() }
    }

    /// Both pages, if there is one of our domain.
    fn pages(&self) -> Option<(&'static ActivityPage, &'static ElsewherePage)> {
        let page = self.page()?;
        // SAFETY: null, or mapped for ever and made of atomics.
        Some((page, unsafe { self.elsewhere.load(Ordering::Relaxed).as_ref() }?))
    }

    fn slot(&self) -> Option<u32> {
        Some(self.slot.load(Ordering::Acquire)).filter(|slot| *slot < ACTIVITY_SLOTS)
    }

    /// True if another tenant is at work there that goes first.
    fn must_yield(&self) -> bool {
        self.slot.load(Ordering::Relaxed) == ACTIVITY_SLOTS && self.pages().is_some_and(is_anybody_at_work)
    }
}

/// True if we have a slot: then our class is latency.
pub(super) fn has_slot() -> bool {
    seats().any(|seat| seat.slot().is_some())
}

/// True if any tenant is at work, here or elsewhere.
#[inline]
fn is_any_busy((page, elsewhere): (&ActivityPage, &ElsewherePage)) -> bool {
    page.is_any_busy() || elsewhere.busy.load(Ordering::Relaxed) != 0
}

/// True if others have to wait.
#[inline]
fn is_anybody_at_work(pages: (&ActivityPage, &ElsewherePage)) -> bool {
    is_any_busy(pages) && pages.1.pass.load(Ordering::Relaxed) == 0
}

/// True if another tenant is at work that goes first. A tenant with a slot does not wait for others that have one.
#[inline]
pub(crate) fn must_yield() -> bool {
    seats().any(Seat::must_yield)
}

/// True if a tenant is at work for which we do not wait, mostly because our work is descheduled.
pub(crate) fn lets_pass() -> bool {
    let passes =
        |pages: (&ActivityPage, &ElsewherePage)| is_any_busy(pages) && pages.1.pass.load(Ordering::Relaxed) != 0;
    seats().any(|seat| seat.pages().is_some_and(passes))
}

/// Waits until no tenant is at work any more, for a while: the gate may have to be checked.
pub(crate) fn wait() {
    let start = Instant::now();
    while start.elapsed() < SPIN {
        if !must_yield() {
            return;
        }
        core::hint::spin_loop();
    }
    let Some((page, _)) = seats().find(|seat| seat.must_yield()).and_then(Seat::pages) else { return };
    let news = page.news.load(Ordering::Acquire);
    if must_yield() {
        futex::wait(&page.news, news, Some(LONGEST_SLEEP), Scope::Shared);
    }
}

/// Declares us at work. The caller has opened the gate before; the thread that ends the work checks the gate afterwards.
pub(crate) fn begin() {
    fence(Ordering::SeqCst);
    for seat in seats() {
        if let (Some(page), Some(slot)) = (seat.page(), seat.slot())
            && !page.is_seen_busy(slot)
        {
            page.set_busy(slot);
        }
    }
}

/// Declares us no longer at work.
pub(crate) fn end() {
    for seat in seats() {
        if let (Some(page), Some(slot)) = (seat.page(), seat.slot())
            && page.set_idle(slot)
        {
            page.news.fetch_add(1, Ordering::AcqRel);
            futex::wake_all(&page.news, Scope::Shared);
        }
    }
    fence(Ordering::SeqCst);
}
