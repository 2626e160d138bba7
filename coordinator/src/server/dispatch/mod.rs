//! Dispatch: each message of a tenant, each decision of the arbiter and each event of the modules goes to the module it concerns.
//!
//! Only this folder reports events to the arbiter and carries out its decisions.

mod units;

use std::os::fd::OwnedFd;
use std::time::Duration;

use baton_contract::class::Class;
use baton_contract::messages::{
    Answer, CorunCommand, CorunReport, FromTenant, MemoryReport, Opening, Request, TurnCommand, TurnReport,
};

use super::admin::upgrade::Wanted;
use super::memory::{Attaching, MemoryBreach, MemoryEvent};
use super::preemption::PreemptEvent;
use super::receive::{Breach, Socket};
use super::recorder::event::What;
use super::state::Server;
use super::tenants::table::Tenants;
use super::tenants::tenant::Tenant;
use baton_books::reservations::{Need, Run};
use baton_policy::arbiter::{Decision, Event, Micros, Pressure, State, TenantId};
use baton_policy::gangs::{self, GangId};
use baton_policy::scheduler::Scheduler;

/// The most reports of a tenant that are read in a round; then the others have their turn.
const REPORTS: usize = 16;
/// The most requests of a tenant that are read in a round. A tenant that waits for each answer never has more.
const REQUESTS: usize = 2;

impl Server {
    /// Handles a message of a stranger, a peer that is no tenant.
    pub(super) fn hear_stranger(&mut self, at: u32) {
        let Some((peer, opening, descriptor)) = self.front.lobby.hear(at) else { return };
        match opening {
            Opening::Hello { name, scheduling, gpu, needs, run, gang } => {
                let (number, guest) = (run, peer.guest());
                let need = (needs > 0).then_some(Need { run: Run { guest, number }, bytes: needs });
                let gang = (gang > 0).then_some(GangId { guest, number: gang });
                self.greet(peer, name, scheduling, (need, gang), gpu, descriptor);
            }
            Opening::Expect => self.answer_expect(peer),
            Opening::Status => self.answer_status(peer),
            Opening::Events { next } => self.answer_events(peer, next),
            Opening::Set { name, change } => self.set_on_request(peer, &name, change),
            Opening::Evict { name } => self.evict_on_request(peer, &name),
            Opening::Prefetch { name } => self.prefetch_on_request(peer, &name),
            Opening::Stop { now } => self.stop_on_request(peer, now),
            Opening::Close { closed } => self.close_on_request(peer, closed),
            Opening::SendAway { name } => self.send_away_on_request(peer, &name),
            Opening::Keep => self.keep_on_request(peer, descriptor),
            Opening::Upgrade { file, check, within_ms, oldest, leave_behind } => {
                let within = Duration::from_millis(within_ms.into());
                // It asks in the newest version that it speaks.
                let speaks = oldest..=peer.version().number();
                self.upgrade_on_request(peer, Wanted { file, within, speaks, leave_behind }, check);
            }
        }
        self.settle();
    }

    /// Handles a tenant's messages, up to the limit of a round. The rest follows in the next one.
    pub(super) fn hear(&mut self, id: TenantId, socket: Socket) {
        let most = match socket {
            Socket::Control => REPORTS,
            Socket::Requests => REQUESTS,
        };
        for _ in 0..most {
            if !self.hear_next(id, socket) {
                return;
            }
        }
    }

    /// Handles all reports that a tenant has made by now.
    fn hear_reports(&mut self, id: TenantId) {
        let Some(all) = self.card.tenants.get(id).map(|tenant| tenant.connection.control.heard_by_now()) else {
            return;
        };
        let is_heard = |tenant: &Tenant| tenant.connection.control.heard() >= all;
        while !self.card.tenants.get(id).is_none_or(is_heard) && self.hear_next(id, Socket::Control) {}
    }

    /// Handles the next message of a tenant. Returns false if there is none.
    fn hear_next(&mut self, id: TenantId, socket: Socket) -> bool {
        let Some(told) = self.receive(id, socket) else { return false };
        self.shows_life(id);
        let done = told.and_then(|(message, descriptor)| match socket {
            Socket::Control => self.report(id, message, descriptor),
            Socket::Requests => self.request(id, message),
        });
        if let Err(why) = done {
            self.cut_off(id, why);
            return false;
        }
        // The tenant may be off the GPU only now, after this message was handled.
        self.settle();
        self.shows_life(id);
        self.settle();
        true
    }

