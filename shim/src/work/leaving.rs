//! Contexts that may be ending: from before a call that could end one until its end is proven or disproven.
//!
//! Meanwhile the context is *leaving*. It stays in the books, and its work counts: a question about that work is answered with "unknown".
//! But the driver is asked nothing, because it may be destroying the subject of the question.
//!
//! **A release of a primary context ends it only if no other retain is left.** The program's retains and releases are counted, so that
//! most releases are known to end nothing: they leave nothing, wait for nothing and delay no other thread. Others retain the context in
//! ways that we do not see. So the count is the least that the driver can have, and a release that seems to be the last only may be.
//!
//! **Proof** is the context's number (`cuCtxGetId`), which is never reused. Without such numbers, the proof is that a primary context is
//! not active: that holds because no call retains it from before such a release until the check.

use baton_contract::cuda::CUdevice;

use super::contexts::{self, ContextId, Contexts, Primary, lock, settled, wait_until};
use crate::driver::api::{self, Handle};

/// A call that retains a primary context, or releases one that others retain; it ends when this is dropped.
#[must_use = "it ends when this is dropped"]
pub(crate) struct Passing {
    device: CUdevice,
    retains: bool,
    is_success: bool,
}

impl Passing {
    /// Records the driver's answer.
    pub(crate) fn done(mut self, is_success: bool) {
        self.is_success = is_success;
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let mut contexts = lock();
        let primary = contexts.primaries.entry(self.device).or_default();
        let (under_way, change) = if self.retains { (&mut primary.retaining, 1) } else { (&mut primary.releasing, -1) };
        *under_way -= 1;
        if self.is_success {
            primary.retained = primary.retained.saturating_add_signed(change);
        }
        drop(contexts);
        settled();
    }
}

/// True if a device's primary context is being left.
fn is_left(contexts: &mut Contexts, device: CUdevice) -> bool {
    let context = contexts.primaries.get(&device).map_or(0, |primary| primary.context);
    contexts.by_handle(context).is_some_and(|(_, context)| context.leaving != 0)
}

/// Called before the program retains a device's primary context. While that is being left, this waits: in the driver too, one call comes
/// after the other.
pub(crate) fn begin_retain(device: CUdevice) -> Passing {
    let mut contexts = wait_until(|contexts| !is_left(contexts, device));
    contexts.primaries.entry(device).or_default().retaining += 1;
    Passing { device, retains: true, is_success: false }
}

impl Primary {
    /// True if one more release certainly ends nothing: after it and those that are under way, a retain is left.
    fn is_kept(self) -> bool {
        self.retained > self.releasing.saturating_add(1)
    }

    fn is_passed(self) -> bool {
        self.retaining != 0 || self.releasing != 0
    }

    /// Updates the count after a call that has left the context.
    fn count(&mut self, way: Way) {
        // The driver's count before a reset is unknown.
        self.retained = if let Way::Reset(_) = way { 0 } else { self.retained.saturating_sub(1) };
    }
}

/// Called before the program releases a device's primary context. `None` if the release may be the last, or if the context is being left.
pub(crate) fn begin_release(device: CUdevice) -> Option<Passing> {
    let mut contexts = lock();
    if is_left(&mut contexts, device) {
        return None;
    }
    let primary = contexts.primaries.entry(device).or_default();
    primary.is_kept().then(|| {
        primary.releasing += 1;
        Passing { device, retains: false, is_success: false }
    })
}

/// A call that may end a context.
#[must_use = "says how it went"]
pub(crate) struct Leaving(ContextId);

/// Begins a call that may end a context: from here on, no thread asks about it. `None` if the context is not known.
pub(crate) fn begin(context: Handle) -> Option<Leaving> {
    let id = {
        let mut contexts = lock();
        let (id, context) = contexts.by_handle(context)?;
        context.leaving += 1;
        id
    };
    let leaving = Leaving(id);
    contexts::quiesce(id, |_| true);
    // No thread begins any more to read there, to retain it, or to release it in passing.
    drop(wait_until(|contexts| {
        let is_read = contexts.get(id).is_some_and(|context| context.is_read);
        !is_read && contexts.primary_mut(context).is_none_or(|primary| !primary.is_passed())
    }));
    Some(leaving)
}

