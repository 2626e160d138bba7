//! How long the arbiter takes for a turn: `cargo bench -p baton-policy --bench arbiter`.
//!
//! A turn is what the server tells it between one grant and the next: the quantum is over, the holder has closed its gate,
//! wants something again, the next one's memory is there. After each of these the server asks what it asks in its loop.
//! Each figure is the median of a hundred batches, beside tenants that are idle and beside tenants that wait; and how it
//! compares with that of two tenants.

use std::hint::black_box;
use std::time::Instant;

use baton_contract::class::Class;
use baton_policy::arbiter::{Arbiter, Decision, Event, Micros, TenantId};

const QUANTUM: Micros = 100_000;
const BATCHES: usize = 101;

struct Bench {
    arbiter: Arbiter,
    now: Micros,
    holder: TenantId,
}

impl Bench {
    /// Creates `tenants` tenants, of which `busy` want something. The first has the baton.
    fn new(tenants: u32, busy: u32) -> Self {
        let mut arbiter = Arbiter::new(QUANTUM).with_max_wait(30_000_000);
        for id in (1..=tenants).map(TenantId) {
            arbiter.handle(0, id, Event::Joined { scheduling: Class::Normal.into() });
            arbiter.set_cost(id, 10_000);
        }
        for id in (1..=busy).map(TenantId) {
            arbiter.handle(0, id, Event::Demand);
        }
        arbiter.handle(0, TenantId(1), Event::Resident);
        Self { arbiter, now: 0, holder: TenantId(1) }
    }

    fn ask(&self) {
        black_box((self.arbiter.next_timer(), self.arbiter.is_anybody_overdue(), self.arbiter.state(self.holder)));
    }

    fn tell(&mut self, id: TenantId, event: Event) -> Vec<Decision> {
        let decisions = self.arbiter.handle(self.now, id, event);
        self.ask();
        decisions
    }

    /// From one grant to the next.
    fn turn(&mut self) {
        let before = self.holder;
        self.now = self.arbiter.next_timer().expect("others wait");
        assert_eq!(self.arbiter.tick(self.now), [Decision::Revoke(before)]);
        self.ask();
        self.now += 500;
        let [Decision::SwapIn(next)] = self.tell(before, Event::Closed)[..] else { panic!("nobody is next") };
        self.tell(before, Event::Demand);
        self.arbiter.set_cost(before, 10_000);
        self.now += 10_000;
        self.arbiter.set_cost(next, 0);
        assert_eq!(self.tell(next, Event::Resident).first(), Some(&Decision::Grant(next)));
        self.holder = next;
    }

    /// Measures one turn, in nanoseconds.
    fn measure(&mut self, turns: u32) -> f64 {
        let mut times: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let start = Instant::now();
                (0..turns).for_each(|_| self.turn());
                start.elapsed().as_nanos() as f64 / f64::from(turns)
            })
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        times[BATCHES / 2]
    }
}

fn main() {
    for (others, are_busy) in [("idle", false), ("waiting", true)] {
        let mut least = 0.0;
        for tenants in [2, 10, 100, 1_000, 10_000] {
            let busy = if are_busy { tenants } else { 2 };
            let time = Bench::new(tenants, busy).measure((20_000 / tenants).clamp(2, 200));
            if tenants == 2 {
                least = time;
            }
            println!("{tenants:>6} tenants, the others {others:<8} {time:>12.0} ns a turn, {:>8.2} x", time / least);
        }
    }
}
