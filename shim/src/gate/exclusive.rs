//! Calls that keep others out of a context while they wait in the driver for all of its work, and the moments in which no such call
//! may begin.
//!
//! Both are counted by context: the driver's locks are a context's, so a call that waits in one context delays none in another. A thread
//! that begins either announces it first and then checks for the other, so at least one of two sees the other.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The number of contexts that are told apart; further ones count for every context.
const MOST: usize = 64;

/// Contexts, by handle; a place for each time that one is named. A free place holds 0, which is no context's handle.
struct Named {
    places: [AtomicUsize; MOST],
    /// The number of contexts that found no place.
    more: AtomicU32,
}

impl Named {
    const fn new() -> Self {
        Self { places: [const { AtomicUsize::new(0) }; MOST], more: AtomicU32::new(0) }
    }

    /// Names a context once more, until the place is given back.
    fn add(&self, context: usize) -> usize {
        let take = |place: &AtomicUsize| {
            context != 0 && place.compare_exchange(0, context, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        self.places.iter().position(take).unwrap_or_else(|| {
            self.more.fetch_add(1, Ordering::SeqCst);
            MOST
        })
    }

    fn remove(&self, place: usize) {
        match self.places.get(place) {
            Some(place) => place.store(0, Ordering::Release),
            None => drop(self.more.fetch_sub(1, Ordering::Release)),
        }
    }

    fn has(&self, context: usize) -> bool {
        let is_it = |place: &AtomicUsize| place.load(Ordering::SeqCst) == context;
        self.more.load(Ordering::SeqCst) != 0 || context != 0 && self.places.iter().any(is_it)
    }

    fn clear(&self) {
        self.places.iter().for_each(|place| place.store(0, Ordering::Relaxed));
        self.more.store(0, Ordering::Relaxed);
    }
}

static INSIDE: Named = Named::new();
static KEPT_OFF: Named = Named::new();
/// The number of holders that keep such calls off in all contexts of the shared GPU.
static ALL_KEPT_OFF: AtomicU32 = AtomicU32::new(0);

/// Such a call is inside, until this is dropped. One without a context fails in the driver, and delays no other call.
#[must_use = "it ends when this is dropped"]
pub(super) struct Inside(Option<usize>);

impl Inside {
    pub(super) fn begin(context: usize) -> Self {
        Self((context != 0).then(|| INSIDE.add(context)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            INSIDE.remove(place);
        }
    }
}

/// True if such a call must not go on now that it has begun. `is_outermost`: it is not a part of another call, for which others wait.
pub(super) fn is_kept_off(context: usize, is_outermost: bool) -> bool {
    (is_outermost && ALL_KEPT_OFF.load(Ordering::SeqCst) != 0) || KEPT_OFF.has(context)
}

/// Keeps calls off that may keep others out of the driver, until this is dropped: from before the gate is closed until it is known whether
/// all work has ended, or while work is submitted that must not wait.
#[must_use = "it ends when this is dropped"]
pub(crate) struct KeptOff(Option<usize>);

impl KeptOff {
    /// Keeps calls off in all contexts. The gate is about to be closed: then no thread is inside.
    pub(crate) fn begin() -> Self {
        ALL_KEPT_OFF.fetch_add(1, Ordering::SeqCst);
        Self(None)
    }

    /// Keeps calls off in one context; `None` if there is such a call inside.
    pub(crate) fn begin_if_none_is_inside(context: usize) -> Option<Self> {
        let kept_off = Self(Some(KEPT_OFF.add(context)));
        (!INSIDE.has(context)).then_some(kept_off)
    }
}

impl Drop for KeptOff {
    fn drop(&mut self) {
        match self.0 {
            Some(place) => KEPT_OFF.remove(place),
            None => drop(ALL_KEPT_OFF.fetch_sub(1, Ordering::Release)),
        }
    }
}

/// Forgets all calls in a forked child, whose other threads are gone. Async-signal-safe.
pub(super) fn start_anew() {
    INSIDE.clear();
    KEPT_OFF.clear();
    ALL_KEPT_OFF.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_waits_in_one_context_is_in_nobodys_way_in_another() {
        let [one, other] = [0x7001, 0x7002];
        let inside = Inside::begin(one);
        assert!(KeptOff::begin_if_none_is_inside(one).is_none());
        let kept_off = KeptOff::begin_if_none_is_inside(other).expect("nobody is inside there");
        assert!(is_kept_off(other, true) && !is_kept_off(one, true));
        drop(inside);
        assert!(KeptOff::begin_if_none_is_inside(one).is_some());
        drop(kept_off);
        assert!(!is_kept_off(other, true));
    }

    #[test]
    fn a_call_without_a_context_is_in_nobodys_way_and_nobody_in_its() {
        let named = Named::new();
        assert!(!named.has(0), "a free place names none");
        let place = named.add(0);
        assert!(named.has(7), "which is not known");
        let other = named.add(7);
        named.remove(place);
        assert!(named.has(7) && !named.has(8));
        named.remove(other);
        assert!(!named.has(7));
    }

    #[test]
    fn what_cannot_be_told_apart_any_more_counts_for_every_context() {
        let named = Named::new();
        let places: Vec<usize> = (1..=MOST + 1).map(|context| named.add(context)).collect();
        assert!(named.has(usize::MAX));
        named.remove(places[MOST]);
        assert!(!named.has(usize::MAX) && named.has(MOST));
        named.remove(places[MOST - 1]);
        assert!(!named.has(MOST));
    }
}