    /// Passes each family of reports to its handler.
    pub(super) fn report(
        &mut self,
        id: TenantId,
        message: FromTenant,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), Breach> {
        if self.hear_unsettled(id, &message) {
            return Ok(());
        }
        match message {
            FromTenant::Turn(report) => self.hear_of_turn(id, report),
            FromTenant::Memory(report) => self.hear_of_memory(id, report, descriptor)?,
            FromTenant::Preemption(report) => self.preemptions().heard(id, report, descriptor)?,
            FromTenant::Corun(CorunReport::ActivityChanged) => {
                if let Some(tenant) = self.card.tenants.get_mut(id) {
                    tenant.preemption.slice.on_work_begins();
                }
                self.look_at_activity();
            }
            // Told in vain: it was taken over before.
            FromTenant::Takeover(_) => {}
            FromTenant::Opening(_) | FromTenant::Request(_) => {
                return Err(Breach::RequestInsteadOfReport);
            }
        }
        Ok(())
    }

    /// Handles a tenant's reports about its mappings.
    fn hear_of_memory(
        &mut self,
        id: TenantId,
        report: MemoryReport,
        with: Option<OwnedFd>,
    ) -> Result<(), MemoryBreach> {
        match report {
            MemoryReport::Done { batch, micros } => self.memory().batch_done(id, batch, Duration::from_micros(micros)),
            MemoryReport::Failed { batch, code } => self.memory().batch_failed(id, batch, code),
            MemoryReport::Undelivered { batch } => self.memory().on_undelivered(id, batch),
            MemoryReport::Free { extents } => self.memory().free(id, &extents),
            MemoryReport::Spare { ranges } => self.memory().spare(id, &ranges),
            MemoryReport::Consolidate { at, bytes, piece: _ } => self.memory().consolidate(id, at, bytes, with),
            MemoryReport::Unleased { bytes } => self.memory().unlease(id, bytes),
            MemoryReport::ContextMade { made } => {
                self.memory().context_made(id, made);
                self.keep_tenant(id);
                Ok(())
            }
            MemoryReport::ContextGone => {
                self.memory().context_gone(id);
                self.keep_tenant(id);
                Ok(())
            }
        }
    }

    /// A request is served at once, or when its tenant is let in again.
    fn request(&mut self, id: TenantId, message: FromTenant) -> Result<(), Breach> {
        let FromTenant::Request(request) = message else {
            return Err(Breach::ReportInsteadOfRequest);
        };
        let Some(tenant) = self.card.tenants.get_mut(id) else { return Ok(()) };
        if !tenant.connection.ask() {
            return Err(Breach::RequestBeforeAnAnswer);
        }
        if tenant.memory.knows_later {
            self.memory().has_heard_all(id);
        }
        let Some(tenant) = self.card.tenants.get_mut(id) else { return Ok(()) };
        if tenant.memory.is_taken() {
            // Its memory may be other tenants' until it is let in again.
            self.defer(id, request);
            return Ok(());
        }
        if tenant.preemption.has_begun() || tenant.unsettled.is_some() {
            match request {
                // A tenant that asks for memory keeps the gate from closing.
                Request::Allocate { .. } => {
                    self.card.tenants.answer(id, &Answer::TryAgain, &[]);
                    return Ok(());
                }
                // So does a tenant that opens others' memory or events.
                Request::Attach { .. } | Request::OpenEvent { .. } => {
                    self.card.tenants.answer(id, &Answer::TryAgain, &[]);
                    return Ok(());
                }
                // Not if its calls have to end before it is off the GPU.
                Request::UnmanagedMemory { .. } | Request::Context { .. } | Request::Room { .. }
                    if tenant.preemption.is_under_way() =>
                {
                    self.defer(id, request);
                    return Ok(());
                }
                Request::UnmanagedMemory { .. }
                | Request::Context { .. }
                | Request::Room { .. }
                | Request::Free { .. }
                | Request::Frames { .. }
                | Request::MakeImmovable { .. }
                | Request::Spare { .. }
                | Request::Reuse { .. }
                | Request::Export { .. }
                | Request::Unexport { .. }
                | Request::ExportEvent { .. }
                | Request::ExportDescriptors { .. }
                | Request::ImportDescriptor { .. }
                | Request::Meet { .. }
                | Request::PinsFile { .. }
                | Request::JoinGang { .. } => {}
            }
        }
        self.serve_request(id, request)
    }

