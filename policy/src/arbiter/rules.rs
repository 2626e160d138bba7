//! The rules for the next turn and for the end of the present one. The code here reads the state and changes nothing.

use baton_contract::class::Class;

use super::tenant::{Tenant, Wait};
use super::turn::Turn;
use super::virtual_time::service;
use super::waiting::{Standing, Which};
use super::{Arbiter, Micros, Pressure, TenantId};

/// No quantum is shorter: a holder that is revoked as soon as it is let in would get nothing done.
pub(super) const SHORTEST_QUANTUM: Micros = 1_000;
/// No quantum is longer, unless the user wants it: neither dear switches nor fairness make a tenant wait longer.
pub(super) const LONGEST_QUANTUM: Micros = 10_000_000;
/// The time that each tenant gets that has waited for too long, while urgent work goes on beside it.
pub const SHARE: Micros = 20_000;
/// A switch may take at most one in this many parts of the time.
const COSTS_PER_QUANTUM: u64 = 4;
/// The first pause after a failure, and the longest that pauses get by doubling.
const FIRST_PAUSE: Micros = 100_000;
const LONGEST_PAUSE: Micros = 2_000_000;
/// Bounds of a contended holder's patience.
const LEAST_PATIENCE: Micros = 500;
const MOST_PATIENCE: Micros = 50_000;
/// All classes, most urgent first.
const CLASSES: &[Class] = &Class::ALL;

