//! The times of a tenant's first use of each extent, learned from its last activations.
//!
//! An activation goes from the grant of the baton to the next closing of the gate. Programs repeat themselves:
//! extents that the last requests used first are needed first the next time, and the [planner](crate::planner)
//! copies in this order.
//!
//! - **One odd activation does not confuse it.** An extent is expected at the median of its times. Of an even
//!   number, the lower middle one counts: an extent that comes too early costs its own copying, but one that comes too late
//!   makes the program wait for all extents that were copied before it.
//! - **A short activation does not erase a full one.** A program may be woken many times between two requests, or
//!   be interrupted. So activations are not counted: one that used a thousand extents is kept until those after
//!   it used four thousand together. These may be four of its size, or four hundred that used ten each; and a
//!   program that has changed its ways is learned anew within that time.
//!
//! Pure: no clock, no I/O. One activation costs time in proportion to the extents known.

use std::collections::HashMap;

use baton_contract::messages::ExtentId;

use crate::planner::Nanos;

/// The number of activations of the same size that are kept.
const KEPT: u64 = 4;

/// The extents that a tenant's last activations used.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The uses of each extent, oldest first. No list is empty.
    uses: HashMap<ExtentId, Vec<Use>>,
    /// The number of first uses ever recorded: the clock by which activations grow old.
    recorded: u64,
}

/// An extent's first use in one activation.
#[derive(Clone, Copy, Debug)]
struct Use {
    at: Nanos,
    /// The use is forgotten once this number of first uses has been recorded in all.
    until: u64,
}

impl History {
    /// Adds an activation: the extents that the program used, and when first, in nanoseconds of its own clock
    /// (from the grant, waits for memory taken out). Of an extent named twice the earlier time counts. An
    /// activation without any is none: the program was only woken.
    pub fn record(&mut self, mut used: Vec<(ExtentId, Nanos)>) {
        used.sort_unstable();
        used.dedup_by_key(|(extent, _)| *extent);
        if used.is_empty() {
            return;
        }
        let size = used.len() as u64;
        self.recorded += size;
        self.uses.retain(|_, uses| {
            uses.retain(|one| one.until > self.recorded);
            !uses.is_empty()
        });
        let until = self.recorded + KEPT * size;
        for (extent, at) in used {
            self.uses.entry(extent).or_default().push(Use { at, until });
        }
    }

    /// The probable time of this extent's first use, in nanoseconds of the program's own clock; `None` if no
    /// activation that is still remembered used it.
    pub fn first_use(&self, extent: ExtentId) -> Option<Nanos> {
        let mut times: Vec<Nanos> = self.uses.get(&extent)?.iter().map(|one| one.at).collect();
        let middle = times.len().checked_sub(1)? / 2;
        Some(*times.select_nth_unstable(middle).1)
    }

    /// Sorts by [`History::first_use`]. Extents that are not expected at all come last. Extents that are expected at the same time, or
    /// not at all, keep their order: that of allocation if they came in it. `extent` names
    /// an element's extent.
    pub fn order<T>(&self, elements: &mut [T], extent: impl Fn(&T) -> ExtentId) {
        // `None` is less than any time, so it is told apart first.
        elements.sort_by_cached_key(|element| {
            let expected = self.first_use(extent(element));
            (expected.is_none(), expected)
        });
    }

