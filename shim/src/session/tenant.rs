//! This process as a tenant.

use core::sync::atomic::{AtomicBool, Ordering};

use baton_contract::cuda::CUdevice;
use baton_contract::messages::{PreemptionReport, TurnReport};

use crate::channels::Own;
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
    /// What of us the coordinator can pause, and that this has changed.
    pub(super) channels: Own,
    pub(super) news: Event,
    /// Nothing runs before all memory is back.
    pub(super) whole: bool,
}

static SESSION: Once<Session> = Once::new();
/// Somebody has asked for the baton since the gate was closed.
pub(super) static DEMANDED: AtomicBool = AtomicBool::new(false);

/// The session, if this process has one.
pub(crate) fn get() -> Option<&'static Session> {
    link::get().and_then(|_| SESSION.get())
}

/// From here on it is one.
pub(super) fn keep(session: Session) -> &'static Session {
    SESSION.keep(session).0
}

/// The program is at work again: it has to be looked when it comes to rest.
pub(super) fn wake() {
    if let Some(session) = get() {
        session.news.raise();
    }
}

/// A call waits at the closed gate.
pub(super) fn demand() {
    if let Some(link) = link::get()
        && !DEMANDED.swap(true, Ordering::AcqRel)
    {
        link.tell(&TurnReport::Demand);
    }
}

impl Session {
    /// Says what of us can be paused, if that has changed. Only one thread does, so that the last word is the last one sent.
    pub(super) fn tell_channels(&self) {
        if let Some((channels, begun, descriptor)) = self.channels.news() {
            self.link.tell_with(&PreemptionReport::Channels { channels, begun }, descriptor);
        }
    }

    /// A context came or went: there is something to tell.
    pub(crate) fn channels_changed(&self) {
        self.news.raise();
    }
}
