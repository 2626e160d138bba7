//! Guests, users that are neither the coordinator's nor root: their amounts of each resource, and their quotas.

use std::collections::BTreeMap;

use baton_contract::class::Class;
use baton_contract::scheduling::{Change, Scheduling};
use baton_report::quota::{Met, Quota};

/// By default, each guest may have this part of the tenants that may join: one in four.
const PART: usize = 4;

/// The quotas of each guest. Memory is in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// The part of the arena that each of its programs may have.
    pub arena: u64,
    /// The memory that all its programs together may have on top of that, since not all of it is in the arena at once.
    pub host_pool: u64,
    /// The immovable memory that they together may have, beside the arena or in it.
    pub leases: u64,
    /// The most of them that may be tenants at once; a quarter of all if not set.
    pub tenants: Option<usize>,
    /// The best class.
    pub class: Class,
    /// The largest weight.
    pub weight: u32,
}

impl Quotas {
    /// The most tenants that a guest may have, if there may be `most` in all.
    pub(in crate::server) fn tenants(&self, most: usize) -> usize {
        self.tenants.unwrap_or(most / PART).max(1)
    }

    /// The memory that all programs of a guest may have together.
    pub(in crate::server) fn memory(&self) -> u64 {
        self.arena.saturating_add(self.host_pool)
    }

    /// The scheduling that a program gets for the wanted one, and the quotas that reduce it.
    pub(in crate::server) fn bound(&self, guest: Option<u32>, wanted: Scheduling) -> (Scheduling, Vec<Met>) {
        let (mut bound, mut met) = (wanted, Vec::new());
        if guest.is_none() {
            return (bound, met);
        }
        if wanted.class < self.class {
            bound = wanted.changed(Change { class: Some(self.class), ..Change::default() });
            let [most, asked] = [self.class, wanted.class].map(|class| class.word().to_owned());
            met.push(Met { quota: Quota::Class, most, asked });
        }
        if bound.weight > self.weight {
            let [most, asked] = [self.weight, bound.weight].map(|weight| weight.to_string());
            bound.weight = self.weight;
            met.push(Met { quota: Quota::Weight, most, asked });
        }
        (bound, met)
    }
}

/// Counts for each guest that has any.
#[derive(Debug, Default)]
pub(in crate::server) struct OfGuests(BTreeMap<u32, usize>);

impl OfGuests {
    /// One more, if it is a guest's.
    pub(in crate::server) fn add(&mut self, guest: Option<u32>) {
        if let Some(user) = guest {
            *self.0.entry(user).or_default() += 1;
        }
    }

    /// One of them less.
    pub(in crate::server) fn remove(&mut self, guest: Option<u32>) {
        let Some(user) = guest else { return };
        match self.of(user) {
            0 | 1 => self.0.remove(&user),
            more => self.0.insert(user, more - 1),
        };
    }

    /// The count of this guest.
    pub(in crate::server) fn of(&self, user: u32) -> usize {
        self.0.get(&user).copied().unwrap_or(0)
    }

    /// The count of all guests together.
    pub(in crate::server) fn all(&self) -> usize {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_gets_the_best_class_and_the_largest_weight_that_it_may_have_and_the_owner_whatever_it_says() {
        let quotas = Quotas { arena: 0, host_pool: 0, leases: 0, tenants: None, class: Class::Normal, weight: 2 };
        let urgent = Scheduling { class: Class::Latency, weight: 1, slo_micros: 5 };
        let heavy = Scheduling { class: Class::Batch, weight: 9, slo_micros: 0 };
        for wanted in [urgent, heavy] {
            assert_eq!(quotas.bound(None, wanted), (wanted, Vec::new()));
            let (bound, met) = quotas.bound(Some(7), wanted);
            assert!(bound.check().is_ok() && bound.class >= Class::Normal && bound.weight <= 2);
            assert_eq!(met.len(), 1, "{met:?}");
            assert_eq!(quotas.bound(Some(7), bound), (bound, Vec::new()));
        }
        assert_eq!([0, 3, 8, 256].map(|most| quotas.tenants(most)), [1, 1, 2, 64]);
    }
}
