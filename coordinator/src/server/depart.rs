//! The end of a tenant, in any of its states.
//!
//! Two things end a tenant. Its **connection** ends: then it gets nothing any more, but its process may still
//! have memory mapped, so that stays where it is. Its **process** ends, which a pidfd shows even if a forked
//! child keeps the sockets open: then the driver has taken its mappings down, and all comes back.

use std::fmt::Display;
use std::time::Duration;

use baton_contract::messages::TurnCommand;
use baton_messages::Message;

use super::memory::Remains;
use super::preemption;
use super::recorder::event::What;
use super::state::Server;
use crate::keeper::Key;
use baton_policy::arbiter::{Event, TenantId};

/// If the next coordinator cannot copy a tenant's memory either in this time, the fault is with that memory.
const SECOND_CHANCE: Duration = Duration::from_secs(60);

impl Server {
    /// Ends a tenant's connection. Its process goes on without the coordinator.
    pub(super) fn cut_off(&mut self, id: TenantId, why: impl Display) {
        self.disconnect(id, why, true);
    }

    /// Notes that a tenant's connection has ended, presumably because its process has.
    pub(super) fn on_connection_ended(&mut self, id: TenantId) {
        self.disconnect(id, baton_messages::CONNECTION_ENDED, false);
    }

    fn disconnect(&mut self, id: TenantId, why: impl Display, lives: bool) {
        let (now, is_off) = (self.now(), self.card.arbiter.state(id).is_off_the_gpu());
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        if !tenant.connection.is_open() {
            return;
        }
        // A paused program may resume itself without the coordinator. And a program that lives and has all its memory opens its
        // gate as soon as it sees that it is alone.
        let goes_on = lives && tenant.extents().counts().missing == 0;
        let may_run = tenant.turn.is_overdue() || tenant.preemption.is_under_way() || !is_off || goes_on;
        tenant.connection.end(may_run);
        tenant.scheduling.counted = (self.card.arbiter.switches(id), self.card.arbiter.gpu_time(id, now));
        tenant.turn.expect_no_end();
        self.card.untold.push_back((id, Event::Left));
        // Its number may be another process's one day.
        self.steering.machine.note_gang_of(tenant.connection.process.pid(), None);
        self.steering.machine.pins_nothing((self.gpu, id));
        let shared_with = std::mem::take(&mut tenant.shares_with);
        baton_messages::info!(is_disconnected(&tenant.name, &tenant.connection.process, why));
        self.card.tenants.is_met_by_none_of(id, shared_with);
        self.card.tenants.listen_no_more(id);
        self.card.corun.cut_off(id);
        self.memory().drop_claims(id);
    }

    /// Ends a tenant's process, when it could only go on with wrong results.
    pub(super) fn kill(&mut self, id: TenantId, why: &str) {
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        baton_messages::warn!(is_killed(&tenant.name, &tenant.connection.process, why));
        if !tenant.connection.process.kill() {
            // It is of another PID namespace, and is asked to do it itself. Its frames stay aside until it has.
            let _ = tenant.connection.control.send(&TurnCommand::End { text: why.to_owned() }, &[]);
        }
    }

    /// A tenant's memory could not be copied. Nothing is lost: the copy's source is whole, and another coordinator, whose context is
    /// a new one, may succeed. If it does not either, the tenant must not go on.
    pub(super) fn on_not_copied(&mut self, id: TenantId) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        let is_second = tenant.not_copied.is_some_and(|first| now - first < SECOND_CHANCE.as_secs() as i64);
        if is_second || !self.front.keeper.is_any() {
            return self.kill(id, baton_messages::NOT_COPIED);
        }
        tenant.not_copied = Some(now);
        self.fails = Some(baton_messages::memory_was_not_copied(&tenant.name));
        self.keep_tenant(id);
    }

    /// The process has ended: everything it had comes back.
    pub(super) fn on_process_ended(&mut self, id: TenantId) {
        self.on_connection_ended(id);
        let Some((tenant, extents)) = self.card.tenants.remove(id) else { return };
        // Not before: the next coordinator must not give others its memory either while it lives.
        self.front.keeper.let_go(Key::Tenant(id.0));
        self.card.corun.leave(id);
        self.card.outsiders.on_left(tenant.connection.process.pid());
        let (switches, gpu_micros) = tenant.scheduling.counted;
        let gpu_time = Duration::from_micros(gpu_micros);
        self.card.recorder.add_gpu_time(id, gpu_time);
        self.card.recorder.complete(id);
        self.card.recorder.record(id, What::Departed { peak_bytes: tenant.memory.peak_bytes, switches, gpu_time });
        let held_by_us = preemption::is_held(&tenant.preemption).then_some(id);
        if let Some(target) = tenant.preemption.target() {
            self.card.preemptions.let_go(id, target.clone());
        }
        let at_work = tenant.connection.ended_at_work();
        let connection = tenant.connection.control;
        let remains = at_work.then_some(Remains { connection, held_by_us });
        self.memory().depart(id, extents, remains);
    }

    /// The tenants that cannot go on if the coordinator ends now, because some of their memory is on the host; and those that can.
    pub(super) fn if_ended_now(&self) -> (Vec<&str>, Vec<&str>) {
        let living = self.card.tenants.iter().map(|(_, tenant)| tenant).filter(|tenant| tenant.connection.is_open());
        let (stay, go): (Vec<_>, Vec<_>) = living.partition(|tenant| tenant.extents().counts().missing > 0);
        fn names(tenants: Vec<&super::Tenant>) -> Vec<&str> {
            tenants.into_iter().map(|tenant| tenant.name.as_str()).collect()
        }
        (names(stay), names(go))
    }

    /// The consequences for the tenants if the coordinator ends now; none if there are no tenants.
    pub fn left_behind(&self) -> Option<Message> {
        let (stay, go) = self.if_ended_now();
        match (go.is_empty(), stay.is_empty()) {
            (true, true) => None,
            (false, true) => Some(baton_messages::ended_without_harm(go.join(", "))),
            _ => {
                let rest = if go.is_empty() { String::new() } else { baton_messages::others_go_on(go.join(", ")) };
                Some(baton_messages::ended_with_memory(stay.join(", "), rest))
            }
        }
    }

    /// A process that replaced its program (`exec`) lost its connection and its mappings, but lives. Its new
    /// program no longer has our page mapped.
    pub(super) fn end_if_replaced(&mut self, id: TenantId) {
        let is_replaced = |tenant: &super::Tenant| !tenant.connection.is_open() && tenant.connection.theirs.is_let_go();
        if self.card.tenants.get(id).is_some_and(is_replaced) {
            self.on_process_ended(id);
        }
    }
}
