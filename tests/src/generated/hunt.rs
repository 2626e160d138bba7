//! Many programs, drawn from a number, each bare and under Baton: the first that fails in some way is made smaller and kept.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::draw::{ASPECTS, Aspect};
use super::shrink::Programs;
use super::trial::{Arm, Expected, Fault, PATIENCE, PRESSURES, Pressure};
use super::{Program, Script, exchange};

/// The seed where none is asked for.
pub const SEED: u64 = 1;
/// How many run at once.
const AT_ONCE: usize = 2;
/// How long a program may make no progress while it is made smaller.
const SHORT_PATIENCE: Duration = Duration::from_secs(6);

/// Programs to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// So many programs.
    pub count: usize,
    /// From this seed.
    pub seed: u64,
    /// No program is without these aspects.
    pub with: Vec<Aspect>,
    /// No program has these.
    pub without: Vec<Aspect>,
    /// How long a failing program is made smaller, at most.
    pub shrinking: Duration,
    /// How many failing programs are enough.
    pub failures: usize,
    /// Of these kinds, failing programs are counted only; and of others after the first.
    pub known: Vec<String>,
    /// How long a program may make no progress.
    pub patience: Duration,
}

impl Plan {
    /// The plan that the variables `GENERATE_…` ask for (`tests/generate`), with so many programs where they say nothing.
    pub fn asked(count: usize) -> Self {
        Self {
            count: number("GENERATE_COUNT").map_or(count, |count| count as usize),
            seed: number("GENERATE_SEED").unwrap_or(SEED),
            with: aspects("GENERATE_WITH"),
            without: aspects("GENERATE_WITHOUT"),
            shrinking: Duration::from_secs(number("GENERATE_SHRINK_SECONDS").unwrap_or(300)),
            failures: number("GENERATE_FAILURES").unwrap_or(5) as usize,
            known: std::env::var("GENERATE_KNOWN").unwrap_or_default().split(';').map(str::to_owned).collect(),
            patience: number("GENERATE_PATIENCE").map_or(PATIENCE, Duration::from_secs),
        }
    }

    /// One program of many, and the runner that can make it smaller.
    fn draw(&self, number: usize) -> (TestRunner, <Programs as Strategy>::Tree) {
        let mut runner = runner(self, number);
        let programs = Programs { with: self.with.clone(), without: self.without.clone() };
        let tree = programs.new_tree(&mut runner).expect("programs are drawn without conditions");
        (runner, tree)
    }
}

/// The kinds of failures of which a program was kept, or need not be.
struct Known(Mutex<BTreeSet<String>>);

impl Known {
    fn has(&self, kind: &str) -> bool {
        self.0.lock().expect("no thread panics with it").contains(kind)
    }

    /// True if it is new; from now on it is not.
    fn add(&self, kind: &str) -> bool {
        self.0.lock().expect("no thread panics with it").insert(kind.to_owned())
    }
}

/// A program that failed.
pub struct Failure {
    number: usize,
    kind: String,
    /// None if the kind is known.
    file: Option<PathBuf>,
}

/// What came of many programs.
pub struct Found {
    /// Those that failed.
    pub failures: Vec<Failure>,
    /// How often the hunt had programs' memory moved to the host, under each pressure that does so.
    pub evictions: BTreeMap<&'static str, usize>,
}

