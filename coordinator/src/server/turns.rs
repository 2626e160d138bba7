//! Turns: their beginning and end, and their work in flight.
//!
//! [`Turns`] is the state of this module alone; [`Access`] adds the parts of others that it needs. A turn's own states are in
//! `tenants/turn.rs`.

use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::messages::{ArrivalStats, ExtentId, TurnCommand};

use super::recorder::Recorder;
use super::recorder::event::What;
use super::tenants::table::Tenants;
use super::tenants::turn::{Closed, TimedOut, Turn};
use baton_policy::arbiter::{Micros, State, TenantId};
use baton_policy::in_flight::{Holder, InFlight, Lately};
use baton_policy::scheduler::Scheduler;

/// The time that a tenant's work may take to end if only the tenant itself waits for that, or the user that wants it evicted.
const LONGEST_DRAIN: Duration = Duration::from_secs(1);

/// The tenants at work lately, and the consequences for the holder of the GPU.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lately: Lately,
    /// The time of the next check of the amount that the holder keeps in flight.
    limit_until: Option<Micros>,
}

/// Turns, and the other parts needed for them.
pub(super) struct Access<'a> {
    pub(super) turns: &'a mut Turns,
    pub(super) tenants: &'a mut Tenants,
    /// Only to be asked.
    pub(super) arbiter: &'a Scheduler,
    pub(super) recorder: &'a mut Recorder,
}

impl Turns {
    /// Notes that a tenant of this class is at work, or wants to be.
    pub(super) fn at_work(&mut self, class: Class, usual: Option<Micros>, now: Micros) {
        self.lately.at_work(class, usual, now);
    }

    /// The time of the next check of the amount that the holder keeps in flight, by the arbiter's clock.
    pub(super) fn next_timer(&self) -> Option<Micros> {
        self.limit_until
    }
}

