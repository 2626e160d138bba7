//! Tenants take turns with a GPU that is too small for all of them, and compute what they compute alone.
//!
//! Freed and evicted memory is poisoned, so that a program that is let at memory which is not there, or not its
//! own, does not get away with it.

use std::time::Instant;

use baton_tests::coordinator::{Coordinator, Serving, alone, other_descriptors, program};
use baton_tests::form::Form;
use baton_tests::watch::Watch;
use baton_tests::{LIMIT, MIB};
use serde_json::Value;

/// Bytes that a switch has moved.
fn moved(record: &Value) -> u64 {
    record["bytes_out"].as_u64().expect("bytes") + record["bytes_in"].as_u64().expect("bytes")
}

#[test]
fn three_tenants_of_three_times_the_arena_compute_what_they_compute_alone() {
    three_tenants(Form::Short);
}

#[test]
#[ignore = "long: a hundred large switches"]
fn three_tenants_of_three_times_the_arena_compute_what_they_compute_alone_for_a_hundred_switches() {
    three_tenants(Form::Long);
}

#[track_caller]
fn three_tenants(form: Form) {
    let switches = form.of(10, 100);
    let coordinator = Serving::arena(form.of("32MiB", "64MiB")).start();
    let before = coordinator.until_ready();
    let arena = before["arena"]["bytes"].as_u64().expect("bytes");
    // Each has all of it: not a byte is left for others. The more urgent ones rest often, so that the
    // others have their turns.
    let megabytes = (arena / MIB).to_string();
    let tenants = [
        ("train", "batch", form.of("150", "400"), "0"),
        ("answer", "latency", form.of("20", "50"), "100"),
        ("tune", "normal", form.of("24", "60"), "70"),
    ];
    let arguments = tenants.map(|(name, _, rounds, gap)| {
        let seed = name.len().to_string();
        let words = [
            ["--megabytes", &megabytes],
            ["--small", "0"],
            ["--churn", "0"],
            ["--rounds", rounds],
            ["--check", "30"],
            ["--pieces", "2"],
            ["--gap-ms", gap],
            ["--seed", &seed],
        ];
        words.concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    });
    let words = arguments.each_ref().map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
    let solo = words.each_ref().map(|words| alone("fill_and_check", words));

    let watch = Watch::start(&coordinator);
    let end = Instant::now() + 3 * LIMIT;
    let is_large = |record: &Value| moved(record) >= arena / 2;
    let (mut turns, mut peak) = (0, 0);
    while watch.count(is_large) < switches {
        assert!(Instant::now() < end, "only {} large switches", watch.count(is_large));
        let running: Vec<_> = tenants
            .iter()
            .zip(&words)
            .map(|((name, class, ..), words)| coordinator.run(name, class, &program("fill_and_check"), words))
            .collect();
        for (running, solo) in running.into_iter().zip(&solo) {
            assert_eq!(running.result(LIMIT), *solo, "shared (left) and alone (right)");
        }
        turns += 1;
        let status = coordinator.until_empty();
        let departed = status["departed"].as_array().expect("a list");
        let last = &departed[departed.len() - tenants.len()..];
        peak = last.iter().map(|tenant| tenant["peak_bytes"].as_u64().expect("bytes")).sum();
    }
    let records = watch.stop();
    let large: Vec<_> = records.iter().filter(|record| is_large(record)).collect();
    let bytes: u64 = large.iter().map(|record| moved(record)).sum();
    println!(
        "{} switches, {} of which moved at least half of the arena's {} MiB, together {} MiB; {turns} turns of three \
         programs with {} MiB in all",
        records.len(),
        large.len(),
        arena / MIB,
        bytes / MIB,
        peak / MIB
    );
    assert!(large.len() >= switches, "{} of {} switches were large", large.len(), records.len());
    assert!(peak >= 3 * arena, "{peak} bytes at most were in use, of an arena of {arena}");
    let classes =
        |from: &str, to: &str| records.iter().filter(|record| record["from"] == from && record["to"] == to).count();
    for (from, to) in [("train", "answer"), ("train", "tune"), ("answer", "train"), ("answer", "tune")] {
        println!("{from} to {to}: {}", classes(from, to));
    }
    assert!(classes("train", "answer") + classes("train", "tune") > 0, "nobody ever got the baton from train");

    assert_eq!(coordinator.until_empty()["holder"], Value::Null);
    // Tools that ask for the status have connections too, which may not be closed yet.
    let open = other_descriptors(&before);
    coordinator.until(&format!("{open} descriptors are open"), |status| other_descriptors(status) == open);
    nothing_is_left_on_the_gpu(coordinator);
}

