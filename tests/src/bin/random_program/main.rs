//! A random program, the same for the same seed: its result is one digest.
//!
//! ```text
//! random_program --seed 1 --rounds 8 --megabytes 24 [--pause-ms 20] [--kinds gather,chase,by-late,...]
//!                [--threads 3] [--steps 10] [--driven] [--verbose] [--sync]
//! ```
//!
//! Several threads, each with several streams, work on memory whose use is hard to foresee: tables and chains of
//! pointers that come from the host and from other memory, by copies, fills, kernels and host functions; structs by
//! value; graphs whose tables change between launches; allocations that come and go. Between rounds nothing is in
//! flight, and the program rests for `--pause-ms`.
//!
//! `--driven` waits for a line on standard input before each round and says `round N` after it. `--kinds` leaves only
//! some kinds of steps (a wrong one lists them all; those that begin with `by-` are ways by which pointers reach the device).
//! `--verbose` names every step on standard error, and `--sync` waits for the device after each, so that a failure
//! names its step.
//!
//! It ends with `result random_program SEED DIGEST ok`, or with exit code 1 and what went wrong.

mod dice;
mod gpu;
mod graphs;
mod lane;
mod pointers;
mod steps;
mod work;

use std::process::ExitCode;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use crate::gpu::Gpu;
use baton_tests::driver::{Failure, Outcome};
use dice::Digest;
use lane::{Lane, Shared};

/// Phases of a round. They alternate in what can be written, and so do the first ones of rounds.
const PHASES: usize = 3;

struct Options {
    seed: u64,
    rounds: usize,
    megabytes: usize,
    pause: Duration,
    kinds: Vec<&'static str>,
    threads: usize,
    steps: usize,
    driven: bool,
    verbose: bool,
    sync: bool,
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        seed: 1,
        rounds: 8,
        megabytes: 24,
        pause: Duration::ZERO,
        kinds: steps::kinds(),
        threads: 3,
        steps: 10,
        driven: false,
        verbose: false,
        sync: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let flag = match word.as_str() {
            "--driven" => &mut options.driven,
            "--verbose" => &mut options.verbose,
            "--sync" => &mut options.sync,
            _ => {
                let value = words.next().ok_or_else(|| Failure(format!("{word} needs a value")))?;
                take(&mut options, &word, &value)?;
                continue;
            }
        };
        *flag = true;
    }
    if options.threads == 0 || options.megabytes < 8 * options.threads {
        return Err(Failure("there has to be a thread, and 8 megabytes for each".to_owned()));
    }
    Ok(options)
}

fn take(options: &mut Options, name: &str, value: &str) -> Outcome {
    let number = || value.parse().map_err(|_| Failure(format!("{name} {value}: not a number")));
    match name {
        "--seed" => options.seed = number()?,
        "--rounds" => options.rounds = number()? as usize,
        "--megabytes" => options.megabytes = number()? as usize,
        "--pause-ms" => options.pause = Duration::from_millis(number()?),
        "--threads" => options.threads = number()? as usize,
        "--steps" => options.steps = number()? as usize,
        "--kinds" => options.kinds = chosen(value)?,
        _ => return Err(Failure(format!("there is no option {name}"))),
    }
    Ok(())
}

/// The kinds that a list names. If it names none of the steps, or none of the ways to upload, all of those are meant.
fn chosen(list: &str) -> Outcome<Vec<&'static str>> {
    let all = steps::kinds();
    let mut named = Vec::new();
    for name in list.split(',') {
        let kind = all.iter().find(|kind| **kind == name);
        named.push(*kind.ok_or_else(|| Failure(format!("no kind {name}; there are {}", all.join(","))))?);
    }
    for ways in [false, true] {
        let of_these = |kind: &&&str| kind.starts_with("by-") == ways;
        if !named.iter().any(|kind| of_these(&kind)) {
            named.extend(all.iter().filter(of_these));
        }
    }
    Ok(named)
}

/// Ends the process: a lane that has failed cannot meet the others any more.
fn fail(Failure(why): Failure) -> ! {
    println!("random_program: {why}");
    std::process::exit(1);
}

fn program(options: &Options) -> Outcome<Digest> {
    let gpu = Gpu::open()?;
    let mut ends = vec![[0; 2]; options.threads];
    for end in ends.iter_mut().flatten() {
        const NO_TIMING: u32 = 2;
        gpu.driver.cuEventCreate(end, NO_TIMING)?;
    }
    let shared = Shared {
        gpu,
        kinds: options.kinds.clone(),
        steps: options.steps,
        verbose: options.verbose,
        sync: options.sync,
        frozen: Mutex::new([0, 1].map(|_| vec![Vec::new(); options.threads])),
        ends,
    };
    let digests = Mutex::new(vec![Digest::START; options.threads]);
    let barrier = Barrier::new(options.threads + 1);
    let mut digest = Digest::START;
    thread::scope(|scope| {
        for index in 0..options.threads {
            let (shared, digests, barrier) = (&shared, &digests, &barrier);
            scope.spawn(move || {
                work(options, shared, index, digests, barrier).unwrap_or_else(|failure| fail(failure));
            });
        }
        // The lanes have their memory.
        barrier.wait();
        for round in 0..options.rounds {
            if options.driven {
                let mut line = String::new();
                let read = std::io::stdin().read_line(&mut line);
                if !read.is_ok_and(|bytes| bytes > 0) {
                    fail(Failure("standard input ended before the last round".to_owned()));
                }
            } else if round > 0 {
                thread::sleep(options.pause);
            }
            barrier.wait();
            for _phase in 0..PHASES {
                barrier.wait();
            }
            barrier.wait();
            for lane in &*digests.lock().expect("no lane panics with it") {
                digest.word(lane.0);
            }
            if options.driven {
                println!("round {round}");
            }
        }
    });
    for end in shared.ends.iter().flatten() {
        shared.gpu.driver.cuEventDestroy_v2(*end)?;
    }
    shared.gpu.close()?;
    Ok(digest)
}

/// One lane's work.
fn work(options: &Options, shared: &Shared, index: usize, digests: &Mutex<Vec<Digest>>, barrier: &Barrier) -> Outcome {
    let bytes = (options.megabytes << 20) / options.threads;
    let mut lane = Lane::new(shared, index, options.seed, bytes)?;
    // Until then nothing may be read by others.
    shared.gpu.driver.cuCtxSynchronize()?;
    barrier.wait();
    for round in 0..options.rounds {
        barrier.wait();
        for phase in 0..PHASES {
            let number = PHASES * round + phase;
            lane.begin_phase(number, phase > 0)?;
            lane.steps(round, phase)?;
            lane.end_phase(number)?;
            barrier.wait();
        }
        let last = round + 1 == options.rounds;
        let digest = lane.finish_round(round % 2 == 0, last)?;
        digests.lock().expect("no lane panics with it")[index] = digest;
        barrier.wait();
    }
    lane.close()
}

fn main() -> ExitCode {
    let run = || {
        let options = options()?;
        Ok((options.seed, program(&options)?))
    };
    match run() {
        Ok((seed, digest)) => {
            println!("result random_program {seed} {:016x} ok", digest.0);
            ExitCode::SUCCESS
        }
        Err(failure) => fail(failure),
    }
}
