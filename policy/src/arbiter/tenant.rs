//! One tenant, as the arbiter knows it.

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use super::Micros;
use super::rules::pause;
use super::virtual_time::Virtual;

/// A tenant that was inactive for no longer was away for a moment only.
const SHORT_ABSENCE: Micros = 1_000_000;
/// A target counts as met within this part of it, one in so many: what is known of costs and service is no more exact.
const TOLERANCE: Micros = 10;

/// Since when a call waits. Ordered as they began, also within a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wait {
    pub(super) since: Micros,
    /// Counts them.
    pub(super) number: u64,
}

/// When a request has to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// To be answered in time: what bringing the tenant in takes, and what its turns usually take, before.
    pub(super) latest_start: Micros,
    /// Then it can no longer be met.
    pub(super) given_up_at: Micros,
}

/// What a tenant has of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing: its gate is closed.
    Parked,
    /// The turn.
    Turn,
    /// It runs beside the one that has the turn.
    Corunner,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) scheduling: Scheduling,
    pub(super) role: Role,
    /// The user keeps it off the GPU.
    pub(super) suspended: bool,
    /// It never runs beside others.
    pub(super) apart: bool,
    /// How long it usually has the baton until it is idle.
    pub(super) service: Micros,
    /// Since when a call of it waits.
    pub(super) waiting: Option<Wait>,
    /// How far it is: what tenants of a class are compared by.
    pub(super) virtual_time: Virtual,
    /// How far behind its class it was when it was last active.
    pub(super) owed: Virtual,
    /// How long it has had the baton.
    pub(super) used: Micros,
    /// When it last had the GPU; none if it never had.
    pub(super) idle_since: Option<Micros>,
    pub(super) cost: Micros,
    pub(super) switches: u64,
    /// The patience that it was told last; none if it was told that nobody waits.
    pub(super) told: Option<Micros>,
    /// How often it could not arrive since it last did, and when it may be tried again.
    pub(super) failures: u32,
    retry_at: Micros,
    /// How many tenants had left by then: if more have, it may be tried at once.
    departures: u64,
}

impl Tenant {
    pub(super) fn new(scheduling: Scheduling) -> Self {
        Self {
            scheduling,
            role: Role::Parked,
            suspended: false,
            apart: false,
            service: 0,
            waiting: None,
            virtual_time: 0,
            owed: 0,
            used: 0,
            idle_since: None,
            cost: 0,
            switches: 0,
            told: None,
            failures: 0,
            retry_at: 0,
            departures: 0,
        }
    }

    pub(super) fn class(&self) -> Class {
        self.scheduling.class
    }

    /// Whether it waits for its turn.
    pub(super) fn waits(&self) -> bool {
        self.waiting.is_some() && !self.suspended && self.role == Role::Parked
    }

    /// Whether it keeps its class's virtual time from going on faster: it has the turn, or waits and can arrive as far as is
    /// known.
    pub(super) fn is_active(&self) -> bool {
        self.role == Role::Turn || self.waits() && self.failures == 0
    }

    /// The target of the request that waits: none, if it has none or it can no longer be met.
    pub(super) fn target(&self, now: Micros) -> Option<Target> {
        let (1.., Some(wait)) = (self.scheduling.slo_micros, self.waiting) else { return None };
        let slo = self.scheduling.slo_micros;
        let due = wait.since.saturating_add(slo);
        let latest_start = due.saturating_sub(self.cost.saturating_add(self.service));
        let target = Target { latest_start, given_up_at: latest_start.saturating_add(slo / TOLERANCE) };
        (now <= target.given_up_at).then_some(target)
    }

    /// Whether it was away for a moment only.
    pub(super) fn was_here(&self, now: Micros) -> bool {
        self.idle_since.is_some_and(|since| now.saturating_sub(since) <= SHORT_ABSENCE)
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// It could not arrive, and rests: for this long at least, and the longer the more often that has happened in a row.
    /// So many tenants have left by now.
    pub(super) fn failed(&mut self, now: Micros, rest: Micros, departures: u64) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now.saturating_add(pause(self.failures).max(rest));
        self.departures = departures;
    }

    /// When it may be tried again, if it could not arrive and nobody has left since.
    pub(super) fn retry_at(&self, departures: u64) -> Option<Micros> {
        (self.failures > 0 && self.departures == departures).then_some(self.retry_at)
    }
}
