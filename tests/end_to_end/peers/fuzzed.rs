//! Programs that say anything, in any order: some of it makes sense where it is said, some is changed in a few bytes, some comes with
//! descriptors of anything. It costs only themselves anything.
//!
//! A number decides all messages, so that each run can be repeated: `tests/fuzzed.seeds` keeps the numbers that found something. With
//! `BATON_FUZZ_SECONDS=3600` the long form goes on for so long, with numbers that are new.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton_contract::messages::Message as _;
use baton_contract::wire::GpuNumber;
use baton_tests::bare_tenant::{BareTenant, greeting};
use baton_tests::coordinator::{Coordinator, Serving, other_descriptors};
use baton_tests::form::Form;
use baton_tests::liar::{Liar, Random, odd, say_first};
use baton_tests::{LIMIT, hold};

const SEEDS: &str = include_str!("../../fuzzed.seeds");
/// The number of messages that each of them sends.
const WORDS: usize = 120;

/// Everything that follows from a number.
fn lie(coordinator: &Coordinator, seed: u64, odd: &[OwnedFd], seen: &mut BTreeSet<String>, said: &mut u64) {
    let mut random = Random(seed);
    let hello = greeting(coordinator, &format!("liar {seed}")).encode(GpuNumber::ANY);
    for _ in 0..3 {
        say_first(&coordinator.place.socket(), &mut random, &hello, odd);
        *said += 1;
    }
    let mut liar = Liar::new(random, BareTenant::greet(coordinator, &hello), odd);
    for _ in 0..WORDS {
        *said += 1;
        if !liar.say() || !liar.hear() {
            break;
        }
        if liar.random.below(4) == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    seen.append(&mut liar.seen);
}

#[track_caller]
fn fuzz(form: Form) {
    let coordinator = Serving::small("64MiB").start();
    let mut running = hold::joined(&coordinator, "tenant", "normal", "24", None);
    let before = other_descriptors(&coordinator.until_ready());
    let odd = odd();
    let (mut seen, mut said, mut liars) = (BTreeSet::new(), 0, 0);
    let start = Instant::now();
    let kept: Vec<u64> = SEEDS.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let first = SystemTime::now().duration_since(UNIX_EPOCH).expect("after that").as_nanos() as u64;
    let new = (0..).map(|at: u64| first.wrapping_add(at));
    let seconds = std::env::var("BATON_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let long = form.of(None, Some(Duration::from_secs(seconds)));
    for seed in kept.into_iter().chain(new.take_while(|_| long.is_some_and(|long| start.elapsed() < long))) {
        println!("seed {seed}");
        lie(&coordinator, seed, &odd, &mut seen, &mut said);
        liars += 1;
        if liars % 16 == 0 {
            assert!(running.ask("touch", LIMIT).starts_with("touched "), "after {seed}");
        }
    }
    assert!(running.ask("touch", LIMIT).starts_with("touched "));
    println!("{said} messages of {liars} liars in {:.1?}; {} kinds were said and heard:", start.elapsed(), seen.len());
    println!("{}", seen.iter().cloned().collect::<Vec<_>>().join(", "));
    assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    let status = coordinator.until_empty();
    assert!(other_descriptors(&status) <= before, "{before} descriptors before, {} after", other_descriptors(&status));
}

#[test]
fn programs_that_say_anything_cost_nobody_else_anything() {
    fuzz(Form::Short);
}

#[test]
#[ignore = "long: a minute, or BATON_FUZZ_SECONDS"]
fn programs_that_say_anything_cost_nobody_else_anything_for_long() {
    fuzz(Form::Long);
}
