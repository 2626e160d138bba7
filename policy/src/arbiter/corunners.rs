//! Tenants that co-run with the holder of the baton.

use std::collections::{BTreeMap, BTreeSet};

use baton_contract::class::Class;

use super::rules::pause;
use super::tenant::{Role, Tenant};
use super::turn::{Stage, Turn};
use super::{Arbiter, Decision, Event, Micros, State, TenantId};

#[derive(Debug)]
struct Corunner {
    /// The time for which it was at work, and the time since which it is.
    worked: Micros,
    working: Option<Micros>,
    /// It was told to leave.
    leaving: bool,
    /// It was also told that it no longer is a corunner. It may become one again if it could not leave.
    told: bool,
    /// The number of times that it could not be drained, and the time at which it is told again.
    failures: u32,
    not_before: Micros,
}

impl Corunner {
    fn worked_until(&self, now: Micros) -> Micros {
        self.worked + self.working.map_or(0, |since| now.saturating_sub(since))
    }
}

/// All corunners.
#[derive(Debug, Default)]
pub(super) struct Corunners {
    /// True if all tenants' memory fits together; and the same at the last decision.
    welcome: bool,
    was_welcome: bool,
    list: BTreeMap<TenantId, Corunner>,
    /// Corunners that have changed since the last decision.
    changed: BTreeSet<TenantId>,
    /// Corunners that have to leave and could not be drained, and the time at which each is told again.
    again: BTreeSet<(Micros, TenantId)>,
}

impl Corunners {
    pub(super) fn has(&self, id: TenantId) -> bool {
        self.list.contains_key(&id)
    }

    pub(super) fn state(&self, id: TenantId) -> State {
        if self.list.get(&id).is_some_and(|corunner| corunner.leaving) { State::Leaving } else { State::Corunning }
    }

    pub(super) fn set_welcome(&mut self, welcome: bool) {
        self.welcome = welcome;
    }

    pub(super) fn are_welcome(&self) -> bool {
        self.welcome
    }

    pub(super) fn remove(&mut self, id: TenantId) {
        let Some(corunner) = self.list.remove(&id) else { return };
        self.changed.remove(&id);
        self.again.remove(&(corunner.not_before, id));
    }

    /// Lets the next decision check whether the corunner may stay.
    pub(super) fn review(&mut self, id: TenantId) {
        if self.has(id) {
            self.changed.insert(id);
        }
    }

    /// The corunners to check now.
    fn due(&mut self, now: Micros) -> BTreeSet<TenantId> {
        let mut due = std::mem::take(&mut self.changed);
        if std::mem::replace(&mut self.was_welcome, self.welcome) != self.welcome {
            due.extend(self.list.keys());
        }
        while let Some((at, id)) = self.again.first().copied().filter(|(at, _)| *at <= now) {
            self.again.remove(&(at, id));
            due.insert(id);
        }
        due
    }

    /// The time at which a corunner is told to leave, or told again because it could not be drained.
    pub(super) fn next_timer(&self, now: Micros) -> Option<Micros> {
        let is_due = !self.changed.is_empty() || self.was_welcome && !self.welcome && !self.list.is_empty();
        if is_due { Some(now) } else { self.again.first().map(|(at, _)| *at) }
    }

    /// The time for which it was at work as a corunner.
    pub(super) fn held(&self, id: TenantId, now: Micros) -> Micros {
        self.list.get(&id).map_or(0, |corunner| corunner.worked_until(now))
    }

    pub(super) fn set_busy(&mut self, now: Micros, id: TenantId, busy: bool) {
        if let Some(corunner) = self.list.get_mut(&id).filter(|corunner| corunner.working.is_some() != busy) {
            corunner.worked = corunner.worked_until(now);
            corunner.working = busy.then_some(now);
        }
    }
}

impl Tenant {
    fn can_corun(&self) -> bool {
        self.class() == Class::Latency && !self.kept_off && !self.apart
    }
}

impl Arbiter {
    /// True if a corunner may stay one.
    fn may_stay(&self, id: TenantId) -> bool {
        self.corunners.welcome && self.tenants.get(id).is_some_and(Tenant::can_corun)
    }

    /// Takes corunners in while all memory fits together, and sends them away when it no longer does.
    pub(super) fn decide_corunners(&mut self, out: &mut Vec<Decision>) {
        for id in self.corunners.due(self.now) {
            let may_stay = self.may_stay(id);
            let Some(corunner) = self.corunners.list.get_mut(&id).filter(|corunner| !corunner.leaving) else {
                continue;
            };
            self.corunners.again.remove(&(corunner.not_before, id));
            if may_stay {
                if std::mem::take(&mut corunner.told) {
                    out.push(Decision::Corun(id, true));
                }
            } else if corunner.not_before <= self.now {
                (corunner.leaving, corunner.told) = (true, true);
                self.totals.revokes += 1;
                out.extend([Decision::Corun(id, false), Decision::Revoke(id)]);
            } else {
                self.corunners.again.insert((corunner.not_before, id));
            }
        }
        // A tenant that is alone has the baton instead: a control loop takes some time to see that a corunner is at rest.
        if !self.corunners.welcome || self.tenants.len() < 2 {
            return;
        }
        // A tenant in the middle of a request keeps the baton until its end: the others would only be put on the GPU to be taken off again.
        let is_urgent = |id: TenantId| self.tenants.get(id).is_some_and(|tenant| tenant.class() == Class::Latency);
        let keeps_back = |id: TenantId| !is_urgent(id) && !self.is_overdue(id);
        let is_ready = |turn: &Turn| turn.stage == Stage::Running && turn.resident.is_some();
        let ready = self.turn.as_ref().filter(|turn| is_ready(turn) && !self.next().is_some_and(keeps_back));
        if ready.is_some_and(|turn| self.tenants.get(turn.tenant).is_some_and(Tenant::can_corun))
            && let Some(turn) = self.take_turn()
        {
            // The tenant has the baton, and no longer needs it.
            let held = turn.held(self.now);
            self.tenants.update(turn.tenant, |tenant| tenant.used += held);
            self.receive(turn.tenant, out);
        }
        let may = |id: &TenantId| self.tenants.get(*id).is_some_and(Tenant::can_corun);
        let came: Vec<TenantId> = self.tenants.waiting().resident(Class::Latency).filter(may).collect();
        for id in came {
            self.receive(id, out);
            self.decided_at = self.now;
            self.totals.grants += 1;
            out.push(Decision::Grant(id));
        }
    }

    fn receive(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        self.tenants.update(id, |tenant| {
            (tenant.role, tenant.waiting, tenant.told) = (Role::Corunner, None, None);
            tenant.on_success();
        });
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
                self.corunners.review(id);
            }
            return;
        }
        if event == Event::Preempted && !corunner.leaving {
            return;
        }
        let (now, worked) = (self.now, corunner.worked_until(self.now));
        self.corunners.remove(id);
        if event == Event::Preempted {
            self.tenants.begin_wait(id);
        }
        self.tenants.update(id, |tenant| {
            tenant.role = Role::Parked;
            tenant.used += worked;
            tenant.idle_since = Some(now);
        });
    }
}