    /// Serves a request when its tenant is let in again. Its thread waits for that, and perhaps none at the gate.
    fn defer(&mut self, id: TenantId, request: Request) {
        if let Some(tenant) = self.card.tenants.get_mut(id) {
            tenant.connection.defer(request);
        }
        self.demand(id);
    }

    /// A tenant wants a turn.
    fn demand(&mut self, id: TenantId) {
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        if let Some(unsettled) = &mut tenant.unsettled {
            unsettled.demands = true;
            return;
        }
        tenant.turn.demand();
        tenant.memory.sent_away = false;
        self.card.recorder.record(id, What::Asked);
        self.tell_arbiter(id, Event::Demand);
        self.meet(id);
    }

    fn serve_request(&mut self, id: TenantId, request: Request) -> Result<(), Breach> {
        if depends_on_reports(&request) {
            self.hear_reports(id);
        }
        // That may have been the tenant's last message.
        if !self.card.tenants.get(id).is_some_and(|tenant| tenant.connection.is_open()) {
            return Ok(());
        }
        match request {
            Request::Attach { .. } | Request::OpenEvent { .. } if self.is_owner_awaited(id, &request) => {
                self.card.tenants.answer(id, &Answer::TryAgain, &[]);
            }
            Request::Allocate { at, bytes } => self.memory().allocate(id, at, bytes)?,
            Request::Free { extents } => {
                self.memory().free(id, &extents)?;
                self.card.tenants.answer(id, &Answer::Freed, &[]);
            }
            Request::Frames { extents } => self.memory().give_frames(id, extents)?,
            Request::MakeImmovable { extents } => self.memory().make_immovable(id, &extents),
            Request::UnmanagedMemory { .. } | Request::Context { .. } | Request::Room { .. } => {
                self.memory().make_room(id, &request);
            }
            Request::Spare { ranges } => {
                self.memory().spare(id, &ranges)?;
                self.card.tenants.answer(id, &Answer::Noted, &[]);
            }
            Request::Reuse { at, bytes } => {
                self.memory().reuse(id, at, bytes)?;
                self.card.tenants.answer(id, &Answer::Noted, &[]);
            }
            Request::Export { at, bytes } => self.memory().export(id, at, bytes),
            Request::Unexport { at } => self.memory().unexport(id, at),
            Request::Attach { exporter, key, at, apart } => {
                let exporter = TenantId(exporter);
                if self.memory().attach(id, exporter, &key, at, apart) == Attaching::Unite {
                    self.unite(id, exporter);
                    self.card.tenants.answer(id, &Answer::TryAgain, &[]);
                }
            }
            Request::ExportEvent { handle } => self.memory().export_event(id, handle),
            Request::OpenEvent { handle } => {
                if let Some(exporter) = self.memory().open_event(id, handle) {
                    self.unite(id, exporter);
                    self.card.tenants.answer(id, &Answer::TryAgain, &[]);
                }
            }
            Request::ExportDescriptors { process } => self.memory().export_descriptors(id, process),
            Request::ImportDescriptor { owner } => {
                self.unite_with_owner(id, owner);
                self.card.tenants.answer(id, &Answer::Noted, &[]);
            }
            Request::Meet { exporter, key } => {
                let exporter = TenantId(exporter);
                if self.is_about_to_share(id, exporter, &key) {
                    self.unite(id, exporter);
                }
                self.card.tenants.answer(id, &Answer::Noted, &[]);
            }
            Request::PinsFile { file } => {
                self.pins_file(id, file);
                self.card.tenants.answer(id, &Answer::Noted, &[]);
            }
            Request::JoinGang { gang } => {
                self.is_of_gang_from_now_on(id, gang);
                self.card.tenants.answer(id, &Answer::Noted, &[]);
            }
        }
        Ok(())
    }

    /// Serves a request made while the gate was already closed.
    fn serve_deferred(&mut self, id: TenantId) {
        let Some(request) = self.card.tenants.get_mut(id).and_then(|tenant| tenant.connection.take_deferred()) else {
            return;
        };
        if let Err(why) = self.serve_request(id, request) {
            self.cut_off(id, why);
        }
    }

