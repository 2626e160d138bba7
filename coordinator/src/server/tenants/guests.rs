//! How many of something guests have: users that are neither the coordinator's nor root.

use std::collections::BTreeMap;

/// How many each of them has, who has any.
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

    /// How many this one has.
    pub(in crate::server) fn of(&self, user: u32) -> usize {
        self.0.get(&user).copied().unwrap_or(0)
    }

    /// How many all of them have.
    pub(in crate::server) fn all(&self) -> usize {
        self.0.values().sum()
    }
}
