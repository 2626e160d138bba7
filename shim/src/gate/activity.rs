//! The page: tenants that run beside others say here that they are at work, and the others' new calls wait meanwhile.
//!
//! Calls of a program that runs beside others cost nothing for that: while it rests its gate is in a state of its own, in which
//! the first call comes by here and opens it. The pager looks when the program has come to rest again.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use core::time::Duration;
use std::time::Instant;

use baton_contract::page::{ACTIVITY_SLOTS, ActivityPage};

use crate::sys::futex::{self, Scope};

/// The page, mapped for ever; null without one.
static PAGE: AtomicPtr<ActivityPage> = AtomicPtr::new(ptr::null_mut());
/// Our bit; zero if we have no slot.
static OURS: AtomicU32 = AtomicU32::new(0);

/// How long it is looked again and again before sleeping: others' requests are often as short.
const SPIN: Duration = Duration::from_micros(30);
/// How long somebody sleeps at most before looking at the gate again.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// Takes the page into use. A slot is only written by who has it mapped writable.
pub(crate) fn use_page(page: *mut ActivityPage, slot: u32) {
    PAGE.store(page, Ordering::Release);
    OURS.store(if slot < ACTIVITY_SLOTS { 1 << slot } else { 0 }, Ordering::Release);
}

/// From here on we wait for the others. The page stays as it is mapped: a call may be about to write to it.
pub(crate) fn give_up_slot() {
    OURS.store(0, Ordering::Relaxed);
}

fn page() -> Option<&'static ActivityPage> {
    // SAFETY: null, or mapped for ever and made of atomics.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

fn busy() -> Option<&'static AtomicU32> {
    page().map(|page| &page.busy)
}

/// Whether others have to wait.
fn is_anybody_at_work(page: &ActivityPage) -> bool {
    page.busy.load(Ordering::Relaxed) != 0 && page.pass.load(Ordering::Relaxed) == 0
}

/// Whether somebody else is at work who goes first. Who has a slot does not wait for others that have one.
#[inline]
pub(crate) fn must_yield() -> bool {
    OURS.load(Ordering::Relaxed) == 0 && page().is_some_and(is_anybody_at_work)
}

/// Whether somebody is at work for whom we do not wait, mostly because our work is descheduled.
pub(crate) fn lets_pass() -> bool {
    page().is_some_and(|page| page.busy.load(Ordering::Relaxed) != 0 && page.pass.load(Ordering::Relaxed) != 0)
}

/// Waits until nobody is at work any more, for a while: the gate may have to be looked at.
pub(crate) fn wait() {
    let Some(page) = page() else { return };
    let start = Instant::now();
    while start.elapsed() < SPIN {
        if !is_anybody_at_work(page) {
            return;
        }
        core::hint::spin_loop();
    }
    let (word, taken) = (&page.busy, page.busy.load(Ordering::Relaxed));
    if taken != 0 && is_anybody_at_work(page) {
        futex::wait(word, taken, Some(LONGEST_SLEEP), Scope::Shared);
    }
}

/// We are at work. Whoever calls this has opened the gate before; who ends it looks at the gate afterwards.
pub(crate) fn begin() {
    let ours = OURS.load(Ordering::Acquire);
    fence(Ordering::SeqCst);
    if let Some(word) = busy().filter(|word| word.load(Ordering::Relaxed) & ours != ours) {
        word.fetch_or(ours, Ordering::AcqRel);
    }
}

/// We are no longer.
pub(crate) fn end() {
    let ours = OURS.load(Ordering::Relaxed);
    if let Some(word) = busy().filter(|_| ours != 0)
        && word.fetch_and(!ours, Ordering::AcqRel) & ours != 0
    {
        futex::wake_all(word, Scope::Shared);
    }
    fence(Ordering::SeqCst);
}