    /// Handles a tenant's reports about its turns.
    fn hear_of_turn(&mut self, id: TenantId, report: TurnReport) {
        match report {
            TurnReport::Demand => self.demand(id),
            TurnReport::Opened { grant } => self.turns().on_opened(id, grant),
            TurnReport::Closed { grant, drain_micros } => {
                self.turns().read_requests(id);
                let ends = self.turns().mark_held(id, grant) && self.preemptions().on_drained(id);
                if ends && self.turns().on_closed(id, drain_micros) {
                    self.tell_arbiter(id, Event::Closed);
                }
            }
            TurnReport::DrainTimedOut { grant } => {
                if self.turns().on_timed_out(id, grant) {
                    self.on_drain_timeout(id);
                }
            }
            TurnReport::Rests { grant } | TurnReport::Works { grant } => {
                if self.card.tenants.in_turn(id, grant).is_some() {
                    let rests = matches!(report, TurnReport::Rests { .. });
                    self.tell_gang_of(id, gangs::Event::Rests(rests));
                    self.tell_arbiter(id, Event::Rests(rests));
                }
            }
            TurnReport::Used { grant, extents } => self.turns().on_used(id, grant, extents),
            TurnReport::Arrived { grant, stats } => self.turns().on_arrived(id, grant, stats),
        }
    }

    /// A tenant's work did not end in time.
    fn on_drain_timeout(&mut self, id: TenantId) {
        for id in self.card.arbiter.members(id) {
            // That is an answer too.
            self.let_in(id);
            self.pending.could_not_close(id);
            // Its program asks again for the memory that its spare memory blocks.
            if let Some(tenant) = self.card.tenants.get_mut(id) {
                tenant.memory.end_compaction(true);
            }
            self.memory().give_up_consolidating(id);
        }
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        if tenant.preemption.is_under_way() {
            // It was asked to drain for another reason, and is about to be paused.
            return;
        }
        baton_messages::warn!(work_did_not_end(&tenant.name));
        self.tell_arbiter(id, Event::DrainTimedOut);
        self.meet(id);
    }

    /// A tenant is to leave the GPU for a moment, if it is not about to.
    fn compact(&mut self, id: TenantId) {
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        let leaves = tenant.preemption.is_under_way() || tenant.turn.is_ending();
        if !leaves && tenant.memory.begin_compaction() {
            self.ask_to_leave(id);
        }
    }

    /// A tenant's turn begins.
    fn grant(&mut self, id: TenantId) {
        let decided = self.clock.at(self.card.arbiter.decided_at());
        // A tenant that runs beside others, or with them, may still be paused: it is let in when it is resumed.
        if self.card.arbiter.is_let_in_at_any_time(id) && !self.preemptions().ensure_on_the_gpu(id) {
            return;
        }
        // Its memory is its own again.
        self.memory().untake(id);
        self.turns().begin(id, decided);
        self.serve_deferred(id);
    }

    /// Notes that from here on all members of a unit may write to each other's memory, even if the owner's gate is not open yet.
    fn all_may_write(&mut self, id: TenantId) {
        if self.card.arbiter.is_united(id) {
            self.card.arbiter.members(id).into_iter().for_each(|id| self.memory().may_be_written(id));
        }
    }

