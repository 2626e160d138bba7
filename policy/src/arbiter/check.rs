//! Debug builds compare the indices' answers with a scan of every tenant, after each decision.

use std::cmp::Reverse;

use super::tenant::{Claim, Role, Tenant};
use super::waiting::{Entry, Standing, Which};
use super::{Arbiter, Class, Micros, TenantId};

/// The waiting tenants, one by one.
struct Waiters<'a> {
    arbiter: &'a Arbiter,
    entries: Vec<Entry>,
    /// An urgent tenant has waited through a turn of a tenant that had waited for too long.
    is_passed_over: bool,
}

impl Arbiter {
    pub(super) fn check(&self) {
        self.tenants.check();
        for (id, tenant) in self.tenants.iter() {
            assert_eq!(tenant.role == Role::Turn, self.turn.as_ref().is_some_and(|turn| turn.tenant == id));
            assert_eq!(tenant.role == Role::Corunner, self.corunners.has(id));
        }
        let entries: Vec<Entry> = self.tenants.entries().collect();
        let urgent = entries.iter().filter(|entry| entry.class == Class::Latency && entry.standing == Standing::Able);
        let oldest = urgent.min_by_key(|entry| entry.wait);
        let is_passed_over = oldest.is_some_and(|entry| entry.wait.number < self.passed_over);
        let waiters = Waiters { arbiter: self, entries, is_passed_over };
        let is_called = |tenant: &Tenant| tenant.gang == Some(Claim::Called) && tenant.waits();
        let called = self.tenants.iter().find(|(_, tenant)| is_called(tenant)).map(|(id, _)| id);
        assert_eq!(self.called(), called);
        let next = called.or_else(|| waiters.first(&Class::ALL, Which::Candidates));
        assert_eq!(self.next(), next);
        assert_eq!(self.first_waiter(), next.or_else(|| waiters.first(&Class::ALL, Which::Resting)));
        if let Some(turn) = &self.turn
            && let Some(tenant) = self.tenants.get(turn.tenant)
        {
            let better = waiters.first(&Class::ALL[..tenant.class() as usize], Which::Able);
            assert_eq!(self.better_than(turn.tenant), called.or(better));
        }
        let ends: Vec<Micros> = waiters.entries.iter().filter_map(|entry| waiters.end_of_wait(entry)).collect();
        assert_eq!(self.is_anybody_overdue(), ends.iter().any(|at| *at <= self.now));
        assert_eq!(self.next_to_be_overdue(), ends.iter().copied().filter(|at| *at > self.now).min());
    }
}

impl Waiters<'_> {
    /// The time at which it will have waited for too long.
    fn end_of_wait(&self, entry: &Entry) -> Option<Micros> {
        let yields = entry.class != Class::Latency && self.is_passed_over;
        let end = entry.wait.since.saturating_add(self.arbiter.max_wait);
        (entry.standing == Standing::Able && !yields && end < Micros::MAX).then_some(end)
    }

    /// The order in which they have their turns. Least is first.
    fn order(&self, entry: &Entry) -> impl Ord + use<> {
        let is_overdue = self.end_of_wait(entry).is_some_and(|at| at <= self.arbiter.now);
        let overdue = if is_overdue { entry.wait.since } else { Micros::MAX };
        let start = entry.target.map_or(Micros::MAX, |target| target.latest_start);
        // Among those that are overdue since then, and targets that are as near, the longest wait decides.
        let by_time = !is_overdue && entry.target.is_none();
        let interrupted = self.arbiter.interrupted[entry.class as usize];
        let goes_on = interrupted.is_some_and(|interrupted| interrupted.tenant == entry.id);
        let had_it = self.arbiter.last == Some(entry.id);
        let virtual_time = if by_time { entry.virtual_time } else { 0 };
        let start = if is_overdue { 0 } else { start };
        (overdue, entry.class, start, Reverse(goes_on && by_time), had_it && by_time, virtual_time, entry.wait)
    }

    fn first(&self, classes: &[Class], which: Which) -> Option<TenantId> {
        let asked =
            self.entries.iter().filter(|entry| classes.contains(&entry.class) && which.includes(entry.standing));
        asked.min_by_key(|entry| self.order(entry)).map(|entry| entry.id)
    }
}