/// The strategy's runner for one program of many.
fn runner(plan: &Plan, number: usize) -> TestRunner {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
    seed[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    let config = Config {
        failure_persistence: None,
        max_shrink_time: plan.shrinking.as_millis() as u32,
        max_shrink_iters: 100_000,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// Tells whether a script does the same bare and under Baton.
fn compare(arm: &Arm, script: &Script, patience: Duration) -> Result<(), Box<Fault>> {
    arm.compare(&Expected::of_script(script, patience)?, patience)
}

/// Runs one program; the smallest one that fails like it.
fn try_one(plan: &Plan, known: &Known, arm: &Arm, number: usize) -> Option<Failure> {
    let (mut runner, tree) = plan.draw(number);
    let first = tree.current();
    let fault = *compare(arm, &first.script("").0, plan.patience).err()?;
    if !known.add(&fault.kind) {
        return Some(Failure { number, kind: fault.kind, file: None });
    }
    eprintln!("program {number} of seed {} ({:?}): {}; it is made smaller", plan.seed, arm.pressure, fault.kind);
    let kind = fault.kind.clone();
    // One that fails only now and then is tried more often. One that fails in a known way has become another one.
    let again = |script: &Script| {
        let fault = compare(arm, script, SHORT_PATIENCE).err().map(|fault| *fault);
        fault.filter(|fault| fault.kind == kind || !known.has(&fault.kind))
    };
    let (script, _) = first.script("");
    // Without time for that, it is kept as it is.
    let tries = (1..=4).filter(|_| !plan.shrinking.is_zero()).find(|_| again(&script).is_some());
    let last = Mutex::new(fault);
    let small = match tries {
        None => first,
        Some(tries) => {
            let runs = Cell::new(0);
            let test = |program: Program| {
                runs.set(runs.get() + 1);
                let (script, _) = program.script("");
                match (0..2 * tries - 1).find_map(|_| again(&script)) {
                    None => Ok(()),
                    Some(fault) => {
                        let kind = fault.kind.clone();
                        *last.lock().expect("no thread panics with it") = fault;
                        Err(TestCaseError::fail(kind))
                    }
                }
            };
            match runner.run_one(tree, test) {
                Err(TestError::Fail(_, small)) => small,
                // It did not fail when it was to be made smaller.
                _ => first,
            }
        }
    };
    let fault = last.into_inner().expect("no thread panics with it");
    known.add(&fault.kind);
    Some(keep(plan, arm, number, &small, &fault))
}

/// Writes down a failing program.
fn keep(plan: &Plan, arm: &Arm, number: usize, program: &Program, fault: &Fault) -> Failure {
    let folder = folder();
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let name = format!("{}-{number}-{:?}", plan.seed, arm.pressure).to_lowercase();
    let about = format!("program {number} of seed {}, {:?}: {}", plan.seed, arm.pressure, fault.kind);
    let (script, _) = program.script(&about);
    let file = folder.join(format!("{name}.json"));
    std::fs::write(&file, script.to_text()).expect("the target folder is writable");
    std::fs::write(folder.join(format!("{name}.log")), format!("{about}\n{fault}\n{program:#?}\n"))
        .expect("the target folder is writable");
    eprintln!("{about}; {} steps: tests/generate again {}", script.steps(), file.display());
    Failure { number, kind: fault.kind.clone(), file: Some(file) }
}

fn folder() -> PathBuf {
    let target = crate::built().bin.parent().expect("a profile's folder lies in the target folder");
    target.join("generated")
}

/// Does something with each number, under one pressure after the other; neighbours have different ones. A rival computes all the time, so
/// it is there only while it is needed. Gives the evictions under those that ask for them.
fn under_pressure(
    pressures: &[Pressure],
    count: usize,
    work: impl Fn(&Arm, usize) + Sync,
) -> BTreeMap<&'static str, usize> {
    let mut evictions = BTreeMap::new();
    let asked = std::env::var("GENERATE_PRESSURE").unwrap_or_default();
    for (first, pressure) in pressures.iter().copied().enumerate() {
        if !asked.is_empty() && !format!("{pressure:?}").eq_ignore_ascii_case(&asked) {
            continue;
        }
        let arm = Arm::start(pressure);
        let next = AtomicUsize::new(first);
        let work_on = || {
            loop {
                let number = next.fetch_add(pressures.len(), Ordering::Relaxed);
                if number >= count {
                    return;
                }
                work(&arm, number);
            }
        };
        std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work_on))));
        let evicted = arm.end();
        match pressure {
            Pressure::Evictions => drop(evictions.insert("at rests", evicted)),
            Pressure::Moments => drop(evictions.insert("at any moment", evicted)),
            Pressure::Preemption | Pressure::Turns | Pressure::Deaths => {}
        }
    }
    evictions
}