impl Access<'_> {
    /// From here on the tenant may write to its memory: pool copies of it are only good for comparing. `decided`: the time at which the
    /// arbiter chose it.
    pub(super) fn begin(&mut self, id: TenantId, decided: Instant) {
        if let Some(mut extents) = self.tenants.extents(id) {
            extents.may_change();
        }
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let arriving = tenant.extents().counts().missing > 0;
        tenant.memory.sent_away = false;
        let demanded = tenant.turn.begin(decided);
        let (grant, preemptible) = (tenant.turn.number(), tenant.preemption.works_promptly());
        if !self.arbiter.is_corunner(id) && self.arbiter.stands_for_its_unit(id) {
            self.recorder.record(id, What::Granted { demanded, decided, arriving });
        }
        self.tenants.tell(id, &TurnCommand::Grant { grant, arriving, preemptible });
    }

    /// Asks a tenant to close its gate and to wait for its work to end.
    pub(super) fn drain(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let limit_micros = tenant.turn.ask_for_end().as_micros() as u64;
        let grant = tenant.turn.number();
        self.tenants.tell(id, &TurnCommand::Revoke { grant, limit_micros });
    }

    /// Sets the amount of work that the tenants on the GPU keep in flight, and remembers the time of the next check.
    pub(super) fn limit_holders(&mut self, now: Micros) {
        self.turns.limit_until = None;
        for id in self.arbiter.holders() {
            if self.arbiter.state(id) == State::Running {
                self.limit(id, now);
            }
        }
    }

    fn limit(&mut self, id: TenantId, now: Micros) {
        let together = self.arbiter.is_together();
        let Some(tenant) = self.tenants.get(id) else { return };
        let holder = Holder { class: tenant.class(), preemptible: tenant.preemption.works(), together };
        let before = tenant.turn.in_flight();
        let index = self.tenants.index();
        let (in_flight, until) = self.turns.lately.of(holder, |class| index.has(class), now);
        self.turns.limit_until = [self.turns.limit_until, until].into_iter().flatten().min();
        if in_flight == before {
            return;
        }
        let command = match in_flight {
            InFlight::Any => TurnCommand::LiftLimit { watch: false },
            InFlight::Watching => TurnCommand::LiftLimit { watch: true },
            InFlight::Launches(launches) => TurnCommand::LimitInFlight { launches },
        };
        if let Some(tenant) = self.tenants.unindexed(id) {
            tenant.turn.limit(in_flight);
        }
        self.tenants.tell(id, &command);
    }

    /// Asks a tenant that no other tenant waits for to leave the GPU all the same: its turn goes on if its work does not end in
    /// time.
    pub(super) fn ask_to_leave(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (grant, limit_micros) = (tenant.turn.number(), LONGEST_DRAIN.as_micros() as u64);
        self.tenants.tell(id, &TurnCommand::Revoke { grant, limit_micros });
    }

    /// True if this is a tenant's present turn, or its last one. Then the tenant has held the baton until now.
    pub(super) fn mark_held(&mut self, id: TenantId, grant: u64) -> bool {
        let Some(tenant) = self.tenants.in_turn(id, grant) else { return false };
        tenant.turn.mark_ran();
        true
    }

    /// Notes that the gate is closed and drained. Returns true if that ends the turn.
    pub(super) fn on_closed(&mut self, id: TenantId, drain_micros: u64) -> bool {
        let Some(tenant) = self.tenants.get_mut(id) else { return false };
        match tenant.turn.on_closed() {
            // The arbiter has heard already that its turn is over.
            Closed::Late => baton_messages::info!(answers_again(&tenant.name)),
            Closed::InTime => {
                self.recorder.record(id, What::Drained { took: Duration::from_micros(drain_micros) });
                return true;
            }
        }
        false
    }

    /// Notes that the work did not end in time. Returns true if the turn goes on because of that.
    pub(super) fn on_timed_out(&mut self, id: TenantId, grant: u64) -> bool {
        let Some(tenant) = self.tenants.in_turn(id, grant) else { return false };
        match tenant.turn.on_timed_out() {
            TimedOut::AskAgain(limit) => {
                let limit_micros = limit.as_micros() as u64;
                self.tenants.tell(id, &TurnCommand::Revoke { grant, limit_micros });
                false
            }
            TimedOut::GoesOn => true,
        }
    }

    /// Takes the baton from an unresponsive tenant, which keeps its memory: the others go on with the rest. Returns true if that
    /// holds from now on.
    pub(super) fn give_up_if_silent(&mut self, id: TenantId) -> bool {
        self.give_up_if(id, Turn::give_up_if_overdue)
    }

    /// Gives up waiting for a tenant that is to answer and has been silent for long enough.
    pub(super) fn give_up(&mut self, id: TenantId) -> bool {
        self.give_up_if(id, Turn::give_up)
    }

    fn give_up_if(&mut self, id: TenantId, is_given_up: impl Fn(&mut Turn) -> bool) -> bool {
        let Some(tenant) = self.tenants.get_mut(id) else { return false };
        let is_news = is_given_up(&mut tenant.turn);
        if is_news {
            baton_messages::warn!(others_go_on_with_the_rest(&tenant.name));
        }
        is_news
    }

    /// The gate is open.
    pub(super) fn on_opened(&mut self, id: TenantId, grant: u64) {
        if self.tenants.get(id).is_some_and(|tenant| tenant.turn.number() == grant) {
            self.recorder.record(id, What::Opened);
        }
    }

    /// Handles the report of the extents that a tenant has used first since its gate was opened.
    pub(super) fn on_used(&mut self, id: TenantId, grant: u64, extents: Vec<(ExtentId, u32)>) {
        let Some(tenant) = self.tenants.in_turn(id, grant) else { return };
        // Its own extents, each once at most: a list that grows without end is none of ours.
        let is_known = |extent: &(ExtentId, u32)| tenant.memory.extents().get(extent.0).is_some();
        let known = extents.into_iter().filter(is_known);
        let known = known.map(|(extent, micros)| (extent, u64::from(micros) * 1000)).collect();
        tenant.turn.has_used(known, 2 * tenant.memory.extents().len());
    }

    /// All is there, or the gate was closed before that.
    pub(super) fn on_arrived(&mut self, id: TenantId, grant: u64, stats: ArrivalStats) {
        let Some(tenant) = self.tenants.in_turn(id, grant) else { return };
        tenant.memory.history.record(tenant.turn.take_used());
        self.recorder.record(id, What::Arrived { stats });
    }

    /// Has the recorder know for how long a tenant has had the GPU now.
    pub(super) fn count(&mut self, id: TenantId, now: Micros) {
        // The arbiter knows no tenant whose connection has ended.
        if self.tenants.get(id).is_some_and(|tenant| tenant.connection.is_open()) {
            self.recorder.add_gpu_time(id, Duration::from_micros(self.arbiter.gpu_time(id, now)));
        }
    }

    /// Records the requests of a tenant that have ended. The tenant reports them on its page, and no process waits for that to be
    /// read.
    pub(super) fn read_requests(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.unindexed(id) else { return };
        if tenant.class() == Class::Latency {
            let target = tenant.scheduling.wanted.slo_micros;
            for time in tenant.connection.ended_requests() {
                let micros = u64::try_from((time.end - time.start).as_micros()).unwrap_or(u64::MAX);
                tenant.scheduling.requests.see(micros);
                let late = target > 0 && micros > target;
                self.recorder.record(id, What::Request { time, late });
            }
        }
    }
}
