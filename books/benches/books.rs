//! The cost of the books of an allocation as a tenant's memory grows: `cargo bench -p baton-books --bench books`.
//!
//! An allocation of 2 MiB that is freed again, beside so many that stay: a frame of the arena, the tenant's extents, and their
//! sums. The coordinator's own bench has the whole of it, but each extent there takes two of the descriptors that a process may
//! have.

use std::hint::black_box;
use std::time::Instant;

use baton_books::arena::{Arena, Owner};
use baton_books::extents::Extents;
use baton_contract::memory::SizeClass;

const CLASS: SizeClass = SizeClass::ALL[0];
const TIMES: usize = 20_001;

fn main() {
    let mut base = None;
    for count in [100u64, 1_000, 10_000, 100_000] {
        let (mut arena, mut extents) = (Arena::new(1 << 40), Extents::default());
        for at in 0..count {
            // Every second place stays free.
            extents.add(2 * at * CLASS.bytes(), CLASS, arena.add_lent(CLASS));
        }
        for _ in 0..2 {
            let frame = arena.add_lent(CLASS);
            arena.give_back(frame);
        }
        let mut times: Vec<f64> = (0..TIMES as u64)
            .map(|turn| {
                let at = (2 * (turn * 7_919 % count) + 1) * CLASS.bytes();
                let start = Instant::now();
                assert!(extents.within(at, CLASS.bytes()).next().is_none());
                let frame = arena.take(CLASS, false, Owner::of_user(None)).expect("a free one");
                let id = extents.add(at, CLASS, frame);
                black_box((extents.counts(), arena.bytes()));
                extents.remove(id).expect("it is there");
                arena.give_back(frame);
                start.elapsed().as_secs_f64() * 1e9
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let [low, median, high] = [1, 2, 3].map(|quarter| times[TIMES * quarter / 4]);
        let base = *base.get_or_insert(median);
        println!("{count:7} extents  {median:6.0} ns (quartiles {low:.0} to {high:.0}), {:.2} x", median / base);
    }
}
