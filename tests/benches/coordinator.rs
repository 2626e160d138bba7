//! The cost of the coordinator's work as tenants and their memory grow:
//! `cargo bench -p baton-tests --bench coordinator [-- --json FILE]`.
//!
//! Tenants here have no program: they speak the contract themselves ([`BareTenant`]), so what is measured is the coordinator, two
//! changes of process, and nothing else. Coordinators with few and with many tenants take part in turn.
//!
//! * **turn**: one tenant closes its gate until the other one has its grant, beside tenants that rest; and how much of that the
//!   coordinator was on a processor, which a machine that is slow to wake up does not change.
//! * **allocation**: 2 MiB, beside memory that the tenant has already.
//! * **idle**: the coordinator's time on a processor while no program does anything.
//! * **churn**: how long a tenant that stays waits while others keep coming and going.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use baton_contract::messages::{FromCoordinator, TurnCommand, TurnReport};
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::running::cpu_time;
use serde_json::{Value, json};

/// Tenants beside those that take turns.
const RESTING: [usize; 3] = [0, 248, 998];
const ROUNDS: usize = 40;
const TURNS: usize = 50;
/// Extents of 2 MiB that are allocated one after the other. Each is two descriptors of the coordinator's and a mapping: `--extents N`
/// for as many as the system's limits allow.
const EXTENTS: usize = 2_500;
/// So many allocations are compared.
const PART: usize = 500;
const GRANULE: u64 = 2 << 20;
/// How long nothing is done.
const IDLE: Duration = Duration::from_secs(10);
/// How long others come and go, how many a second, and how long each stays.
const CHURN: Duration = Duration::from_secs(60);
const COMING: Duration = Duration::from_millis(100);
const STAY: Duration = Duration::from_millis(400);
const OLD: usize = 2;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let after = |flag: &str| words.iter().skip_while(|argument| *argument != flag).nth(1);
    let file = after("--json");
    let most = after("--extents").map_or(EXTENTS, |number| number.parse().expect("a number of extents"));
    raise_descriptor_limit();
    let results = json!({ "turn": turns(), "allocation": allocations(most), "churn": churn() });
    if let Some(file) = file {
        fs::write(file, format!("{results:#}\n")).expect("a writable file");
    }
}

/// As many descriptors as the system allows: each tenant here has four.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure that lives over the calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// Quartiles.
#[derive(Clone, Copy)]
struct Spread([f64; 3]);

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        Self([1, 2, 3].map(|quarter| figures.get(figures.len() * quarter / 4).copied().unwrap_or(f64::NAN)))
    }

    fn json(self) -> Value {
        let Self([low, median, high]) = self;
        json!({ "q1": low, "median": median, "q3": high })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self([low, median, high]) = self;
        write!(f, "{median:8.1} us (quartiles {low:.1} to {high:.1})")
    }
}

fn serving() -> Serving {
    Serving::arena("64MiB").option("--mode", "exclusive").option("--max-programs", "1100").option("--quantum", "100ms")
}

/// Gives the GPU back of itself, as a program with nothing to do does.
fn close(tenant: &BareTenant) {
    tenant.tell(&TurnReport::Closed { grant: tenant.grant, drain_micros: 0 });
}

struct Table {
    coordinator: Coordinator,
    resting: Vec<BareTenant>,
    players: [BareTenant; 2],
}

fn turns() -> Value {
    let mut tables = RESTING.map(|resting| {
        let coordinator = serving().start();
        let resting = (0..resting).map(|at| BareTenant::join(&coordinator, &format!("resting-{at}"))).collect();
        let mut players = ["one", "two"].map(|name| BareTenant::join(&coordinator, name));
        players[0].take_gpu();
        Table { coordinator, resting, players }
    });
    let mut times = RESTING.map(|_| Vec::new());
    let mut works = RESTING.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((table, times), works) in tables.iter_mut().zip(&mut times).zip(&mut works) {
            let before = cpu_time(table.coordinator.pid());
            for _ in 0..TURNS {
                let [from, to] = &mut table.players;
                to.tell(&TurnReport::Demand);
                let start = Instant::now();
                close(from);
                to.until_granted();
                times.push(start.elapsed().as_secs_f64() * 1e6);
                table.players.swap(0, 1);
            }
            let work = cpu_time(table.coordinator.pid()) - before;
            works.push(work.as_secs_f64() * 1e6 / TURNS as f64);
        }
    }
    let (spreads, works) = (times.map(Spread::of), works.map(Spread::of));
    // A processor that had nothing to do for a while takes longer to wake up: the quickest quarter is compared.
    let base = spreads[0].0[0];
    let rows = tables.iter().zip(&spreads).zip(&works).map(|((table, spread), work)| {
        let tenants = table.resting.len() + table.players.len();
        let ratios = [spread.0[0] / base, work.0[1] / works[0].0[1]];
        println!("turn         {tenants:6} tenants  {spread}, {:.2} x in the quickest quarter", ratios[0]);
        println!("  of it the coordinator's work      {work}, {:.2} x", ratios[1]);
        json!({ "tenants": tenants, "us": spread.json(), "ratio_of_q1": ratios[0],
                "work_us": work.json(), "work_ratio": ratios[1] })
    });
    let rows: Vec<Value> = rows.collect();
    let idle = idle(&tables[RESTING.len() - 1]);
    json!({ "rows": rows, "idle": idle })
}

