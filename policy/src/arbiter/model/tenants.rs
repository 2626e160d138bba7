//! The behaviour of the tenants of the simulated world.

use super::*;

impl World {
    pub(super) fn wake(&mut self, id: TenantId) {
        let roll = self.dice.roll(1 << 20);
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.times == 0 {
            return;
        }
        worker.times -= 1;
        worker.left_to_do = worker.habit.work / 2 + roll % (worker.habit.work / 2 + 1) + 1;
        worker.version += 1;
        match worker.open {
            Some(_) => {
                worker.open = Some(self.now);
                let (delay, version) = (worker.left_to_do, worker.version);
                self.plan(delay, Then::Done(id, version));
            }
            None => self.report(id, Event::Demand),
        }
    }

    pub(super) fn done(&mut self, id: TenantId, version: u32) {
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.version == version) else { return };
        worker.done += std::mem::take(&mut worker.left_to_do);
        let think = worker.habit.think;
        let think = self.dice.roll(think + 1);
        self.plan(think, Then::Wake(id));
        self.be_idle(id);
    }

    /// Handles a tenant that has nothing to do, and checks whether it should make way.
    pub(super) fn be_idle(&mut self, id: TenantId) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.version += 1;
        if let (Some(_), Some(patience), 0, false) = (worker.open, worker.patience, worker.left_to_do, worker.closing) {
            let version = worker.version;
            self.plan(patience, Then::Bored(id, version));
        }
    }

    pub(super) fn bored(&mut self, id: TenantId, version: u32) {
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| worker.version == version) else { return };
        if worker.open.is_some() && !worker.closing && worker.left_to_do == 0 && worker.patience.is_some() {
            worker.open = None;
            self.report(id, Event::Closed);
        }
    }

    pub(super) fn obey(&mut self, id: TenantId, grant: u64, decision: Decision) {
        let open = self.workers.values().filter(|worker| worker.open.is_some()).count();
        let Some(worker) = self.workers.get_mut(&id) else { return };
        match decision {
            Decision::Grant(_) => {
                assert_eq!(open, 0, "a gate is opened while another is open");
                worker.grants = grant;
                worker.open = Some(self.now);
                worker.closing = false;
                worker.version += 1;
                let (left, version) = (worker.left_to_do, worker.version);
                match left {
                    0 => self.be_idle(id),
                    left => self.plan(left, Then::Done(id, version)),
                }
            }
            Decision::Contend(_, patience) => {
                worker.patience = patience;
                if worker.left_to_do == 0 {
                    self.be_idle(id);
                }
            }
            Decision::Revoke(_) if worker.grants == grant && worker.open.is_some() => {
                worker.closing = true;
                let delay = self.dice.roll(5 * MS);
                self.plan(delay, Then::Drained(id));
            }
            Decision::Revoke(_)
            | Decision::SwapIn(_)
            | Decision::Corun(..)
            | Decision::Reopen(_)
            | Decision::Claim(_)
            | Decision::GiveBack(_)
            | Decision::Idle(..) => {}
        }
    }

    pub(super) fn drained(&mut self, id: TenantId) {
        let busy = self.chance(self.trouble.busy);
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let Some(since) = worker.open.filter(|_| worker.closing) else { return };
        worker.closing = false;
        if busy {
            self.report(id, Event::DrainTimedOut);
            if self.workers[&id].left_to_do == 0 {
                self.be_idle(id);
            }
            return;
        }
        worker.open = None;
        worker.version += 1;
        if worker.left_to_do > 0 {
            let did = (self.now - since).min(worker.left_to_do - 1);
            worker.left_to_do -= did;
            worker.done += did;
            self.report(id, Event::Closed);
            self.report(id, Event::Demand);
        } else {
            self.report(id, Event::Closed);
        }
    }
}
