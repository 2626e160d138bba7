//! The rules: whose turn is next, and when the present one ends. Reads how things stand, changes nothing.

use std::cmp::Reverse;

use baton_contract::class::Class;

use super::account::time;
use super::turn::Turn;
use super::{Arbiter, Micros, Pressure, Tenant, TenantId};

/// No quantum is shorter: a holder that is revoked as soon as it is let in would get nothing done.
pub(super) const SHORTEST_QUANTUM: Micros = 1_000;
/// No quantum is longer, unless the user wants it: neither dear switches nor fairness make anyone wait longer.
pub(super) const LONGEST_QUANTUM: Micros = 10_000_000;
/// While urgent work goes on beside them, those who have waited for too long have so much time each.
pub const SHARE: Micros = 20_000;
/// A switch may take this part of the time: one in so many.
const COSTS_PER_QUANTUM: u64 = 4;
/// The first pause after a failure, and how long pauses get by doubling.
const FIRST_PAUSE: Micros = 100_000;
const LONGEST_PAUSE: Micros = 2_000_000;
/// Bounds of a contended holder's patience.
const LEAST_PATIENCE: Micros = 500;
const MOST_PATIENCE: Micros = 50_000;

/// The pause after so many failures in a row, the last included.
pub(super) fn pause(failures: u32) -> Micros {
    (FIRST_PAUSE << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

/// How long a holder should be idle before it makes way: a quarter of what going to the other and back
/// costs. The way back moves what the way there moved out.
pub(super) fn patience(cost: Micros) -> Micros {
    (cost / 2).clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

impl Tenant {
    /// When the request that waits is to be answered; never, if the user has not said so.
    pub(super) fn deadline(&self) -> Micros {
        match (self.scheduling.slo_micros, self.waiting) {
            (1.., Some(since)) => since.saturating_add(self.scheduling.slo_micros),
            _ => Micros::MAX,
        }
    }
}

impl Arbiter {
    /// Those whose calls wait, whose turn it is not, and whom the user does not keep off the GPU. A corunner that is leaving has
    /// a gate that may still be open.
    pub(super) fn waiters(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let mine = self.turn.as_ref().map(|turn| turn.tenant);
        let waiting = move |(id, tenant): &(TenantId, &Tenant)| {
            tenant.waiting.is_some() && !tenant.suspended && mine != Some(*id) && !self.corunners.has(*id)
        };
        self.tenants.iter().map(|(id, tenant)| (*id, tenant)).filter(waiting)
    }

    /// Those of them that may be tried now.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.waiters().filter(|(_, tenant)| tenant.retry_at <= self.now)
    }

    /// Those of them that can arrive, as far as is known.
    fn able(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.candidates().filter(|(_, tenant)| tenant.failures == 0)
    }

    /// Least is first: who has waited for too long, then by class, then by the time at which a request is to be answered,
    /// then who goes on with an interrupted quantum, then all others before the one that had the baton last, then by the
    /// time they have had, then by how long they wait. (Who had it last was told to leave for another, even if it has had
    /// less time: turns have a longest length.)
    pub(super) fn order(&self, (id, tenant): &(TenantId, &Tenant)) -> impl Ord + use<> {
        let class = tenant.class();
        let goes_on = self.interrupted[class as usize].is_some_and(|interrupted| interrupted.tenant == *id);
        let had_it = self.last == Some(*id);
        // Of those, the one that has waited longest.
        let overdue = tenant.waiting.filter(|_| self.is_overdue(tenant)).unwrap_or(Micros::MAX);
        let first = (overdue, class, tenant.deadline());
        (first, Reverse(goes_on), had_it, tenant.account.level, tenant.waiting, *id)
    }

    /// Whether a tenant has waited for so long that it gets a turn whatever its class, and can arrive as far as is known.
    pub(super) fn is_overdue(&self, tenant: &Tenant) -> bool {
        self.overdue_at(tenant).is_some_and(|at| at <= self.now)
    }

    /// When it will have, if nothing happens before. Nobody urgent waits for two such turns.
    fn overdue_at(&self, tenant: &Tenant) -> Option<Micros> {
        let since = tenant.waiting.filter(|_| tenant.failures == 0 && !tenant.suspended)?;
        let due = |(_, other): (TenantId, &Tenant)| other.passed_over && other.class() == Class::Latency;
        if tenant.class() != Class::Latency && self.able().any(due) {
            return None;
        }
        Some(since.saturating_add(self.max_wait)).filter(|at| *at < Micros::MAX)
    }

    /// Whose turn is next.
    pub(super) fn next(&self) -> Option<TenantId> {
        self.candidates().min_by_key(|waiter| self.order(waiter)).map(|(id, _)| id)
    }

    /// Whom the holder is asked to make way for when it is idle: also one whose next try is still to come.
    pub(super) fn first_waiter(&self) -> Option<(TenantId, &Tenant)> {
        self.waiters().min_by_key(|waiter| (waiter.1.retry_at > self.now, self.order(waiter)))
    }

    /// Who may interrupt this tenant: of a better class, and able to arrive as far as is known.
    pub(super) fn better_than(&self, id: TenantId) -> Option<TenantId> {
        let class = self.tenants.get(&id)?.class();
        let better = self.able().filter(|(_, tenant)| tenant.class() < class);
        better.min_by_key(|waiter| self.order(waiter)).map(|(id, _)| id)
    }

    /// Whether this turn's time does not count just now.
    pub(super) fn stands_still(&self, turn: &Turn) -> bool {
        let is_urgent = self.tenants.get(&turn.tenant).is_some_and(|holder| holder.class() == Class::Latency);
        self.pressure == Pressure::KeptBack && !is_urgent
    }

    /// Whether anybody who waits has waited for too long.
    pub fn is_anybody_overdue(&self) -> bool {
        self.candidates().any(|(_, tenant)| self.is_overdue(tenant))
    }

    /// When the next one will have waited for too long.
    pub(super) fn next_to_be_overdue(&self) -> Option<Micros> {
        self.candidates().filter_map(|(_, tenant)| self.overdue_at(tenant)).filter(|at| *at > self.now).min()
    }

    /// When a running tenant's turn ends, if it does not end it itself; none if nobody may end it.
    pub(super) fn end_of(&self, turn: &Turn) -> Option<Micros> {
        let holder = self.tenants.get(&turn.tenant)?;
        if holder.suspended || self.better_than(turn.tenant).is_some() && !turn.overdue {
            return Some(turn.since.max(turn.not_before));
        }
        if self.stands_still(turn) {
            return None;
        }
        let resident = turn.resident?;
        let fair = self.next().and_then(|next| self.tenants.get(&next)).and_then(|next| {
            if next.class() > holder.class() && !self.is_overdue(next) {
                return None;
            }
            let quantum = self.quantum_for(next.cost).saturating_sub(turn.used_before);
            let behind = match next.class() == holder.class() {
                true => next.account.level.saturating_sub(holder.account.level),
                false => 0,
            };
            let length = quantum.max(time(behind, holder.scheduling.weight));
            let end = resident.saturating_add(length.min(LONGEST_QUANTUM.max(self.quantum)));
            let share = self.overdue_at(next).map(|at| at.max(resident.saturating_add(SHARE)));
            Some(share.filter(|_| self.pressure == Pressure::Passing).map_or(end, |share| share.min(end)))
        });
        let urgent = self.latest_start(holder, turn.deadline, resident);
        let end = urgent.into_iter().chain(fair).chain(self.next_overdue(holder, resident)).min()?;
        Some(end.max(turn.not_before))
    }

    /// When the first request of this holder's class has to be begun, to be answered by the time that the user has set; if
    /// its time is before that of the holder's own request. A target that cannot be met leaves the holder as much time as
    /// the switch takes.
    fn latest_start(&self, holder: &Tenant, deadline: Micros, resident: Micros) -> Option<Micros> {
        let same = self.able().filter(|(_, tenant)| tenant.class() == holder.class());
        let sooner = same.filter(|(_, tenant)| tenant.deadline() < deadline);
        let starts = sooner.map(|(_, tenant)| {
            let least = resident.saturating_add(tenant.cost.max(SHORTEST_QUANTUM));
            tenant.deadline().saturating_sub(tenant.cost.saturating_add(tenant.service)).max(least)
        });
        starts.min()
    }

    /// When somebody of a worse class will have waited for too long, and the holder has had its quantum.
    fn next_overdue(&self, holder: &Tenant, resident: Micros) -> Option<Micros> {
        let worse = self.candidates().filter(|(_, tenant)| tenant.class() > holder.class());
        let ends = worse.filter_map(|(_, tenant)| {
            let quantum = if self.pressure == Pressure::Passing { SHARE } else { self.quantum_for(tenant.cost) };
            Some(self.overdue_at(tenant)?.max(resident.saturating_add(quantum)))
        });
        ends.min()
    }

    /// The quantum that is worth a switch of this cost.
    pub(super) fn quantum_for(&self, cost: Micros) -> Micros {
        self.quantum.max(cost.saturating_mul(COSTS_PER_QUANTUM).min(LONGEST_QUANTUM))
    }
}