/// Ends a coordinator whose tenants have gone; all memory of its GPU is free then.
fn nothing_is_left_on_the_gpu(mut coordinator: Coordinator) {
    assert_eq!(coordinator.end(libc::SIGTERM).code(), Some(0), "{}", coordinator.log());
    assert!(!coordinator.place.socket().exists(), "the socket is still there");
    // No coordinator answers any more, so this one is on the GPU itself and can have all of it.
    let left = coordinator.join("after", &program("info"), &["--only-free", "1"]);
    let line = left.finish(LIMIT).succeeded().out;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[free, total] = numbers.as_slice() else { panic!("{line}") };
    assert_eq!(total, 512 * MIB);
    // The asking program itself takes less than this.
    assert!(free + 16 * MIB >= total, "{free} of {total} bytes are free");
}

/// Runs a program while others take its memory away all the time: in the long form until it ends, in the short one, of less memory,
/// until twice as many switches were made as must come of it at least. If it ends too soon, it runs once more.
#[track_caller]
fn against_others(form: Form, name: &str, arguments: &[&str], switches: u64) {
    let coordinator = Serving::arena(form.of("40MiB", "64MiB")).start();
    let solo = alone(name, arguments);
    let megabytes = form.of("30", "48");
    // Those of the same class take turns; a more urgent one comes whenever it likes, and leaves gaps.
    for (class, rounds, gap) in [("normal", "8", "3"), ("latency", "10", "30")] {
        let other = ["--megabytes", megabytes, "--pieces", "2", "--check", "10", "--rounds", rounds, "--gap-ms", gap];
        let others_solo = alone("fill_and_check", &other);
        let before = coordinator.status()["switches"].as_u64().expect("a number");
        let made = || coordinator.status()["switches"].as_u64().expect("a number") - before;
        let mut opponents = 0;
        while opponents == 0 || made() < switches {
            let mut subject = coordinator.run(name, "normal", &program(name), arguments);
            while subject.ended().is_none() && (form == Form::Long || made() < 2 * switches) {
                let opponent = coordinator.run("opponent", class, &program("fill_and_check"), &other);
                assert_eq!(opponent.result(LIMIT), others_solo, "the {class} opponent shared (left) and alone (right)");
                opponents += 1;
                assert!(opponents < 120, "{name} starves{}", coordinator.place.story());
            }
            assert_eq!(subject.result(LIMIT), solo, "{name} shared (left) and alone (right)");
            coordinator.until_empty();
        }
        println!("{name} against {opponents} {class} opponents: {} switches", made());
    }
}

fn allocations(form: Form) {
    let arguments = ["--megabytes", form.of("36", "56"), "--rounds", "10", "--check", "5", "--seed", "2"];
    against_others(form, "fill_and_check", &arguments, 8);
}

#[test]
fn allocations_that_come_and_go_stay_whole() {
    allocations(Form::Short);
}

#[test]
#[ignore = "long: against others until it ends"]
fn allocations_that_come_and_go_stay_whole_to_the_end() {
    allocations(Form::Long);
}

fn hidden(form: Form) {
    against_others(form, "hidden", &["--megabytes", form.of("26", "48"), "--rounds", "14", "--gap-ms", "1"], 8);
}

#[test]
fn memory_that_no_parameter_names_is_there() {
    hidden(Form::Short);
}

#[test]
#[ignore = "long: against others until it ends"]
fn memory_that_no_parameter_names_is_there_to_the_end() {
    hidden(Form::Long);
}

fn streams(form: Form) {
    against_others(form, "streams", &["--megabytes", form.of("30", "48"), "--rounds", "10", "--gap-ms", "1"], 8);
}

#[test]
fn streams_and_threads_find_what_the_others_wrote() {
    streams(Form::Short);
}

#[test]
#[ignore = "long: against others until it ends"]
fn streams_and_threads_find_what_the_others_wrote_to_the_end() {
    streams(Form::Long);
}

