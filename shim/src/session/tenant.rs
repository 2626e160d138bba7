//! This process as a tenant.

use core::sync::atomic::{AtomicBool, Ordering};

use baton_contract::cuda::CUdevice;
use baton_contract::messages::TurnReport;

use crate::arrival::elsewhere;
use crate::channels::Own;
use crate::gate::stamps;
use crate::link::{self, Link};
use crate::memory::space::Space;
use crate::sys::event::Event;
use crate::sys::once::Once;

/// This process as a tenant.
pub(crate) struct Session {
    /// The GPU that is shared.
    pub(crate) device: CUdevice,
    pub(crate) link: &'static Link,
    pub(super) space: &'static Space,
    /// Our work that the coordinator can pause, and an event for changes of it.
    pub(super) channels: Own,
    pub(super) news: Event,
    /// Nothing runs before all memory is back.
    pub(super) whole: bool,
}

static SESSION: Once<Session> = Once::new();
/// A call has demanded a turn since the gate was closed.
pub(super) static DEMANDED: AtomicBool = AtomicBool::new(false);

/// The session, if this process has one.
pub(crate) fn get() -> Option<&'static Session> {
    link::get().and_then(|_| SESSION.get())
}

/// Makes this process a tenant.
pub(super) fn keep(session: Session) -> &'static Session {
    SESSION.keep(session).0
}

/// Wakes the control loop: the program is at work again, and is to be checked for its next rest.
pub(super) fn wake() {
    if let Some(session) = get() {
        session.news.raise();
    }
}

/// Called when a call waits at the closed gate.
pub(super) fn demand() {
    if let Some(link) = link::get()
        && !DEMANDED.swap(true, Ordering::AcqRel)
    {
        begins_to_wait(link);
        link.tell(&TurnReport::Demand);
    }
}

/// Shows since when this program waits for its turn.
pub(super) fn begins_to_wait(link: &Link) {
    let _ = link.own().waits_since.compare_exchange(0, stamps::now(), Ordering::Relaxed, Ordering::Relaxed);
}

impl Session {
    /// Reports our pausable work, if that has changed. Only one thread does so, so that the last report sent is the latest.
    pub(super) fn tell_channels(&self) {
        if let Some((report, descriptor)) = self.channels.news(elsewhere::taken()) {
            self.link.tell_with(&report, descriptor);
        }
    }

    /// Reports our pausable work to a coordinator that has not been told.
    pub(super) fn tell_channels_again(&self) {
        let (report, descriptor) = self.channels.all(elsewhere::taken());
        self.link.tell_with(&report, descriptor);
    }

    /// Called when a context came or went: there may be a change to report.
    pub(crate) fn channels_changed(&self) {
        self.news.raise();
    }
}
