//! Commands wait until what they ask for is done, no longer than they are told, and say what came of it in a line.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;

use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::running::Running;
use baton_tests::{LIMIT, hold};

/// `baton VERB --socket …`.
fn command(coordinator: &Coordinator, words: &[&str]) -> std::process::Command {
    let mut command = coordinator.place.baton(&words[..1]);
    command.arg("--socket").arg(coordinator.place.socket()).args(&words[1..]);
    command
}

/// Its exit code, and what it says on both outputs.
fn told(coordinator: &Coordinator, words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(coordinator, words).output().expect("baton can be started");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

/// A program whose kernel has begun and takes minutes.
fn endless(coordinator: &Coordinator, name: &str) -> Running {
    let mut command = coordinator.place.joining(name, &program("hold"), &["--megabytes", "24"]);
    let running = Running::start(command.env("SIMCUDA_KERNEL_GFLOPS", "0.0001"), true, None);
    coordinator.until("its kernel runs", |status| tenant(status, name)["gpu_seconds"].as_f64() > Some(0.5));
    running
}

#[test]
fn an_eviction_of_a_program_at_work_is_given_up_in_time_and_says_why() {
    let coordinator = Serving::small("64MiB").start();
    let mut busy = endless(&coordinator, "busy");
    let (code, out, err) = told(&coordinator, &["evict", "--timeout", "300ms", "busy"]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("busy is still running after 300ms") && err.contains("suspend"), "{err}");
    // Nothing of it is left: when the work is off the GPU, the memory stays where it is, until it is asked for again.
    assert_eq!(told(&coordinator, &["suspend", "busy"]), (Some(0), "suspended busy\n".to_owned(), String::new()));
    assert_eq!(tenant(&coordinator.status(), "busy")["evicted_bytes"], 0);
    let (code, out, err) = told(&coordinator, &["evict", "busy"]);
    assert_eq!((code, out.as_str()), (Some(0), "evicted busy\n"), "{err}");
    busy.signal(libc::SIGKILL);
    busy.end(LIMIT);
}

#[test]
fn an_eviction_that_is_not_waited_for_comes_when_the_work_has_ended() {
    let coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "normal", "24", Some("0.05"));
    assert!(one.ask("leave", LIMIT).starts_with("left "));
    assert_eq!(
        told(&coordinator, &["evict", "--no-wait", "one"]),
        (Some(0), "evicting one\n".to_owned(), String::new())
    );
    coordinator.until("its memory has left", |status| tenant(status, "one")["resident_bytes"] == 0);
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
    let (code, _, err) = told(&coordinator, &["evict", "--no-wait", "one"]);
    assert!(code == Some(1) && err.contains("no program called one"), "{err}");
}

#[test]
fn a_suspension_that_cannot_be_yet_stands_and_says_why() {
    let coordinator = Serving::small("64MiB").flag("--no-preempt").start();
    let mut busy = endless(&coordinator, "busy");
    let (code, _, err) = told(&coordinator, &["suspend", "--timeout", "300ms", "busy"]);
    assert!(code == Some(1) && err.contains("after 300ms; it is suspended as soon as"), "{err}");
    assert_eq!(told(&coordinator, &["resume", "busy"]), (Some(0), "resumed busy\n".to_owned(), String::new()));
    assert_eq!(told(&coordinator, &["resume", "--no-wait", "busy"]).1, "resuming busy\n");
    busy.signal(libc::SIGKILL);
    busy.end(LIMIT);
}

#[test]
fn an_end_that_was_asked_for_stands_until_somebody_cancels_it() {
    let mut coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "batch", "8", None);
    let (code, out, err) = told(&coordinator, &["stop", "--timeout", "300ms"]);
    assert_eq!((code, out.as_str()), (Some(1), "no new programs share the GPU; the coordinator ends after one\n"));
    assert!(err.contains("after 300ms the coordinator still has programs: one;") && err.contains("--cancel"), "{err}");
    let late = || {
        let mut late = coordinator.place.joining("late", &program("hold"), &["--megabytes", "8"]);
        Running::start(late.env("BATON_REQUIRE", "1"), true, None)
    };
    let outcome = late().finish(LIMIT);
    assert!(outcome.err.contains("ends when its last program has left"), "{outcome:?}");
    let well = |said: &str| (Some(0), said.to_owned(), String::new());
    assert_eq!(told(&coordinator, &["stop", "--cancel"]), well("programs may join again\n"));
    assert_eq!(told(&coordinator, &["stop", "--cancel"]), well("no end had been asked for\n"));
    let mut again = late();
    assert!(again.line(LIMIT).starts_with("ready "));
    assert!(again.ask("quit", LIMIT).ends_with(" ok"));
    // A command that waits for the end hears that it does not come.
    let mut waits = Running::start(&mut command(&coordinator, &["stop", "--timeout", "5m"]), false, None);
    waits.line(LIMIT);
    assert_eq!(told(&coordinator, &["stop", "--cancel"]), well("programs may join again\n"));
    let outcome = waits.finish(LIMIT);
    assert!(outcome.status.ends_with(": 1") && outcome.err.contains("cancelled"), "{outcome:?}");
    // An end that no command waits for comes all the same.
    let said = "no new programs share the GPU; the coordinator ends after one\n";
    assert_eq!(told(&coordinator, &["stop", "--no-wait"]), well(said));
    assert!(one.ask("touch", LIMIT).starts_with("touched "));
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    // It ends of itself; a signal that comes later is no matter.
    assert_eq!(coordinator.end(libc::SIGCONT).code(), Some(0), "{}", coordinator.log());
}

#[test]
fn an_end_with_nobody_there_comes_at_once() {
    let mut coordinator = Serving::small("64MiB").start();
    let said = told(&coordinator, &["stop", "--no-wait"]);
    assert_eq!(said, (Some(0), "the coordinator ends now\n".to_owned(), String::new()));
    assert_eq!(coordinator.end(libc::SIGCONT).code(), Some(0), "{}", coordinator.log());
}

#[test]
fn a_command_that_is_interrupted_ends_as_by_the_signal() {
    let coordinator = Serving::small("64MiB").start();
    let mut busy = endless(&coordinator, "busy");
    for words in [&["evict", "--timeout", "5m", "busy"][..], &["stop", "--timeout", "5m"], &["logs", "--follow"]] {
        let mut waits = Running::start(&mut command(&coordinator, words), false, None);
        // Its output, or its message after a second without a terminal: then it waits.
        while waits.out().is_empty() && waits.err().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        waits.signal(libc::SIGINT);
        let status = waits.end(LIMIT);
        assert!(status.signal() == Some(libc::SIGINT) || status.code() == Some(130), "{words:?}: {status}");
    }
    busy.signal(libc::SIGKILL);
    busy.end(LIMIT);
}
