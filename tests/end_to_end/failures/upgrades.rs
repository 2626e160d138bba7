//! A coordinator is followed by another version while its programs go on.

use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use baton_contract::messages::{Message as _, Opening};
use baton_contract::wire::{GpuNumber, VERSION, Version};
use baton_tests::bare_tenant::{BareTenant, greeting};
use baton_tests::coordinator::{Coordinator, EndsWhatServes, Serving, program, tenant};
use baton_tests::faults::{Role, Strike, Victim};
use baton_tests::hold;
use baton_tests::running::{Running, signal};
use baton_tests::strikes::with_board;
use baton_tests::{LIMIT, Outcome};
use serde_json::{Value, json};

use super::takeover::{hold, log_has, quit, serving, touch, two, want_after};

/// Has the version that is built follow the coordinator that serves.
#[track_caller]
fn upgrade(coordinator: &Coordinator) {
    let before = coordinator.served();
    let said = baton_tests::run(&mut coordinator.place.upgrade("60s")).succeeded();
    let after = coordinator.served();
    assert!(after != before && said.out.contains(&format!("process {after}")), "{before}, {after}: {said:?}");
}

#[test]
fn an_upgrade_is_not_noticed_by_programs() {
    let want = hold::alone("48", &["touch"; 4]);
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut programs = two(&coordinator);
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
    let before = coordinator.served();
    let upgrade = |words: &[&str]| {
        let mut command = coordinator.place.baton(&["upgrade", "--socket"]);
        baton_tests::run(command.arg(coordinator.place.socket()).args(words))
    };
    let checked = upgrade(&["--check"]).succeeded();
    assert!(checked.out.contains("these go on: one"), "{checked:?}");
    // No coordinator is ready so soon.
    let late = upgrade(&["--timeout", "1ms"]);
    assert!(late.status == "exit status: 1" && late.err.contains("not ready in time"), "{late:?}");
    assert_eq!(coordinator.served(), before);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    assert_eq!(one.ask("quit", LIMIT), want[1]);
    let alone = Serving::small("64MiB").start();
    let refused = baton_tests::run(alone.place.baton(&["upgrade", "--socket"]).arg(alone.place.socket()));
    assert!(refused.err.contains("has no keeper"), "{refused:?}");
}

#[test]
fn an_upgrade_after_another_keeper_has_come_serves_the_web_where_it_was() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let at = format!("127.0.0.1:{port}");
    let coordinator = Serving::small("64MiB").keeper().option("--metrics", &at).start();
    let _end = EndsWhatServes(&coordinator);
    let mut program = hold::joined(&coordinator, "one", "normal", "8", None);
    signal(coordinator.pid(), libc::SIGKILL);
    coordinator.until("another one holds all", |_| coordinator.log().contains("B0621"));
    upgrade(&coordinator);
    assert!(std::net::TcpStream::connect(&at).is_ok());
    assert!(program.ask("quit", LIMIT).ends_with(" ok"));
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
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    let victim = Victim::Of(Role::Keeper);
    board.prepare(&Strike { victim, signal: libc::SIGKILL, wait, ..Strike::at(point) });
    let said = baton_tests::run(&mut coordinator.place.upgrade("60s"));
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

/// Asks for an upgrade to a version that speaks only this contract. The coordinator's answer.
fn ask_for_newer(coordinator: &Coordinator, check: bool, leave_behind: bool) -> Value {
    let file = coordinator.place.baton(&[]).get_program().to_str().expect("UTF-8").to_owned();
    let question = Opening::Upgrade { file, check, within_ms: 30_000, oldest: VERSION, leave_behind };
    let end = Some(Instant::now() + LIMIT);
    let answer =
        baton_client::ask_patiently(&coordinator.place.socket(), &question, end, &mut || ()).expect("it is there");
    serde_json::from_slice(&answer.expect("an answer")).expect("JSON")
}

#[test]
fn a_program_that_the_other_version_does_not_know_is_in_its_way() {
    let coordinator = serving().start();
    coordinator.until_ready();
    // It is answered in its own version, which the page says, too.
    let old =
        BareTenant::greet(&coordinator, &greeting(&coordinator, "old").encode_in(GpuNumber::ANY, Version::BEFORE));
    let mut page = [0; 4];
    std::fs::File::from(old.pages[0].try_clone().expect("a descriptor")).read_exact_at(&mut page, 0).expect("a page");
    assert_eq!(u32::from_le_bytes(page), Version::BEFORE.number());
    let want = hold::alone("48", &["touch"; 2]);
    let mut new = hold(&coordinator, "new", "normal");
    assert_eq!(new.ask("touch", LIMIT), want[0]);
    let plan = ask_for_newer(&coordinator, true, false);
    assert_eq!([&plan["programs"], &plan["left_behind"]], [&json!(["new"]), &json!(["old"])]);
    let before = coordinator.served();
    for answer in [plan["obstacle"].clone(), ask_for_newer(&coordinator, false, false)["error"].clone()] {
        assert!(answer.as_str().is_some_and(|why| why.contains("B0654") && why.ends_with("old [B0654]")), "{answer}");
    }
    assert_eq!(coordinator.served(), before);
    // It is in nobody's way when it has gone.
    drop(old);
    coordinator.until("it has gone", |status| tenant(status, "old").is_null());
    assert_eq!(ask_for_newer(&coordinator, false, false)["programs"], 1);
    assert_eq!(new.ask("touch", LIMIT), want[1]);
    quit(&mut [new], &want[2]);
}