    /// Replaces extents that are gone by others made of them: each is first used as soon as the first of its parts.
    pub fn recut<'a>(&mut self, gone: &[ExtentId], now: impl Iterator<Item = (ExtentId, &'a [ExtentId])>) {
        let first = |of: &[ExtentId]| of.iter().filter_map(|old| Some((self.first_use(*old)?, *old))).min();
        let uses: Vec<(ExtentId, Vec<Use>)> =
            now.filter_map(|(new, of)| Some((new, self.uses.get(&first(of)?.1)?.clone()))).collect();
        gone.iter().for_each(|old| self.forget(*old));
        self.uses.extend(uses);
    }

    /// Forgets an extent that is gone; its number may be given to another.
    pub fn forget(&mut self, extent: ExtentId) {
        self.uses.remove(&extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn history(activations: &[&[(u32, Nanos)]]) -> History {
        let mut history = History::default();
        for activation in activations {
            history.record(activation.iter().map(|&(extent, at)| (ExtentId(extent), at)).collect());
        }
        history
    }

    fn expected(history: &History, extent: u32) -> Option<Nanos> {
        history.first_use(ExtentId(extent))
    }

    fn ordered(history: &History, extents: &[u32]) -> Vec<u32> {
        let mut extents = extents.to_vec();
        history.order(&mut extents, |extent| ExtentId(*extent));
        extents
    }

    #[test]
    fn one_activation_is_enough_to_learn_from() {
        let history = history(&[&[(3, 0), (1, 50), (2, 70)]]);
        assert_eq!(ordered(&history, &[1, 2, 3]), [3, 1, 2]);
        assert_eq!(expected(&history, 2), Some(70));
    }

    #[test]
    fn the_unknown_come_last_in_the_order_they_had() {
        let history = history(&[&[(3, 0), (1, 50), (2, Nanos::MAX)]]);
        assert_eq!(ordered(&history, &[9, 1, 8, 2, 7, 3]), [3, 1, 2, 9, 8, 7]);
        assert_eq!(ordered(&History::default(), &[9, 1, 8]), [9, 1, 8]);
    }

    #[test]
    fn extents_expected_at_the_same_time_keep_their_order() {
        let history = history(&[&[(1, 5), (2, 5), (3, 5), (4, 0)]]);
        assert_eq!(ordered(&history, &[3, 1, 2, 4]), [4, 3, 1, 2]);
    }

    #[test]
    fn of_two_activations_the_earlier_time_counts() {
        let history = history(&[&[(1, 10), (2, 90)], &[(1, 60), (2, 20)]]);
        assert_eq!((expected(&history, 1), expected(&history, 2)), (Some(10), Some(20)));
    }

    #[test]
    fn one_odd_activation_does_not_change_the_order() {
        let usual: &[_] = &[(1, 10), (2, 20), (3, 30)];
        let odd: &[_] = &[(3, 0), (2, 1), (1, 900)];
        for place in 0..4 {
            let mut activations = [usual; 4];
            activations[place] = odd;
            assert_eq!(ordered(&history(&activations), &[3, 2, 1]), [1, 2, 3]);
        }
    }

    #[test]
    fn being_woken_is_no_activation() {
        let mut history = history(&[&[(1, 10)]]);
        for _ in 0..100 {
            history.record(Vec::new());
        }
        assert_eq!(expected(&history, 1), Some(10));
    }

    #[test]
    fn short_activations_do_not_erase_a_full_one() {
        let mut history = History::default();
        history.record((0..1_000).map(|extent| (ExtentId(extent), u64::from(extent))).collect());
        for _ in 0..399 {
            history.record((0..10).map(|extent| (ExtentId(extent), 7)).collect());
        }
        assert_eq!(expected(&history, 999), Some(999));
        assert_eq!(expected(&history, 0), Some(7));
        history.record((0..10).map(|extent| (ExtentId(extent), 7)).collect());
        assert_eq!(expected(&history, 999), None, "in the end the program has changed its ways");
    }

    #[test]
    fn what_four_activations_of_the_same_size_did_not_use_is_unknown() {
        let now: &[_] = &[(2, 5)];
        let mut history = history(&[&[(1, 5)], now, now, now]);
        assert_eq!(expected(&history, 1), Some(5));
        history.record(vec![(ExtentId(2), 5)]);
        assert_eq!(expected(&history, 1), None);
    }

    #[test]
    fn what_is_made_of_others_is_used_as_soon_as_the_first_of_them() {
        let mut history = history(&[&[(1, 10), (2, 20), (3, 30)]]);
        let [one, two, three, four] = [1, 2, 3, 4].map(ExtentId);
        let now = [(ExtentId(9), &[two, three][..]), (ExtentId(8), &[one, two]), (ExtentId(7), &[four])];
        history.recut(&[one, two, three, four], now.into_iter());
        assert_eq!([9, 8, 7].map(|extent| expected(&history, extent)), [Some(20), Some(10), None]);
        assert_eq!([1, 2, 3].map(|extent| expected(&history, extent)), [None; 3]);
    }

    #[test]
    fn an_extent_that_is_no_more_leaves_nothing_to_its_number() {
        let mut history = history(&[&[(1, 10), (2, 20)]]);
        history.forget(ExtentId(1));
        history.forget(ExtentId(77));
        assert_eq!((expected(&history, 1), expected(&history, 2)), (None, Some(20)));
    }

    #[test]
    fn of_an_extent_named_twice_the_earlier_time_counts() {
        let history = history(&[&[(1, 10), (2, 20), (1, 5)]]);
        assert_eq!(expected(&history, 1), Some(5));
    }

    proptest! {
        /// The same as the last activations in a plain list, each with the number of uses recorded after it.
        #[test]
        fn the_expected_time_is_the_lower_median_of_the_activations_kept(
            activations in vec(vec((0..8u32, 0..100u64), 0..8), 0..20)
        ) {
            let mut history = History::default();
            let mut kept: Vec<(HashMap<u32, Nanos>, usize)> = Vec::new();
            for activation in &activations {
                history.record(activation.iter().map(|&(extent, at)| (ExtentId(extent), at)).collect());
                let mut used = HashMap::new();
                for &(extent, at) in activation {
                    let earliest = used.entry(extent).or_insert(at);
                    *earliest = at.min(*earliest);
                }
                kept.iter_mut().for_each(|(_, after)| *after += used.len());
                kept.push((used, 0));
            }
            kept.retain(|(used, after)| *after < KEPT as usize * used.len());
            for extent in 0..8 {
                let mut times: Vec<Nanos> = kept.iter().filter_map(|(used, _)| used.get(&extent).copied()).collect();
                times.sort_unstable();
                prop_assert_eq!(expected(&history, extent), times.get(times.len().saturating_sub(1) / 2).copied());
            }
        }

        #[test]
        fn ordering_only_moves(used in vec((0..50u32, 0..9u64), 0..60), extents in vec(0..60u32, 0..60)) {
            let history = history(&[&used]);
            let after = ordered(&history, &extents);
            let keys: Vec<_> = after.iter().map(|&e| expected(&history, e).unwrap_or(Nanos::MAX)).collect();
            prop_assert!(keys.is_sorted());
            let (mut before, mut after) = (extents, after);
            before.sort_unstable();
            after.sort_unstable();
            prop_assert_eq!(before, after);
        }
    }
}
