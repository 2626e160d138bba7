//! Coordinator and tenants in different PID namespaces: neither can see the other's numbers, and nothing depends on that.

use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving, alone, program, tenant};
use baton_tests::running::Running;
use baton_tests::{LIMIT, around, built};
use serde_json::Value;

/// The same command in a PID namespace of its own, with its own `/proc`; it ends with us.
fn isolated(command: &Command) -> Command {
    let mut inner = Command::new("unshare");
    inner.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    // Only root may have another PID namespace without a user namespace.
    if !rustix::process::geteuid().is_root() {
        inner.args(["--user", "--map-current-user"]);
    }
    inner.arg("--");
    around(inner, command)
}

const WORDS: [&str; 8] = ["--megabytes", "36", "--rounds", "8", "--check", "4", "--gap-ms", "1"];

/// Two programs that do not fit together compute what they compute alone; one is killed; one is replaced by another
/// program; one is stopped.
#[track_caller]
fn share_as_in_one_namespace(
    coordinator: &Coordinator,
    start: impl Fn(&str, &[&str]) -> Running,
    pids_are_known: bool,
) {
    let solo = alone("fill_and_check", &WORDS);
    let running = ["one", "two"].map(|name| start(name, &[&["fill_and_check"], &WORDS[..]].concat()));
    for running in running {
        assert_eq!(running.result(LIMIT), solo, "shared (left) and alone (right)");
    }
    let status = coordinator.until_empty();
    assert!(status["switches"].as_u64() >= Some(4), "{status:#}");

    let mut victim = start("victim", &["hold", "--megabytes", "40"]);
    assert!(victim.line(LIMIT).starts_with("ready "));
    let status = coordinator.status();
    assert_eq!(tenant(&status, "victim")["pid"].is_null(), !pids_are_known, "{status:#}");
    // Processes that cannot be told from others are unknown, and not none.
    assert_eq!(status["outsiders"].is_null(), !pids_are_known, "{status:#}");
    let mut other = start("other", &["hold", "--megabytes", "40"]);
    assert!(other.line(LIMIT).starts_with("ready "));
    // Its memory comes back when it is killed, wherever it is.
    victim.signal(libc::SIGKILL);
    victim.end(LIMIT);
    coordinator.until("the victim's memory is back", |status| {
        status["tenants"].as_array().is_some_and(|tenants| tenants.len() == 1)
            && status["arena"]["lent_bytes"] == tenant(status, "other")["resident_bytes"]
    });
    let mut replaced = start("replaced", &["hold", "--megabytes", "24"]);
    assert!(replaced.line(LIMIT).starts_with("ready "));
    replaced.say("exec /bin/cat");
    coordinator.until("what the replaced program had is back", |status| {
        status["tenants"].as_array().is_some_and(|tenants| tenants.len() == 1)
    });
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    assert!(other.ask("quit", LIMIT).ends_with(" ok"));
    drop(replaced);
    coordinator.until_empty();
}

#[test]
fn tenants_in_namespaces_of_their_own_share_the_gpu() {
    let coordinator = Serving::small("64MiB").start();
    let start = |name: &str, words: &[&str]| {
        let mut command = coordinator.place.joining(name, &program(words[0]), &words[1..]);
        Running::start(&mut isolated(command.env("BATON_REQUIRE", "1")), true, Some(coordinator.place.clone()))
    };
    share_as_in_one_namespace(&coordinator, start, true);
}

#[test]
fn a_coordinator_in_a_namespace_of_its_own_serves_those_outside() {
    let coordinator = Serving::small("64MiB").start_as(isolated);
    let start = |name: &str, words: &[&str]| {
        let mut command = coordinator.place.joining(name, &program(words[0]), &words[1..]);
        Running::start(command.env("BATON_REQUIRE", "1"), true, Some(coordinator.place.clone()))
    };
    share_as_in_one_namespace(&coordinator, start, false);
}

/// A latency program that is stopped while it is at work keeps the others from nothing.
#[test]
fn a_program_that_is_stopped_where_nobody_sees_it_is_noticed_all_the_same() {
    let coordinator = Serving::small("128MiB").start_as(isolated);
    let start = |name: &str, class: &str| {
        let mut command = coordinator.place.joining(name, &program("hold"), &["--megabytes", "24"]);
        let mut running = Running::start(
            command.env("BATON_CLASS", class).env("BATON_REQUIRE", "1"),
            true,
            Some(coordinator.place.clone()),
        );
        assert!(running.line(LIMIT).starts_with("ready "));
        running
    };
    let (mut urgent, mut patient) = (start("urgent", "latency"), start("patient", "batch"));
    for _ in 0..3 {
        assert!(urgent.ask("touch", LIMIT).starts_with("touched "));
        urgent.signal(libc::SIGSTOP);
        assert!(patient.ask("touch", LIMIT).starts_with("touched "));
        urgent.signal(libc::SIGCONT);
    }
    for running in [&mut urgent, &mut patient] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

/// `baton run` from inside, with nothing but the socket in common.
#[test]
fn a_run_from_another_namespace_joins_and_is_listed_without_a_number() {
    let coordinator = Serving::small("64MiB").start_as(isolated);
    let mut command = coordinator.place.baton(&["run", "--socket"]);
    command.arg(coordinator.place.socket()).arg("--").arg(built().examples.join("vector_add"));
    let ran = Running::start(&mut command, false, None).finish(LIMIT).succeeded();
    assert!(ran.out.ends_with(" ok\n") && ran.said().is_empty(), "{ran:?}");
    let status = coordinator.until_empty();
    assert_eq!(status["departed"].as_array().map(Vec::len), Some(1), "{status:#}");
    assert_eq!(status["holder"], Value::Null);
}
