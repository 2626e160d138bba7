//! Making way for a burst of somebody urgent ([`crate::policy::bursts`]): the compute work of those that run beside it is set
//! aside. They keep their turn, and their gates stay open.
//!
//! That is no promise that nothing of theirs runs, so nothing is moved for it. Who is to leave the GPU for good is put back
//! first, and then paused ([`super::preempt`]).

use std::time::{Duration, Instant};

use baton_contract::class::Class;

use super::preempt::MOST_FAILURES;
use crate::device::preemptor::{PreemptCommand, PreemptError};
use crate::policy::arbiter::{Pressure, State, TenantId};
use crate::server::Server;
use crate::server::tenants::preemption::Descheduling;

/// How long a tenant is left alone that could not be descheduled, or rescheduled.
pub(in crate::server) const FAILED: Duration = Duration::from_millis(100);

impl Server {
    /// Sets those aside that are to make way, and puts the others back. Whoever is aside may go on launching.
    pub(in crate::server) fn look_at_the_board(&mut self) {
        let now = self.now();
        let is_at_work = |id| self.tenants.get(id).is_some_and(|tenant| self.activity.is_taken_by(tenant.slot));
        self.arbiter.set_at_work(now, is_at_work);
        let at_work = self.activity.is_taken() && self.arbiter.is_together();
        let verdict = self.bursts.look(now, at_work, self.arbiter.is_anybody_overdue());
        self.arbiter.set_pressure(now, verdict.pressure);
        let off = self.arbiter.holder().filter(|id| verdict.off && self.makes_way(*id));
        let on = self.tenants.index().descheduled();
        on.into_iter().filter(|id| Some(*id) != off).for_each(|id| self.reschedule(id));
        if let Some(id) = off {
            self.deschedule(id);
        }
        // What they launch while their work is descheduled runs later, and is there when they go on.
        let there = |id: TenantId| self.tenants.get(id).is_some_and(|tenant| tenant.preemptible.is_descheduled());
        let all_descheduled = off.is_some_and(there);
        self.activity.let_pass(verdict.pressure == Pressure::Passing || all_descheduled);
    }

    /// Whether a tenant is one that runs beside urgent ones, and is not just asked for anything else.
    fn makes_way(&self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        let drains = tenant.revoked.is_some() || self.evictions.iter().any(|eviction| eviction.is_draining(id));
        let has_turn = self.arbiter.state(id) == State::Running && tenant.class() != Class::Latency;
        has_turn && tenant.hold.is_none() && !drains && !tenant.unresponsive && tenant.disconnected.is_none()
    }

    fn deschedule(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let preemptible = &mut tenant.preemptible;
        if preemptible.descheduling.is_some()
            || !preemptible.works
            || preemptible.is_left_alone()
            || preemptible.failures >= MOST_FAILURES
        {
            return;
        }
        if let Some(target) = preemptible.told.clone() {
            preemptible.descheduling = Some((Descheduling::Going, target.clone()));
            self.preemptor.submit(id, PreemptCommand::Deschedule, target);
        }
    }

    /// If it is descheduled; if that is still under way, as soon as it is over.
    pub(in crate::server) fn reschedule(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.preemptible.is_left_alone() {
            return;
        }
        if let Some((descheduling @ Descheduling::There, target)) = &mut tenant.preemptible.descheduling {
            *descheduling = Descheduling::Coming;
            self.preemptor.submit(id, PreemptCommand::Reschedule, target.clone());
        }
    }

    /// Somebody is descheduled for a burst, or rescheduled; or could not be.
    pub(in crate::server) fn rescheduled(&mut self, id: TenantId, went: bool, result: Result<(), PreemptError>) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let (preemptible, works) = (&mut tenant.preemptible, result.is_ok());
        if let Err(error) = result {
            log::warn!("{} could not be descheduled or rescheduled: {error}", tenant.name);
            preemptible.failures += 1;
            preemptible.not_before = Some(Instant::now() + FAILED);
            if !went && preemptible.failures > MOST_FAILURES {
                return self.kill(id, "its work cannot be put back on the GPU");
            }
        }
        match &mut preemptible.descheduling {
            // Where it was to go, or where it was before.
            Some((descheduling, _)) if went == works => *descheduling = Descheduling::There,
            _ => preemptible.descheduling = None,
        }
        if works && went {
            self.ledger.deschedules += 1;
        }
        preemptible.failures = if works && !went { 0 } else { preemptible.failures };
        if tenant.disconnected.is_some() {
            // It may have gone on by itself before it was descheduled.
            return self.reschedule(id);
        }
        match tenant.hold {
            // It has lost its turn meanwhile.
            Some(hold) if hold.is_pausing() => self.start_pausing(id),
            Some(_) => {}
            None => self.look_at_the_board(),
        }
    }
}
