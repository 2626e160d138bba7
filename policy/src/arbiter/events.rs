//! The changes that each event makes.

use baton_contract::scheduling::Scheduling;

use super::rules::LONGEST_QUANTUM;
use super::tenant::{Claim, Role, Tenant};
use super::turn::{Stage, Turn};
use super::waiting::Which;
use super::{Arbiter, Class, Decision, Interrupted, Micros, State, TenantId};

impl Arbiter {
    pub(super) fn change(&mut self, id: TenantId, scheduling: Scheduling) {
        let Some(before) = self.tenants.get(id).map(|tenant| tenant.class()) else { return };
        self.tenants.change(id, scheduling);
        if before != scheduling.class {
            self.corunners.review(id);
            self.interrupted[before as usize].take_if(|interrupted| interrupted.tenant == id);
        }
    }

    pub(super) fn keep_off(&mut self, id: TenantId, off: bool, out: &mut Vec<Decision>) {
        if self.is_kept_off(id) && !off {
            self.tenants.begin_wait_anew(id);
        }
        self.tenants.update(id, |tenant| tenant.kept_off = off);
        self.corunners.review(id);
        let has_turn = self.turn.as_ref().is_some_and(|turn| turn.tenant == id);
        if off && !has_turn {
            self.give_back(id, out);
        }
    }

    /// Sets whether it is of a gang.
    pub(super) fn set_gang(&mut self, id: TenantId, is_of_gang: bool) {
        self.uncall(id);
        self.tenants.update(id, |tenant| tenant.gang = is_of_gang.then_some(Claim::Unclaimed));
        self.keep_apart(id, is_of_gang);
        if let Some(turn) = self.turn.as_mut().filter(|turn| is_of_gang && turn.tenant == id) {
            // It has its turn without the others.
            if turn.stage == Stage::Arriving {
                self.totals.given_up += 1;
                self.take_turn();
            } else {
                turn.recalled = true;
            }
        }
    }

    /// All GPUs of its gang have claimed it. One that does not wait any more answers that it gives that back.
    pub(super) fn call(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        if !self.tenants.get(id).is_some_and(|tenant| tenant.gang == Some(Claim::Claimed) && tenant.is_in_line()) {
            return out.push(Decision::GiveBack(id));
        }
        self.tenants.update(id, |tenant| tenant.gang = Some(Claim::Called));
        self.called = Some(id);
    }

    /// Its gang gives back what it has.
    pub(super) fn recall(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        match self.state(id) {
            State::Running => {
                if let Some(turn) = &mut self.turn {
                    turn.recalled = true;
                }
            }
            State::Arriving => {
                self.totals.given_up += 1;
                self.take_turn();
                // It may have been admitted just now.
                self.give_back(id, out);
            }
            State::Leaving => {}
            State::Idle | State::Waiting | State::Corunning => self.uncall(id),
        }
    }

    /// The agreement of its gang's GPUs holds no more here.
    pub(super) fn give_back(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let is_claimed = |tenant: &Tenant| matches!(tenant.gang, Some(Claim::Claimed | Claim::Called));
        if self.tenants.get(id).is_some_and(is_claimed) {
            self.uncall(id);
            out.push(Decision::GiveBack(id));
        }
    }

    /// It is to be claimed anew.
    fn uncall(&mut self, id: TenantId) {
        self.called.take_if(|called| *called == id);
        self.tenants.update(id, |tenant| tenant.gang = tenant.gang.map(|_| Claim::Unclaimed));
    }

