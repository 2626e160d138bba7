//! Users whose programs are not taken in for a while, because others had to wait for one of theirs that did not answer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So many times as long as others had to wait. So others have nine tenths of the time, however often such programs come again.
const TIMES: u32 = 9;

/// Until when each of them is kept out.
#[derive(Debug, Default)]
pub(super) struct KeptOut(BTreeMap<u32, Instant>);

impl KeptOut {
    /// A program of this user's has kept others waiting for so long. Says for how long the user is kept out now.
    pub(super) fn add(&mut self, user: u32, waited: Duration) -> Duration {
        let now = Instant::now();
        self.0.retain(|_, until| *until > now);
        let until = self.0.entry(user).or_insert(now);
        *until += TIMES * waited;
        *until - now
    }

    /// For how long a user is kept out yet, if it is.
    pub(super) fn left(&self, guest: Option<u32>) -> Option<Duration> {
        let left = self.0.get(&guest?)?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// When the first of these may come again.
    pub(super) fn next_end(&self, guests: impl Iterator<Item = u32>) -> Option<Instant> {
        guests.filter_map(|user| self.0.get(&user).copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_kept_out_for_nine_times_as_long_as_others_had_to_wait_and_longer_each_time() {
        const WAITED: Duration = Duration::from_secs(100);
        let mut kept_out = KeptOut::default();
        assert_eq!(kept_out.add(7, WAITED), 9 * WAITED);
        assert!(kept_out.add(7, WAITED) > 17 * WAITED);
        assert!(kept_out.left(Some(7)) > Some(17 * WAITED));
        assert_eq!([kept_out.left(Some(8)), kept_out.left(None)], [None; 2]);
    }

    #[test]
    fn who_may_come_again_is_forgotten() {
        let mut kept_out = KeptOut::default();
        for user in 0..100 {
            kept_out.add(user, Duration::ZERO);
            assert_eq!(kept_out.left(Some(user)), None);
        }
        assert_eq!(kept_out.0.len(), 1);
    }
}
