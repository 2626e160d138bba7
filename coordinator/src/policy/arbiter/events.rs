//! What each event changes.

use baton_contract::scheduling::Scheduling;

use super::account::Account;
use super::rules::{LONGEST_QUANTUM, pause};
use super::turn::Stage;
use super::{Arbiter, Decision, Interrupted, Micros, State, Tenant, TenantId};

impl Arbiter {
    pub(super) fn join(&mut self, id: TenantId, scheduling: Scheduling) {
        self.tenants.entry(id).or_insert(Tenant {
            scheduling,
            suspended: false,
            passed_over: false,
            service: 0,
            waiting: None,
            account: Account::default(),
            cost: 0,
            switches: 0,
            told: None,
            failures: 0,
            retry_at: 0,
        });
    }

    pub(super) fn change(&mut self, id: TenantId, scheduling: Scheduling) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let before = std::mem::replace(&mut tenant.scheduling, scheduling);
        if before.class == scheduling.class {
            return;
        }
        // Among others of its kind it starts level with them.
        tenant.account.level = self.floors.of(scheduling.class);
        self.interrupted[before.class as usize].take_if(|interrupted| interrupted.tenant == id);
    }

    pub(super) fn set_suspended(&mut self, id: TenantId, suspended: bool) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if tenant.suspended && !suspended {
            tenant.account.wake(self.now, self.floors.of(tenant.class()), self.quantum);
            // It was not kept waiting by the others.
            tenant.waiting = tenant.waiting.map(|_| self.now);
            tenant.passed_over = false;
        }
        tenant.suspended = suspended;
    }

    pub(super) fn leave(&mut self, id: TenantId) -> Micros {
        let its_turn = self.turn.as_ref().is_some_and(|turn| turn.tenant == id);
        let decided = if its_turn { self.end_turn() } else { self.now };
        self.corunners.remove(id);
        if self.tenants.remove(&id).is_some() {
            for tenant in self.tenants.values_mut() {
                tenant.retry_at = self.now;
            }
        }
        for interrupted in &mut self.interrupted {
            interrupted.take_if(|interrupted| interrupted.tenant == id);
        }
        decided
    }

    pub(super) fn demand(&mut self, id: TenantId) {
        let state = self.state(id);
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if state == State::Idle {
            tenant.account.wake(self.now, self.floors.of(tenant.class()), self.quantum);
        }
        // While it runs its gate is open: nothing can be waiting there.
        if !matches!(state, State::Running | State::Corunning) {
            tenant.waiting.get_or_insert(self.now);
        }
    }

    /// The turn is over; when that was decided.
    pub(super) fn end_turn(&mut self) -> Micros {
        let Some(turn) = self.turn.take() else { return self.now };
        let Some(tenant) = self.tenants.get(&turn.tenant) else { return self.now };
        let held = turn.held(self.now);
        let class = tenant.class();
        if let Stage::Leaving { for_better: true, .. } = turn.stage {
            let used = turn.used_before + held;
            let next =
                self.waiters().filter(|(_, tenant)| tenant.class() == class).map(|(_, tenant)| tenant.cost).min();
            // A short rest is not worth coming back for.
            if used < self.quantum_for(next.unwrap_or(0)) / 4 * 3 {
                self.interrupted[class as usize] = Some(Interrupted { tenant: turn.tenant, used });
            }
        }
        if let Some(tenant) = self.tenants.get_mut(&turn.tenant) {
            if turn.stage == Stage::Running {
                // It has done what it wanted to do, with what was there.
                tenant.succeeded();
                tenant.service = (tenant.service * 3 + held) / 4;
            }
            tenant.charge(held);
            tenant.account.idle_since = Some(self.now);
        }
        match turn.stage {
            Stage::Leaving { since, .. } => since,
            Stage::Arriving | Stage::Running => self.now,
        }
    }

    pub(super) fn busy(&mut self, id: TenantId) {
        if let (Some(turn), Some(tenant)) = (&mut self.turn, self.tenants.get_mut(&id)) {
            turn.busy(self.now);
            tenant.waiting = None;
            self.totals.busy += 1;
        }
    }

    /// It has work to go on with, whatever its program does meanwhile.
    pub(super) fn pause(&mut self, id: TenantId) -> Micros {
        let decided = self.end_turn();
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.waiting.get_or_insert(self.now);
        }
        decided
    }

    pub(super) fn grant(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let (Some(turn), Some(tenant)) = (&mut self.turn, self.tenants.get_mut(&id)) else { return };
        let interrupted =
            self.interrupted[tenant.class() as usize].take().filter(|interrupted| interrupted.tenant == id);
        turn.grant(self.now, interrupted.map_or(0, |interrupted| interrupted.used));
        self.decided_at = turn.decided_at;
        tenant.waiting = None;
        self.totals.grants += 1;
        if self.last.is_some_and(|last| last != id) {
            tenant.switches += 1;
            self.totals.switches += 1;
        }
        self.last = Some(id);
        tenant.passed_over = false;
        let class = tenant.class();
        if turn.overdue {
            let better = |(other, tenant): &(&TenantId, &mut Tenant)| tenant.class() < class && **other != id;
            let waiting = self.tenants.iter_mut().filter(better).filter(|(_, tenant)| tenant.waiting.is_some());
            waiting.for_each(|(_, tenant)| tenant.passed_over = true);
        }
        out.push(Decision::Grant(id));
    }

    /// All of its memory is there. If it has been let in already, its quantum begins now.
    pub(super) fn resident(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        match self.state(id) {
            State::Arriving => self.grant(id, out),
            // Also if it is to leave before it has had anything of that.
            State::Running | State::Leaving => {}
            State::Idle | State::Waiting | State::Corunning => return,
        }
        if let (Some(turn), Some(tenant)) =
            (self.turn.as_mut().filter(|turn| turn.tenant == id), self.tenants.get_mut(&id))
        {
            turn.resident(self.now);
            tenant.succeeded();
        }
    }

    /// It was let in before all its memory was there, and the rest cannot come.
    pub(super) fn strand(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let (Some(turn), Some(tenant)) = (&mut self.turn, self.tenants.get_mut(&id)) else { return };
        if self.now < turn.not_before {
            return;
        }
        tenant.failures = tenant.failures.saturating_add(1);
        tenant.retry_at = self.now.saturating_add(pause(tenant.failures));
        self.totals.failed += 1;
        turn.revoke(self.now, false);
        self.totals.revokes += 1;
        out.push(Decision::Revoke(id));
    }

    pub(super) fn fail(&mut self, id: TenantId) {
        let (Some(turn), Some(tenant)) = (self.turn.take(), self.tenants.get_mut(&id)) else { return };
        let took = self.now.saturating_sub(turn.since);
        tenant.failures = tenant.failures.saturating_add(1);
        tenant.retry_at =
            self.now.saturating_add(pause(tenant.failures).max(took.saturating_mul(4).min(LONGEST_QUANTUM)));
        self.totals.failed += 1;
    }
}
