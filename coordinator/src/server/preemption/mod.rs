//! Taking tenants off the GPU without waiting for their work to end, where the driver can do that; and their time slices on it.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | pauses a tenant, and resumes it |
//! | `parts` | the preemptor, and its pending reports |
//! | `probe` | learns whether a paused tenant's memory can be unmapped |
//! | `deschedule` | makes way for tenants that run beside it |
//! | `timeslice` | sets each tenant's time slice |
//!
//! The states are in `tenants/preemption.rs`. The memory that work in flight will touch cannot be known. So a tenant that was paused
//! goes on only when all its memory is back; one that was drained comes in piece by piece ([`super::memory`]). Its memory is touched
//! only when it is paused **and** has closed its gate: before that, its calls could still be refused for missing memory. And only when
//! its control loop has shown that it can change mappings now.
//!
//! [`Preemptions`] is the state of this module alone; [`Access`] adds the parts of others that it needs. Events for others come back as
//! a [`PreemptEvent`].

mod deschedule;
mod parts;
mod probe;
mod timeslice;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use baton_contract::messages::{Channels, Elsewhere, PreemptionCommand, PreemptionReport};
use baton_contract::page::PAUSED;
use baton_contract::resource_manager::is_control_device;

use super::recorder::event::What;
use super::tenants::preemption::{Pause, Preemption, Stage, Told};
use super::tenants::tenant::Tenant;
use crate::device::preemptor::{PreemptCommand, PreemptError, PreemptTarget, Preempted};
use baton_policy::arbiter::{State, TenantId};

use self::parts::Next;
pub(super) use self::parts::{Access, PreemptEvent, Preemptions};

/// The breach of a tenant that offers something other than the driver's control device. The tenant loses its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", baton_messages::no_control_device())]
pub(super) struct NoControlDevice;

