//! The planner decides the groups in which an evicted tenant's memory comes back.
//!
//! The extents are copied in a given order, cut into groups, one group after the other. Each group costs a
//! fixed time, so few groups are better; but the program can pass an extent's first use only when the whole group
//! around it has arrived, so small groups are better. [`plan`] finds the cut with which the program loses least.
//!
//! This is the problem of PipeSwitch (OSDI'20, section 4.2, Algorithm 1), solved as exactly, but without the
//! search tree. PipeSwitch prunes the tree by two rules, and both are still here:
//!
//! - *Drop a branch whose bound is no better than the best so far.* Here: ask whether a given delay can be kept,
//!   give up at the first item that cannot keep it, and halve the interval of delays with each answer.
//! - *Pack into a group all items that hide behind the computing before it.* Here: each group takes as many items as
//!   still arrive in time for the least first use among them, put off by that delay.
//!
//! **Why taking as many as possible is right, in any order of first uses.** The moment at which the k-th group
//! arrives depends on k and on where the group ends, not on where the others do. Lengthening a group makes it
//! arrive later and its least first use no later: once it is too late, it stays too late, so the ends that keep
//! the delay are all those up to a furthest one. And of two ways to cut the beginning into k groups, the one that
//! reaches further is as good: take how the other goes on, drop its groups that lie wholly behind the further
//! end, and cut the beginning off the next. Every group left has a subset of its items and is the same
//! or an earlier one in the row, so it is still in time, and there are no more groups than before. Hence the
//! furthest reach also gives the fewest groups.
//!
//! Pure: no clock, no I/O.

/// Nanoseconds.
pub type Nanos = u64;

/// A piece that is copied as a whole: one extent, or several that are never apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Bytes to copy; 0 if none.
    pub bytes: u64,
    /// The number of its extents: handles to map, each for [`Costs::per_extent`].
    pub extents: u32,
    /// The time at which the program first uses it, in nanoseconds of its own clock: from the moment it may run, waits for
    /// memory taken out. [`Nanos::MAX`] if the program did not use it last time: such an item delays nothing.
    pub first_use: Nanos,
}

/// The costs of copying on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Bytes per second from host to GPU; 0 counts as 1.
    pub bytes_per_second: u64,
    /// The fixed cost of a group, in nanoseconds.
    pub per_group: Nanos,
    /// The cost of each extent beside its bytes, in nanoseconds.
    pub per_extent: Nanos,
}

/// A cut of the items into groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The end of each group: the index one past its last item, ascending. The last is the number of items.
    pub ends: Vec<usize>,
    /// The delay of the program, in nanoseconds, compared with a run with all memory resident: the most by which a
    /// group arrives after a first use in it. [`Nanos::MAX`] stands for that and more.
    pub delay: Nanos,
}

/// Finds the groups with the least delay, and of those the fewest. Items are copied in the order given, normally that
/// of their first use; the answer is exact in any order.
///
/// The time of the bytes is that of all copied so far, rounded up once, so that cutting adds no rounding.
pub fn plan(items: &[Item], costs: &Costs) -> Plan {
    let copied = copied(items, costs);
    let (Some(all), Some(due)) = (copied.last(), items.iter().map(|item| item.first_use).min()) else {
        return Plan { ends: Vec::new(), delay: 0 };
    };
    let per_group = u128::from(costs.per_group);

    // The least delay lies between two bounds: the delay of an item whose group ends with it, and that of one group for all.
    let mut least = (items.iter().zip(&copied))
        .map(|(item, copied)| lateness(per_group + copied, item.first_use))
        .max()
        .unwrap_or(0);
    let mut kept = lateness(per_group + all, due);
    let mut ends = vec![items.len()];

    // `ends` are the fewest groups that keep `kept`.
    while least < kept {
        let middle = least + (kept - least) / 2;
        match groups(items, &copied, per_group, middle) {
            Some(found) => (kept, ends) = (middle, found),
            None => least = middle + 1,
        }
    }
    Plan { ends, delay: Nanos::try_from(kept).unwrap_or(Nanos::MAX) }
}

