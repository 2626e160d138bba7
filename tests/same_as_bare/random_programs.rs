//! Random programs find all that they need, whatever of their memory is there when they ask for it.
//!
//! `random_program` reaches memory in ways that no parameter of a launch shows. It says the same for the same seed,
//! alone on a GPU and as a tenant whose memory is taken away all the time. Memory that is not back is not mapped, and memory that is
//! freed or evicted is poisoned, so that each oversight is an error or another digest. Work is drained, never paused:
//! paused work comes back whole.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::running::Running;
use baton_tests::watch::Watch;
use baton_tests::{Driver, LIMIT, built};

fn program() -> PathBuf {
    built().bin.join("random_program")
}

/// A seed's output on a GPU of its own.
#[track_caller]
fn alone(arguments: &[&str]) -> String {
    let mut command = Driver::simulated().bare(program());
    command.args(arguments).env("SIMCUDA_MEMORY", "512MiB");
    Running::start(&mut command, false, None).result(LIMIT)
}

/// A bus so slow that arrivals take longer than what waits for them.
fn slow(arena: &str) -> Serving {
    Serving::arena(arena).flag("--no-preempt").setting("SIMCUDA_H2D_GBPS", "0.6").setting("SIMCUDA_D2H_GBPS", "6")
}

/// The words of a command line for a seed.
fn words<'a>(options: &[&'a str], seed: &'a str) -> Vec<&'a str> {
    [options, &["--seed", seed]].concat()
}

/// A tenant for each seed.
#[track_caller]
fn started(coordinator: &Coordinator, names: &[String], seeds: &[&str], options: &[&str]) -> Vec<Running> {
    let one = |(name, seed): (&String, &&str)| coordinator.run(name, "normal", &program(), &words(options, seed));
    names.iter().zip(seeds).map(one).collect()
}

#[test]
fn a_seed_gives_the_same_in_every_run() {
    let mut digests = BTreeSet::new();
    for seed in ["1", "2", "3"] {
        let first = alone(&["--seed", seed]);
        assert_eq!(alone(&["--seed", seed]), first, "seed {seed}");
        let mut preloaded = Driver::simulated().under_baton(program());
        preloaded.args(["--seed", seed]).env("SIMCUDA_MEMORY", "512MiB").env("BATON_SOCKET", "/nowhere");
        assert_eq!(Running::start(&mut preloaded, false, None).result(LIMIT), first, "seed {seed} under Baton");
        digests.insert(first);
    }
    assert_eq!(digests.len(), 3, "each seed is a program of its own: {digests:?}");
}

/// Three seeds at once in an arena that holds less than two of them, over and over.
#[test]
fn random_programs_share_an_arena_that_is_too_small_for_them() {
    let options = ["--megabytes", "28", "--rounds", "8", "--pause-ms", "15"];
    let coordinator = slow("48MiB").setting("SIMCUDA_H2D_GBPS", "2").start();
    coordinator.until_ready();
    for seeds in [["1", "2", "3"], ["4", "5", "6"], ["7", "8", "9"]] {
        let solo = seeds.map(|seed| alone(&words(&options, seed)));
        let classes = ["batch", "normal", "latency"];
        let running: Vec<_> = seeds
            .iter()
            .zip(classes)
            .map(|(seed, class)| coordinator.run(&format!("random-{seed}"), class, &program(), &words(&options, seed)))
            .collect();
        let shared: Vec<_> = running.into_iter().map(|running| running.result(LIMIT)).collect();
        assert_eq!(shared, solo, "shared (left) and alone (right)");
    }
    let status = coordinator.until_empty();
    println!("{} switches, {} bytes in, {} bytes out", status["switches"], status["bytes_in"], status["bytes_out"]);
    assert!(status["switches"].as_u64() >= Some(30) && status["bytes_in"].as_u64() > Some(0), "{status:#}");
}

/// Two seeds at once that fit together, each evicted whenever it is idle for a moment.
#[test]
fn random_programs_are_evicted_at_any_moment() {
    let options = ["--megabytes", "24", "--rounds", "10", "--pause-ms", "20"];
    // So large that neighbours become one extent when they come back.
    let coordinator = slow("512MiB").start();
    coordinator.until_ready();
    let watch = Watch::start(&coordinator);
    let mut evictions = 0;
    for seeds in [["11", "12"], ["13", "14"]] {
        let solo = seeds.map(|seed| alone(&words(&options, seed)));
        let names = seeds.map(|seed| format!("random-{seed}"));
        let running = started(&coordinator, &names, &seeds, &options);
        let (shared, evicted) = coordinator.evicting(&names, Duration::from_millis(5), || {
            running.into_iter().map(|running| running.finish(LIMIT).succeeded().out).collect::<Vec<String>>()
        });
        evictions += evicted;
        for (shared, solo) in shared.iter().zip(&solo) {
            assert_eq!(shared.trim_end(), solo.trim_end(), "shared (left) and alone (right)");
        }
    }
    coordinator.until_empty();
    let records = watch.stop();
    let open = records.iter().filter(|record| !record["phases"]["first_extent_ms"].is_null()).count();
    println!("{evictions} evictions, {} switches, {open} with the gate open while memory came in", records.len());
    assert!(evictions > 0, "nothing was evicted");
}

