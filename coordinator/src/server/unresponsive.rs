//! Tenants that do not answer: others do not wait for them.
//!
//! A tenant that was stopped, or ignores all commands, is **left out** like a suspended one: its work is paused, if it has the GPU, and
//! others get their turns. If it is off the GPU, and has not closed its gate or not unmapped the memory that it was told to, its memory
//! is **taken** without asking when others need it ([`super::memory`]). That is so at once if the system says that its process is
//! stopped, and else after a while. It is let in again when it answers; or in place, if it shows that it lives and cannot answer,
//! because one of its calls waits for the work that is paused.

use std::time::{Duration, Instant};

use super::memory::Obstacle;
use super::state::Server;
use super::tenants::memory::Notice;
use super::tenants::tenant::Tenant;
use baton_policy::arbiter::{Event, State, TenantId};

/// Interval between checks that a tenant waits for one that could be killed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Interval between checks of the tenants that have the GPU while others wait.
const LOOK: Duration = Duration::from_millis(50);
/// For how long such a one may show no sign of life.
const SILENCE: Duration = Duration::from_millis(400);

impl Server {
    /// The time of the next check of the tenants that have the GPU.
    pub(super) fn next_look_at_holders(&self) -> Option<Instant> {
        self.card.arbiter.contended().map(|_| self.clock.looked_at_holders + LOOK)
    }

    /// Ensures that no unresponsive tenant has the GPU while others wait.
    pub(super) fn check_holders(&mut self) {
        if self.next_look_at_holders().is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.clock.looked_at_holders = Instant::now();
        let patience = Duration::from_micros(self.card.arbiter.contended().unwrap_or(0));
        for id in self.card.arbiter.holders_at_work() {
            let is_running = self.card.arbiter.state(id) == State::Running;
            // A tenant that cannot be paused can only be waited for.
            let can_be = |tenant: &&mut Tenant| is_running && tenant.preemption.works();
            let Some(tenant) = self.card.tenants.unindexed(id).filter(can_be) else { continue };
            if tenant.connection.is_unresponsive(patience + SILENCE) {
                self.leave_out(id);
            }
        }
    }

    /// A tenant is not waited for.
    fn leave_out(&mut self, id: TenantId) {
        let Some(tenant) = self.card.tenants.get_mut(id).filter(|tenant| tenant.scheduling.left_out.is_none()) else {
            return;
        };
        baton_messages::warn!(others_go_on_with_its_memory(&tenant.name));
        tenant.scheduling.left_out = Some(Instant::now());
        tenant.scheduling.was_stopped = tenant.connection.process.is_stopped() == Some(true);
        if self.card.arbiter.state(id) == State::Arriving {
            self.memory().end_swap_in(id);
        }
        self.will_tell(id, Event::KeepOff(true));
    }

    /// A tenant's time has come, if it has not answered.
    pub(super) fn check_answer(&mut self, id: TenantId) {
        let is_off = self.card.arbiter.state(id).is_off_the_gpu();
        let Some(tenant) = self.card.tenants.get(id) else { return };
        if is_off && tenant.is_to_be_taken() {
            let is_in_driver = tenant.is_in_driver();
            if is_in_driver {
                baton_messages::warn!(cannot_unmap_yet(&tenant.name));
            }
            self.note_fact(id, |tenant| &mut tenant.was_taken);
            self.memory().take(id);
            if !self.returns_in_place(id) {
                self.leave_out(id);
            }
        } else if tenant.memory.is_taken() && !tenant.memory.returns_in_place() {
            self.returns_in_place(id);
        }
    }

    /// A tenant that was to answer has not done so. If its memory cannot be taken either, it answers only when its work goes on.
    pub(super) fn answers_late(&mut self, id: TenantId) {
        self.check_answer(id);
        if self.card.tenants.get(id).is_some_and(|tenant| !tenant.memory.is_taken() && tenant.is_in_driver()) {
            self.let_in(id);
        }
    }

    /// A tenant whose memory was taken has its turns in place, if it lives and cannot answer: it answers when its work has gone on.
    /// This does not hold if it was told to unmap memory: then it could answer, and may do so at any time.
    fn returns_in_place(&mut self, id: TenantId) -> bool {
        let Some(tenant) = self.card.tenants.get_mut(id) else { return false };
        tenant.memory.look_for_life();
        let lives = tenant.lives_on() || tenant.is_in_driver();
        if !lives || !tenant.memory.to_be_unmapped().is_empty() {
            return false;
        }
        let returns = tenant.may_return_in_place() && tenant.memory.return_in_place();
        log::debug!("{id:?} lives and cannot answer: it returns in place now: {returns}");
        if returns {
            // It may have been given up in its last turn.
            self.let_in(id);
        }
        returns
    }