/// The time at which each item would be copied without groups. The type is wide enough for every sum and product here.
fn copied(items: &[Item], costs: &Costs) -> Vec<u128> {
    let speed = u128::from(costs.bytes_per_second.max(1));
    let (mut bytes, mut extents) = (0, 0);
    (items.iter())
        .map(|item| {
            bytes += u128::from(item.bytes);
            extents += u128::from(item.extents);
            (bytes * 1_000_000_000).div_ceil(speed) + extents * u128::from(costs.per_extent)
        })
        .collect()
}

/// The time by which an arrival is too late for this first use.
fn lateness(arrival: u128, first_use: Nanos) -> u128 {
    if first_use == Nanos::MAX { 0 } else { arrival.saturating_sub(first_use.into()) }
}

/// Finds the fewest groups of which none is later than `delay`: each takes as many items as it can.
fn groups(items: &[Item], copied: &[u128], per_group: u128, delay: u128) -> Option<Vec<usize>> {
    let mut ends = Vec::new();
    let mut start = 0;
    let mut fixed = 0;
    while start < items.len() {
        fixed += per_group;
        let mut due = Nanos::MAX;
        let more = (items[start..].iter().zip(&copied[start..]))
            .take_while(|(item, copied)| {
                due = due.min(item.first_use);
                lateness(fixed + **copied, due) <= delay
            })
            .count();
        if more == 0 {
            return None;
        }
        start += more;
        ends.push(start);
    }
    Some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A byte takes a nanosecond.
    const GIGA: u64 = 1_000_000_000;

    fn item(bytes: u64, first_use: Nanos) -> Item {
        Item { bytes, extents: 1, first_use }
    }

    /// The delay of a grouping, copied step by step.
    fn delay(items: &[Item], costs: &Costs, ends: &[usize]) -> u128 {
        let (mut fixed, mut bytes, mut start, mut worst) = (0, 0, 0, 0);
        for &end in ends {
            fixed += u128::from(costs.per_group);
            for item in &items[start..end] {
                bytes += u128::from(item.bytes);
                fixed += u128::from(item.extents) * u128::from(costs.per_extent);
            }
            let arrival = fixed + (bytes * u128::from(GIGA)).div_ceil(costs.bytes_per_second.max(1).into());
            for item in items[start..end].iter().filter(|item| item.first_use != Nanos::MAX) {
                worst = worst.max(arrival.saturating_sub(item.first_use.into()));
            }
            start = end;
        }
        worst
    }

    /// The least delay of all groupings, and the fewest groups that have it.
    fn brute(items: &[Item], costs: &Costs) -> (u128, usize) {
        if items.is_empty() {
            return (0, 0);
        }
        (0..1u32 << (items.len() - 1))
            .map(|cuts| {
                let mut ends: Vec<usize> = (1..items.len()).filter(|at| cuts >> (at - 1) & 1 == 1).collect();
                ends.push(items.len());
                (delay(items, costs, &ends), ends.len())
            })
            .min()
            .unwrap()
    }

    fn check(items: &[Item], costs: &Costs) -> Result<(), TestCaseError> {
        let plan = plan(items, costs);
        prop_assert!(plan.ends.is_sorted_by(|a, b| a < b));
        prop_assert_eq!(plan.ends.last().copied().unwrap_or(0), items.len());
        prop_assert!(plan.ends.first() != Some(&0));
        let (least, fewest) = brute(items, costs);
        prop_assert_eq!(delay(items, costs, &plan.ends), least);
        prop_assert_eq!(u128::from(plan.delay), least.min(Nanos::MAX.into()));
        prop_assert_eq!(plan.ends.len(), fewest);
        Ok(())
    }

    /// Bytes of about a nanosecond each, so that all the costs matter.
    fn balanced() -> impl Strategy<Value = (Vec<Item>, Costs)> {
        let use_at = prop_oneof![8 => 0..150u64, 1 => Just(Nanos::MAX)];
        let item =
            (0..20u64, 0..4u32, use_at).prop_map(|(bytes, extents, first_use)| Item { bytes, extents, first_use });
        let speed = prop_oneof![Just(GIGA), Just(GIGA / 3), Just(GIGA * 7)];
        let costs = (speed, 0..12u64, 0..3u64).prop_map(|(bytes_per_second, per_group, per_extent)| Costs {
            bytes_per_second,
            per_group,
            per_extent,
        });
        (vec(item, 0..=12), costs)
    }

    /// Nothing, a little, anything, everything.
    fn extreme() -> impl Strategy<Value = (Vec<Item>, Costs)> {
        fn value() -> impl Strategy<Value = u64> {
            prop_oneof![Just(0), 0..100u64, any::<u64>(), Just(u64::MAX - 1), Just(u64::MAX)]
        }
        let extents = prop_oneof![Just(0), 0..100u32, Just(u32::MAX)];
        let item =
            (value(), extents, value()).prop_map(|(bytes, extents, first_use)| Item { bytes, extents, first_use });
        let costs = (value(), value(), value()).prop_map(|(bytes_per_second, per_group, per_extent)| Costs {
            bytes_per_second,
            per_group,
            per_extent,
        });
        (vec(item, 0..=12), costs)
    }

    proptest! {
        #[test]
        fn no_grouping_is_better_in_order_of_first_use((mut items, costs) in balanced()) {
            items.sort_by_key(|item| item.first_use);
            check(&items, &costs)?;
        }

        #[test]
        fn no_grouping_is_better_in_any_order((items, costs) in balanced()) {
            check(&items, &costs)?;
        }

        #[test]
        fn no_grouping_is_better_however_large_the_numbers((items, costs) in extreme()) {
            check(&items, &costs)?;
        }
    }

    #[test]
    fn nothing_to_copy_is_no_group() {
        let costs = Costs { bytes_per_second: GIGA, per_group: 5, per_extent: 1 };
        assert_eq!(plan(&[], &costs), Plan { ends: vec![], delay: 0 });
    }

    #[test]
    fn what_was_not_used_comes_in_one_group_and_delays_nobody() {
        let costs = Costs { bytes_per_second: GIGA, per_group: 5, per_extent: 1 };
        assert_eq!(plan(&[item(100, Nanos::MAX); 9], &costs), Plan { ends: vec![9], delay: 0 });
    }

    #[test]
    fn a_small_group_goes_first_and_the_rest_hides_behind_the_computing() {
        let costs = Costs { bytes_per_second: GIGA, per_group: 10, per_extent: 0 };
        // The first is waited for; the second would put that off; the others have time enough together.
        let items = [item(20, 0), item(50, 60), item(50, 180), item(50, 200)];
        assert_eq!(plan(&items, &costs), Plan { ends: vec![1, 2, 4], delay: 30 });
    }

    #[test]
    fn a_group_is_made_larger_where_its_fixed_cost_is_more_than_a_wait() {
        let costs = Costs { bytes_per_second: GIGA, per_group: 1_000, per_extent: 0 };
        let items = [item(20, 0), item(20, 1), item(20, 2)];
        assert_eq!(plan(&items, &costs), Plan { ends: vec![3], delay: 1_060 });
    }

    #[test]
    fn an_early_use_behind_a_late_one_counts() {
        let costs = Costs { bytes_per_second: GIGA, per_group: 10, per_extent: 0 };
        let items = [item(20, 500), item(20, 0), item(400, 500)];
        assert_eq!(plan(&items, &costs), Plan { ends: vec![2, 3], delay: 50 });
    }
}
