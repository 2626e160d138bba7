//! `baton run --needs`: programs wait for memory instead of running out of it.

use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::run;
use baton_tests::running::Running;
use baton_tests::{LIMIT, hold};

/// `baton run --needs`, of a program that takes so many MB and obeys lines.
fn needing(coordinator: &Coordinator, name: &str, needs: &str, megabytes: &str) -> Command {
    let mut command =
        coordinator.place.baton(&["run", "--name", name, "--needs", needs, "--driver", "sim", "--socket"]);
    command.arg(coordinator.place.socket()).arg(program("hold")).args(["--megabytes", megabytes]);
    command
}

fn started(coordinator: &Coordinator, command: &mut Command) -> Running {
    Running::start(command, true, Some(coordinator.place.clone()))
}

/// Waits until those, and no others, wait to join, in this order.
fn until_waiting(coordinator: &Coordinator, names: &[&str]) {
    coordinator.until(&format!("{names:?} wait"), |status| {
        let waiting = status["newcomers"].as_array().expect("a list");
        waiting.iter().map(|one| one["name"].as_str().expect("a name")).eq(names.iter().copied())
    });
}

/// So much that two programs of 48 MB fit, and no third one.
fn serving() -> Serving {
    Serving::small("64MiB").option("--host-pool", "64MiB").option("--headroom", "0%")
}

#[test]
fn programs_beyond_arena_and_pool_wait_in_order_and_all_end_well() {
    let coordinator = serving().start();
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut all: Vec<Running> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let mut running = started(&coordinator, &mut needing(&coordinator, name, "52MB", "48"));
        if at < 2 {
            assert!(running.line(LIMIT).starts_with("ready "));
        }
        all.push(running);
        // Each is there before the next one comes.
        until_waiting(&coordinator, names.get(2..=at).unwrap_or_default());
    }
    let status = coordinator.status();
    let first = &status["newcomers"][0];
    assert_eq!(
        (&first["waits_for"]["reason"], &first["needs_bytes"]),
        (&"room".into(), &52_000_000.into()),
        "{first:#}"
    );
    let mut why = coordinator.place.baton(&["why", "d", "--socket"]);
    let why = run(why.arg(coordinator.place.socket())).out;
    assert!(why.contains("needs 49.6 MiB of memory") && why.contains("One other joins before it."), "{why}");
    for (at, running) in all.iter_mut().enumerate() {
        if at >= 2 {
            assert!(running.line(LIMIT).starts_with("ready "));
        }
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
    coordinator.until_empty();
    assert!(!coordinator.log().contains("got none"), "{}", coordinator.log());
}

#[test]
fn what_is_needed_is_kept_until_it_is_used_or_its_program_has_gone() {
    let coordinator = serving().start();
    // It has 8 MB of the 90 that it needs.
    let mut modest = hold::ready(&mut needing(&coordinator, "modest", "90MB", "8"), Some(coordinator.place.clone()));
    let other = coordinator.join("other", &program("hold"), &["--megabytes", "56"]);
    let outcome = other.finish(LIMIT);
    assert_ne!(outcome.status, "exit status: 0", "it got what was kept: {outcome:?}");
    assert!(coordinator.log().contains("that are kept for others (`baton run --needs`)"), "{}", coordinator.log());
    // Memory that is not kept is there for all.
    let mut small = hold::joined(&coordinator, "small", "normal", "24", None);
    assert!(modest.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until("it has gone", |status| tenant(status, "modest").is_null());
    let mut other = hold::joined(&coordinator, "other", "normal", "56", None);
    assert!(other.ask("quit", LIMIT).ends_with(" ok") && small.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_smaller_one_behind_goes_past_after_max_wait_and_not_before_the_larger_one_could() {
    let coordinator = serving().option("--max-wait", "2s").start();
    let mut first = hold::joined(&coordinator, "first", "normal", "56", None);
    let mut large = started(&coordinator, &mut needing(&coordinator, "large", "100MB", "48"));
    until_waiting(&coordinator, &["large"]);
    let came = std::time::Instant::now();
    let mut small = started(&coordinator, &mut needing(&coordinator, "small", "24MB", "16"));
    assert!(small.line(LIMIT).starts_with("ready "));
    assert!(came.elapsed().as_secs() >= 2, "it went past at once");
    until_waiting(&coordinator, &["large"]);
    assert!(small.ask("quit", LIMIT).ends_with(" ok") && first.ask("quit", LIMIT).ends_with(" ok"));
    assert!(large.line(LIMIT).starts_with("ready "));
    assert!(large.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn more_than_there_is_is_refused_in_words_before_the_program_starts() {
    let coordinator = serving().start();
    let outcome = run(&mut needing(&coordinator, "vast", "1GiB", "8"));
    assert_eq!(outcome.status, "exit status: 125", "{outcome:?}");
    let told = "the program needs 1 GiB of memory, and arena and host pool together have 128 MiB";
    assert!(outcome.err.contains(told), "{outcome:?}");
    // The same of a program that says so by itself.
    let mut command = coordinator.place.joining("vast", &program("hold"), &["--megabytes", "8"]);
    let outcome = run(command.env("BATON_NEEDS", "1073741824").env("BATON_REQUIRE", "1"));
    assert_eq!(outcome.status, "exit status: 125", "{outcome:?}");
    assert!(
        outcome.err.contains("it needs 1 GiB of memory, and arena (64 MiB) and host pool (64 MiB) together are less")
    );
}

#[test]
fn one_that_waits_for_more_than_there_can_be_is_refused_when_nobody_else_is_left() {
    let coordinator = serving().start();
    let mut first = hold::joined(&coordinator, "first", "normal", "8", None);
    // Of arena and pool together a little is kept free, so that memory can always move.
    let vast = started(&coordinator, &mut needing(&coordinator, "vast", "128MiB", "8"));
    until_waiting(&coordinator, &["vast"]);
    assert!(first.ask("quit", LIMIT).ends_with(" ok"));
    let outcome = vast.finish(LIMIT);
    assert_eq!(outcome.status, "exit status: 125", "{outcome:?}");
    assert!(outcome.err.contains("it needs 128 MiB of memory, and"), "{outcome:?}");
}

#[test]
fn processes_of_one_run_have_it_together() {
    let coordinator = serving().start();
    let hold = program("hold");
    let script = format!("{0} --megabytes 40 < \"$1\" & {0} --megabytes 40 < \"$1\" & wait $! && wait", hold.display());
    let fifo = coordinator.place.folder().join("lines");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
        .expect("a fifo");
    let mut command = coordinator.place.baton(&["run", "--needs", "100MB", "--driver", "sim", "--socket"]);
    command.arg(coordinator.place.socket()).args(["sh", "-c", &script, "sh"]).arg(&fifo);
    let mut both = started(&coordinator, &mut command);
    // Neither reads a line before it has its memory.
    let lines = std::fs::OpenOptions::new().write(true).open(&fifo).expect("both read it");
    assert!(both.line(LIMIT).starts_with("ready "));
    assert!(both.line(LIMIT).starts_with("ready "));
    assert!(coordinator.status()["newcomers"].as_array().is_some_and(Vec::is_empty));
    drop(lines);
    both.finish(LIMIT);
    coordinator.until_empty();
}
