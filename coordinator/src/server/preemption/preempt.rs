//! Taking tenants off the GPU without waiting for their work to end, where the driver can do that.
//!
//! ```text
//!            Preemption to the tenant                 it is Held, or does not answer
//! (running) ──────────────────> Asked ─────────────────────────────────> Pausing ───────> Paused
//!     ^                           │ Closed: nothing was queued              ^    it is done  │ its turn, and all
//!     │                           v                                         │                │ its memory is back
//!     │                        (drained)                                    │ turn lost      v
//!     └────────────────────────── granted ──────────────────────────────────┴──────────── Resuming
//! ```
//!
//! What work in flight will touch cannot be known. So a tenant that was paused goes on only when all its memory is
//! back; one that was drained comes in piece by piece ([`crate::server::memory`]). Its memory is touched only when it is
//! paused **and** has closed its gate: before that, its calls could still be refused for what is missing. And only when
//! its pager has shown that it can change mappings now ([`super::probe`]).

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::messages::{Channels, PreemptionCommand, PreemptionReport};
use baton_contract::resource_manager::is_control_device;

use super::deschedule::FAILED;
use crate::device::preemptor::{PreemptCommand, PreemptError, PreemptTarget, Preempted};
use crate::policy::arbiter::{Event, State, TenantId};
use crate::server::Server;
use crate::server::tenants::preemption::{Preemption, Probe, Stage};
use crate::server::tenants::tenant::Tenant;
/// How often it is tried to take a tenant off the GPU that has lost its turn while it was rescheduled, or to reschedule one back.
pub(in crate::server) const MOST_FAILURES: u32 = 10;

impl Server {
    /// What a tenant reports about that.
    pub(in crate::server) fn hear_of_preemption(
        &mut self,
        id: TenantId,
        report: PreemptionReport,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), String> {
        match report {
            PreemptionReport::Channels { channels } => return self.channels_told(id, channels, descriptor),
            PreemptionReport::GateClosed { grant } => self.held(id, grant),
            PreemptionReport::Probed { number } => self.probed(id, number),
        }
        Ok(())
    }

    /// A tenant says how it can be paused. Whether that works here is found out by trying, once.
    fn channels_told(&mut self, id: TenantId, channels: Channels, control: Option<OwnedFd>) -> Result<(), String> {
        let target = match (channels, control) {
            (Channels::None, _) => None,
            (Channels::Simulated { process }, _) => Some(PreemptTarget::Simulated(process)),
            (Channels::ResourceManager(objects), Some(control)) if is_control_device(control.as_raw_fd()) => {
                Some(PreemptTarget::ResourceManager(objects, Arc::new(control)))
            }
            (Channels::ResourceManager(_), _) => {
                return Err("what it offered is not the driver's control device".to_owned());
            }
        };
        let Some(tenant) = self.tenants.get_mut(id).filter(|_| self.options.pause) else { return Ok(()) };
        let Some(target) = target else {
            // What is paused already can still be resumed.
            tenant.preemptible.works = false;
            return Ok(());
        };
        tenant.preemptible.told = Some(target.clone());
        // New contexts have a usual one.
        tenant.preemptible.slice.forget();
        match &mut tenant.hold {
            None if tenant.preemptible.works => {}
            None => {
                tenant.preemptible.trying = true;
                self.preemptor.submit(id, PreemptCommand::Try, target);
            }
            Some(Preemption { stage: Stage::Asked | Stage::Resuming | Stage::Answering, .. }) => {}
            Some(hold) if hold.stage == Stage::Pausing => hold.again = true,
            Some(_) => self.start_pausing(id),
        }
        Ok(())
    }

