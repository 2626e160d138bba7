//! The groups in which a tenant's memory comes in, for each way of doing so.

use crate::planner::{Costs, Item, plan};

/// The largest planned group in bytes, unless a single extent is larger. A copy of this size is as fast as any (measured), and a call
/// that waits for its first extent waits in vain for no more than 0.3 ms.
const MOST_GROUP_BYTES: u64 = 16 << 20;

/// The ways in which tenants run while their memory comes in. All but the first exist for comparison with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipeline {
    /// In groups, planned from the order of first use.
    #[default]
    Groups,
    /// Each extent by itself.
    Extents,
    /// All in one group.
    One,
    /// Not at all: they run when all is there.
    Off,
}

/// The end of each group: the index one past its last item, ascending. `most` is the number of extents that one message can map.
pub fn groups(items: &[Item], costs: &Costs, pipeline: Pipeline, most: usize) -> Vec<usize> {
    match pipeline {
        Pipeline::One => vec![items.len()],
        Pipeline::Extents => (1..=items.len()).collect(),
        Pipeline::Groups | Pipeline::Off => planned(items, costs, most),
    }
}

/// Planned groups are cut finer where they are larger than a copy needs for full speed: they were planned by the program's own
/// clock, which knows nothing of the GPU's other work.
fn planned(items: &[Item], costs: &Costs, most: usize) -> Vec<usize> {
    let mut ends = plan(items, costs).ends;
    let (mut bytes, mut extents) = (0, 0);
    for (at, item) in items.iter().enumerate() {
        if bytes + item.bytes > MOST_GROUP_BYTES || extents == most {
            ends.push(at);
            (bytes, extents) = (0, 0);
        }
        bytes += item.bytes;
        extents += 1;
    }
    ends.sort_unstable();
    ends.dedup();
    ends.retain(|end| *end > 0);
    ends
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const COSTS: Costs = Costs { bytes_per_second: 25_000_000_000, per_group: 20_000, per_extent: 1_000 };
    const MOST: usize = 8;

    proptest! {
        #[test]
        fn every_extent_is_in_one_group_and_no_group_is_too_large(
            items in vec((0..40u64 << 20, prop_oneof![0..1_000_000u64, Just(u64::MAX)]), 0..40)
        ) {
            let items: Vec<Item> =
                items.into_iter().map(|(bytes, first_use)| Item { bytes, extents: 1, first_use }).collect();
            for pipeline in [Pipeline::Groups, Pipeline::Off, Pipeline::Extents] {
                let ends = groups(&items, &COSTS, pipeline, MOST);
                prop_assert!(ends.is_sorted_by(|a, b| a < b));
                prop_assert_eq!(ends.last().copied().unwrap_or(0), items.len());
                let mut start = 0;
                for end in ends {
                    let bytes: u64 = items[start..end].iter().map(|item| item.bytes).sum();
                    prop_assert!(end - start == 1 || bytes <= MOST_GROUP_BYTES && end - start <= MOST);
                    start = end;
                }
            }
        }
    }
}
