//! The obstacles that tenants wait for, as data: each module is asked for its own, and the first that applies is reported.

use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_report::waits::{Bound, Reason, WaitsFor};

use crate::server::memory::Obstacle;
use crate::server::state::Server;
use crate::server::tenants::memory::Notice;
use crate::server::tenants::tenant::Tenant;
use baton_policy::arbiter::{self, Prospect, State, TenantId};

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn is_suspended_itself(tenant: &Tenant) -> bool {
    tenant.scheduling.suspended.is_some()
}

fn micros_as_ms(micros: u64) -> f64 {
    micros as f64 / 1e3
}

impl Server {
    /// The reason why a tenant does not go on, or that it does.
    pub(super) fn waits_for(&self, id: TenantId, tenant: &Tenant) -> WaitsFor {
        let since = |since: Option<Instant>| since.map(|since| ms(since.elapsed()));
        let plain = |reason, since_ms| WaitsFor { reason, since_ms, ..WaitsFor::default() };
        if let Some(ended) = tenant.connection.ended_since() {
            return plain(Reason::Disconnected, since(Some(ended)));
        }
        if !tenant.is_movable() {
            return plain(Reason::Unresponsive, since(tenant.turn.overdue_since()));
        }
        if let Some(left_out) = tenant.scheduling.left_out {
            return plain(Reason::Unresponsive, since(Some(left_out)));
        }
        let state = self.card.arbiter.state(id);
        if self.is_suspended(id) {
            return self.suspended(id, tenant);
        }
        if self.is_kept_off(id) {
            let whom = self.members_that(id, Tenant::is_left_out);
            return WaitsFor { whom: self.names(whom), ..plain(Reason::Held, None) };
        }
        let prospect = self.card.arbiter.prospect(id, self.now());
        let waited = prospect.map(|prospect| micros_as_ms(prospect.waited));
        let is_put_off = tenant.memory.is_told(Notice::PutOff);
        let has_turn = matches!(state, State::Running | State::Corunning | State::Leaving);
        if !has_turn && let Some(gpus) = self.gang_waits_for(id) {
            return WaitsFor { gpus, ..plain(Reason::Gang, waited) };
        }
        match state {
            State::Running | State::Corunning | State::Leaving => {
                if tenant.preemption.is_descheduled() {
                    let whom = self.names(self.card.corun.who_is_at_work().filter(|other| *other != id));
                    return WaitsFor { whom, ..plain(Reason::Urgent, None) };
                }
                if self.card.memory.is_asked_by(id) || is_put_off || tenant.extents().counts().missing > 0 {
                    return self.memory_for(id, None).unwrap_or(plain(Reason::Running, None));
                }
                let runs = match state {
                    State::Corunning => self.card.corun.is_at_work(id),
                    _ => !self.card.arbiter.is_resting(id),
                };
                let since_ms = self.card.arbiter.unchanged_for(id, self.now()).map(micros_as_ms);
                plain(if runs { Reason::Running } else { Reason::Idle }, since_ms)
            }
            State::Arriving => self.memory_for(id, waited).unwrap_or(plain(Reason::OwnMemory, waited)),
            State::Waiting => self.turn_for(id, tenant, prospect),
            // It asks again and again, or waits for room for its context.
            State::Idle if is_put_off || self.card.memory.is_asked_by(id) => {
                self.memory_for(id, None).unwrap_or_default()
            }
            State::Idle => plain(Reason::Idle, self.card.arbiter.unchanged_for(id, self.now()).map(micros_as_ms)),
        }
    }

    /// True if a user keeps a tenant off the GPU, or another one that it shares memory with.
    pub(super) fn is_suspended(&self, id: TenantId) -> bool {
        self.is_kept_off(id) && self.members_that(id, is_suspended_itself).next().is_some()
    }

    /// True if a tenant is off the GPU, and kept off, alone or with those that it shares memory with.
    fn is_kept_off(&self, id: TenantId) -> bool {
        self.card.arbiter.is_kept_off(id) && self.card.arbiter.state(id).is_off_the_gpu()
    }

    /// Those of a tenant's unit of which something is true.
    fn members_that(&self, id: TenantId, is_one: impl Fn(&Tenant) -> bool) -> impl Iterator<Item = TenantId> {
        let members = self.card.arbiter.members(id).into_iter();
        members.filter(move |member| self.card.tenants.get(*member).is_some_and(&is_one))
    }

