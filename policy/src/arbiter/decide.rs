//! The decisions that follow from the present state.

use super::rules::patience;
use super::tenant::{Claim, Role, Tenant};
use super::turn::{Stage, Turn};
use super::{Arbiter, Decision, Micros, TenantId};

impl Arbiter {
    pub(super) fn decide(&mut self, decided: Micros, out: &mut Vec<Decision>) {
        self.decide_corunners(out);
        self.claim_what_is_due(out);
        let Some(turn) = &self.turn else {
            if let Some(next) = self.next() {
                self.bring(next, decided, out);
            }
            return;
        };
        match turn.stage {
            Stage::Leaving { .. } => {}
            Stage::Arriving if self.is_kept_off(turn.tenant) => {
                self.totals.given_up += 1;
                let id = turn.tenant;
                self.take_turn();
                self.give_back(id, out);
                self.decide(decided, out);
            }
            Stage::Arriving => {
                if let Some(better) = self.interrupts(turn) {
                    self.totals.given_up += 1;
                    self.bring(better, decided, out);
                }
            }
            Stage::Running if self.end_of(turn).is_some_and(|end| end <= self.now) => {
                let (id, for_better) = (turn.tenant, self.better_than(turn.tenant).is_some());
                if let Some(turn) = &mut self.turn {
                    turn.revoke(self.now, for_better);
                }
                self.totals.revokes += 1;
                out.push(Decision::Revoke(id));
            }
            Stage::Running => {
                let first = self.first_waiter().and_then(|id| self.tenants.get(id));
                let patience = first.map(|tenant| patience(tenant.cost));
                self.contend(patience, out);
            }
        }
    }

    /// The tenant for which this arrival is given up.
    fn interrupts(&self, turn: &Turn) -> Option<TenantId> {
        self.called().or_else(|| self.better_than(turn.tenant).filter(|_| !turn.overdue))
    }

    /// The tenant whose turn would begin now, or for which the present one would end.
    fn due(&self) -> Option<TenantId> {
        match &self.turn {
            None => self.next(),
            Some(turn) => match turn.stage {
                Stage::Arriving if self.is_kept_off(turn.tenant) => self.next(),
                Stage::Arriving => self.interrupts(turn),
                Stage::Running if self.end_of(turn).is_some_and(|end| end <= self.now) => {
                    self.better_than(turn.tenant).or_else(|| self.next())
                }
                Stage::Running | Stage::Leaving { .. } => None,
            },
        }
    }

    /// Claims the gangs' members whose turn it would be. For others, nothing changes by that.
    fn claim_what_is_due(&mut self, out: &mut Vec<Decision>) {
        let is_unclaimed = |tenant: &Tenant| tenant.gang == Some(Claim::Unclaimed);
        while let Some(id) = self.due().filter(|id| self.tenants.get(*id).is_some_and(is_unclaimed)) {
            self.tenants.update(id, |tenant| tenant.gang = Some(Claim::Claimed));
            out.push(Decision::Claim(id));
        }
    }

    /// Tells the holder about the tenants that wait, if there is news: patience that changed by less than half or
    /// double is none. The holder is told again in any case after its gate was opened.
    pub(super) fn contend(&mut self, patience: Option<Micros>, out: &mut Vec<Decision>) {
        let Some(turn) = &mut self.turn else { return };
        turn.contended &= patience.is_some();
        turn.resting &= patience.is_none();
        let Some(told) = self.tenants.get(turn.tenant).map(|tenant| tenant.told) else { return };
        let news = match (told, patience) {
            (None, None) => false,
            (Some(old), Some(new)) => new >= old * 2 || old >= new * 2 || turn.opened,
            _ => true,
        };
        turn.opened = false;
        if news {
            self.tenants.update(turn.tenant, |tenant| tenant.told = patience);
            out.push(Decision::Contend(turn.tenant, patience));
        }
    }

    pub(super) fn bring(&mut self, id: TenantId, decided: Micros, out: &mut Vec<Decision>) {
        let mut turn = Turn::new(id, self.now, decided);
        turn.overdue = self.is_overdue(id);
        let target = self.tenants.entry(id).and_then(|entry| entry.target);
        turn.latest_start = target.map_or(Micros::MAX, |target| target.latest_start);
        if let Some(before) = self.take_turn() {
            self.give_back(before.tenant, out);
        }
        self.called.take_if(|called| *called == id);
        self.turn = Some(turn);
        self.tenants.update(id, |tenant| tenant.role = Role::Turn);
        out.push(Decision::SwapIn(id));
    }
}