    /// Kills a tenant that has been unresponsive for too long, if others wait and the user wants it killed.
    pub(super) fn kill_if_stuck(&mut self, id: TenantId) {
        let now = Instant::now();
        let Some(waited) = self.waited_in_vain(id, now) else { return };
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        // Nothing else can be done; nor will that change.
        tenant.scheduling.stuck.killed_after = None;
        let (name, process, guest) = (&tenant.name, &tenant.connection.process, tenant.connection.control.guest());
        if process.kill() {
            baton_messages::warn!(stuck_is_killed(name, process));
        } else {
            baton_messages::warn!(stuck_may_not_be_killed(name, process));
            if self.turns().give_up(id) {
                self.will_tell(id, Event::Closed);
            }
        }
        if let Some(user) = guest {
            self.front.lobby.keep_out(user, waited);
        }
    }

    /// The time that others have waited for a tenant whose time is over.
    fn waited_in_vain(&mut self, id: TenantId, now: Instant) -> Option<Duration> {
        let tenant = self.card.tenants.get(id)?;
        let is_due = tenant.killed_at().is_some_and(|at| at <= now);
        let may_be = is_due || tenant.next_look_for_life().is_some();
        let is_waited_for = may_be && self.is_waited_for(id);
        let keeps_turn = may_be && self.keeps_the_turn_from_others(id);
        let tenant = self.card.tenants.get_mut(id)?;
        let mute = tenant.mute_for(is_waited_for || keeps_turn);
        if mute.is_some() || !is_due {
            return mute;
        }
        // A moment ago no tenant waited, or it was still to have its time.
        let before = tenant.scheduling.stuck.next_look.replace(now + LOOK_AGAIN);
        let longest = if before.is_some() { Some(LOOK_AGAIN) } else { tenant.scheduling.stuck.killed_after };
        longest.filter(|_| is_waited_for)
    }

    /// True if it is this tenant's turn, or its turn is to end, and another user's program waits for the next one.
    fn keeps_the_turn_from_others(&self, id: TenantId) -> bool {
        let guest = |id: TenantId| self.card.tenants.get(id).and_then(|tenant| tenant.connection.control.guest());
        let has_it = self.card.arbiter.is_to_leave(id) || self.card.arbiter.state(id) == State::Arriving;
        let waits = |other: TenantId| self.card.arbiter.state(other) == State::Waiting && guest(other) != guest(id);
        has_it && self.card.tenants.iter().any(|(other, _)| waits(other))
    }

    /// True if a tenant waits for memory that this one has and does not give up. Waiting programs try again and again, so their
    /// requests at this moment tell nothing. Memory that can be taken from this one goes to them before that.
    fn is_waited_for(&self, id: TenantId) -> bool {
        self.card.tenants.iter().any(|(other, tenant)| {
            let has_failed = || self.card.arbiter.prospect(other, self.now()).is_some_and(|prospect| prospect.failed);
            let waits = self.card.memory.is_asked_by(other) || tenant.memory.is_told(Notice::PutOff) || has_failed();
            let is_in_the_way = || match self.card.memory.obstacle(other, &self.card.tenants) {
                Some(Obstacle::Held(whom, _) | Obstacle::Arena(whom, _)) => whom.contains(&id),
                _ => false,
            };
            other != id && waits && is_in_the_way()
        })
    }

    /// Something came from a tenant.
    pub(super) fn shows_life(&mut self, id: TenantId) {
        let Some(tenant) = self.card.tenants.get(id).filter(|tenant| tenant.is_left_out()) else { return };
        if !self.card.arbiter.state(id).is_off_the_gpu() {
            return;
        }
        if !tenant.preemption.is_under_way() || tenant.preemption.has_passed() {
            baton_messages::info!(answers_again(&tenant.name));
            if let Some(tenant) = self.card.tenants.get_mut(id).filter(|tenant| !tenant.scheduling.was_stopped) {
                tenant.connection.be_more_patient();
            }
            self.memory().untake(id);
            self.let_in(id);
        }
    }

    /// Checks a tenant that is off the GPU for an answer. It may have sent its last message before: it gets no more commands that
    /// it would answer.
    pub(super) fn has_shown_life(&mut self, id: TenantId) {
        let has_answered = |tenant: &Tenant| {
            let since = tenant.scheduling.left_out.filter(|_| !tenant.memory.is_taken());
            since.is_some_and(|since| tenant.connection.was_heard_after(since))
        };
        if self.card.tenants.get(id).is_some_and(has_answered) {
            self.shows_life(id);
        }
    }

    /// Ends the leaving out of a tenant, unless a user keeps it off the GPU.
    pub(super) fn let_in(&mut self, id: TenantId) {
        if let Some(tenant) = self.card.tenants.get_mut(id)
            && tenant.scheduling.left_out.take().is_some()
        {
            self.resume(id);
        }
    }

    /// Lets a tenant use the GPU again, unless another reason keeps it off.
    pub(super) fn resume(&mut self, id: TenantId) {
        let is_out = |tenant: &Tenant| tenant.scheduling.suspended.is_some() || tenant.scheduling.left_out.is_some();
        if !self.card.tenants.get(id).is_some_and(is_out) {
            self.will_tell(id, Event::KeepOff(false));
        }
    }
}