    fn suspended(&self, id: TenantId, tenant: &Tenant) -> WaitsFor {
        let own = tenant.scheduling.suspended;
        let suspended = self.members_that(id, is_suspended_itself);
        let whom: Vec<TenantId> = suspended.filter(|other| *other != id).collect();
        let since =
            own.or_else(|| whom.iter().filter_map(|other| self.card.tenants.get(*other)?.scheduling.suspended).min());
        let reason = if own.is_some() { Reason::Suspended } else { Reason::UnitSuspended };
        let whom = if own.is_some() { Vec::new() } else { self.names(whom.into_iter()) };
        WaitsFor { reason, since_ms: since.map(|since| ms(since.elapsed())), whom, ..WaitsFor::default() }
    }

    /// The obstacle to the memory that a tenant waits for.
    fn memory_for(&self, id: TenantId, since_ms: Option<f64>) -> Option<WaitsFor> {
        let bytes_per_second = self.card.costs.speed();
        let (reason, whom, bytes) = match self.card.memory.obstacle(id, &self.card.tenants)? {
            Obstacle::Comes(bytes) => (Reason::OwnMemory, Vec::new(), bytes),
            Obstacle::Leaves(whom, bytes) => (Reason::OthersMemory, whom, bytes),
            Obstacle::Held(whom, bytes) => (Reason::Held, whom, bytes),
            Obstacle::HostPool(bytes) => (Reason::HostPool, Vec::new(), bytes),
            Obstacle::Arena(whom, bytes) => (Reason::Arena, whom, bytes),
            Obstacle::Descriptors(bytes) => (Reason::Descriptors, Vec::new(), bytes),
        };
        let whom = self.names(whom.into_iter());
        Some(WaitsFor { reason, since_ms, whom, bytes, bytes_per_second, ..WaitsFor::default() })
    }

    /// It is not its turn.
    fn turn_for(&self, id: TenantId, tenant: &Tenant, prospect: Option<Prospect>) -> WaitsFor {
        let since_ms = prospect.map(|prospect| micros_as_ms(prospect.waited));
        let has_failed = prospect.is_some_and(|prospect| prospect.failed) || tenant.memory.is_told(Notice::PutOff);
        // A tenant that could not arrive has to wait for the obstacle.
        let obstacle = has_failed.then(|| self.memory_for(id, since_ms)).flatten();
        if let Some(waits) = obstacle.filter(|waits| waits.reason != Reason::OwnMemory) {
            return waits;
        }
        let holder = self.card.arbiter.holder().filter(|holder| !self.card.arbiter.are_united(*holder, id));
        let ahead = prospect.and_then(|prospect| prospect.ahead).filter(|ahead| Some(*ahead) != holder);
        let arriving =
            self.card.memory.swapping_in().filter(|unit| holder.is_none() && !self.card.arbiter.are_united(*unit, id));
        let behind = holder.or(arriving).into_iter().chain(ahead.filter(|ahead| Some(*ahead) != arriving));
        let latest = prospect.and_then(|prospect| prospect.latest);
        let waits = WaitsFor {
            reason: Reason::Turn,
            since_ms,
            whom: self.names(behind),
            within_ms: latest.map(|(micros, _)| micros_as_ms(micros)),
            bound: latest.map(|(_, bound)| match bound {
                arbiter::Bound::Quantum => Bound::Quantum,
                arbiter::Bound::MaxWait => Bound::MaxWait,
            }),
            ..WaitsFor::default()
        };
        if let Some(holder) = holder
            && self.card.arbiter.state(holder) == State::Leaving
            && self.card.tenants.get(holder).is_some_and(|holder| !holder.preemption.works())
        {
            return WaitsFor {
                reason: Reason::Drain,
                whom: self.names([holder].into_iter()),
                within_ms: None,
                bound: None,
                ..waits
            };
        }
        let over = self.card.tenants.totals().bytes.saturating_sub(self.card.memory.arena().capacity());
        if tenant.class() == Class::Latency && self.card.corun.is_allowed() && over > 0 {
            return WaitsFor { reason: Reason::TooLargeTogether, bytes: over, ..waits };
        }
        waits
    }

    pub(super) fn names(&self, ids: impl Iterator<Item = TenantId>) -> Vec<String> {
        ids.filter_map(|id| Some(self.card.tenants.get(id)?.name.clone())).collect()
    }
}
