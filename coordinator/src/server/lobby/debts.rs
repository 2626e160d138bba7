//! Users' debts in time: for programs that have kept others waiting, for connections that came faster than they may.
//!
//! There is one number for each user with a debt.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time until which each user has a debt.
#[derive(Debug, Default)]
pub(super) struct Debts(BTreeMap<u32, Instant>);

impl Debts {
    /// Adds to a user's debt. Returns the new debt.
    pub(super) fn add(&mut self, user: u32, more: Duration) -> Duration {
        let now = Instant::now();
        if !self.0.contains_key(&user) {
            self.0.retain(|_, until| *until > now);
        }
        let until = self.0.entry(user).or_insert(now);
        *until = (*until).max(now) + more;
        *until - now
    }

    /// The debt of a guest, if it has one.
    pub(super) fn of(&self, guest: Option<u32>) -> Option<Duration> {
        let left = self.0.get(&guest?)?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// The time at which the first of these guests has no more debt.
    pub(super) fn next_end(&self, guests: impl Iterator<Item = u32>) -> Option<Instant> {
        guests.filter_map(|user| self.0.get(&user).copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_owes_adds_up_and_concerns_no_other() {
        const MORE: Duration = Duration::from_secs(100);
        let mut debts = Debts::default();
        assert_eq!(debts.add(7, MORE), MORE);
        assert!(debts.add(7, MORE) > MORE);
        assert!(debts.of(Some(7)) > Some(MORE));
        assert_eq!([debts.of(Some(8)), debts.of(None)], [None; 2]);
    }

    #[test]
    fn who_owes_nothing_more_is_forgotten() {
        let mut debts = Debts::default();
        for user in 0..100 {
            debts.add(user, Duration::ZERO);
            assert_eq!(debts.of(Some(user)), None);
        }
        assert_eq!(debts.0.len(), 1);
    }
}
