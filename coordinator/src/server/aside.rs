//! Making way for a burst of somebody urgent ([`crate::policy::bursts`]): the compute work of those that run beside it is set
//! aside. They keep their turn, and their gates stay open.
//!
//! That is no promise that nothing of theirs runs, so nothing is moved for it. Who is to leave the GPU for good is put back
//! first, and then paused ([`super::pausing`]).

use std::time::{Duration, Instant};

use baton_contract::class::Class;

use super::Server;
use super::pausing::{MOST_FAILURES, Pausable};
use crate::device::preemptor::{PauseError, Wish};
use crate::policy::arbiter::{Pressure, State, TenantId};

/// How long a tenant is left alone that could not be set aside, or put back.
pub(super) const FAILED: Duration = Duration::from_millis(100);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aside {
    Going,
    There,
    Coming,
}

impl Pausable {
    /// Whether it is off the GPU for a burst.
    pub(super) fn is_aside(&self) -> bool {
        matches!(self.aside, Some((Aside::There, _)))
    }

    /// Whether it just could not be moved.
    fn is_left_alone(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }
}

impl Server {
    /// Sets those aside that are to make way, and puts the others back. Whoever is aside may go on launching.
    pub(super) fn look_at_the_board(&mut self) {
        let now = self.now();
        let is_at_work = |id| self.tenants.get(&id).is_some_and(|tenant| self.places.is_taken_by(tenant.place));
        self.arbiter.set_at_work(now, is_at_work);
        let at_work = self.places.is_taken() && self.arbiter.is_together();
        let verdict = self.bursts.look(now, at_work, self.arbiter.is_anybody_overdue());
        self.arbiter.set_pressure(now, verdict.pressure);
        let (off, on): (Vec<_>, Vec<_>) =
            self.tenants.keys().copied().partition(|id| verdict.off && self.makes_way(*id));
        on.into_iter().for_each(|id| self.put_back(id));
        off.iter().for_each(|id| self.set_aside(*id));
        // What they launch while their work is set aside runs later, and is there when they go on.
        let there = |id: &TenantId| self.tenants.get(id).is_some_and(|tenant| tenant.pausable.is_aside());
        let all_aside = !off.is_empty() && off.iter().all(there);
        self.places.let_pass(verdict.pressure == Pressure::Passing || all_aside);
    }

    /// Whether a tenant is one that runs beside urgent ones, and is not just asked for anything else.
    fn makes_way(&self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(&id) else { return false };
        let drains = tenant.revoked.is_some() || self.evictions.iter().any(|eviction| eviction.is_draining(id));
        let has_turn = self.arbiter.state(id) == State::Running && tenant.class() != Class::Latency;
        has_turn && tenant.hold.is_none() && !drains && !tenant.silent && tenant.cut_off.is_none()
    }

    fn set_aside(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let pausable = &mut tenant.pausable;
        if pausable.aside.is_some() || !pausable.works || pausable.is_left_alone() || pausable.failures >= MOST_FAILURES
        {
            return;
        }
        if let Some(target) = pausable.told.clone() {
            pausable.aside = Some((Aside::Going, target.clone()));
            self.preemptor.submit(id, Wish::SetAside, target);
        }
    }

    /// If it is set aside; if that is still under way, as soon as it is over.
    pub(super) fn put_back(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if tenant.pausable.is_left_alone() {
            return;
        }
        if let Some((aside @ Aside::There, target)) = &mut tenant.pausable.aside {
            *aside = Aside::Coming;
            self.preemptor.submit(id, Wish::PutBack, target.clone());
        }
    }

    /// Somebody is set aside for a burst, or put back; or could not be.
    pub(super) fn moved_aside(&mut self, id: TenantId, went: bool, result: Result<(), PauseError>) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let (pausable, works) = (&mut tenant.pausable, result.is_ok());
        if let Err(error) = result {
            log::warn!("{} could not be descheduled or rescheduled: {error}", tenant.name);
            pausable.failures += 1;
            pausable.not_before = Some(Instant::now() + FAILED);
            if !went && pausable.failures > MOST_FAILURES {
                return self.kill(id, "its work cannot be put back on the GPU");
            }
        }
        match &mut pausable.aside {
            // Where it was to go, or where it was before.
            Some((aside, _)) if went == works => *aside = Aside::There,
            _ => pausable.aside = None,
        }
        if works && went {
            self.ledger.set_aside += 1;
        }
        pausable.failures = if works && !went { 0 } else { pausable.failures };
        if tenant.cut_off.is_some() {
            // It may have put itself back before it was set aside.
            return self.put_back(id);
        }
        match tenant.hold {
            // It has lost its turn meanwhile.
            Some(hold) if hold.is_pausing() => self.start_pausing(id),
            Some(_) => {}
            None => self.look_at_the_board(),
        }
    }

    /// When it is tried again to move those that could not be.
    pub(super) fn next_try_aside(&self) -> Option<Instant> {
        self.tenants.values().filter_map(|tenant| tenant.pausable.not_before).filter(|at| *at > Instant::now()).min()
    }
}