    fn carry_out(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            log::debug!("{decision:?}");
            self.note_waiting(decision.tenant());
            let now = self.now();
            self.turns().count(decision.tenant(), now);
            match decision {
                Decision::Contend(id, Some(patience_micros)) => self.contend(id, patience_micros),
                Decision::Contend(id, None) => self.card.tenants.tell(id, &TurnCommand::Uncontended),
                Decision::Revoke(id) => {
                    if !self.preemptions().begin(id) {
                        self.turns().drain(id);
                    }
                }
                Decision::SwapIn(id) => {
                    self.card.memory.swap_in(id);
                    self.card.recorder.record(id, What::Chosen);
                }
                Decision::Grant(id) | Decision::Reopen(id) => self.grant(id),
                Decision::Claim(id) => self.claimed(id),
                Decision::GiveBack(id) => self.tell_gang_of(id, gangs::Event::GivenBack),
                Decision::Idle(id, is_idle) => self.tell_gang_of(id, gangs::Event::Idle(is_idle)),
                Decision::Corun(id, on) => {
                    self.card.tenants.tell(id, &CorunCommand::Corun { on });
                    if !on {
                        self.memory().turn_away(id);
                    }
                }
            }
        }
        let now = self.now();
        self.turns().limit_holders(now);
    }

    /// Tells a tenant that others wait.
    fn contend(&mut self, id: TenantId, patience_micros: Micros) {
        // From now on it shows that it lives.
        if let Some(tenant) = self.card.tenants.unindexed(id) {
            tenant.connection.expect_signs();
        }
        self.card.tenants.tell(id, &TurnCommand::Contended { patience_micros });
    }

    /// Lets in a tenant that had to be resumed first. A grant ends what it was told of others that wait.
    fn grant_late(&mut self, id: TenantId) {
        self.grant(id);
        if let Some(patience) = self.card.arbiter.contended()
            && self.card.arbiter.holders_at_work().contains(&id)
        {
            self.contend(id, patience);
        }
    }

    /// Has the arbiter know a tenant that has the baton, with its gate open. False if it is not to have it.
    pub(super) fn goes_on_holding(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.card.tenants.get(id) else { return false };
        let missing = tenant.extents().counts().missing > 0 || self.card.memory.lacks_others(id);
        let scheduling = tenant.scheduling.wanted;
        let now = self.now();
        for event in [Event::Joined { scheduling }, Event::Demand, Event::Resident] {
            let decided = self.card.arbiter.handle(now, id, event);
            // It knows none from before.
            self.set_cost(id);
            // They are about this tenant alone, and are carried out already.
            debug_assert!(decided.iter().all(|one| one.tenant() == id), "{decided:?}");
            if decided.contains(&Decision::Grant(id)) {
                if missing {
                    self.card.memory.swap_in(id);
                }
                return true;
            }
        }
        false
    }

    pub(super) fn tell_arbiter(&mut self, tenant: TenantId, event: Event) {
        let is_work = matches!(event, Event::Demand | Event::Closed | Event::Preempted);
        if let Some(one) = self.card.tenants.get(tenant).filter(|_| is_work) {
            self.card.turns.at_work(one.class(), one.scheduling.requests.get(), self.now());
        }
        self.set_costs();
        let others = match event {
            Event::Closed | Event::Preempted | Event::Left => self.others_of_unit(tenant),
            _ => Vec::new(),
        };
        let now = self.now();
        let decisions = self.decide(|arbiter| arbiter.handle(now, tenant, event));
        self.note_waiting(tenant);
        let now = self.now();
        self.turns().count(tenant, now);
        self.carry_out(decisions);
        // They may have answered before, and the unit may be off the GPU only now.
        for id in others {
            self.has_shown_life(id);
            self.check_answer(id);
        }
    }

    /// The members of a tenant's unit but for the tenant itself.
    fn others_of_unit(&self, id: TenantId) -> Vec<TenantId> {
        if !self.card.arbiter.is_united(id) {
            return Vec::new();
        }
        self.card.arbiter.members(id).into_iter().filter(|member| *member != id).collect()
    }

    /// Has the arbiter decide anew.
    pub(super) fn tick(&mut self) {
        self.set_costs();
        let now = self.now();
        let decisions = self.decide(|arbiter| arbiter.tick(now));
        self.carry_out(decisions);
    }

    /// Has the arbiter decide, and tells the machine what that means for gangs.
    fn decide(&mut self, decide: impl FnOnce(&mut Scheduler) -> Vec<Decision>) -> Vec<Decision> {
        let before = self.gang_states();
        let decisions = decide(&mut self.card.arbiter);
        self.tell_gang_changes(&before);
        decisions
    }

    /// Notes if a tenant and those it runs with wait, because idle tenants lose memory first.
    fn note_waiting(&mut self, id: TenantId) {
        let is_waiting = self.card.arbiter.state(id) != State::Idle;
        for id in self.card.arbiter.members(id) {
            if self.card.tenants.get(id).is_some_and(|tenant| tenant.scheduling.is_waiting != is_waiting)
                && let Some(tenant) = self.card.tenants.get_mut(id)
            {
                tenant.scheduling.is_waiting = is_waiting;
            }
        }
    }

    /// Tells the arbiter the current cost of a switch to a tenant that it knows.
    fn set_cost(&mut self, id: TenantId) {
        let missing = self.card.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().missing);
        let cost = self.card.costs.copy_time(missing);
        self.card.arbiter.set_cost(id, cost.as_micros() as u64);
    }

    /// The same of each tenant whose memory has changed, and if any switch is needed.
    fn set_costs(&mut self) {
        self.card.tenants.take_changed().into_iter().for_each(|id| self.set_cost(id));
        let together = self.fit_together();
        self.card.arbiter.set_together(together);
    }

    /// Handles events until there are none left.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some((id, event)) = self.card.untold.pop_front() {
                if event == Event::Left {
                    self.leave_gang(id);
                }
                self.tell_arbiter(id, event);
                if matches!(event, Event::Joined { .. }) {
                    self.set_cost(id);
                    self.join_its_gang(id);
                    self.unite_again(id);
                    self.unite_with_owners();
                }
            } else if let Some(event) = self.card.preemptions.next_event() {
                self.on_preempt_event(event);
            } else if let Some(event) = self.card.memory.next_event() {
                self.on_memory_event(event);
            } else {
                break;
            }
        }
    }

    fn on_memory_event(&mut self, event: MemoryEvent) {
        log::debug!("{event:?}");
        match event {
            MemoryEvent::AllHere(unit) | MemoryEvent::Ready(unit) if !self.is_admitted(unit) => {}
            MemoryEvent::AllHere(unit) => {
                // Those of a unit are let in one by one, as soon as each is on the GPU again.
                let is_unit = self.card.arbiter.is_of_a_unit(unit);
                // The taken memory is back where it was.
                for member in self.card.arbiter.members(unit) {
                    self.memory().untake(member);
                }
                if is_unit || self.preemptions().ensure_on_the_gpu(unit) {
                    self.all_may_write(unit);
                    self.memory().end_swap_in(unit);
                    self.tell_arbiter(unit, Event::Resident);
                }
            }
            MemoryEvent::Ready(id) => self.tell_arbiter(id, Event::Ready),
            MemoryEvent::CannotArrive(id) => self.tell_arbiter(id, Event::CannotArrive),
            MemoryEvent::Stranded(id) => self.tell_arbiter(id, Event::Stranded),
            MemoryEvent::Free => {
                self.card.arbiter.end_rests();
                self.tick();
            }
            MemoryEvent::CorunnersInTheWay => self.part(),
            MemoryEvent::SpareInTheWay(id) => self.compact(id),
            MemoryEvent::ComesAnew(id) => self.tell_arbiter(id, Event::Grown),
            // It may have been let in before.
            MemoryEvent::Whole(id) => {
                let is_paused = |tenant: &Tenant| tenant.preemption.is_paused();
                if self.card.arbiter.is_let_in_at_any_time(id) && self.card.tenants.get(id).is_some_and(is_paused) {
                    self.grant_late(id);
                }
            }
            MemoryEvent::NotCopied(id) => self.on_not_copied(id),
        }
    }

    fn on_preempt_event(&mut self, event: PreemptEvent) {
        log::debug!("{event:?}");
        match event {
            PreemptEvent::Off { tenant, drained } => {
                self.tell_arbiter(tenant, if drained { Event::Closed } else { Event::Preempted });
                self.meet(tenant);
                self.has_shown_life(tenant);
                self.check_answer(tenant);
            }
            PreemptEvent::Late(id) => self.answers_late(id),
            PreemptEvent::Works(id) => self.keep_tenant(id),
            PreemptEvent::Settled(id) if !self.is_unsettled(id) => {}
            PreemptEvent::Settled(id) => self.enter(id, true),
            PreemptEvent::CannotSettle { tenant, is_last } => {
                let runs = |tenant: &Tenant| tenant.unsettled.is_some_and(|unsettled| unsettled.runs);
                if self.card.tenants.get(tenant).is_some_and(runs) || self.memory().is_all_mapped(tenant) {
                    self.preemptions().give_up_unsettled(tenant);
                } else if is_last {
                    self.kill(tenant, baton_messages::NOT_TAKEN_OFF);
                }
            }
            PreemptEvent::Impossible { tenant, drained } => {
                match drained {
                    true if self.is_unsettled(tenant) => self.enter(tenant, false),
                    true => self.tell_arbiter(tenant, Event::Closed),
                    false => self.turns().drain(tenant),
                }
                self.serve_deferred(tenant);
            }
            PreemptEvent::Back(id) => {
                // No work of it is queued.
                self.preemptions().is_back_as(id, |_| true);
                if self.is_unsettled(id) {
                    return self.enter(id, false);
                }
                if self.card.arbiter.state(id) == State::Leaving {
                    // It is to leave before it was let in, and one of its calls waits.
                    self.tell_arbiter(id, Event::Preempted);
                }
                self.has_shown_life(id);
                // The tenant may get the GPU only after a request for it, and that request waits for this.
                self.serve_deferred(id);
            }
            PreemptEvent::BackAmongOthers(id) => {
                let is_let_in = self.card.arbiter.is_let_in_at_any_time(id);
                if self.preemptions().is_back_as(id, |state| is_let_in && state != State::Leaving) {
                    self.grant_late(id);
                }
            }
            // It runs already.
            PreemptEvent::Running(id) => {
                if self.preemptions().is_back_as(id, |state| state == State::Arriving) {
                    self.tell_arbiter(id, Event::Resident);
                }
            }
            PreemptEvent::Moved => self.look_at_activity(),
            PreemptEvent::LetGo(id) => self.card.memory.let_go(id),
            PreemptEvent::Lost { tenant, why } => self.kill(tenant, why),
        }
    }

    /// Reacts to tenants at work beside others: deschedules those that are to make way, and puts the others back. A descheduled
    /// tenant may go on launching.
    pub(super) fn look_at_activity(&mut self) {
        let now = self.now();
        let changes = self.card.corun.changes();
        let usual = |tenants: &Tenants, id: TenantId| tenants.get(id)?.scheduling.requests.get();
        for (id, busy) in &changes {
            self.card.arbiter.set_busy(now, *id, *busy);
            self.turns().count(*id, now);
            if !busy {
                self.turns().read_requests(*id);
            }
            self.card.turns.at_work(Class::Latency, usual(&self.card.tenants, *id), now);
        }
        self.turns().limit_holders(now);
        if self.card.corun.is_allowed() {
            self.preemptions().set_slices(&changes);
        }
        let usual = changes.iter().filter(|(_, busy)| *busy).filter_map(|(id, _)| usual(&self.card.tenants, *id)).max();
        let (together, overdue) = (self.card.arbiter.is_together(), self.card.arbiter.is_anybody_overdue());
        let verdict = self.card.corun.judge(now, together, overdue, usual);
        self.card.arbiter.set_pressure(now, verdict.pressure);
        let holders = self.card.arbiter.holders();
        holders.iter().for_each(|id| self.turns().count(*id, now));
        let off: Vec<TenantId> = holders.into_iter().filter(|id| verdict.off && self.makes_way(*id)).collect();
        let on = self.card.tenants.index().descheduled();
        on.into_iter().filter(|id| !off.contains(id)).for_each(|id| self.preemptions().reschedule(id));
        off.iter().for_each(|id| self.preemptions().deschedule(*id));
        // Work that they launch while descheduled runs later, and is there when they go on.
        let there = |id: &TenantId| self.card.tenants.get(*id).is_some_and(|tenant| tenant.preemption.is_descheduled());
        let all_descheduled = !off.is_empty() && off.iter().all(there);
        self.card.corun.let_pass(verdict.pressure == Pressure::Passing || all_descheduled);
    }

    /// True if a tenant co-runs with urgent ones, and has no other request pending.
    fn makes_way(&self, id: TenantId) -> bool {
        let Some(tenant) = self.card.tenants.get(id) else { return false };
        let drains = tenant.turn.is_ending() || self.pending.has_drain(id) || tenant.memory.is_compacting();
        let has_turn = self.card.arbiter.state(id) == State::Running && tenant.class() != Class::Latency;
        has_turn
            && !tenant.preemption.is_under_way()
            && !drains
            && !tenant.turn.is_overdue()
            && tenant.connection.is_open()
    }

    /// True if all tenants can co-run.
    pub(super) fn fit_together(&mut self) -> bool {
        // A tenant without memory has no work on the GPU either.
        self.card.corun.is_allowed_now()
            && self.memory().wanted_bytes() <= self.card.memory.arena().capacity()
            && self.card.tenants.index().can_all_corun()
    }

    /// Parts co-runners, because some tenant's memory has to leave after all.
    fn part(&mut self) {
        self.card.corun.part();
        self.steering.handle.wake();
    }
}

/// True if reports that the tenant has just sent on the other socket may change the answer: it may have mapped memory that it wants
/// immovable or exported, or given back memory that it wants again.
fn depends_on_reports(request: &Request) -> bool {
    use Request::{Allocate, Context, Export, MakeImmovable, Room, UnmanagedMemory};
    matches!(
        request,
        Allocate { .. } | Context { .. } | Export { .. } | MakeImmovable { .. } | Room { .. } | UnmanagedMemory { .. }
    )
}