fn captures(form: Form) {
    against_others(form, "capture", &["--megabytes", form.of("30", "48"), "--rounds", "14"], 8);
}

#[test]
fn captures_are_not_disturbed_and_do_not_hold_others_up() {
    captures(Form::Short);
}

#[test]
#[ignore = "long: against others until it ends"]
fn captures_are_not_disturbed_and_do_not_hold_others_up_to_the_end() {
    captures(Form::Long);
}

fn interrupted(form: Form) {
    let arguments = ["--megabytes", form.of("30", "48"), "--rounds", "2500", "--every-us", "700"];
    against_others(form, "interrupted", &arguments, 8);
}

#[test]
fn a_thread_stopped_anywhere_does_not_reach_memory_that_is_gone() {
    interrupted(Form::Short);
}

#[test]
#[ignore = "long: against others until it ends"]
fn a_thread_stopped_anywhere_does_not_reach_memory_that_is_gone_to_the_end() {
    interrupted(Form::Long);
}

fn info(form: Form) {
    against_others(form, "info", &["--most", form.of("40", "64")], 4);
}

#[test]
fn what_a_program_is_told_about_its_memory_agrees_among_others() {
    info(Form::Short);
}

#[test]
#[ignore = "long: against others until it ends"]
fn what_a_program_is_told_about_its_memory_agrees_among_others_to_the_end() {
    info(Form::Long);
}

#[test]
fn freeing_ends_no_capture_of_another_thread() {
    let arguments = ["--rounds", "40000"];
    let coordinator = Serving::arena("64MiB").start();
    let running = coordinator.run("capture_and_free", "normal", &program("capture_and_free"), &arguments);
    assert_eq!(running.result(LIMIT), alone("capture_and_free", &arguments));
}

#[test]
fn a_small_tenant_and_a_large_one_that_fit_together_move_nothing() {
    let coordinator = Serving::arena("64MiB").start();
    let large = ["--megabytes", "40", "--rounds", "30", "--gap-ms", "2"];
    let small = ["--megabytes", "16", "--rounds", "30", "--gap-ms", "2"];
    let running = [
        coordinator.run("large", "normal", &program("fill_and_check"), &large),
        coordinator.run("small", "normal", &program("fill_and_check"), &small),
    ];
    for (running, arguments) in running.into_iter().zip([large, small]) {
        assert_eq!(running.result(LIMIT), alone("fill_and_check", &arguments));
    }
    let status = coordinator.until_empty();
    println!("{} switches", status["switches"]);
    assert!(status["switches"].as_u64() > Some(0), "{status:#}");
    assert_eq!((&status["bytes_in"], &status["bytes_out"]), (&Value::from(0), &Value::from(0)), "{status:#}");
}

#[test]
fn all_kinds_of_programs_share_at_once() {
    let coordinator = Serving::arena("48MiB").start();
    let programs: [(&str, &str, &[&str]); 7] = [
        ("fill_and_check", "batch", &["--megabytes", "44", "--rounds", "10"]),
        ("fill_and_check", "latency", &["--megabytes", "30", "--rounds", "10", "--gap-ms", "20", "--seed", "3"]),
        ("hidden", "normal", &["--megabytes", "30", "--rounds", "10", "--gap-ms", "5"]),
        ("streams", "normal", &["--megabytes", "24", "--rounds", "6"]),
        ("capture", "latency", &["--megabytes", "18", "--rounds", "8", "--rest-ms", "12"]),
        ("interrupted", "batch", &["--megabytes", "12", "--rounds", "2000"]),
        ("info", "normal", &["--most", "48"]),
    ];
    let solo = programs.map(|(name, _, arguments)| alone(name, arguments));
    let running: Vec<_> = programs
        .iter()
        .map(|(name, class, arguments)| coordinator.run(name, class, &program(name), arguments))
        .collect();
    for ((running, solo), (name, ..)) in running.into_iter().zip(solo).zip(programs) {
        assert_eq!(running.result(LIMIT), solo, "{name} shared (left) and alone (right)");
    }
    let status = coordinator.until_empty();
    println!("{} switches, {} bytes in, {} bytes out", status["switches"], status["bytes_in"], status["bytes_out"]);
    assert!(status["switches"].as_u64() >= Some(20), "{status:#}");
}