/// Three seeds at once that do not quite fit together, each evicted whenever it is idle for a moment: some of its frames are as it left
/// them when it comes back, and others are not.
#[test]
fn random_programs_come_back_to_what_nobody_needed_meanwhile() {
    let options = ["--megabytes", "28", "--rounds", "8", "--pause-ms", "15"];
    let coordinator = slow("72MiB").unpoisoned().setting("SIMCUDA_H2D_GBPS", "2").start();
    coordinator.until_ready();
    let seeds = ["21", "22", "23"];
    let solo = seeds.map(|seed| alone(&words(&options, seed)));
    let names = seeds.map(|seed| format!("random-{seed}"));
    let running = started(&coordinator, &names, &seeds, &options);
    let (shared, evictions) = coordinator.evicting(&names, Duration::from_millis(5), || {
        running.into_iter().map(|running| running.result(LIMIT)).collect::<Vec<String>>()
    });
    assert_eq!(shared, solo, "shared (left) and alone (right)");
    let status = coordinator.until_empty();
    println!("{evictions} evictions, {} bytes in, {} bytes out", status["bytes_in"], status["bytes_out"]);
    assert!(evictions > 0 && status["bytes_in"].as_u64() > Some(0), "{status:#}");
}

/// Every round begins with all memory on the host.
#[track_caller]
fn every_round_evicted(seed: &str, options: &[&str], rounds: usize) {
    let solo = alone(&words(options, seed));
    // In the larger one neighbours become one extent when they come back.
    let is_odd = seed.ends_with(['1', '3', '5', '7', '9']);
    let coordinator = slow(if is_odd { "512MiB" } else { "64MiB" }).start();
    coordinator.until_ready();
    let mut running = coordinator.join("driven", &program(), &[&words(options, seed)[..], &["--driven"]].concat());
    for round in 0..rounds {
        let mut came_in = None;
        // Before the first round it is not known when the program has made its memory.
        if round > 0 {
            let end = Instant::now() + LIMIT;
            while !coordinator.evict("driven") {
                assert!(Instant::now() < end, "it cannot be evicted{}", coordinator.place.story());
            }
            let status = coordinator.status();
            let driven = tenant(&status, "driven");
            assert_eq!(driven["resident_bytes"], 0, "before round {round}: {driven:#}");
            assert!(driven["evicted_bytes"].as_u64() > Some(0), "before round {round}: {driven:#}");
            came_in = status["bytes_in"].as_u64();
        }
        assert_eq!(running.ask("go", LIMIT), format!("round {round}"));
        if let Some(before) = came_in {
            let now = coordinator.until("memory has come in", |status| status["bytes_in"].as_u64() > Some(before));
            assert!(now["bytes_in"].as_u64() > Some(before), "round {round}");
        }
    }
    let said = running.finish(LIMIT).succeeded().out;
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(last, solo.trim_end(), "seed {seed}, shared (left) and alone (right)");
    coordinator.until_empty();
}

#[test]
fn every_round_of_a_random_program_begins_with_nothing_on_the_gpu() {
    for seed in ["21", "22", "23"] {
        every_round_evicted(seed, &["--megabytes", "24", "--rounds", "8"], 8);
    }
}

#[test]
fn rounds_of_few_steps_leave_most_of_the_memory_behind() {
    // One step and sums of half the pieces: much has not come in when the next eviction begins.
    for seed in ["31", "32"] {
        every_round_evicted(seed, &["--megabytes", "32", "--rounds", "10", "--steps", "2"], 10);
    }
}

#[test]
fn each_way_of_pointers_to_the_gpu_is_followed() {
    let ways = [
        "by-pageable,by-pinned,by-batch,by-rows",
        "by-halves,by-fills,by-words,in-global,in-mapping",
        "by-device,by-kernel",
        "by-bounce,by-late,by-host-function,in-pinned",
        "by-graph,graph",
    ];
    for (seed, way) in ["41", "42", "43", "44", "45"].into_iter().zip(ways) {
        let kinds = format!("{way},gather,deep,again,scatter,chase,walk,replace,clean");
        every_round_evicted(seed, &["--megabytes", "24", "--rounds", "5", "--threads", "2", "--kinds", &kinds], 5);
    }
}