mod from_before {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    /// The folder with `baton` and `libbaton.so` of the version before.
    fn before() -> PathBuf {
        std::env::var_os("BATON_TEST_BEFORE").expect("tests/upgrade_from says where the version before is").into()
    }

    /// The command, with that version's file in place of its own.
    fn of_before(command: &Command, file: &Path) -> Command {
        let mut of_before = Command::new(file);
        of_before.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => of_before.env(name, value),
                None => of_before.env_remove(name),
            };
        }
        of_before
    }

    /// That version's coordinator, with its keeper.
    fn serving_before() -> Coordinator {
        let file = before().join("baton");
        let coordinator = serving().start_as(|command| of_before(command, &file));
        coordinator.until_ready();
        coordinator
    }

    /// The command with that version's library.
    fn with_library(mut command: Command) -> Command {
        command.env("LD_PRELOAD", before().join("libbaton.so"));
        command
    }

    /// One is of that version, the other of this: both go on when this one's coordinator dies, and is followed again.
    #[test]
    #[ignore = "long: tests/upgrade_from builds the version before"]
    fn programs_of_the_version_before_go_on_with_this_one() {
        let want = hold::alone("48", &["touch"; 5]);
        let coordinator = serving_before();
        let joining = |name| coordinator.place.joining(name, &program("hold"), &["--megabytes", "48"]);
        let old = |name| hold::ready(&mut with_library(joining(name)), Some(coordinator.place.clone()));
        let mut programs = vec![old("one"), old("other")];
        touch(&mut programs, &want[0]);
        upgrade(&coordinator);
        touch(&mut programs, &want[1]);
        let mut new = hold(&coordinator, "new", "normal");
        assert_eq!(new.ask("touch", LIMIT), want[0]);
        // Programs of the version before join this one's coordinator, too.
        let mut late = old("late");
        assert_eq!(late.ask("touch", LIMIT), want[0]);
        touch(&mut programs, &want[2]);
        coordinator.kill_served();
        touch(&mut programs, &want[3]);
        upgrade(&coordinator);
        touch(&mut programs, &want[4]);
        let mut later = [new, late];
        touch(&mut later, &want[1]);
        quit(&mut later, &want_after(2));
        quit(&mut programs, &want[5]);
        coordinator.until_empty();
    }

    #[test]
    #[ignore = "long: tests/upgrade_from builds the version before"]
    fn a_program_that_is_left_behind_is_killed_and_the_others_go_on() {
        let want = hold::alone("48", &["touch"; 2]);
        let coordinator = serving().start();
        coordinator.until_ready();
        let command = coordinator.place.joining("old", &program("hold"), &["--megabytes", "48"]);
        let old = hold::ready(&mut with_library(command), Some(coordinator.place.clone()));
        let mut new = hold(&coordinator, "new", "normal");
        assert_eq!(new.ask("touch", LIMIT), want[0]);
        let before = coordinator.served();
        assert_eq!(ask_for_newer(&coordinator, false, true)["programs"], 1);
        assert_eq!(old.finish(LIMIT).status, "signal: 9 (SIGKILL)");
        coordinator.until_next(before);
        assert_eq!(new.ask("touch", LIMIT), want[1]);
        quit(&mut [new], &want[2]);
        coordinator.until_empty();
    }

    /// Work of three classes is under way, of programs with that version's library.
    #[test]
    #[ignore = "long: tests/upgrade_from builds the version before"]
    fn upgrades_from_the_version_before_under_load_lose_nothing() {
        const TIMES: usize = 20;
        let loads: [(&str, &[&str]); 3] = [
            ("batch", &["--megabytes", "40", "--rounds", "20"]),
            ("normal", &["--megabytes", "40", "--rounds", "20"]),
            ("latency", &["--megabytes", "16", "--rounds", "20", "--gap-ms", "20"]),
        ];
        let want = loads.map(|(_, options)| baton_tests::coordinator::alone("fill_and_check", options));
        for _ in 0..TIMES {
            let coordinator = serving_before();
            let programs = loads.map(|(class, options)| {
                let mut command = coordinator.place.joining(class, &program("fill_and_check"), options);
                command.env("BATON_CLASS", class);
                Running::start(&mut with_library(command), false, Some(coordinator.place.clone()))
            });
            coordinator.until("all are there", |status| status["tenants"].as_array().is_some_and(|all| all.len() == 3));
            upgrade(&coordinator);
            for (program, want) in programs.into_iter().zip(&want) {
                let outcome = program.finish(LIMIT).succeeded();
                assert_eq!((outcome.out.trim_end(), outcome.said()), (want.trim_end(), String::new()));
            }
            coordinator.until_empty();
        }
    }
}
