//! The cost of metrics and the page: `cargo bench -p baton-tests --bench web [-- --json FILE]`.
//!
//! Tenants here have no program ([`BareTenant`]), but for three that have memory and take turns with it, so that something happens.
//!
//! * **status**: how long a coordinator with so many tenants takes for `baton status`, and for a scrape of its metrics.
//! * **pages**: how much of a processor the coordinator's process takes, without what the simulated GPU computes in it, without readers, with one, and with fifty.
//!
//! `-- --show N` starts such a coordinator with N programs, prints where its page is, and keeps it until standard input ends:
//! `tests/look` looks at it in a browser.

use std::fs;
use std::io::{BufRead as _, Read as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use baton_client as client;
use baton_contract::class::Class;
use baton_contract::messages::{FromCoordinator, Message as _, Opening, TurnCommand, TurnReport};
use baton_contract::wire::GpuNumber;
use baton_tests::bare_tenant::{BareTenant, greeting};
use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::hold;
use baton_tests::http::{self, Events};
use baton_tests::web::{Page, metrics_socket};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);
const TENANTS: [usize; 3] = [3, 200, 1000];
const PAGES: [usize; 3] = [0, 1, 50];
const QUESTIONS: usize = 50;
const LOOKING: Duration = Duration::from_secs(10);
const NAMES: [&str; 6] = ["train-bert", "serve-llama", "notebook", "embed", "rerank", "whisper"];

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let after = |flag: &str| words.iter().skip_while(|argument| *argument != flag).nth(1);
    raise_descriptor_limit();
    if let Some(count) = after("--show") {
        return show(count.parse().expect("a number of programs"));
    }
    let rows: Vec<Value> = TENANTS.iter().map(|tenants| measure(*tenants)).collect();
    if let Some(file) = after("--json") {
        fs::write(file, format!("{:#}\n", json!(rows))).expect("a writable file");
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

fn serving() -> Serving {
    let serving = Serving::arena("256MiB").option("--mode", "exclusive").option("--max-programs", "1100");
    serving.unpoisoned().option("--http", "127.0.0.1:0").flag("--http-control").option("--quantum", "20ms")
}

fn join(coordinator: &Coordinator, at: usize) -> BareTenant {
    let name = format!("{}-{}", NAMES[at % NAMES.len()], at / NAMES.len());
    let Opening::Hello { name, mut scheduling, gpu, .. } = greeting(coordinator, &name) else {
        unreachable!("a greeting")
    };
    scheduling.class = [Class::Latency, Class::Normal, Class::Batch][at % 3];
    BareTenant::greet(
        coordinator,
        &Opening::Hello { name, scheduling, gpu, needs: 0, run: 0, gang: 0 }.encode(GpuNumber::ANY),
    )
}

/// Wants the GPU, has it for a while, and rests, until it is over.
fn plays(mut tenant: BareTenant, rest: Duration, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        tenant.tell(&TurnReport::Demand);
        let mut until = None;
        while !over.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
            match tenant.hear_within(Duration::from_millis(20)) {
                Some((FromCoordinator::Turn(TurnCommand::Revoke { grant, .. }), _)) if grant == tenant.grant => break,
                Some((FromCoordinator::Turn(command @ TurnCommand::Grant { .. }), _)) => {
                    tenant.obey(&command);
                    until = Some(Instant::now() + rest / 2);
                }
                _ => {}
            }
        }
        tenant.tell(&TurnReport::Closed { grant: tenant.grant, drain_micros: 100 });
        thread::sleep(rest);
    }
}

/// Of programs without memory, so many use the GPU now and then: with the three that have some, twenty switch.
const PLAYERS: usize = 17;