/// Counts a call that has left a context, which need not be in the books.
pub(crate) fn count(way: Way) {
    if let Way::Released(device) | Way::Reset(device) = way {
        lock().primaries.entry(device).or_default().count(way);
    }
}

/// The way in which the program left a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It was to end, even if others use it. If the call did not fail, it has ended.
    Destroyed,
    /// A user that is attached to it left: it has ended if the driver does not know it any more.
    Detached,
    /// A primary context was released: it has ended as for [`Self::Detached`].
    Released(CUdevice),
    /// A primary context was reset, even if others retain it: it has ended as for [`Self::Detached`].
    Reset(CUdevice),
}

impl Way {
    /// True if it is proven that the context has ended. No call retains it meanwhile. An error may come from earlier work.
    fn has_ended(self, is_success: bool, handle: Handle, number: Option<u64>) -> bool {
        match (self, number) {
            (Self::Destroyed, _) if is_success => true,
            (_, Some(number)) => contexts::is_gone(handle, number),
            (Self::Destroyed, None) => false,
            (Self::Detached, None) => is_success && api::within(handle, || ()).is_none(),
            (Self::Released(device) | Self::Reset(device), None) => !api::primary_is_active(device),
        }
    }
}

/// The state of a context after a call that may have ended it.
#[must_use = "what has gone is to be forgotten"]
pub(crate) enum Left {
    /// It has ended: everything in it can be forgotten.
    Gone(Gone),
    /// It has not ended, or another such call is under way, which will find out.
    Stays,
}

/// A context that has ended. The books have it until this is dropped, so that no other can be mistaken for it.
#[must_use = "what was in it is to be forgotten"]
pub(crate) struct Gone(ContextId);

impl Gone {
    /// The driver's handle of the context.
    pub(crate) fn handle(&self) -> Handle {
        self.0.handle()
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        lock().remove(self.0.handle());
        settled();
    }
}

/// Dropped without an answer if the thread was cancelled in the driver: nothing is proven then.
impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(context) = lock().get(self.0) {
            context.leaving -= 1;
        }
        settled();
    }
}

impl Leaving {
    /// Records the driver's answer.
    pub(crate) fn done(self, way: Way, is_success: bool) -> Left {
        let id = self.0;
        let number = lock().get(id).and_then(|context| context.number);
        let has_ended = way.has_ended(is_success, id.handle(), number);
        if is_success {
            count(way);
        }
        let mut contexts = lock();
        let Some(context) = contexts.get(id) else { return Left::Stays };
        context.has_ended |= has_ended;
        if context.leaving == 1 && context.has_ended {
            context.is_gone = true;
            core::mem::forget(self);
            return Left::Gone(Gone(id));
        }
        drop(contexts);
        Left::Stays
    }
}

/// Adds a context to the books that was made in a way that we do not see. Returns like [`contexts::add`].
pub(crate) fn adopt(context: Handle, device: CUdevice) -> bool {
    // The context is retained for a moment, and that must not be its last retain.
    let passing = begin_retain(device);
    let is_primary = api::primary_of(device) == Some(context);
    drop(passing);
    if is_primary { contexts::add_primary(context, device) } else { contexts::add(context, device) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_ends_nothing_while_others_retain_the_context() {
        let primary = |retained, releasing| Primary { retained, releasing, ..Primary::default() };
        assert!(primary(2, 0).is_kept() && primary(3, 1).is_kept());
        assert!(!primary(0, 0).is_kept() && !primary(1, 0).is_kept(), "it may be the last");
        assert!(!primary(2, 1).is_kept(), "another one is on its way");
    }

    #[test]
    fn the_count_is_never_more_than_what_the_driver_can_have() {
        let mut primary = Primary { retained: 3, ..Primary::default() };
        primary.count(Way::Released(0));
        assert_eq!(primary.retained, 2);
        primary.count(Way::Reset(0));
        primary.count(Way::Released(0));
        assert_eq!(primary.retained, 0);
    }
}
