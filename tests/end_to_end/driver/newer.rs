//! A driver that is newer than Baton: functions that Baton does not know are not there, or runs while all memory is here.

use std::path::PathBuf;
use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving, with_driver};
use baton_tests::running::Running;
use baton_tests::{LIMIT, Outcome, built};

const DRIVER: &str = "libnewer_driver.so";
const FUNCTION: &str = "cuMemcpyOfTomorrow";

/// Memory comes back so slowly that calls are made meanwhile.
fn serving() -> Serving {
    let serving = Serving::arena("96MiB").option("--host-pool", "128MiB").option("--quantum", "1h");
    serving.setting("SIMCUDA_H2D_GBPS", "0.2").setting("SIMCUDA_D2H_GBPS", "6")
}

/// The program of `tests/c/legal`, as a tenant with that driver.
fn program(coordinator: &Coordinator) -> Command {
    let mut command = coordinator.place.joining("newer", &built().programs.join("legal/newer"), &["copies"]);
    with_driver(&mut command, DRIVER);
    command
}

/// Runs it, and evicts it whenever it waits; it has checked its memory when it ends.
#[track_caller]
fn to_the_end(coordinator: &Coordinator, command: &mut Command) -> Outcome {
    let mut running = Running::start(command, true, Some(coordinator.place.clone()));
    let (mut evictions, mut said) = (0, String::new());
    while let Ok(line) = running.line_if_any(LIMIT) {
        if line == "waits" {
            evictions += usize::from(coordinator.evict("newer"));
            running.say("");
        } else {
            said += &line;
            said.push('\n');
        }
    }
    let outcome = Outcome { out: said, ..running.finish(LIMIT) }.succeeded();
    assert!(evictions > 0, "it was never evicted: {outcome:?}");
    outcome
}

/// Tells whether it says all of these.
#[track_caller]
fn says(outcome: &Outcome, lines: &[&str]) {
    for line in lines {
        assert!(outcome.out.lines().any(|said| said == *line), "it does not say {line:?}: {}", outcome.out);
    }
}

#[test]
fn functions_that_nobody_knows_are_not_there_and_programs_go_on_without_them() {
    let coordinator = serving().start();
    let log = coordinator.place.folder().join("log");
    let outcome = to_the_end(&coordinator, program(&coordinator).env("BATON_LOG", &log));
    says(
        &outcome,
        &[
            "cuMemcpyDtoDAsync of 13050: 0, status 0, found",
            "cuMemcpyDtoDAsync of 13050, asked of old: 0, the same",
            "cuMemcpyDtoDAsync of 99990: 0, status 1, none",
            "cuMemcpyDtoDAsync of 99990, asked of old: 500, as it was",
            "cuMemcpyOfTomorrow of 99990: 0, status 1, none",
            "cuMemcpyOfTomorrow of 99990, asked of old: 500, as it was",
            "cuMemcpyOfTomorrow of 13050: 0, status 2, none",
            "cuNoSuchFunction of 99990: 0, status 1, none",
            "cuMemsetD32 of 99990: 0, status 0, found",
            "the loader finds none",
        ],
    );
    let log = std::fs::read_to_string(&log).expect("it has said something");
    let last = log.lines().last().expect("a line");
    assert!(
        last.ends_with("(2), and it was told that there are none: cuMemcpyDtoDAsync, cuMemcpyOfTomorrow [B0361]"),
        "{log}"
    );
    assert_eq!(outcome.err, "");
}

#[test]
fn functions_that_nobody_knows_run_with_all_memory_here_if_they_are_to() {
    let coordinator = serving().start();
    let log = coordinator.place.folder().join("log");
    let outcome = to_the_end(&coordinator, program(&coordinator).env("BATON_UNKNOWN", "whole").env("BATON_LOG", &log));
    says(
        &outcome,
        &[
            "cuMemcpyDtoDAsync of 99990: 0, status 0, found",
            "cuMemcpyDtoDAsync of 99990, asked of old: 0, the same",
            "cuMemcpyOfTomorrow of 99990: 0, status 0, found",
            "cuMemcpyOfTomorrow of 13050: 0, status 2, none",
            "cuNoSuchFunction of 99990: 0, status 1, none",
            "no older one in its place: 1",
        ],
    );
    let log = std::fs::read_to_string(&log).expect("it has said something");
    assert!(log.contains("they run while all memory is here: cuMemcpyDtoDAsync, cuMemcpyOfTomorrow"), "{log}");
}

#[test]
fn a_program_that_joins_nobody_gets_all_that_the_driver_has() {
    let coordinator = serving().start();
    let mut command = program(&coordinator);
    let outcome = Running::start(command.env("BATON_DISABLE", "1"), false, None).finish(LIMIT).succeeded();
    says(&outcome, &["cuMemcpyOfTomorrow of 99990: 0, status 0, found"]);
}

#[test]
fn doctor_names_what_a_driver_has_that_nobody_knows() {
    let prepared = serving().prepare();
    let driver: PathBuf = built().programs.join(DRIVER);
    let doctor = |driver: &str| {
        let mut command = prepared.place.baton(&["doctor", "--driver", driver]);
        command.env("LD_LIBRARY_PATH", &built().bin);
        let outcome = Running::start(&mut command, false, None).finish(LIMIT);
        let line = outcome.out.lines().find(|line| line.contains(" functions ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no such line: {outcome:?}"))
    };
    let line = doctor(driver.to_str().expect("UTF-8"));
    assert!(line.starts_with("less ") && line.contains(" 2 of the driver"), "{line}");
    assert!(line.contains(&format!("cuMemcpyDtoDAsync_v3, {FUNCTION}")), "{line}");
    let line = doctor("sim");
    assert!(line.starts_with("ok ") && line.ends_with("Baton knows all of the driver's functions"), "{line}");
}