/// Has `count` programs at a coordinator while something is done. Three have memory; of the rest [`PLAYERS`] play.
fn with_tenants<T>(coordinator: &Coordinator, count: usize, meanwhile: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (name, class, megabytes) in
            [("serve-gpt", "latency", "96"), ("train-resnet", "batch", "128"), ("notebook <b>", "normal", "64")]
                .into_iter()
                .take(count)
        {
            let (over, mut running) = (&over, hold::joined(coordinator, name, class, megabytes, None));
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    running.ask("touch", LIMIT);
                    running.ask("sleep 40", LIMIT);
                }
                running.ask("quit", LIMIT);
            });
        }
        let others: Vec<BareTenant> = (0..count.saturating_sub(3)).map(|at| join(coordinator, at)).collect();
        let mut resting = Vec::new();
        for (at, tenant) in others.into_iter().enumerate() {
            if at < PLAYERS {
                let over = &over;
                scope.spawn(move || plays(tenant, Duration::from_millis(200 + 40 * at as u64), over));
            } else {
                resting.push(tenant);
            }
        }
        let gave = meanwhile();
        over.store(true, Ordering::Relaxed);
        gave
    })
}

/// The time that a process's threads have had on processors, but for those of the simulated GPU.
fn own_time(pid: i32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let time = |task: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let nanos = read("schedstat").split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        if read("comm").starts_with("simcuda") { Duration::ZERO } else { Duration::from_nanos(nanos) }
    };
    tasks.flatten().map(time).sum()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure(tenants: usize) -> Value {
    let coordinator = serving().start();
    let page = Page::of(&coordinator);
    with_tenants(&coordinator, tenants, || {
        let timed = |ask: &dyn Fn() -> usize| {
            let mut size = 0;
            let times = (0..QUESTIONS).map(|_| {
                let start = Instant::now();
                size = ask();
                let took = start.elapsed().as_secs_f64() * 1e3;
                thread::sleep(Duration::from_millis(20));
                took
            });
            (median(times.collect()), size)
        };
        let (status, status_bytes) = timed(&|| client::status(&coordinator.place.socket()).expect("it answers").len());
        let start = Instant::now();
        let scraped = http::get_unix(&metrics_socket(&coordinator), "/metrics").body.len();
        let scrape = start.elapsed().as_secs_f64() * 1e3;
        println!(
            "status  {tenants:5} tenants  {status:6.1} ms, {} KiB; a scrape {scrape:.1} ms, {} KiB",
            status_bytes >> 10,
            scraped >> 10
        );
        let shares = PAGES.map(|pages| {
            let mut open: Vec<Events> =
                (0..pages).map(|_| Events::listen(page.at, &page.token).expect("a stream")).collect();
            open.iter_mut().for_each(|events| drop(events.next_event()));
            let over = AtomicBool::new(false);
            let (share, told) = thread::scope(|scope| {
                let readers: Vec<_> = open
                    .iter_mut()
                    .map(|events| {
                        let over = &over;
                        scope.spawn(move || {
                            let mut told = 0;
                            while !over.load(Ordering::Relaxed) {
                                events.next_event();
                                told += 1;
                            }
                            told
                        })
                    })
                    .collect();
                let before = own_time(coordinator.pid());
                thread::sleep(LOOKING);
                let share = own_time(coordinator.pid()).saturating_sub(before).as_secs_f64() / LOOKING.as_secs_f64();
                over.store(true, Ordering::Relaxed);
                (share, readers.into_iter().map(|reader| reader.join().expect("it ends")).max().unwrap_or(0))
            });
            println!(
                "pages   {tenants:5} tenants  {pages:3} open: {:5.2} % of a processor, {told} messages each",
                share * 100.0
            );
            json!({ "pages": pages, "share": share, "messages": told })
        });
        json!({ "tenants": tenants, "status_ms": status, "status_bytes": status_bytes, "scrape_ms": scrape, "scrape_bytes": scraped, "pages": shares })
    })
}

/// Keeps a coordinator with so many programs until its reader is done.
fn show(count: usize) {
    let coordinator = serving().start();
    let page = Page::of(&coordinator);
    with_tenants(&coordinator, count, || {
        println!("http://{}/#token={}", page.at, page.token);
        // The reader of that says when it has seen enough, by ending.
        let mut stdin = std::io::stdin().lock();
        let _ = stdin.fill_buf();
        let _ = stdin.read_to_end(&mut Vec::new());
    });
}