impl Access<'_> {
    /// Handles a tenant's reports about that.
    pub(super) fn heard(
        &mut self,
        id: TenantId,
        report: PreemptionReport,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), NoControlDevice> {
        match report {
            PreemptionReport::Channels { channels, begun, elsewhere } => {
                if let Some(tenant) = self.tenants.get_mut(id) {
                    tenant.preemption.begun = begun;
                }
                return self.on_channels(id, channels, &elsewhere, descriptor);
            }
            PreemptionReport::GateClosed { grant } => self.gate_closed(id, grant),
            PreemptionReport::Probed { number } => {
                let next = self.on_probed(id, number);
                self.go_on(id, next);
            }
        }
        Ok(())
    }

    /// Handles a tenant's report of the way to pause it. One attempt shows if that works here.
    fn on_channels(
        &mut self,
        id: TenantId,
        channels: Channels,
        elsewhere: &Elsewhere,
        control: Option<OwnedFd>,
    ) -> Result<(), NoControlDevice> {
        let target = match (channels, control) {
            (Channels::None, _) => None,
            (Channels::Simulated { process }, _) => {
                let pid = self.tenants.get(id).and_then(|tenant| tenant.connection.process.pid());
                Some(PreemptTarget::simulated(process, elsewhere, pid))
            }
            (Channels::ResourceManager(objects), Some(control)) if is_control_device(control.as_raw_fd()) => {
                Some(PreemptTarget::resource_manager(objects, elsewhere, control))
            }
            (Channels::ResourceManager(_), _) => {
                return Err(NoControlDevice);
            }
        };
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        match tenant.preemption.on_channels(target, self.preemptions.is_allowed) {
            Told::Nothing => {}
            Told::Try(target) => self.submit(id, PreemptCommand::Try, target),
            Told::PauseRest => self.start_pausing(id),
        }
        Ok(())
    }

    /// Begins to take a tenant off the GPU; false if that cannot be done.
    pub(super) fn begin(&mut self, id: TenantId) -> bool {
        let can_be = |tenant: &&mut Tenant| tenant.preemption.works() && !tenant.turn.is_overdue();
        let Some(tenant) = self.tenants.get_mut(id).filter(can_be) else { return false };
        if !tenant.preemption.is_under_way() {
            tenant.preemption.ask();
            let grant = tenant.turn.number();
            self.tenants.tell(id, &PreemptionCommand::Begin { grant });
        }
        true
    }

    /// The gate is closed; work may be queued.
    fn gate_closed(&mut self, id: TenantId, grant: u64) {
        let Some(tenant) = self.tenants.in_turn(id, grant) else { return };
        // The tenant pauses by itself the channels that it makes from now on.
        let _ = tenant.connection.page.taken.compare_exchange(PAUSED, 0, SeqCst, SeqCst);
        if tenant.preemption.gate_closed() {
            return self.start_pausing(id);
        }
        self.probe(id);
    }

    /// Notes that the gate is closed and no work is queued. Returns true if that ends the turn now, as without pausing.
    pub(super) fn on_drained(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get_mut(id) else { return false };
        let ends = tenant.preemption.on_drained();
        if !ends {
            self.probe(id);
        }
        ends
    }

    /// Handles a tenant whose time has come: a tenant that does not close its gate is paused all the same, and a tenant that does
    /// not answer its probe is let go on.
    pub(super) fn check(&mut self, id: TenantId) {
        if self.tenants.get(id).and_then(Tenant::is_paused_at).is_some_and(|at| at <= Instant::now()) {
            self.start_pausing(id);
        }
        let next = self.check_probe(id);
        self.go_on(id, next);
    }

    fn go_on(&mut self, id: TenantId, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Pause => self.start_pausing(id),
            Next::Resume => self.start_resuming(id),
        }
    }

    /// Has a tenant that is on its way taken off the GPU, with all that is not yet.
    fn start_pausing(&mut self, id: TenantId) {
        // A disconnected tenant goes on without the coordinator, as far as it can.
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.connection.is_open()) else { return };
        if tenant.preemption.is_gate_open() {
            tenant.connection.page.taken.fetch_max(PAUSED, SeqCst);
        }
        match tenant.preemption.pause() {
            Pause::Nothing => {}
            Pause::RescheduleFirst => self.reschedule(id),
            Pause::This(target) => self.submit(id, PreemptCommand::Preempt, target),
            Pause::IsPaused => self.on_paused(id, Duration::ZERO, Ok(())),
        }
    }

    /// Has it go on.
    fn start_resuming(&mut self, id: TenantId) {
        // Not while others have memory that it has mapped.
        let can_be = |tenant: &&mut Tenant| tenant.extents().counts().left_behind == 0;
        let Some(tenant) = self.tenants.get_mut(id).filter(can_be) else { return };
        let Some(target) = tenant.preemption.resume() else { return };
        let command = resume_of(tenant);
        let _ = tenant.connection.page.taken.compare_exchange(PAUSED, 0, SeqCst, SeqCst);
        // From here on it may write, and the findings of a scan under way no longer hold.
        tenant.memory.scan = None;
        if let Some(mut extents) = self.tenants.extents(id) {
            extents.may_change();
        }
        self.submit(id, command, target);
    }

    /// Takes a tenant over from another coordinator: its gate is closed, and its work may be paused, or run.
    pub(super) fn take_over(&mut self, id: TenantId) {
        match self.tenants.get(id).is_some_and(|tenant| tenant.preemption.target().is_some()) {
            true => self.start_pausing(id),
            false => self.raise(PreemptEvent::CannotSettle { tenant: id, is_last: true }),
        }
    }

    /// The work of a tenant that the arbiter does not know yet has to end, because it cannot be paused. All its memory is there.
    pub(super) fn give_up_unsettled(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let drained = tenant.preemption.progress().is_some_and(|progress| progress.is_drained());
        give_up(tenant);
        // It may have been paused before.
        self.put_back(id);
        self.raise(PreemptEvent::Impossible { tenant: id, drained });
    }

    /// Puts a tenant back on the GPU that another coordinator may have descheduled, or paused with its gate open.
    pub(super) fn put_back(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        if let Some(target) = tenant.preemption.target().cloned() {
            let before = tenant.preemption.coordinators_before;
            self.submit(id, PreemptCommand::PutBack(before), target);
        }
    }

    /// Checks a tenant in its turn, all of whose memory is there. Returns true if it can be let in, and false if it has to be
    /// resumed first.
    pub(super) fn ensure_on_the_gpu(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get_mut(id) else { return true };
        match tenant.preemption.progress().map(|progress| progress.stage()) {
            None => true,
            Some(Stage::Paused) => {
                self.start_resuming(id);
                false
            }
            // It runs already.
            Some(Stage::Answering) => {
                tenant.preemption.end();
                true
            }
            Some(_) => false,
        }
    }

    /// Ends the preemption of a tenant that is on the GPU again, if it is still to be in one of these states. Otherwise it has lost its turn
    /// since it was resumed, and is paused again: it has never opened its gate.
    pub(super) fn is_back_as(&mut self, id: TenantId, is_it: impl FnOnce(State) -> bool) -> bool {
        let state = self.arbiter.state(id);
        let is_resumed = |tenant: &&mut Tenant| {
            tenant.preemption.progress().is_some_and(|progress| progress.stage() == Stage::Resuming)
        };
        let Some(tenant) = self.tenants.get_mut(id).filter(is_resumed) else { return false };
        let is_back = is_it(state);
        if is_back {
            tenant.preemption.end();
        } else {
            self.start_pausing(id);
        }
        is_back
    }

    /// The preemptor has done something, or could not.
    pub(super) fn on_carried_out(&mut self, Preempted { tenant: id, command, time, result }: Preempted) {
        match command {
            PreemptCommand::Try => self.on_tried(id, result),
            PreemptCommand::Preempt => self.on_paused(id, time, result),
            PreemptCommand::Resume | PreemptCommand::ResumeOfAll(_) => self.on_resumed(id, result),
            // The preemptor begins the commands after this one when this one is done.
            PreemptCommand::PutBack(_) => self.on_put_back(id, result),
            PreemptCommand::Deschedule | PreemptCommand::Reschedule => {
                let next = self.on_moved(id, command == PreemptCommand::Deschedule, result);
                self.go_on(id, next);
            }
            PreemptCommand::Slice(slice) => self.on_sliced(id, slice, result),
            PreemptCommand::End => self.raise(PreemptEvent::LetGo(id)),
        }
    }

    fn on_tried(&mut self, id: TenantId, result: Result<(), PreemptError>) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.preemption.on_tried(result.is_ok());
        match result {
            Ok(()) => self.raise(PreemptEvent::Works(id)),
            Err(error) => baton_messages::warn!(cannot_be_preempted(&tenant.name, error)),
        }
    }

    fn on_paused(&mut self, id: TenantId, time: Duration, result: Result<(), PreemptError>) {
        let state = self.arbiter.state(id);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let Some(progress) = tenant.preemption.progress() else { return };
        if result.is_ok() {
            tenant.preemption.on_paused();
        }
        if !tenant.connection.is_open() {
            // It may have gone on by itself before it was paused.
            let all_here = tenant.extents().counts().missing == 0;
            let paused = tenant.preemption.take_paused().filter(|_| all_here);
            return self.resume_rest(id, paused);
        }
        let (drained, unsettled) = (progress.is_drained(), tenant.unsettled.is_some());
        match result {
            Ok(()) if progress.stage() == (Stage::Pausing { again: true }) => self.start_pausing(id),
            Ok(()) => {
                tenant.preemption.rest();
                if state == State::Leaving {
                    tenant.turn.mark_ran();
                }
                self.recorder.record(id, What::Preempted { took: time });
                match self.arbiter.is_to_leave(id) {
                    true => {
                        self.recorder.record(id, What::Drained { took: progress.since().elapsed() });
                        if drained {
                            // There was nothing to pause after all.
                            self.start_resuming(id);
                        }
                        self.probe(id);
                        self.raise(PreemptEvent::Off { tenant: id, drained });
                    }
                    // It was let in again before it was off.
                    false if self.arbiter.is_let_in_at_any_time(id) => self.start_resuming(id),
                    // It went on for its probe alone, and in vain.
                    false if progress.is_late() => self.raise(PreemptEvent::Late(id)),
                    // The arbiter is to know it as one that is idle.
                    false if unsettled && drained => self.start_resuming(id),
                    false => {
                        self.probe(id);
                        if unsettled {
                            self.raise(PreemptEvent::Settled(id));
                        }
                    }
                }
            }
            Err(error) if self.arbiter.is_to_leave(id) => {
                baton_messages::warn!(could_not_be_preempted(&tenant.name, error));
                // Some of it may have been paused before.
                let paused = tenant.preemption.take_paused();
                give_up(tenant);
                self.resume_rest(id, paused);
                self.raise(PreemptEvent::Impossible { tenant: id, drained });
            }
            // It runs though it is not its turn, and its memory is not touched as long as that lasts.
            Err(error) => {
                baton_messages::warn!(could_not_be_preempted_again(&tenant.name, error));
                let is_tried_again = tenant.preemption.fail();
                if unsettled && !(is_tried_again && tenant.preemption.works()) {
                    self.raise(PreemptEvent::CannotSettle { tenant: id, is_last: !is_tried_again });
                } else if !is_tried_again {
                    self.raise(PreemptEvent::Lost { tenant: id, why: baton_messages::NOT_TAKEN_OFF });
                }
            }
        }
    }

    /// Resumes the paused target in any state of the tenant.
    fn resume_rest(&self, id: TenantId, paused: Option<PreemptTarget>) {
        if let Some(paused) = paused {
            self.submit(id, PreemptCommand::Resume, paused);
        }
    }

    fn on_put_back(&mut self, id: TenantId, result: Result<(), PreemptError>) {
        let may_be_paused = |tenant: &&Tenant| tenant.preemption.may_be_paused;
        let Some(tenant) = self.tenants.get(id).filter(may_be_paused) else { return };
        if let Err(error) = result {
            baton_messages::warn!(could_not_be_resumed(&tenant.name, error));
            self.raise(PreemptEvent::Lost { tenant: id, why: baton_messages::NOT_PUT_BACK });
        }
    }

    fn on_resumed(&mut self, id: TenantId, result: Result<(), PreemptError>) {
        let state = self.arbiter.state(id);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let Some(progress) = tenant.preemption.progress() else { return };
        tenant.preemption.on_resumed();
        if result.is_ok() {
            self.recorder.record(id, What::Resumed);
        }
        match result {
            Ok(()) if !tenant.connection.is_open() => {}
            Ok(()) if self.arbiter.is_let_in_at_any_time(id) && state != State::Leaving => {
                self.raise(PreemptEvent::BackAmongOthers(id));
            }
            Ok(()) if progress.is_drained() => self.raise(PreemptEvent::Back(id)),
            Ok(())
                if state == State::Arriving
                    && !self.arbiter.is_of_a_unit(id)
                    && tenant.extents().counts().missing == 0 =>
            {
                self.raise(PreemptEvent::Running(id));
            }
            Ok(()) if tenant.is_probing() && state != State::Leaving => tenant.preemption.let_answer(),
            // It has lost its turn meanwhile.
            Ok(()) => self.start_pausing(id),
            Err(error) => {
                baton_messages::warn!(could_not_be_resumed(&tenant.name, error));
                self.raise(PreemptEvent::Lost { tenant: id, why: baton_messages::NOT_PUT_BACK });
            }
        }
    }
}

/// A tenant cannot be paused, and is on the GPU.
fn give_up(tenant: &mut Tenant) {
    tenant.preemption.give_up();
    // Nor are channels that it makes from now on.
    let _ = tenant.connection.page.taken.compare_exchange(PAUSED, 0, SeqCst, SeqCst);
}

/// The command that resumes a tenant.
fn resume_of(tenant: &Tenant) -> PreemptCommand {
    match tenant.preemption.coordinators_before {
        0 => PreemptCommand::Resume,
        before => PreemptCommand::ResumeOfAll(before),
    }
}

/// True if the coordinator holds the control device of a tenant that has ended, and with it everything that the tenant had on the
/// GPU.
pub(super) fn is_held(preemption: &Preemption) -> bool {
    matches!(preemption.target(), Some(PreemptTarget::ResourceManager { .. }))
}