/// The coordinator's share of a processor while all its tenants rest.
fn idle(table: &Table) -> Value {
    close(&table.players[0]);
    let pid = table.coordinator.pid();
    thread::sleep(Duration::from_secs(1));
    let before = cpu_time(pid);
    thread::sleep(IDLE);
    let share = (cpu_time(pid) - before).as_secs_f64() / IDLE.as_secs_f64();
    let tenants = table.resting.len() + table.players.len();
    println!("idle         {tenants:6} tenants  {:8.2} % of a processor", share * 100.0);
    json!({ "tenants": tenants, "share": share })
}

fn allocations(most: usize) -> Value {
    let serving = Serving::arena(&format!("{}MiB", most * 2 + 64)).memory(&format!("{}MiB", most * 2 + 1024));
    // As usual, so that memory that was never written to takes none of this machine's.
    let coordinator = serving.unpoisoned().option("--host-pool", "64MiB").option("--headroom", "0").start();
    let mut holder = BareTenant::join(&coordinator, "holder");
    holder.take_gpu();
    let allocation = |_| {
        let start = Instant::now();
        holder.allocate(GRANULE);
        start.elapsed().as_secs_f64() * 1e6
    };
    let times: Vec<f64> = (0..most).map(allocation).collect();
    // The first frames are ready before any program asks.
    let spreads: Vec<(usize, Spread)> =
        (0..most / PART).skip(1).map(|at| (at * PART, Spread::of(times[at * PART..][..PART].to_vec()))).collect();
    let base = spreads[0].1.0[1];
    let rows = spreads.iter().map(|(extents, spread)| {
        println!("allocation   {extents:6} extents  {spread}, {:.2} x", spread.0[1] / base);
        json!({ "extents": extents, "us": spread.json(), "ratio": spread.0[1] / base })
    });
    Value::Array(rows.collect())
}

/// Runs whenever it may, and says how long it waited at most and how long it had the GPU.
fn always(coordinator: &Coordinator, name: &str, until: Instant) -> (Duration, Duration) {
    let mut tenant = BareTenant::join(coordinator, name);
    let (mut longest, mut had) = (Duration::ZERO, Duration::ZERO);
    tenant.tell(&TurnReport::Demand);
    let mut wanted = Instant::now();
    let mut since: Option<Instant> = None;
    while Instant::now() < until {
        let Some((FromCoordinator::Turn(command), _)) = tenant.hear_within(Duration::from_millis(100)) else {
            continue;
        };
        tenant.obey(&command);
        match command {
            TurnCommand::Grant { .. } => {
                longest = longest.max(wanted.elapsed());
                since = Some(Instant::now());
            }
            TurnCommand::Revoke { grant, .. } if grant == tenant.grant => {
                had += since.take().map_or(Duration::ZERO, |since| since.elapsed());
                wanted = Instant::now();
            }
            _ => {}
        }
    }
    let waits = if since.is_none() { wanted.elapsed() } else { Duration::ZERO };
    (longest.max(waits), had + since.map_or(Duration::ZERO, |since| since.elapsed()))
}

fn churn() -> Value {
    let serving = Serving::arena("64MiB").option("--mode", "exclusive").option("--quantum", "20ms");
    let coordinator = serving.start();
    let end = Instant::now() + CHURN;
    let old = thread::scope(|scope| {
        let old: Vec<_> = (0..OLD)
            .map(|at| {
                let coordinator = &coordinator;
                scope.spawn(move || always(coordinator, &format!("old-{at}"), end))
            })
            .collect();
        let mut number = 0;
        while Instant::now() < end {
            let (coordinator, until) = (&coordinator, Instant::now() + STAY);
            scope.spawn(move || always(coordinator, &format!("new-{number}"), until));
            number += 1;
            thread::sleep(COMING);
        }
        old.into_iter().map(|one| one.join().expect("it ends")).collect::<Vec<_>>()
    });
    let others = STAY.as_secs_f64() / COMING.as_secs_f64();
    let fair = CHURN.as_secs_f64() / (OLD as f64 + others);
    let rows = old.iter().map(|(longest, had)| {
        let (longest, had) = (longest.as_secs_f64() * 1e3, had.as_secs_f64());
        println!(
            "churn        waited {longest:.0} ms at most, had the GPU for {had:.1} s, {:.2} of its share",
            had / fair
        );
        json!({ "longest_wait_ms": longest, "gpu_seconds": had, "of_fair": had / fair })
    });
    json!({ "seconds": CHURN.as_secs(), "joining_a_second": 1.0 / COMING.as_secs_f64(), "old": rows.collect::<Vec<Value>>() })
}