    /// Sets whether the holder rests. A holder for which others wait never rests: it is watched, and its time counts.
    pub(super) fn set_resting(&mut self, id: TenantId, rests: bool) {
        let is_waited_for = self.patience_told(id).is_some();
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.tenant == id && turn.stage == Stage::Running) {
            turn.resting = rests && !is_waited_for;
        }
    }

    pub(super) fn leave(&mut self, id: TenantId, out: &mut Vec<Decision>) -> Micros {
        self.give_back(id, out);
        let its_turn = self.turn.as_ref().is_some_and(|turn| turn.tenant == id);
        let decided = if its_turn { self.end_turn() } else { self.now };
        self.corunners.remove(id);
        self.tenants.leave(id);
        for interrupted in &mut self.interrupted {
            interrupted.take_if(|interrupted| interrupted.tenant == id);
        }
        decided
    }

    pub(super) fn demand(&mut self, id: TenantId) {
        // Its gate is open while it runs: no call can wait there.
        if !matches!(self.state(id), State::Running | State::Corunning) {
            self.tenants.begin_wait(id);
        }
    }

    /// Takes the turn, so that no tenant has one.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        let turn = self.turn.take()?;
        self.tenants.update(turn.tenant, |tenant| tenant.role = Role::Parked);
        Some(turn)
    }

    /// Ends the turn, and returns the time at which that was decided.
    pub(super) fn end_turn(&mut self) -> Micros {
        let Some(turn) = self.turn.take() else { return self.now };
        let (id, held) = (turn.tenant, turn.held(self.now));
        let Some(class) = self.tenants.get(id).map(|tenant| tenant.class()) else { return self.now };
        if let Stage::Leaving { for_better: true, .. } = turn.stage {
            let used = turn.used_before + held;
            let next = self.first_of(class, Which::Candidates).and_then(|next| self.tenants.get(next));
            // A short rest is not worth coming back for.
            if used < self.quantum_for(next.map_or(0, |next| next.cost)) / 4 * 3 {
                self.interrupted[class as usize] = Some(Interrupted { tenant: id, used });
            }
        }
        let of_itself = turn.stage == Stage::Running;
        if of_itself {
            // This keeps others from waiting for ever for tenants that cost more than they use.
            self.tenants.serve(id, turn.took.saturating_sub(held));
        }
        let now = self.now;
        self.tenants.update(id, |tenant| {
            tenant.role = Role::Parked;
            tenant.gang = tenant.gang.map(|_| Claim::Unclaimed);
            tenant.used += held;
            tenant.idle_since = Some(now);
            if of_itself {
                // It has done what it wanted to do, with what was there.
                tenant.on_success();
                tenant.service = if turn.contended { (tenant.service * 3 + held) / 4 } else { tenant.service };
            }
        });
        match turn.stage {
            Stage::Leaving { since, .. } => since,
            Stage::Arriving | Stage::Running => self.now,
        }
    }

    pub(super) fn busy(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        if let Some(called) = self.called() {
            // The other GPUs of its gang are not to wait for this one.
            self.give_back(called, out);
        }
        if let Some(turn) = &mut self.turn {
            turn.busy(self.now);
            self.tenants.update(id, |tenant| tenant.waiting = None);
            self.totals.busy += 1;
        }
    }

    /// Ends the turn of a tenant whose work was paused. It waits for its next turn at once, because that work has to go on.
    pub(super) fn pause(&mut self, id: TenantId) -> Micros {
        self.tenants.begin_wait(id);
        self.end_turn()
    }

    pub(super) fn grant(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let Some(class) = self.tenants.get(id).map(|tenant| tenant.class()) else { return };
        let contended = self.first_waiter().is_some();
        let Some(turn) = &mut self.turn else { return };
        let interrupted = self.interrupted[class as usize].take().filter(|interrupted| interrupted.tenant == id);
        turn.grant(self.now, interrupted.map_or(0, |interrupted| interrupted.used));
        turn.contended = contended;
        self.decided_at = turn.decided_at;
        self.totals.grants += 1;
        let switched = self.last.is_some_and(|last| last != id);
        self.totals.switches += u64::from(switched);
        self.last = Some(id);
        self.tenants.update(id, |tenant| {
            tenant.waiting = None;
            tenant.switches += u64::from(switched);
        });
        if turn.overdue && class != Class::Latency {
            self.passed_over = self.tenants.waits();
        }
        out.push(Decision::Grant(id));
    }

    /// Notes that all its memory is resident. If it has been let in already, its quantum begins now.
    pub(super) fn resident(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        match self.state(id) {
            State::Arriving => self.grant(id, out),
            // Also if it is to leave before it has had anything of that.
            State::Running | State::Leaving => {}
            State::Idle | State::Waiting | State::Corunning => return,
        }
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.tenant == id) {
            turn.resident(self.now);
            self.tenants.update(id, |tenant| tenant.on_success());
        }
    }

    /// Handles a tenant that was let in before all its memory was resident, and whose other memory cannot come.
    pub(super) fn strand(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let Some(turn) = self.turn.as_mut().filter(|turn| self.now >= turn.not_before) else { return };
        turn.revoke(self.now, false);
        self.tenants.fail(id, 0);
        self.totals.failed += 1;
        self.totals.revokes += 1;
        out.push(Decision::Revoke(id));
    }

    /// Revokes the turn of a tenant that has grown, and has to be swapped in anew.
    pub(super) fn call_back(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let Some(turn) = &mut self.turn else { return };
        turn.revoke(self.now, false);
        self.totals.revokes += 1;
        out.push(Decision::Revoke(id));
    }

    pub(super) fn keep_apart(&mut self, id: TenantId, apart: bool) {
        self.tenants.update(id, |tenant| tenant.apart = apart);
        self.corunners.review(id);
    }

    pub(super) fn fail(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let Some(took) = self.turn.as_ref().map(|turn| self.now.saturating_sub(turn.since)) else { return };
        // This keeps a tenant that is tried again and again from taking the others' turns.
        self.tenants.serve(id, took);
        self.tenants.fail(id, took.saturating_mul(4).min(LONGEST_QUANTUM));
        self.take_turn();
        self.give_back(id, out);
        self.totals.failed += 1;
    }
}
