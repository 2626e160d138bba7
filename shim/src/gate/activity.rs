//! The activity pages: tenants that co-run declare here that they are at work, and the others' new calls wait meanwhile. Our own domain's
//! page has the tenants of our user, in our pod or container; the coordinator reports the rest.
//!
//! This costs nothing for the calls of a tenant that co-runs: while it rests its gate is in a state of its own, in which the first call
//! passes through here and opens it. The control loop checks when the program has come to rest again.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::time::Instant;

use baton_contract::page::{ACTIVITY_SLOTS, ActivityPage, ElsewherePage};

use crate::sys::futex::{self, Scope};
use crate::sys::pages;

/// Our domain's page, mapped for ever; null without one.
static PAGE: AtomicPtr<ActivityPage> = AtomicPtr::new(ptr::null_mut());
/// The coordinator's report about the other domains; set before the page is, mapped for ever.
static ELSEWHERE: AtomicPtr<ElsewherePage> = AtomicPtr::new(ptr::null_mut());
/// Our slot; [`ACTIVITY_SLOTS`] if we have none.
static SLOT: AtomicU32 = AtomicU32::new(ACTIVITY_SLOTS);

/// The time for which a thread polls before it sleeps: others' requests are often as short.
const SPIN: Duration = Duration::from_micros(30);
/// The longest sleep of a thread before it checks the gate again.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// Sets the report about other domains: before the page.
pub(crate) fn use_elsewhere(page: *mut ElsewherePage) {
    ELSEWHERE.store(page, Ordering::Release);
}

/// Has another coordinator's report take the place of the last one's. False if it cannot be mapped.
pub(crate) fn replace_elsewhere(file: &OwnedFd) -> bool {
    NonNull::new(ELSEWHERE.load(Ordering::Acquire)).is_some_and(|page| pages::replace(page, file))
}

/// Sets our domain's page. A slot is only written by the process that has it mapped writable.
pub(crate) fn use_page(page: *mut ActivityPage, slot: u32) {
    PAGE.store(page, Ordering::Release);
    SLOT.store(slot.min(ACTIVITY_SLOTS), Ordering::Release);
}

/// Gives the slot up: from here on we wait for the others. The page stays as it is mapped: a call may be about to write to it.
pub(crate) fn give_up_slot() {
    SLOT.store(ACTIVITY_SLOTS, Ordering::Relaxed);
}

fn page() -> Option<&'static ActivityPage> {
    // SAFETY: null, or mapped for ever and made of atomics.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// Both pages, if there is one of our domain.
fn pages() -> Option<(&'static ActivityPage, &'static ElsewherePage)> {
    let page = page()?;
    // SAFETY: null, or mapped for ever and made of atomics.
    Some((page, unsafe { ELSEWHERE.load(Ordering::Relaxed).as_ref() }?))
}

fn slot() -> Option<u32> {
    Some(SLOT.load(Ordering::Acquire)).filter(|slot| *slot < ACTIVITY_SLOTS)
}

/// True if we have a slot: then our class is latency.
pub(super) fn has_slot() -> bool {
    slot().is_some()
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
    SLOT.load(Ordering::Relaxed) == ACTIVITY_SLOTS && pages().is_some_and(is_anybody_at_work)
}

/// True if a tenant is at work for which we do not wait, mostly because our work is descheduled.
pub(crate) fn lets_pass() -> bool {
    pages().is_some_and(|pages| is_any_busy(pages) && pages.1.pass.load(Ordering::Relaxed) != 0)
}

/// Waits until no tenant is at work any more, for a while: the gate may have to be checked.
pub(crate) fn wait() {
    let Some(pages) = pages() else { return };
    let start = Instant::now();
    while start.elapsed() < SPIN {
        if !is_anybody_at_work(pages) {
            return;
        }
        core::hint::spin_loop();
    }
    let news = pages.0.news.load(Ordering::Acquire);
    if is_anybody_at_work(pages) {
        futex::wait(&pages.0.news, news, Some(LONGEST_SLEEP), Scope::Shared);
    }
}

/// Declares us at work. The caller has opened the gate before; the thread that ends the work checks the gate afterwards.
pub(crate) fn begin() {
    let slot = slot();
    fence(Ordering::SeqCst);
    if let (Some(page), Some(slot)) = (page(), slot)
        && !page.is_seen_busy(slot)
    {
        page.set_busy(slot);
    }
}

/// Declares us no longer at work.
pub(crate) fn end() {
    if let (Some(page), Some(slot)) = (page(), slot())
        && page.set_idle(slot)
    {
        page.news.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&page.news, Scope::Shared);
    }
    fence(Ordering::SeqCst);
}
