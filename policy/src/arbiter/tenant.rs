//! One tenant, as the arbiter knows it.

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use super::Micros;
use super::rules::pause;
use super::virtual_time::Virtual;

/// The longest inactivity that counts as a short absence.
const SHORT_ABSENCE: Micros = 1_000_000;
/// A target counts as met within this part of it, one in so many: the known costs and service times are no more exact.
const TOLERANCE: Micros = 10;

/// The beginning of a call's wait. Waits are ordered by their beginning, also within a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wait {
    pub(super) since: Micros,
    /// Counts the waits.
    pub(super) number: u64,
}

/// The times by which a request has to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The latest start for an answer in time: the deadline minus the time to swap the tenant in and the usual length of its turns.
    pub(super) latest_start: Micros,
    /// The time after which the target can no longer be met.
    pub(super) given_up_at: Micros,
}

/// A tenant's part in the use of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing: its gate is closed.
    Parked,
    /// The turn.
    Turn,
    /// It co-runs with the tenant that has the turn.
    Corunner,
}

/// The standing of a gang's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It is not its turn yet.
    Unclaimed,
    /// It would be its turn. It keeps its place, and others go on until all its GPUs have claimed it.
    Claimed,
    /// All have.
    Called,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) scheduling: Scheduling,
    pub(super) role: Role,
    /// It is kept off the GPU, whatever it wants.
    pub(super) kept_off: bool,
    /// It never co-runs.
    pub(super) apart: bool,
    /// Its standing, if it is of a gang.
    pub(super) gang: Option<Claim>,
    /// The time for which it usually has the baton until it is idle.
    pub(super) service: Micros,
    /// The wait of its call, if one waits.
    pub(super) waiting: Option<Wait>,
    /// Its progress, by which tenants of a class are compared.
    pub(super) virtual_time: Virtual,
    /// Its lag behind its class when it was last active.
    pub(super) owed: Virtual,
    /// The time for which it has had the baton.
    pub(super) used: Micros,
    /// The time at which it last had the GPU; none if it never had.
    pub(super) idle_since: Option<Micros>,
    pub(super) cost: Micros,
    pub(super) switches: u64,
    /// The patience that it was told last; none if it was told that no tenant waits.
    pub(super) told: Option<Micros>,
    /// The number of its failures to arrive since it last did, and the time at which it may be tried again.
    pub(super) failures: u32,
    retry_at: Micros,
    /// How often there had been a reason to try again by then: if there is another one, it may be tried at once.
    changes: u64,
}

impl Tenant {
    pub(super) fn new(scheduling: Scheduling) -> Self {
        Self {
            scheduling,
            role: Role::Parked,
            kept_off: false,
            apart: false,
            gang: None,
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
            changes: 0,
        }
    }

    pub(super) fn class(&self) -> Class {
        self.scheduling.class
    }

    /// True if it waits for its turn, claimed or not.
    pub(super) fn is_in_line(&self) -> bool {
        self.waiting.is_some() && !self.kept_off && self.role == Role::Parked
    }

    /// True if it waits for its turn, and that may come now.
    pub(super) fn waits(&self) -> bool {
        self.is_in_line() && self.gang != Some(Claim::Claimed)
    }

    /// True if it slows its class's virtual time: it has the turn, or waits and can arrive as far as is
    /// known.
    pub(super) fn is_active(&self) -> bool {
        self.role == Role::Turn || self.is_in_line() && self.failures == 0
    }

    /// The target of the waiting request; none if there is none, or it can no longer be met.
    pub(super) fn target(&self, now: Micros) -> Option<Target> {
        let (1.., Some(wait)) = (self.scheduling.slo_micros, self.waiting) else { return None };
        let slo = self.scheduling.slo_micros;
        let due = wait.since.saturating_add(slo);
        let latest_start = due.saturating_sub(self.cost.saturating_add(self.service));
        let target = Target { latest_start, given_up_at: latest_start.saturating_add(slo / TOLERANCE) };
        (now <= target.given_up_at).then_some(target)
    }

    /// True if its absence was short.
    pub(super) fn was_here(&self, now: Micros) -> bool {
        self.idle_since.is_some_and(|since| now.saturating_sub(since) <= SHORT_ABSENCE)
    }

    pub(super) fn on_success(&mut self) {
        self.failures = 0;
    }

    /// Notes that it could not arrive. It rests for `rest` at least, and longer after each further failure in a row.
    /// `changes` is how often there has been a reason to try again by now.
    pub(super) fn on_failure(&mut self, now: Micros, rest: Micros, changes: u64) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now.saturating_add(pause(self.failures).max(rest));
        self.changes = changes;
    }

    /// The time at which it may be tried again, if it could not arrive and nothing has changed since.
    pub(super) fn retry_at(&self, changes: u64) -> Option<Micros> {
        (self.failures > 0 && self.changes == changes).then_some(self.retry_at)
    }
}
