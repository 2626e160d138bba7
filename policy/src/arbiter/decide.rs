//! The decisions that follow from the present state.

use super::rules::patience;
use super::tenant::Role;
use super::turn::{Stage, Turn};
use super::{Arbiter, Decision, Micros, TenantId};

impl Arbiter {
    pub(super) fn decide(&mut self, decided: Micros, out: &mut Vec<Decision>) {
        self.decide_corunners(out);
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
                self.take_turn();
                self.decide(decided, out);
            }
            Stage::Arriving => {
                if let Some(better) = self.better_than(turn.tenant).filter(|_| !turn.overdue) {
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
        self.take_turn();
        self.turn = Some(turn);
        self.tenants.update(id, |tenant| tenant.role = Role::Turn);
        out.push(Decision::SwapIn(id));
    }
}
