//! Tenants that fit together run together: those of class latency at any time, the others in the gaps.
//!
//! Three things keep what is urgent from noticing the others. The others' compute work has a tiny **time slice** on the GPU
//! ([`super::preemption`]), which is set once. Their new launches wait while somebody urgent is at work, as the **activity page** says:
//! the tenants see to that among themselves, and the coordinator has no part in a request. And few of them are in flight
//! (*LimitInFlight*).
//!
//! All this only while nobody's memory has to go for another's. As soon as it has to, those that run beside others leave, and
//! all take turns.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::messages::{CorunCommand, CorunReport};
use baton_contract::page::{ACTIVITY_SLOTS, ActivityPage};

use rustix::thread::futex;

use super::Server;
use super::tenants::shared::{Shared, reopened};
use crate::policy::arbiter::TenantId;

/// How long all take turns at least when they did not fit together.
const APART: Duration = Duration::from_secs(1);

/// How often it is looked whether who is at work was stopped: the others wait for it meanwhile.
pub(super) const LOOK: Duration = Duration::from_millis(4);

/// An urgent tenant has the GPU to itself at first for so long.
const HASTE: Duration = Duration::from_millis(50);

/// The activity page, and who has which slot.
#[derive(Debug)]
pub(super) struct Activity {
    page: Shared<ActivityPage>,
    writable: OwnedFd,
    readable: OwnedFd,
    taken: u32,
    /// Somebody's part of it was cleared, which nobody has looked at yet.
    cleared: bool,
    /// Before this time all take turns.
    apart_until: Option<Instant>,
    /// When it was last looked for programs that were stopped, or nobody was at work.
    looked: Option<Instant>,
}

impl Activity {
    pub(super) fn new() -> io::Result<Self> {
        let (page, writable) = Shared::written_by_all()?;
        // What is opened only for reading cannot be mapped writable.
        let readable = reopened(&writable)?;
        Ok(Self { page, writable, readable, taken: 0, cleared: false, apart_until: None, looked: None })
    }

    /// A place for a new tenant, if it is to have one and there is one left.
    pub(super) fn give(&mut self, class: Class) -> Option<u32> {
        let free = self.taken.trailing_ones();
        if class != Class::Latency || free >= ACTIVITY_SLOTS {
            return None;
        }
        self.taken |= 1 << free;
        Some(free)
    }

    /// The page's file, for one with that place.
    pub(super) fn file(&self, place: Option<u32>) -> BorrowedFd<'_> {
        if place.is_some() { self.writable.as_fd() } else { self.readable.as_fd() }
    }

    /// A tenant is gone: what it said on the activity page holds no longer.
    pub(super) fn free(&mut self, place: Option<u32>) {
        let Some(place) = place else { return };
        self.taken &= !(1 << place);
        self.clear(place);
    }

    fn clear(&mut self, place: u32) {
        self.cleared = true;
        self.page.busy.fetch_and(!(1 << place), Relaxed);
        self.wake();
    }

    /// Whether somebody's part of it was cleared since this was asked last.
    pub(super) fn take_cleared(&mut self) -> bool {
        std::mem::take(&mut self.cleared)
    }

    /// Has those look again who wait for somebody at work.
    fn wake(&self) {
        // They do so after a while anyhow.
        let _ = futex::wake(&self.page.busy, futex::Flags::empty(), i32::MAX as u32);
    }

    /// A tenant that has got another place may have used the old one once more.
    fn clear_what_is_nobodys(&self) {
        self.page.busy.fetch_and(self.taken, Relaxed);
    }

    /// Whether this one says that it is at work.
    pub(super) fn is_taken_by(&self, place: Option<u32>) -> bool {
        place.is_some_and(|place| self.page.busy.load(Relaxed) & 1 << place != 0)
    }

    /// Whether anybody else does.
    pub(super) fn is_taken_by_others(&self, place: Option<u32>) -> bool {
        let own = place.map_or(0, |place| 1 << place);
        self.page.busy.load(Relaxed) & self.taken & !own != 0
    }

    /// Whether the others go on in spite of those at work.
    pub(super) fn let_pass(&self, pass: bool) {
        if self.page.pass.swap(pass.into(), Relaxed) == 0 && pass {
            self.wake();
        }
    }

    /// Whether somebody urgent says that it is at work.
    pub(super) fn is_taken(&self) -> bool {
        self.page.busy.load(Relaxed) != 0
    }
}

impl Server {
    /// Whether all tenants can run at the same time.
    pub(super) fn fit_together(&mut self) -> bool {
        let may = self.options.pause && self.options.corun;
        if !may || self.activity.apart_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        // Who has no memory yet has nothing on the GPU either.
        self.memory().wanted_bytes() <= self.memory.arena().capacity() && self.tenants.index().can_all_corun()
    }

    /// Somebody's memory has to go after all.
    pub(super) fn part(&mut self) {
        self.activity.apart_until = Some(Instant::now() + APART);
        self.stop.wake();
    }

    /// When it is tried again whether all fit together.
    pub(super) fn together_again(&self) -> Option<Instant> {
        self.activity.apart_until.filter(|until| *until > Instant::now())
    }

    /// Nobody waits for a program that was stopped while it was at work. When it goes on, it says so anew.
    pub(super) fn look_for_stopped_corunners(&mut self) {
        // Not while they come and go: whoever is at work for so long may be stopped.
        let is_new = self.activity.looked.is_some_and(|at| at.elapsed() < LOOK);
        if is_new && self.activity.is_taken() {
            return;
        }
        self.activity.looked = Some(Instant::now());
        if !self.activity.is_taken() {
            return;
        }
        self.activity.clear_what_is_nobodys();
        let latency: Vec<TenantId> = self.tenants.index().latency().collect();
        for id in latency {
            let Some(tenant) = self.tenants.unindexed(id) else { continue };
            let Some(place) = tenant.slot.filter(|_| self.activity.is_taken_by(tenant.slot)) else { continue };
            let is_overdue = tenant.heartbeat.is_overdue(tenant.theirs.heartbeat.load(Relaxed));
            if tenant.process.is_stopped().unwrap_or(is_overdue) {
                self.activity.clear(place);
            }
        }
    }

    /// What a tenant reports about that.
    pub(super) fn hear_of_corun(&mut self, id: TenantId, report: CorunReport) {
        match report {
            CorunReport::ActivityChanged => {
                if let Some(tenant) = self.tenants.get_mut(id) {
                    tenant.preemptible.slice.work_begins();
                }
                self.look_at_the_board();
            }
        }
    }

    pub(super) fn beside(&mut self, id: TenantId, on: bool) {
        self.tenants.tell(id, &CorunCommand::Corun { on });
        if !on {
            self.memory().turn_away(id);
        }
    }

    /// Whether somebody urgent has just got the GPU. Looking at memory and overwriting it are kernels, which take turns
    /// with the tenant's: a request of 8 ms took 22 that way.
    pub(super) fn is_in_haste(&self) -> bool {
        self.activity.is_taken() || self.haste_ends().is_some_and(|end| Instant::now() < end)
    }

    /// Until when nothing is done ahead.
    pub(super) fn haste_ends(&self) -> Option<Instant> {
        let holder = self.tenants.get(self.arbiter.holder()?)?;
        (holder.class() == Class::Latency).then(|| holder.ran + HASTE)
    }
}
