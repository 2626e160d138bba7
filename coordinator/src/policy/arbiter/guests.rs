//! Tenants that run beside the one that has the baton.

use std::collections::BTreeMap;

use baton_contract::class::Class;

use super::rules::pause;
use super::turn::Stage;
use super::{Arbiter, Decision, Event, Micros, State, Tenant, TenantId};

#[derive(Debug)]
struct Guest {
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

impl Guest {
    fn worked_until(&self, now: Micros) -> Micros {
        self.worked + self.working.map_or(0, |since| now.saturating_sub(since))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// Whether all tenants' memory fits together.
    pub(super) welcome: bool,
    list: BTreeMap<TenantId, Guest>,
}

impl Guests {
    pub(super) fn has(&self, id: TenantId) -> bool {
        self.list.contains_key(&id)
    }

    pub(super) fn state(&self, id: TenantId) -> State {
        if self.list.get(&id).is_some_and(|guest| guest.leaving) { State::Leaving } else { State::Beside }
    }

    pub(super) fn remove(&mut self, id: TenantId) {
        self.list.remove(&id);
    }

    /// How long it was at work as one.
    pub(super) fn held(&self, id: TenantId, now: Micros) -> Micros {
        self.list.get(&id).map_or(0, |guest| guest.worked_until(now))
    }

    pub(super) fn set_at_work(&mut self, now: Micros, is_at_work: impl Fn(TenantId) -> bool) {
        for (id, guest) in &mut self.list {
            guest.worked = guest.worked_until(now);
            guest.working = is_at_work(*id).then_some(now);
        }
    }
}

impl Tenant {
    fn can_be_guest(&self) -> bool {
        self.class() == Class::Latency && !self.suspended
    }
}

impl Arbiter {
    /// Whether who is a guest may stay one.
    fn may_stay(&self, id: TenantId) -> bool {
        self.guests.welcome && self.tenants.get(&id).is_some_and(Tenant::can_be_guest)
    }

    /// When a guest that could not be drained is told to leave again.
    pub(super) fn next_try_of_guests(&self) -> Option<Micros> {
        let staying = self.guests.list.iter().filter(|(id, guest)| !guest.leaving && !self.may_stay(**id));
        staying.map(|(_, guest)| guest.not_before).min()
    }

    /// Takes guests in while all fits together, and sends them away when it no longer does.
    pub(super) fn decide_guests(&mut self, out: &mut Vec<Decision>) {
        let ids: Vec<TenantId> = self.guests.list.keys().copied().collect();
        for id in ids {
            let may_stay = self.may_stay(id);
            let Some(guest) = self.guests.list.get_mut(&id).filter(|guest| !guest.leaving) else { continue };
            if may_stay && std::mem::take(&mut guest.told) {
                out.push(Decision::Beside(id, true));
            } else if !may_stay && guest.not_before <= self.now {
                (guest.leaving, guest.told) = (true, true);
                self.totals.revokes += 1;
                out.extend([Decision::Beside(id, false), Decision::Revoke(id)]);
            }
        }
        // Who is alone has the baton: to see when a guest is at rest takes its pager some time.
        if !self.guests.welcome || self.tenants.len() < 2 {
            return;
        }
        if let Some(turn) = self.turn.take_if(|turn| {
            let can_come = self.tenants.get(&turn.tenant).is_some_and(Tenant::can_be_guest);
            turn.stage == Stage::Running && turn.resident.is_some() && can_come
        }) {
            // It has the baton, and no longer needs it.
            if let Some(tenant) = self.tenants.get_mut(&turn.tenant) {
                tenant.charge(turn.held(self.now));
            }
            self.receive(turn.tenant, out);
        }
        let can_come = |(_, tenant): &(TenantId, &Tenant)| tenant.can_be_guest() && tenant.cost == 0;
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
        let guest = Guest { worked: 0, working: None, leaving: false, told: false, failures: 0, not_before: 0 };
        self.guests.list.insert(id, guest);
        out.push(Decision::Beside(id, true));
    }

    /// A guest's gate is closed, or could not be.
    pub(super) fn guest_answers(&mut self, id: TenantId, event: Event) {
        let Some(guest) = self.guests.list.get_mut(&id) else { return };
        if event == Event::Busy {
            if guest.leaving {
                guest.leaving = false;
                guest.failures = guest.failures.saturating_add(1);
                guest.not_before = self.now.saturating_add(pause(guest.failures));
                self.totals.busy += 1;
            }
            return;
        }
        if event == Event::Paused && !guest.leaving {
            return;
        }
        let worked = guest.worked_until(self.now);
        self.guests.list.remove(&id);
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.account.used += worked;
            tenant.account.idle_since = Some(self.now);
            if event == Event::Paused {
                tenant.account.wake(self.now, self.floors.of(tenant.class()), self.quantum);
                tenant.waiting.get_or_insert(self.now);
            }
        }
    }
}