/// The pause after this number of failures in a row, the last included.
pub fn pause(failures: u32) -> Micros {
    (FIRST_PAUSE << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

/// The time for which a holder should be idle before it makes way: a quarter of the cost of switching to the other tenant and
/// back. The way back moves the bytes that the way there moved out.
pub(super) fn patience(cost: Micros) -> Micros {
    (cost / 2).clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

impl Arbiter {
    /// The tenant whose turn is next: one that its gang's GPUs have called, or has waited for too long, or else the first of the best class.
    pub(super) fn next(&self) -> Option<TenantId> {
        self.called().or_else(|| self.first_among(&Class::ALL, Which::Candidates))
    }

    /// The gang's member that is called, and whose turn has not begun.
    pub(super) fn called(&self) -> Option<TenantId> {
        self.called.filter(|id| self.tenants.get(*id).is_some_and(Tenant::waits))
    }

    /// The tenant for which the holder should make way when it is idle, possibly a resting one.
    pub(super) fn first_waiter(&self) -> Option<TenantId> {
        self.next().or_else(|| self.first_among(&Class::ALL, Which::Resting))
    }

    /// The tenant that may interrupt this one: called, or of a better class and able to arrive as far as is known.
    pub(super) fn better_than(&self, id: TenantId) -> Option<TenantId> {
        self.called().or_else(|| self.first_among(self.classes_better_than(id)?, Which::Able))
    }

    fn is_any_better_than(&self, id: TenantId) -> bool {
        let better = self.classes_better_than(id).unwrap_or_default();
        better.iter().any(|class| self.tenants.waiting().is_any_able(*class))
    }

    fn classes_better_than(&self, id: TenantId) -> Option<&'static [Class]> {
        let class = self.tenants.get(id)?.class();
        Some(&CLASSES[..class as usize])
    }

    fn first_among(&self, classes: &[Class], which: Which) -> Option<TenantId> {
        let overdue = self.oldest(classes).filter(|(wait, _)| which != Which::Resting && self.is_over(*wait));
        overdue.map(|(_, id)| id).or_else(|| classes.iter().find_map(|class| self.first_of(*class, which)))
    }

    /// The first tenant of a class: the one that has to begin first to meet its target, then the one that goes on with an interrupted
    /// quantum. After these, every other goes before the last holder of the baton, then the least virtual time decides, then the longest
    /// wait. (The last holder was told to leave for another, even if it has had less time: turns have a longest length.)
    pub(super) fn first_of(&self, class: Class, which: Which) -> Option<TenantId> {
        let waiting = self.tenants.waiting();
        if let Some((_, id)) = waiting.first_to_start(class).filter(|_| which != Which::Resting) {
            return Some(id);
        }
        let waits = |id| self.tenants.entry(id).is_some_and(|entry| which.includes(entry.standing));
        let interrupted = self.interrupted[class as usize].map(|interrupted| interrupted.tenant);
        interrupted.filter(|id| waits(*id)).or_else(|| waiting.first(class, which, self.last))
    }

    /// The tenant that has waited longest, of those that can arrive and may have waited for too long.
    fn oldest(&self, classes: &[Class]) -> Option<(Wait, TenantId)> {
        let oldest = self.may_be_overdue(classes).filter_map(|class| self.tenants.waiting().oldest(class));
        oldest.min_by_key(|(wait, _)| wait.since)
    }

    /// The classes whose waits may count as too long: no urgent tenant waits for two turns of tenants that have waited for too long.
    fn may_be_overdue(&self, classes: &[Class]) -> impl Iterator<Item = Class> {
        let urgent = self.tenants.waiting().oldest(Class::Latency);
        let is_passed_over = urgent.is_some_and(|(wait, _)| wait.number < self.passed_over);
        classes.iter().copied().filter(move |class| *class == Class::Latency || !is_passed_over)
    }

    /// The time from which this wait is too long; none if no wait ever is.
    fn over_at(&self, wait: Wait) -> Option<Micros> {
        Some(wait.since.saturating_add(self.max_wait)).filter(|at| *at < Micros::MAX)
    }

    fn is_over(&self, wait: Wait) -> bool {
        self.over_at(wait).is_some_and(|at| at <= self.now)
    }

    /// The time from which a tenant has waited for so long that it gets a turn whatever its class, if nothing happens before.
    fn overdue_at(&self, id: TenantId) -> Option<Micros> {
        let entry = self.tenants.entry(id).filter(|entry| entry.standing == Standing::Able)?;
        self.may_be_overdue(&[entry.class]).next()?;
        self.over_at(entry.wait)
    }

    /// True if a tenant has waited for `max_wait`, and no known obstacle keeps it from arriving.
    pub(super) fn is_overdue(&self, id: TenantId) -> bool {
        self.overdue_at(id).is_some_and(|at| at <= self.now)
    }

    /// True if any waiting tenant has waited for too long.
    pub fn is_anybody_overdue(&self) -> bool {
        self.oldest(&Class::ALL).is_some_and(|(wait, _)| self.is_over(wait))
    }

    /// The time at which the next tenant will have waited for too long.
    pub(super) fn next_to_be_overdue(&self) -> Option<Micros> {
        let since = (self.now.saturating_add(1)).saturating_sub(self.max_wait);
        let waits = self.may_be_overdue(&Class::ALL);
        let waits = waits.filter_map(|class| self.tenants.waiting().oldest_since(class, since));
        waits.filter_map(|wait| self.over_at(wait)).min()
    }

    /// True if this turn's time does not count just now.
    pub(super) fn stands_still(&self, turn: &Turn) -> bool {
        let is_urgent = self.tenants.get(turn.tenant).is_some_and(|holder| holder.class() == Class::Latency);
        turn.resting || self.pressure == Pressure::KeptBack && !is_urgent
    }

    /// The time at which a running tenant's turn ends, if the tenant does not end it itself; none if no other may end it.
    pub(super) fn end_of(&self, turn: &Turn) -> Option<Micros> {
        let holder = self.tenants.get(turn.tenant)?;
        let is_called = self.called().is_some();
        if holder.kept_off || turn.recalled || is_called || self.is_any_better_than(turn.tenant) && !turn.overdue {
            return Some(turn.since.max(turn.not_before));
        }
        if self.stands_still(turn) {
            return None;
        }
        let resident = turn.resident?;
        let fair = self.fair_end(turn, holder, resident);
        let urgent = self.end_for_a_target(turn, holder, resident);
        let end = urgent.into_iter().chain(fair).chain(self.end_for_the_overdue(holder, resident)).min()?;
        Some(end.max(turn.not_before))
    }

    /// The time at which the holder has had its quantum, and as much service as the next tenant of its class.
    fn fair_end(&self, turn: &Turn, holder: &Tenant, resident: Micros) -> Option<Micros> {
        let id = self.next()?;
        let next = self.tenants.get(id)?;
        if next.class() > holder.class() && !self.is_overdue(id) {
            return None;
        }
        // A quantum that goes on may have less than a quarter left, if another tenant is next by now. But a turn is worth its switch.
        let whole = self.quantum_for(next.cost);
        let quantum = whole.saturating_sub(turn.used_before).max(whole / 4);
        let behind = match next.class() == holder.class() {
            true => next.virtual_time.saturating_sub(holder.virtual_time),
            false => 0,
        };
        let level = match service(behind, holder.scheduling.weight) {
            0 => 0,
            time => self.now.saturating_add(time),
        };
        let longest = resident.saturating_add(LONGEST_QUANTUM.max(self.quantum));
        let overdue = self.overdue_at(id);
        // Catching up keeps no tenant waiting for longer than the user allows.
        let level = level.min(overdue.unwrap_or(Micros::MAX));
        let end = resident.saturating_add(quantum).max(level).min(longest);
        let share = overdue.map(|at| at.max(resident.saturating_add(SHARE)));
        Some(share.filter(|_| self.pressure == Pressure::Passing).map_or(end, |share| share.min(end)))
    }

    /// The latest start of the first request of the holder's class that can meet its target, if that is sooner than the
    /// holder's own.
    fn end_for_a_target(&self, turn: &Turn, holder: &Tenant, resident: Micros) -> Option<Micros> {
        let (at, _) = self.tenants.waiting().first_to_start(holder.class())?;
        (at < turn.latest_start).then_some(at.max(resident.saturating_add(SHORTEST_QUANTUM)))
    }

    /// The time at which the longest-waiting tenant of a worse class has waited for too long, and the holder has had its quantum.
    fn end_for_the_overdue(&self, holder: &Tenant, resident: Micros) -> Option<Micros> {
        let (wait, id) = self.oldest(&CLASSES[holder.class() as usize + 1..])?;
        let cost = self.tenants.get(id)?.cost;
        let quantum = if self.pressure == Pressure::Passing { SHARE } else { self.quantum_for(cost) };
        Some(self.over_at(wait)?.max(resident.saturating_add(quantum)))
    }

    /// The quantum that is worth a switch of this cost.
    pub(super) fn quantum_for(&self, cost: Micros) -> Micros {
        self.quantum.max(cost.saturating_mul(COSTS_PER_QUANTUM).min(LONGEST_QUANTUM))
    }
}
