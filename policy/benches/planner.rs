//! How long it takes to plan an arrival: `cargo bench -p baton-policy --bench planner`.
//!
//! The plan is made while a program waits for its memory, so it must take next to nothing beside the copies. The figure
//! is the median over several.

use std::hint::black_box;
use std::time::{Duration, Instant};

use baton_policy::planner::{Costs, Item, plan};

fn main() {
    // 32 MiB each, computing somewhat longer than copying: many groups, and a delay.
    let costs = Costs { bytes_per_second: 55_000_000_000, per_group: 20_000, per_extent: 1_500 };
    let item = |n: u64| Item { bytes: 32 << 20, extents: 1, first_use: n * 620_000 + n * 7_919 % 300_000 };
    let items: Vec<Item> = (0..2_000).map(item).collect();
    let mut times: Vec<Duration> = (0..201)
        .map(|_| {
            let start = Instant::now();
            black_box(plan(black_box(&items), &costs));
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let median = times[times.len() / 2];
    let plan = plan(&items, &costs);
    println!("{median:?} for {} items: {} groups, delay {} ns", items.len(), plan.ends.len(), plan.delay);
}
