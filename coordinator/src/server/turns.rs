//! Carries out what the arbiter decides, and tells it what came of it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_contract::messages::FromCoordinator;

use super::residency::Claim;
use super::tenant::{ANSWER_LIMIT, Place};
use super::{Server, log};
use crate::arbiter::{Decision, Event, State, TenantId};

/// How long a tenant's work may take to end before its gate is opened again. Doubles with every try.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 6;

impl Server {
    pub(super) fn tell_arbiter(&mut self, tenant: TenantId, event: Event) {
        self.set_costs();
        let decisions = self.arbiter.handle(self.now(), tenant, event);
        self.carry_out(decisions);
    }

    /// What a switch to each tenant would cost now.
    pub(super) fn set_costs(&mut self) {
        for (id, tenant) in &self.tenants {
            let cost = self.ledger.copy_time(tenant.missing_bytes());
            self.arbiter.set_cost(*id, cost.as_micros() as u64);
        }
    }

    pub(super) fn carry_out(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Contend(id, Some(patience_micros)) => {
                    self.command(id, &FromCoordinator::Contend { patience_micros });
                }
                Decision::Contend(id, None) => self.command(id, &FromCoordinator::Alone),
                Decision::Revoke(id) => {
                    let Some(tenant) = self.tenants.get_mut(&id) else { continue };
                    let limit = DRAIN_LIMIT * 2u32.pow(tenant.busy.min(MOST_DOUBLINGS));
                    tenant.revoked = Some((Instant::now(), limit));
                    let (grant, limit_micros) = (tenant.grant, limit.as_micros() as u64);
                    self.command(id, &FromCoordinator::Revoke { grant, limit_micros });
                }
                Decision::Bring(id) => {
                    // Only one tenant is brought in at a time: for another, the first goes back to waiting.
                    self.claims.retain(|claim| !matches!(claim, Claim::Bring { .. }));
                    self.claims.push_back(Claim::Bring { tenant: id });
                    self.ledger.begin();
                }
                Decision::Grant(id) => self.grant(id),
            }
        }
        let waiting = self.tenants.keys().filter(|id| self.arbiter.state(**id) == State::Waiting).count() as u32;
        for tenant in self.tenants.values() {
            tenant.page.waiting.store(waiting, Relaxed);
        }
    }

    /// From here on the tenant may write: what is in the pool of it is worth nothing any more.
    fn grant(&mut self, id: TenantId) {
        let decided = self.start + Duration::from_micros(self.arbiter.decided_at());
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        for extent in tenant.extents.values_mut() {
            if let Place::Both { frame, .. } = extent.place {
                let was = std::mem::replace(&mut extent.place, Place::Device { frame });
                self.pool.give_back(was.into_runs());
            }
        }
        tenant.grant += 1;
        tenant.busy = 0;
        // What it owed was for an earlier grant; from here on the end of this one counts.
        tenant.silent = false;
        tenant.ran = Instant::now();
        let grant = tenant.grant;
        self.ledger.granted(&tenant.name, decided);
        self.command(id, &FromCoordinator::Grant { grant });
    }

    /// Sends a tenant's pager a message without descriptors.
    pub(super) fn command(&mut self, id: TenantId, message: &FromCoordinator) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if tenant.cut_off.is_none() && tenant.control.send(message, &[]).is_err() {
            self.cut_off(id, "the connection ended");
        }
    }

    /// The gate is closed and drained.
    pub(super) fn closed(&mut self, id: TenantId, grant: u64, drain_micros: u64) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if grant != tenant.grant {
            return;
        }
        tenant.ran = Instant::now();
        tenant.busy = 0;
        tenant.revoked = None;
        if std::mem::take(&mut tenant.silent) {
            // The arbiter has heard already that its turn is over.
            log(format_args!("{} answers again", tenant.name));
            return;
        }
        self.ledger.drained(Duration::from_micros(drain_micros));
        self.tell_arbiter(id, Event::Closed);
    }

    /// The work did not end in time.
    pub(super) fn busy(&mut self, id: TenantId, grant: u64) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if grant == tenant.grant {
            tenant.revoked = None;
            if tenant.silent {
                // Others go on meanwhile; it is to stop all the same.
                tenant.revoked = Some((Instant::now(), DRAIN_LIMIT));
                let limit_micros = DRAIN_LIMIT.as_micros() as u64;
                return self.command(id, &FromCoordinator::Revoke { grant, limit_micros });
            }
            tenant.busy += 1;
            log(format_args!("{} could not be drained in time; it goes on for a while", tenant.name));
            self.tell_arbiter(id, Event::Busy);
        }
    }

    /// A tenant that does not answer keeps its memory, but not the baton: the others go on with the rest.
    pub(super) fn give_up_on_silent_tenants(&mut self) {
        let late = |tenant: &super::Tenant| {
            tenant.revoked.is_some_and(|(since, limit)| since.elapsed() > limit + ANSWER_LIMIT)
        };
        let late: Vec<TenantId> = self.tenants.iter().filter(|(_, tenant)| late(tenant)).map(|(id, _)| *id).collect();
        for id in late {
            let Some(tenant) = self.tenants.get_mut(&id) else { continue };
            tenant.revoked = None;
            tenant.silent = true;
            log(format_args!("{} does not answer; others go on with the memory that it does not have", tenant.name));
            self.tell_arbiter(id, Event::Closed);
        }
    }

    /// The gate is open.
    pub(super) fn opened(&mut self, id: TenantId, grant: u64) {
        if let Some(tenant) = self.tenants.get(&id).filter(|tenant| tenant.grant == grant) {
            self.ledger.opened(&tenant.name);
        }
    }

    /// Whether nothing of the tenant's can run on the GPU now: only then may its memory be touched.
    pub(super) fn is_off_the_gpu(&self, id: TenantId) -> bool {
        matches!(self.arbiter.state(id), State::Idle | State::Waiting | State::Arriving)
    }
}