/// Runs programs.
pub fn run(plan: &Plan) -> Found {
    let start = Instant::now();
    let (tried, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let known = Known(Mutex::new(plan.known.iter().cloned().collect()));
    let evictions = under_pressure(&PRESSURES, plan.count, |arm, number| {
        let failed = {
            let failures = failures.lock().expect("no thread panics with it");
            failures.iter().filter(|failure: &&Failure| failure.file.is_some()).count()
        };
        if failed >= plan.failures {
            return;
        }
        let failure = try_one(plan, &known, arm, number);
        failures.lock().expect("no thread panics with it").extend(failure);
        let tried = tried.fetch_add(1, Ordering::Relaxed) + 1;
        if tried.is_multiple_of(100) {
            eprintln!("{tried} programs in {:?}", start.elapsed());
        }
    });
    let tried = tried.into_inner();
    let failures = failures.into_inner().expect("no thread panics with it");
    println!("{tried} programs of seed {} in {:?}, {} failed", plan.seed, start.elapsed(), failures.len());
    let mut kinds = BTreeMap::new();
    for failure in &failures {
        if let Some(file) = &failure.file {
            println!("  program {}: {}; {}", failure.number, failure.kind, file.display());
        }
        *kinds.entry(&failure.kind).or_insert(0) += 1;
    }
    println!("{kinds:?}; evictions {evictions:?}");
    Found { failures, evictions }
}

/// Runs scripts so many times under each pressure; how they failed.
pub fn again(files: &[PathBuf], times: usize, pressures: &[Pressure]) -> Vec<String> {
    let expected = files.iter().map(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let script = Script::from_text(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Expected::of_script(&script, PATIENCE).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()))
    });
    let expected: Vec<_> = expected.collect();
    let faults = Mutex::new(Vec::new());
    under_pressure(pressures, pressures.len() * files.len() * times, |arm, number| {
        let which = number / pressures.len() % files.len();
        if let Err(fault) = arm.compare(&expected[which], PATIENCE) {
            let fault = format!("{} ({:?}): {fault}", files[which].display(), arm.pressure);
            faults.lock().expect("no thread panics with it").push(fault);
        }
    });
    faults.into_inner().expect("no thread panics with it")
}

/// Runs programs twice without Baton, and once with Baton preloaded and no coordinator, and panics at one that does not do the same: that
/// is a mistake of the model's, or of the driver's functions found another way.
pub fn alike_alone(plan: &Plan) {
    let next = AtomicUsize::new(0);
    let steps = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.count {
                        return;
                    }
                    let (script, _) = plan.draw(number).1.current().script("");
                    steps.fetch_add(script.steps(), Ordering::Relaxed);
                    let expected = Expected::of_script(&script, PATIENCE);
                    let alike = expected.and_then(|expected| {
                        expected.is_the_same_again(PATIENCE)?;
                        expected.is_the_same_without_a_coordinator(PATIENCE)
                    });
                    alike.unwrap_or_else(|fault| panic!("program {number} of seed {}: {fault}", plan.seed));
                }
            });
        }
    });
    println!("{} programs, {} steps", plan.count, steps.into_inner());
}

/// Writes programs to a folder, and so many exchanges, for machines that have no compiler: `bench/generated.py` plays them there.
pub fn write(plan: &Plan, exchanges: u64, into: &Path) {
    std::fs::create_dir_all(into).expect("a folder that can be made");
    let write = |name: String, text: String| std::fs::write(into.join(name), text).expect("the folder is writable");
    for number in 0..plan.count {
        let (script, _) = plan.draw(number).1.current().script("");
        write(format!("program-{}-{number}.json", plan.seed), script.to_text());
    }
    for number in 0..exchanges {
        write(format!("exchange-{}-{number}.json", plan.seed), exchange::exchange(plan.seed << 32 | number).to_text());
    }
}

/// Plays exchanges, bare twice and under Baton: how they failed.
pub fn exchanges(count: usize, seed: u64) -> Vec<String> {
    let faults = Mutex::new(Vec::new());
    under_pressure(&PRESSURES, count, |arm, number| {
        let exchange = exchange::exchange(seed << 32 | number as u64);
        let expected = Expected::of_exchange(&exchange, PATIENCE);
        let compared = expected.and_then(|expected| {
            expected.is_the_same_again(PATIENCE)?;
            arm.compare(&expected, PATIENCE)
        });
        if let Err(fault) = compared {
            let file = folder().join(format!("exchange-{seed}-{number}.json"));
            std::fs::create_dir_all(folder()).expect("the target folder is writable");
            std::fs::write(&file, exchange.to_text()).expect("the target folder is writable");
            let fault = format!("{} ({:?}): {fault}", file.display(), arm.pressure);
            faults.lock().expect("no thread panics with it").push(fault);
        }
    });
    faults.into_inner().expect("no thread panics with it")
}

/// The number in a variable.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: no number")))
}

/// The aspects that a variable lists.
fn aspects(name: &str) -> Vec<Aspect> {
    let listed = std::env::var(name).unwrap_or_default();
    let is_listed = |aspect: &Aspect| listed.split(',').any(|name| format!("{aspect:?}").eq_ignore_ascii_case(name));
    ASPECTS.iter().map(|(aspect, _)| *aspect).filter(is_listed).collect()
}
