//! Turns: how each begins and ends, and what is in flight meanwhile.

use std::time::{Duration, Instant};

use baton_contract::messages::{ArrivalStory, ExtentId, TurnCommand};

use super::Server;
use super::ledger::Granted;
use super::tenants::tenant::{ANSWER_LIMIT, Tenant};
use crate::policy::arbiter::{Event, State, TenantId};
use crate::policy::in_flight::{Holder, InFlight};

/// How long a tenant's work may take to end before its gate is opened again. Doubles with every try.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 6;
impl Server {
    /// Asks a tenant to close its gate and to wait for its work to end.
    pub(super) fn drain(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let limit = DRAIN_LIMIT * 2u32.pow(tenant.busy.min(MOST_DOUBLINGS));
        tenant.revoked = Some((Instant::now(), limit));
        let (grant, limit_micros) = (tenant.grant, limit.as_micros() as u64);
        self.tenants.tell(id, &TurnCommand::Revoke { grant, limit_micros });
    }

    /// From here on the tenant may write to what is here: what is in the pool of that is only good for comparing.
    pub(super) fn grant(&mut self, id: TenantId) {
        let decided = self.start + Duration::from_micros(self.arbiter.decided_at());
        // Who runs beside others is not brought in before, so it may still be paused: it is let in when it is resumed.
        if self.arbiter.is_corunner(id) && !self.preemptions().is_on_the_gpu_or_resumed(id) {
            return;
        }
        if let Some(mut extents) = self.tenants.extents(id) {
            extents.may_change();
        }
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let arriving = tenant.extents().counts().missing > 0;
        tenant.used.clear();
        tenant.sent_away = false;
        tenant.grant += 1;
        tenant.in_flight = InFlight::Any;
        tenant.busy = 0;
        // What it owed was for an earlier grant; from here on the end of this one counts.
        tenant.unresponsive = false;
        tenant.ran = Instant::now();
        let grant = tenant.grant;
        let demanded = tenant.demanded.take().unwrap_or(decided).min(decided);
        if !self.arbiter.is_corunner(id) {
            self.ledger.granted(&tenant.name, Granted { demanded, decided, arriving });
        }
        self.tenants.tell(id, &TurnCommand::Grant { grant, arriving });
        self.serve_deferred(id);
    }

    /// Has whoever has the GPU keep as much in flight as it is to, and remembers when that has to be looked at again.
    pub(super) fn limit_holder(&mut self) {
        self.limit_until = None;
        let running = |id: &TenantId| self.arbiter.state(*id) == State::Running;
        let Some(id) = self.arbiter.holder().filter(running) else { return };
        let (now, together) = (self.now(), self.arbiter.is_together());
        let Some(tenant) = self.tenants.get(id) else { return };
        let holder = Holder { class: tenant.class(), preemptible: tenant.preemption.works(), together };
        let before = tenant.in_flight;
        let index = self.tenants.index();
        let (in_flight, until) = self.lately.of(holder, |class| index.has(class), now);
        self.limit_until = until.map(|at| self.start + Duration::from_micros(at));
        if in_flight == before {
            return;
        }
        let command = match in_flight {
            InFlight::Any => TurnCommand::LiftLimit { watch: false },
            InFlight::Watching => TurnCommand::LiftLimit { watch: true },
            InFlight::Launches(launches) => TurnCommand::LimitInFlight { launches },
        };
        if let Some(tenant) = self.tenants.unindexed(id) {
            tenant.in_flight = in_flight;
        }
        self.tenants.tell(id, &command);
    }

    /// The gate is closed and drained.
    pub(super) fn closed(&mut self, id: TenantId, grant: u64, drain_micros: u64) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if grant != tenant.grant {
            return;
        }
        tenant.ran = Instant::now();
        if !self.preemptions().drained(id) {
            return;
        }
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.busy = 0;
        tenant.revoked = None;
        if std::mem::take(&mut tenant.unresponsive) {
            // The arbiter has heard already that its turn is over.
            log::info!("{} answers again", tenant.name);
            return;
        }
        self.ledger.drained(Duration::from_micros(drain_micros));
        self.tell_arbiter(id, Event::Closed);
    }

    /// The work did not end in time.
    pub(super) fn busy(&mut self, id: TenantId, grant: u64) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if grant == tenant.grant {
            tenant.revoked = None;
            if tenant.unresponsive {
                // Others go on meanwhile; it is to stop all the same.
                tenant.revoked = Some((Instant::now(), DRAIN_LIMIT));
                let limit_micros = DRAIN_LIMIT.as_micros() as u64;
                return self.tenants.tell(id, &TurnCommand::Revoke { grant, limit_micros });
            }
            tenant.busy += 1;
            self.evictions.iter_mut().for_each(|eviction| eviction.could_not_close(id));
            if tenant.preemption.is_under_way() {
                // It was asked to drain for another reason, and is about to be paused.
                return;
            }
            log::warn!("{} could not be drained in time; it goes on for a while", tenant.name);
            self.tell_arbiter(id, Event::DrainTimedOut);
        }
    }

    /// A tenant that does not answer keeps its memory, but not the baton: the others go on with the rest.
    pub(super) fn give_up_if_silent(&mut self, id: TenantId) {
        let is_late =
            |tenant: &&mut Tenant| tenant.revoked.is_some_and(|(since, limit)| since.elapsed() >= limit + ANSWER_LIMIT);
        let Some(tenant) = self.tenants.get_mut(id).filter(is_late) else { return };
        tenant.revoked = None;
        tenant.unresponsive = true;
        log::warn!("{} does not answer; others go on with the memory that it does not have", tenant.name);
        self.tell_arbiter(id, Event::Closed);
    }

    /// The gate is open.
    pub(super) fn opened(&mut self, id: TenantId, grant: u64) {
        if let Some(tenant) = self.tenants.get(id).filter(|tenant| tenant.grant == grant) {
            self.ledger.opened(&tenant.name);
        }
    }

    /// What a tenant has used first since its gate was opened.
    pub(super) fn used(&mut self, id: TenantId, grant: u64, extents: Vec<(ExtentId, u32)>) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.grant == grant) else { return };
        // Its own extents, each once at most: a list that grows without end is none of ours.
        if tenant.used.len() + extents.len() <= 2 * tenant.extents().len() {
            let is_known = |extent: &(ExtentId, u32)| tenant.extents().get(extent.0).is_some();
            let known: Vec<_> = extents.into_iter().filter(is_known).collect();
            tenant.used.extend(known.into_iter().map(|(extent, micros)| (extent, u64::from(micros) * 1000)));
        }
    }

    /// All is there, or the gate was closed before that.
    pub(super) fn arrival_told(&mut self, id: TenantId, grant: u64, story: ArrivalStory) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.grant == grant) else { return };
        tenant.history.record(std::mem::take(&mut tenant.used));
        self.ledger.arrived(&tenant.name, story);
    }

    /// Whether nothing of the tenant's can run on the GPU now: only then may its memory be touched.
    pub(super) fn is_off_the_gpu(&self, id: TenantId) -> bool {
        self.arbiter.state(id).is_off_the_gpu()
    }
}
