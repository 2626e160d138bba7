//! A coordinator is followed by another version while its programs go on.

use std::time::Duration;

use baton_tests::coordinator::{Coordinator, EndsWhatServes, Serving, program};
use baton_tests::faults::{Role, Strike, Victim};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::strikes::with_board;
use baton_tests::{LIMIT, Outcome};

use super::takeover::{hold, log_has, quit, serves, serving, touch};

/// Has the version that is built follow the coordinator that serves.
#[track_caller]
fn upgrade(coordinator: &Coordinator) {
    let before = serves(coordinator);
    let mut command = coordinator.place.baton(&["upgrade", "--timeout", "60s", "--socket"]);
    let said = baton_tests::run(command.arg(coordinator.place.socket())).succeeded();
    let after = serves(coordinator);
    assert!(after != before && said.out.contains(&format!("process {after}")), "{before}, {after}: {said:?}");
}

#[test]
fn an_upgrade_is_not_noticed_by_programs() {
    let want = hold::alone("48", &["touch"; 4]);
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut programs = ["one", "other"].map(|name| hold(&coordinator, name, "normal"));
    let keeper = coordinator.status()["keeper"].clone();
    for answer in &want[..4] {
        touch(&mut programs, answer);
        upgrade(&coordinator);
    }
    assert_eq!(coordinator.status()["keeper"], keeper);
    // It is followed when it dies, too.
    coordinator.kill_served();
    quit(&mut programs, &want[4]);
    assert!(!coordinator.log().contains("WARN"), "{}", coordinator.log());
    coordinator.until_empty();
}

/// Work of three classes is under way whenever a successor takes over.
#[test]
fn upgrades_under_load_lose_nothing() {
    let coordinator = serving().start();
    coordinator.until_ready();
    let loads: [(&str, &[&str]); 3] = [
        ("batch", &["--megabytes", "40", "--rounds", "60"]),
        ("normal", &["--megabytes", "40", "--rounds", "60"]),
        ("latency", &["--megabytes", "16", "--rounds", "60", "--gap-ms", "20"]),
    ];
    let want: Vec<_> =
        loads.iter().map(|(_, options)| baton_tests::coordinator::alone("fill_and_check", options)).collect();
    let start = |(class, options): &(&str, &[&str])| coordinator.run(class, class, &program("fill_and_check"), options);
    let programs: Vec<_> = loads.iter().map(start).collect();
    for _ in 0..4 {
        upgrade(&coordinator);
    }
    for (program, want) in programs.into_iter().zip(want) {
        let outcome = program.finish(LIMIT).succeeded();
        assert_eq!((outcome.out.trim_end(), outcome.said()), (want.trim_end(), String::new()));
    }
    coordinator.until_empty();
}

#[test]
fn an_upgrade_that_cannot_be_changes_nothing() {
    let want = hold::alone("48", &["touch"]);
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut one = hold(&coordinator, "one", "normal");
    let before = serves(&coordinator);
    let upgrade = |words: &[&str]| {
        let mut command = coordinator.place.baton(&["upgrade", "--socket"]);
        baton_tests::run(command.arg(coordinator.place.socket()).args(words))
    };
    let checked = upgrade(&["--check"]).succeeded();
    assert!(checked.out.contains("these go on: one"), "{checked:?}");
    // No coordinator is ready so soon.
    let late = upgrade(&["--timeout", "1ms"]);
    assert!(late.status == "exit status: 1" && late.err.contains("not ready in time"), "{late:?}");
    assert_eq!(serves(&coordinator), before);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    assert_eq!(one.ask("quit", LIMIT), want[1]);
    let alone = Serving::small("64MiB").start();
    let refused = baton_tests::run(alone.place.baton(&["upgrade", "--socket"]).arg(alone.place.socket()));
    assert!(refused.err.contains("has no keeper"), "{refused:?}");
}

/// An upgrade whose keeper dies when a process comes to this point. Programs go on, and so does either coordinator. Returns what was
/// said about the upgrade.
#[track_caller]
fn keeper_dies_in_an_upgrade(point: &str, wait: Duration) -> Outcome {
    let want = hold::alone("48", &["touch"; 3]);
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let _end = EndsWhatServes(&coordinator);
    coordinator.until_ready();
    let mut programs = ["one", "other"].map(|name| hold(&coordinator, name, "normal"));
    touch(&mut programs, &want[0]);
    let victim = Victim::Of(Role::Keeper);
    board.prepare(&Strike { point: point.to_owned(), victim, signal: libc::SIGKILL, wait, ..Strike::default() });
    let mut upgrade = coordinator.place.baton(&["upgrade", "--timeout", "60s", "--socket"]);
    let said = baton_tests::run(upgrade.arg(coordinator.place.socket()));
    assert!(board.struck().is_some());
    coordinator.until("another keeper holds all", |_| log_has(&coordinator, "B0621", 1));
    touch(&mut programs, &want[1]);
    let refused = Running::start(coordinator.prepared().serve().arg("--no-keeper"), false, None).finish(LIMIT);
    assert!(refused.err.contains("serves GPU-"), "{refused:?}");
    coordinator.kill_served();
    touch(&mut programs, &want[2]);
    quit(&mut programs, &want[3]);
    coordinator.until_empty();
    said
}

/// The successor has the GPU's lock by then, which it must not give up, and nothing else.
#[test]
fn an_upgrade_whose_keeper_dies_leaves_the_place_as_it_is() {
    // It is of no interest here if there is an upgrade or not.
    println!("{:?}", keeper_dies_in_an_upgrade("successor is ready", Duration::from_millis(100)));
}

/// The coordinator has handed over by then, and its successor has nothing yet.
#[test]
fn a_coordinator_whose_keeper_dies_when_it_is_to_hand_over_goes_on() {
    let said = keeper_dies_in_an_upgrade("keeper hands over", Duration::ZERO);
    assert!(said.status == "exit status: 1" && said.err.contains("B0648"), "{said:?}");
}

#[test]
fn a_successor_that_has_all_goes_on_although_the_keeper_dies() {
    keeper_dies_in_an_upgrade("successor goes on", Duration::from_millis(100)).succeeded();
}

/// The successor prepares itself, and hears no more of the keeper that has started it.
#[test]
fn a_coordinator_whose_keeper_dies_while_a_successor_prepares_itself_goes_on() {
    let said = keeper_dies_in_an_upgrade("coordinator calls cuDeviceGet", Duration::from_millis(2));
    assert!(said.status == "exit status: 1", "{said:?}");
}
