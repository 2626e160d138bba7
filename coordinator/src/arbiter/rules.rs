//! The rules: whose turn is next, and when the present one ends. Reads how things stand, changes nothing.

use std::cmp::Reverse;

use super::turn::Turn;
use super::{Arbiter, Micros, Tenant, TenantId};

/// No quantum is shorter: a holder that is revoked as soon as it is let in would get nothing done.
pub(super) const SHORTEST_QUANTUM: Micros = 1_000;
/// No quantum is longer, unless the user wants it: neither dear switches nor fairness make anyone wait longer.
pub(super) const LONGEST_QUANTUM: Micros = 10_000_000;
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

impl Arbiter {
    /// Those whose calls wait and whose turn it is not. A guest that is leaving has a gate that may still be open.
    pub(super) fn waiters(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        let mine = self.turn.as_ref().map(|turn| turn.tenant);
        let waiting = move |(id, tenant): &(TenantId, &Tenant)| {
            tenant.waiting.is_some() && mine != Some(*id) && !self.guests.has(*id)
        };
        self.tenants.iter().map(|(id, tenant)| (*id, tenant)).filter(waiting)
    }

    /// Those of them that may be tried now.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.waiters().filter(|(_, tenant)| tenant.retry_at <= self.now)
    }

    /// Least is first: by class, then who goes on with an interrupted quantum, then all others before the one
    /// that had the baton last, then by the time they have had, then by how long they wait. (Who had it last
    /// was told to leave for another, even if it has had less time: turns have a longest length.)
    pub(super) fn order(&self, (id, tenant): &(TenantId, &Tenant)) -> impl Ord + use<> {
        let goes_on = self.interrupted[tenant.class as usize].is_some_and(|interrupted| interrupted.tenant == *id);
        let had_it = self.last == Some(*id);
        (tenant.class, Reverse(goes_on), had_it, tenant.account.level, tenant.waiting, *id)
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
        let class = self.tenants.get(&id)?.class;
        let better = self.candidates().filter(|(_, tenant)| tenant.class < class && tenant.failures == 0);
        better.min_by_key(|waiter| self.order(waiter)).map(|(id, _)| id)
    }

    /// When a running tenant's turn ends, if it does not end it itself; none if nobody may end it.
    pub(super) fn end_of(&self, turn: &Turn) -> Option<Micros> {
        if self.better_than(turn.tenant).is_some() {
            return Some(turn.since.max(turn.not_before));
        }
        let (holder, resident) = (self.tenants.get(&turn.tenant)?, turn.resident?);
        let next = self.tenants.get(&self.next()?)?;
        if next.class > holder.class {
            return None;
        }
        let quantum = self.quantum_for(next.cost).saturating_sub(turn.used_before);
        let behind = match next.class == holder.class {
            true => next.account.level.saturating_sub(holder.account.level),
            false => 0,
        };
        let length = quantum.max(behind).min(LONGEST_QUANTUM.max(self.quantum));
        Some(resident.saturating_add(length).max(turn.not_before))
    }

    /// The quantum that is worth a switch of this cost.
    pub(super) fn quantum_for(&self, cost: Micros) -> Micros {
        self.quantum.max(cost.saturating_mul(COSTS_PER_QUANTUM).min(LONGEST_QUANTUM))
    }
}
