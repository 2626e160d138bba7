//! Tenants that run beside the one that has the baton.

use std::collections::BTreeMap;

use baton_contract::class::Class;

use super::rules::pause;
use super::turn::Stage;
use super::{Arbiter, Decision, Event, Micros, State, Tenant, TenantId};

#[derive(Debug)]
struct Corunner {
    /// How long it was at work, and since when it is.
    worked: Micros,
    working: Option<Micros>,
    /// It was told to leave.
    leaving: bool,
    /// And that it no longer is one, which it may be again if it could not.
    told: bool,
    /// How often it could not be drained, and when it is told again.
    failures: u32,
    not_before: Micros,
}

impl Corunner {
    fn worked_until(&self, now: Micros) -> Micros {
        self.worked + self.working.map_or(0, |since| now.saturating_sub(since))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Corunners {
    /// Whether all tenants' memory fits together.
    pub(super) welcome: bool,
    list: BTreeMap<TenantId, Corunner>,
}

impl Corunners {
    pub(super) fn has(&self, id: TenantId) -> bool {
        self.list.contains_key(&id)
    }

    pub(super) fn state(&self, id: TenantId) -> State {
        if self.list.get(&id).is_some_and(|corunner| corunner.leaving) { State::Leaving } else { State::Corunning }
    }

    pub(super) fn remove(&mut self, id: TenantId) {
        self.list.remove(&id);
    }

    /// How long it was at work as one.
    pub(super) fn held(&self, id: TenantId, now: Micros) -> Micros {
        self.list.get(&id).map_or(0, |corunner| corunner.worked_until(now))
    }

    pub(super) fn set_at_work(&mut self, now: Micros, is_at_work: impl Fn(TenantId) -> bool) {
        for (id, corunner) in &mut self.list {
            corunner.worked = corunner.worked_until(now);
            corunner.working = is_at_work(*id).then_some(now);
        }
    }
}

impl Tenant {
    fn can_corun(&self) -> bool {
        self.class() == Class::Latency && !self.suspended
    }
}

impl Arbiter {
    /// Whether who is a corunner may stay one.
    fn may_stay(&self, id: TenantId) -> bool {
        self.corunners.welcome && self.tenants.get(&id).is_some_and(Tenant::can_corun)
    }

    /// When a corunner that could not be drained is told to leave again.
    pub(super) fn next_try_of_corunners(&self) -> Option<Micros> {
        let staying = self.corunners.list.iter().filter(|(id, corunner)| !corunner.leaving && !self.may_stay(**id));
        staying.map(|(_, corunner)| corunner.not_before).min()
    }

    /// Takes corunners in while all fits together, and sends them away when it no longer does.
    pub(super) fn decide_corunners(&mut self, out: &mut Vec<Decision>) {
        let ids: Vec<TenantId> = self.corunners.list.keys().copied().collect();
        for id in ids {
            let may_stay = self.may_stay(id);
            let Some(corunner) = self.corunners.list.get_mut(&id).filter(|corunner| !corunner.leaving) else {
                continue;
            };
            if may_stay && std::mem::take(&mut corunner.told) {
                out.push(Decision::Corun(id, true));
            } else if !may_stay && corunner.not_before <= self.now {
                (corunner.leaving, corunner.told) = (true, true);
                self.totals.revokes += 1;
                out.extend([Decision::Corun(id, false), Decision::Revoke(id)]);
            }
        }
        // Who is alone has the baton: to see when a corunner is at rest takes its pager some time.
        if !self.corunners.welcome || self.tenants.len() < 2 {
            return;
        }
        if let Some(turn) = self.turn.take_if(|turn| {
            let can_come = self.tenants.get(&turn.tenant).is_some_and(Tenant::can_corun);
            turn.stage == Stage::Running && turn.resident.is_some() && can_come
        }) {
            // It has the baton, and no longer needs it.
            if let Some(tenant) = self.tenants.get_mut(&turn.tenant) {
                tenant.charge(turn.held(self.now));
            }
            self.receive(turn.tenant, out);
        }
        let can_come = |(_, tenant): &(TenantId, &Tenant)| tenant.can_corun() && tenant.cost == 0;
        let came: Vec<TenantId> = self.waiters().filter(can_come).map(|(id, _)| id).collect();
        for id in came {
            self.receive(id, out);
            self.decided_at = self.now;
            self.totals.grants += 1;
            out.push(Decision::Grant(id));
        }
    }

    fn receive(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            (tenant.waiting, tenant.told) = (None, None);
            tenant.succeeded();
        }
        let corunner = Corunner { worked: 0, working: None, leaving: false, told: false, failures: 0, not_before: 0 };
        self.corunners.list.insert(id, corunner);
        out.push(Decision::Corun(id, true));
    }

    /// A corunner's gate is closed, or could not be.
    pub(super) fn corunner_answers(&mut self, id: TenantId, event: Event) {
        let Some(corunner) = self.corunners.list.get_mut(&id) else { return };
        if event == Event::DrainTimedOut {
            if corunner.leaving {
                corunner.leaving = false;
                corunner.failures = corunner.failures.saturating_add(1);
                corunner.not_before = self.now.saturating_add(pause(corunner.failures));
                self.totals.busy += 1;
            }
            return;
        }
        if event == Event::Preempted && !corunner.leaving {
            return;
        }
        let worked = corunner.worked_until(self.now);
        self.corunners.list.remove(&id);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.account.used += worked;
            tenant.account.idle_since = Some(self.now);
            if event == Event::Preempted {
                tenant.account.wake(self.now, self.floors.of(tenant.class()), self.quantum);
                tenant.waiting.get_or_insert(self.now);
            }
        }
    }
}