    /// Begins to take a tenant off the GPU; false if that cannot be done.
    pub(in crate::server) fn hold(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.preemptible.works && !tenant.unresponsive)
        else {
            return false;
        };
        if tenant.hold.is_some() {
            return true;
        }
        let (stage, since) = (Stage::Asked, Instant::now());
        let (probe, stuck) = (Probe::No, None);
        let (closed, drained, again, failures, again_at) = (false, false, false, 0, None);
        tenant.hold = Some(Preemption { stage, since, closed, drained, again, probe, stuck, failures, again_at });
        let grant = tenant.grant;
        self.tenants.tell(id, &PreemptionCommand::Begin { grant });
        true
    }

    /// The gate is closed; work may be queued.
    fn held(&mut self, id: TenantId, grant: u64) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.grant == grant) else { return };
        let Some(hold) = &mut tenant.hold else { return };
        hold.closed = true;
        if hold.stage == Stage::Asked {
            return self.start_pausing(id);
        }
        self.probe(id);
    }

    /// The gate is closed and nothing is queued. Says whether that ends the turn now, as without pausing.
    pub(in crate::server) fn closed_in_hold(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.tenants.get_mut(id) else { return false };
        let Some(hold) = &mut tenant.hold else { return true };
        if hold.stage == Stage::Asked {
            tenant.hold = None;
            return true;
        }
        (hold.closed, hold.drained) = (true, true);
        self.probe(id);
        false
    }

    /// One that does not close its gate is paused all the same.
    pub(in crate::server) fn pause_if_slow(&mut self, id: TenantId) {
        if self.tenants.get(id).and_then(Tenant::is_paused_at).is_some_and(|at| at <= Instant::now()) {
            self.start_pausing(id);
        }
    }

    /// Has a tenant that is held taken off the GPU, with all that is not yet.
    pub(in crate::server) fn start_pausing(&mut self, id: TenantId) {
        // Who is cut off goes on without us, as far as it can.
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.disconnected.is_none()) else { return };
        let (Some(hold), Some(told)) = (&mut tenant.hold, tenant.preemptible.told.clone()) else { return };
        (hold.stage, hold.again, hold.again_at) = (Stage::Pausing, false, None);
        if tenant.preemptible.paused.is_none() && hold.probe != Probe::Late {
            hold.probe = Probe::No;
        }
        if tenant.preemptible.descheduling.is_some() {
            // When that is over: what is only descheduled may still run.
            return self.reschedule(id);
        }
        let rest = told.beyond(tenant.preemptible.paused.as_ref());
        tenant.preemptible.asked = Some(told);
        match rest {
            Some(rest) => self.preemptor.submit(id, PreemptCommand::Preempt, rest),
            None => self.paused(id, Duration::ZERO, Ok(())),
        }
    }

    /// Has it go on.
    pub(in crate::server) fn start_resuming(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let (Some(hold), Some(told)) = (&mut tenant.hold, tenant.preemptible.told.clone()) else { return };
        (hold.stage, hold.again) = (Stage::Resuming, false);
        // From here on it may write, and what a look under way finds is no longer so.
        tenant.scan = None;
        if let Some(mut extents) = self.tenants.extents(id) {
            extents.may_change();
        }
        self.preemptor.submit(id, PreemptCommand::Resume, told);
    }

    /// All memory of a tenant is there whose turn it is. Says whether it can be let in, or has to be resumed first.
    pub(in crate::server) fn is_on_the_gpu_or_resumed(&mut self, id: TenantId) -> bool {
        match self.tenants.get(id).and_then(|tenant| tenant.hold) {
            None => true,
            Some(Preemption { stage: Stage::Paused, .. }) => {
                self.start_resuming(id);
                false
            }
            // It runs already.
            Some(Preemption { stage: Stage::Answering, .. }) => {
                self.tenants.get_mut(id).expect("it was just looked at").hold = None;
                true
            }
            Some(_) => false,
        }
    }

    /// The preemptor has done something, or could not.
    pub(in crate::server) fn preempted(&mut self, Preempted { tenant: id, command, time, result }: Preempted) {
        match command {
            PreemptCommand::Try => self.tried(id, result),
            PreemptCommand::Preempt => self.paused(id, time, result),
            PreemptCommand::Resume => self.resumed(id, result),
            PreemptCommand::Deschedule | PreemptCommand::Reschedule => {
                self.rescheduled(id, command == PreemptCommand::Deschedule, result)
            }
            PreemptCommand::Slice(slice) => self.sliced(id, slice, result),
            PreemptCommand::End => self.memory.let_go(id),
        }
    }

    fn tried(&mut self, id: TenantId, result: Result<(), PreemptError>) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.preemptible.trying = false;
        match result {
            Ok(()) => tenant.preemptible.works = true,
            Err(error) => log::warn!("{} cannot be preempted, so switches wait for its work: {error}", tenant.name),
        }
    }

    fn paused(&mut self, id: TenantId, time: Duration, result: Result<(), PreemptError>) {
        let state = self.arbiter.state(id);
        let Some((tenant, hold)) = self.tenants.get_mut(id).and_then(|tenant| tenant.hold.map(|hold| (tenant, hold)))
        else {
            return;
        };
        if result.is_ok() {
            tenant.preemptible.paused = tenant.preemptible.asked.take();
        }
        if tenant.disconnected.is_some() {
            // It may have gone on by itself before it was paused.
            let all_here = tenant.extents().counts().missing == 0;
            if let Some(paused) = tenant.preemptible.paused.take().filter(|_| all_here) {
                self.preemptor.submit(id, PreemptCommand::Resume, paused);
            }
            return;
        }
        match result {
            Ok(()) if hold.again => self.start_pausing(id),
            Ok(()) => {
                tenant.hold = Some(Preemption { stage: Stage::Paused, ..hold });
                self.ledger.paused(time);
                if state == State::Leaving {
                    self.ledger.drained(hold.since.elapsed());
                    tenant.ran = Instant::now();
                    if hold.drained {
                        // There was nothing to pause after all.
                        self.start_resuming(id);
                    }
                    self.probe(id);
                    self.tell_arbiter(id, if hold.drained { Event::Closed } else { Event::Preempted });
                } else if state == State::Corunning {
                    // It was let in again before it was off.
                    self.start_resuming(id);
                } else {
                    self.probe(id);
                }
            }
            Err(error) if state == State::Leaving => {
                log::warn!("{} could not be preempted, so its work is waited for: {error}", tenant.name);
                // Some of it may have been paused before.
                if let Some(paused) = tenant.preemptible.paused.take() {
                    self.preemptor.submit(id, PreemptCommand::Resume, paused);
                }
                (tenant.hold, tenant.preemptible.works) = (None, false);
                if hold.drained {
                    self.tell_arbiter(id, Event::Closed);
                } else {
                    self.drain(id);
                }
                self.serve_deferred(id);
            }
            // It runs though it is not its turn, and its memory is not touched as long as that lasts.
            Err(error) if hold.failures < MOST_FAILURES => {
                log::warn!("{} could not be preempted again: {error}", tenant.name);
                let again_at = Some(Instant::now() + FAILED);
                tenant.hold = Some(Preemption { failures: hold.failures + 1, again_at, ..hold });
            }
            Err(_) => self.kill(id, "its work cannot be taken off the GPU"),
        }
    }

    fn resumed(&mut self, id: TenantId, result: Result<(), PreemptError>) {
        let state = self.arbiter.state(id);
        let Some((tenant, hold)) = self.tenants.get_mut(id).and_then(|tenant| tenant.hold.map(|hold| (tenant, hold)))
        else {
            return;
        };
        tenant.preemptible.paused = None;
        match result {
            Ok(()) if tenant.disconnected.is_some() => {}
            Ok(()) if state == State::Corunning => {
                tenant.hold = None;
                self.grant(id);
            }
            Ok(()) if hold.drained => {
                tenant.hold = None;
                if state == State::Leaving {
                    // It is to leave before it was let in, and a call of it waits.
                    self.tell_arbiter(id, Event::Preempted);
                }
                // Nobody may give it the GPU before somebody asks for it, and that one waits for this.
                self.serve_deferred(id);
            }
            Ok(()) if state == State::Arriving && tenant.extents().counts().missing == 0 => {
                tenant.hold = None;
                // At once: it runs already, and nobody may come in between.
                self.tell_arbiter(id, Event::Resident);
            }
            Ok(()) if tenant.is_probing() && state != State::Leaving => {
                let stuck = hold.stuck.or_else(|| Some(Instant::now()));
                tenant.hold = Some(Preemption { stage: Stage::Answering, stuck, ..hold });
            }
            // It has lost its turn meanwhile.
            Ok(()) => self.start_pausing(id),
            Err(error) => {
                log::warn!("{} could not be resumed: {error}", tenant.name);
                self.kill(id, "its work cannot be put back on the GPU");
            }
        }
    }
}
