//! This process as a tenant: of a coordinator for each GPU that it shares.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};
use baton_contract::messages::TurnReport;

use crate::arrival::gpus;
use crate::channels::Own;
use crate::driver::api;
use crate::gate::stamps;
use crate::link::{self, Link};
use crate::memory::space::{self, Space};
use crate::sys::by_device::ByDevice;
use crate::sys::event::Event;
use crate::sys::futex::{self, Scope};
use crate::sys::once::Once;

/// This process as a tenant of a GPU.
pub(crate) struct Session {
    /// The GPU that is shared.
    pub(crate) device: CUdevice,
    pub(crate) link: &'static Link,
    pub(crate) space: &'static Space,
    /// Our work that the coordinator can pause.
    pub(super) channels: Own,
    /// Nothing runs before all memory is back.
    pub(super) whole: bool,
    /// 1 when this process has had a turn there, or needs none any more.
    has_begun: AtomicU32,
    /// A thread waits for its first turn there.
    wants_to_begin: AtomicBool,
}

static SESSIONS: ByDevice<Session> = ByDevice::new();
/// Wakes the control loop.
static NEWS: Once<Event> = Once::new();
/// A call has demanded a turn since the gate was closed.
pub(super) static DEMANDED: AtomicBool = AtomicBool::new(false);

/// The session for a GPU, if this process shares it.
#[inline]
pub(crate) fn of(device: CUdevice) -> Option<&'static Session> {
    if link::is_any() { SESSIONS.get(device) } else { None }
}

/// All sessions of this process.
pub(crate) fn all() -> impl Iterator<Item = &'static Session> {
    link::is_any().then(|| SESSIONS.all()).into_iter().flatten()
}

/// True if this process shares any GPU.
#[inline]
pub(crate) fn is_any() -> bool {
    link::is_any()
}

/// The session for the current GPU, if there is a current context, and that GPU is shared.
pub(crate) fn current() -> Option<&'static Session> {
    if !gpus::are_several() {
        return all().next();
    }
    let mut device = -1;
    // SAFETY: an out-parameter.
    let known = unsafe { api::current_device(&mut device) } == CUDA_SUCCESS;
    if known { of(device) } else { None }
}

/// The session for the GPU that has this address among those for allocations.
pub(crate) fn at(address: u64) -> Option<&'static Session> {
    space::at(address).and_then(|space| of(space.device))
}

/// Makes this process a tenant.
pub(super) fn keep(session: Session) -> &'static Session {
    let session: &'static Session = Box::leak(Box::new(session));
    SESSIONS.set(session.device, session);
    session
}

/// Undoes [`keep`].
pub(super) fn give_up(session: &Session) {
    SESSIONS.remove(session.device);
    link::give_up(session.device);
}

/// Makes the event that wakes the control loop. False if there is no descriptor left for it.
pub(super) fn prepare_news() -> bool {
    NEWS.get().is_some() || Event::new().is_some_and(|event| NEWS.keep(event).1)
}

/// The event that wakes the control loop, which is there before the loop is.
pub(super) fn news() -> Option<&'static Event> {
    NEWS.get()
}

/// Wakes the control loop: the program is at work again, and is to be checked for its next rest.
pub(super) fn wake() {
    if let Some(news) = news().filter(|_| link::is_any()) {
        news.raise();
    }
}

/// Called when a call waits at the closed gate.
pub(super) fn demand() {
    if link::is_any() && !DEMANDED.swap(true, Ordering::AcqRel) {
        all().filter(|session| gpus::is_at_work_on(session.device)).for_each(Session::demand);
    }
}

impl Session {
    pub(super) fn new(
        (device, link): (CUdevice, &'static Link),
        space: &'static Space,
        channels: Own,
        whole: bool,
    ) -> Self {
        Self {
            device,
            link,
            space,
            channels,
            whole,
            has_begun: AtomicU32::new(0),
            wants_to_begin: AtomicBool::new(false),
        }
    }

    /// Shows since when this program waits for its turn.
    pub(super) fn begins_to_wait(&self) {
        let waits_since = &self.link.own().waits_since;
        let _ = waits_since.compare_exchange(0, stamps::now(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks for a turn.
    pub(super) fn demand(&self) {
        self.begins_to_wait();
        self.link.tell(&TurnReport::Demand);
    }

    /// Notes that this process has had a turn there, or needs none any more.
    pub(super) fn begin(&self) {
        gpus::works_on(self.device);
        if self.has_begun.swap(1, Ordering::AcqRel) == 0 {
            futex::wake_all(&self.has_begun, Scope::Process);
        }
    }

    /// Asks for the first turn there, and waits for it.
    pub(super) fn await_first_turn(&self) {
        self.wants_to_begin.store(true, Ordering::Release);
        self.demand();
        while self.has_begun.load(Ordering::Acquire) == 0 {
            futex::wait(&self.has_begun, 0, None, Scope::Process);
        }
    }

    /// True if this program waits for a turn there.
    pub(super) fn wants_turn(&self) -> bool {
        match self.has_begun.load(Ordering::Acquire) {
            0 => self.wants_to_begin.load(Ordering::Acquire),
            _ => DEMANDED.load(Ordering::Acquire),
        }
    }

    /// Reports our pausable work, if that has changed. Only one thread does so, so that the last report sent is the latest.
    pub(super) fn tell_channels(&self) {
        if let Some((report, descriptor)) = self.channels.news(self.begun(), self.others()) {
            self.link.tell_with(&report, descriptor);
        }
    }

    /// Reports our pausable work to a coordinator that has not been told.
    pub(super) fn tell_channels_again(&self) {
        let (report, descriptor) = self.channels.all(self.begun(), self.others());
        self.link.tell_with(&report, descriptor);
    }

    /// The number of channels that were about to be made.
    fn begun(&self) -> u32 {
        self.link.own().channels_begun.load(Ordering::SeqCst)
    }

    /// The other GPUs that this process uses, a bit for each. This one's coordinator pauses the work there too before it moves memory: that
    /// work may access it.
    pub(super) fn others(&self) -> u64 {
        gpus::taken() & !api::bit(self.device)
    }

    /// Called when a context came or went: there may be a change to report.
    pub(crate) fn channels_changed(&self) {
        wake();
    }
}
