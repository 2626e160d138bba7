//! `baton ps`, `stats` and `logs` show what has happened; `baton prefetch` and `stop` do what they say.

use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{LIMIT, MIB, Outcome};

/// `baton WORDS --socket …`.
fn command(coordinator: &Coordinator, words: &[&str]) -> Command {
    let mut command = coordinator.place.baton(&words[..1]);
    command.arg("--socket").arg(coordinator.place.socket()).args(&words[1..]);
    command
}

fn baton(coordinator: &Coordinator, words: &[&str]) -> Outcome {
    Running::start(&mut command(coordinator, words), false, None).finish(LIMIT)
}

fn said(coordinator: &Coordinator, words: &[&str]) -> String {
    baton(coordinator, words).succeeded().out
}

#[test]
fn ps_has_a_line_for_each_program_with_its_process() {
    let coordinator = Serving::small("128MiB").start();
    assert_eq!(said(&coordinator, &["ps"]).lines().count(), 1, "only the heading");
    let mut one = hold::joined(&coordinator, "one", "batch", "24", None);
    let mut two = hold::joined(&coordinator, "two words", "latency", "8", None);
    let lines = said(&coordinator, &["ps"]);
    let line = |name: &str| {
        let line = lines.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("{name}: {lines}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("one")[..2], [&one.pid().to_string(), "batch"]);
    assert_eq!(line("one")[3], "24");
    assert_eq!(line("two words")[..2], [&two.pid().to_string(), "latency"]);
    for running in [&mut one, &mut two] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn stats_and_logs_show_the_same_turns() {
    let coordinator = Serving::small("64MiB").option("--mode", "exclusive").start();
    coordinator.until_ready();
    let want = hold::alone("48", &["touch"; 2]);
    let mut one = hold::joined(&coordinator, "one", "normal", "48", None);
    let mut two = hold::joined(&coordinator, "two", "normal", "48", None);
    for answer in &want[..2] {
        for running in [&mut one, &mut two] {
            assert_eq!(running.ask("touch", LIMIT), *answer);
        }
    }
    let status = coordinator.status();
    let stats = said(&coordinator, &["stats", "--last", "1h"]);
    let row = |name: &str| {
        let line = stats.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name}: {stats}")).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("all")[3], status["switches"].to_string(), "{stats}");
    let switches = |name: &str| tenant(&status, name)["switches"].to_string();
    assert_eq!((row("one")[3].clone(), row("two")[3].clone()), (switches("one"), switches("two")), "{stats}");
    let logs = said(&coordinator, &["logs"]);
    for wanted in ["one joined as normal", "two joined as normal", "one gets the GPU after", "two gets the GPU after"] {
        assert!(logs.contains(wanted), "{wanted}: {logs}");
    }
    assert!(!logs.contains("was copied") && said(&coordinator, &["logs", "--all"]).contains("copied to the host"));
    assert_eq!(said(&coordinator, &["logs", "--last", "1ns"]), "", "nothing happens any more");
    for running in [&mut one, &mut two] {
        assert_eq!(running.ask("quit", LIMIT), want[2]);
    }
}

#[test]
fn logs_that_are_followed_say_what_happens_next() {
    let coordinator = Serving::small("64MiB").start();
    let mut logs = Running::start(&mut command(&coordinator, &["logs", "-f"]), false, Some(coordinator.place.clone()));
    let mut one = hold::joined(&coordinator, "one", "batch", "24", None);
    assert!(logs.line(LIMIT).ends_with("one joined as batch"));
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    while !logs.line(LIMIT).ends_with("one has left") {}
    logs.signal(libc::SIGTERM);
    logs.end(LIMIT);
}

#[test]
fn memory_of_an_evicted_program_is_back_before_it_asks() {
    let coordinator = Serving::small("128MiB").start();
    coordinator.until_ready();
    let want = hold::alone("48", &["touch"; 2]);
    let mut one = hold::joined(&coordinator, "one", "batch", "48", None);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    assert!(said(&coordinator, &["prefetch", "one"]).contains("is on the GPU already"));
    assert!(coordinator.evict("one"), "it is idle");
    coordinator.until_tenant_is("one", "evicted");
    let before = coordinator.status()["tenants"][0]["resident_bytes"].clone();
    assert_eq!(before, 0);
    assert!(said(&coordinator, &["prefetch", "one"]).starts_with("48 MiB of one came"));
    let status = coordinator.status();
    let one_is = tenant(&status, "one");
    assert_eq!((&one_is["state"], &one_is["resident_bytes"]), (&"idle".into(), &(48 * MIB).into()), "{one_is:#}");
    assert_eq!(one.ask("touch", LIMIT), want[1]);
    assert_eq!(one.ask("quit", LIMIT), want[2]);
}

#[test]
fn nobody_makes_way_for_memory_that_is_prefetched() {
    let coordinator = Serving::small("64MiB").start();
    coordinator.until_ready();
    let want = hold::alone("48", &["touch"; 2]);
    let mut one = hold::joined(&coordinator, "one", "batch", "48", None);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    assert!(coordinator.evict("one"), "it is idle");
    let mut two = hold::joined(&coordinator, "two", "batch", "48", None);
    assert_eq!(two.ask("touch", LIMIT), want[0]);
    let refused = baton(&coordinator, &["prefetch", "one"]);
    assert!(refused.err.contains("the arena has no free room for the other"), "{refused:?}");
    assert_eq!(refused.status, "exit status: 1");
    assert_eq!(tenant(&coordinator.status(), "two")["evicted_bytes"], 0);
    for running in [&mut one, &mut two] {
        assert_eq!(running.ask("touch", LIMIT), want[1]);
        assert_eq!(running.ask("quit", LIMIT), want[2]);
    }
    assert!(baton(&coordinator, &["prefetch", "nobody"]).err.contains("no program called nobody"));
}

/// A `baton stop` that waits for the coordinator's programs.
fn stopping(coordinator: &Coordinator) -> Running {
    let mut stop = command(coordinator, &["stop", "--timeout", "5m"]);
    Running::start(&mut stop, false, Some(coordinator.place.clone()))
}

#[test]
fn a_coordinator_that_is_stopped_ends_after_the_last_program() {
    let mut coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "batch", "24", None);
    let mut stop = stopping(&coordinator);
    assert_eq!(stop.line(LIMIT), "no new programs share the GPU; the coordinator ends after one");
    let mut late = coordinator.place.joining("late", &program("hold"), &["--megabytes", "8"]);
    let late = Running::start(late.env("BATON_REQUIRE", "1"), false, None).finish(LIMIT);
    assert_eq!(late.status, "exit status: 125", "{late:?}");
    assert!(late.err.contains("ends when its last program has left"), "{late:?}");
    assert!(stop.ended().is_none(), "one is still there");
    assert!(one.ask("touch", LIMIT).contains("touched"));
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    stop.finish(LIMIT).succeeded();
    // It ends of itself; a signal that comes later is no matter.
    assert_eq!(coordinator.end(libc::SIGCONT).code(), Some(0), "{}", coordinator.log());
    assert!(!coordinator.place.socket().exists());
}

#[test]
fn a_program_that_comes_while_a_coordinator_is_stopped_gets_a_new_one() {
    let mut coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "batch", "24", None);
    let mut stop = stopping(&coordinator);
    stop.line(LIMIT);
    let mut next = coordinator.place.baton(&["run", "--driver", "sim", "--arena", "64MiB", "--host-pool", "64MiB"]);
    next.arg("--socket").arg(coordinator.place.socket()).arg("--").arg(program("hold")).args(["--megabytes", "8"]);
    let mut next = Running::start(&mut next, true, Some(coordinator.place.clone()));
    while !next.err().contains("because of `baton stop`") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    assert!(next.line(LIMIT).starts_with("ready "));
    assert!(next.ask("quit", LIMIT).ends_with(" ok"));
    stop.finish(LIMIT).succeeded();
    assert_eq!(coordinator.end(libc::SIGCONT).code(), Some(0));
}

#[test]
fn a_coordinator_that_is_stopped_now_says_whom_that_fails() {
    let mut coordinator = Serving::small("64MiB").start();
    coordinator.until_ready();
    let mut away = hold::joined(&coordinator, "away", "batch", "24", None);
    assert!(away.ask("touch", LIMIT).contains("touched"));
    let mut here = hold::joined(&coordinator, "here", "batch", "24", None);
    assert!(here.ask("touch", LIMIT).contains("touched"));
    assert!(coordinator.evict("away"), "it is idle");
    let stopped = baton(&coordinator, &["stop", "--now"]).succeeded();
    assert_eq!(
        stopped.out,
        "these fail, because some of their memory is on the host: away\nthese go on by themselves: here\nthe coordinator has ended\n"
    );
    assert_eq!(coordinator.end(libc::SIGCONT).code(), Some(0), "{}", coordinator.log());
    assert!(here.ask("touch", LIMIT).contains("touched"));
    assert!(here.ask("quit", LIMIT).ends_with(" ok"));
    away.signal(libc::SIGKILL);
}
