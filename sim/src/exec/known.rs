//! The points of other streams that a stream is behind: it waits for them, straight or by way of others.
//!
//! Memory that a stream frees can be given to another one without waiting once that is behind the free.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The most other streams of which a stream remembers the work that it comes after. Of more it forgets the oldest, which costs only
/// a chance to use memory again.
const MOST: usize = 64;

/// Numbers of work by the stream's id. Shared by all points of a stream between two waits.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<BTreeMap<u64, u64>>);

impl Known {
    /// True if that point is known to be reached first.
    pub(crate) fn has(&self, stream: u64, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|known| *known >= number)
    }

    /// Adds a point, and what is known there.
    pub(crate) fn learn(&mut self, stream: u64, number: u64, there: &Known) {
        let same = Arc::ptr_eq(&self.0, &there.0);
        let more = (!same).then(|| there.0.iter().map(|(stream, number)| (*stream, *number)));
        for (stream, number) in more.into_iter().flatten().chain([(stream, number)]) {
            if self.has(stream, number) {
                continue;
            }
            let all = Arc::make_mut(&mut self.0);
            all.insert(stream, number);
            if all.len() > MOST {
                all.pop_first();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_at_a_point_is_known_behind_it() {
        let (mut first, mut second) = (Known::default(), Known::default());
        first.learn(1, 5, &Known::default());
        second.learn(2, 7, &first);
        assert!(second.has(1, 5) && second.has(2, 7) && second.has(2, 6));
        assert!(!second.has(1, 6) && !second.has(3, 0) && !first.has(2, 1));
        second.learn(1, 3, &Known::default());
        assert!(second.has(1, 5), "nothing is unlearned");
    }

    #[test]
    fn the_oldest_streams_are_forgotten() {
        let mut known = Known::default();
        (0..100).for_each(|stream| known.learn(stream, 1, &Known::default()));
        assert!(known.has(99, 1) && known.has(36, 1) && !known.has(35, 1));
    }
}
