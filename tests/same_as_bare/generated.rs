//! Generated programs compute under Baton what they compute bare, whatever is done to them meanwhile.
//!
//! `tests/generate` runs many more of them.

use std::time::Duration;

use baton_tests::generated::draw::Aspect;
use baton_tests::generated::hunt::{self, Plan, SEED, number};
use baton_tests::generated::trial::{PATIENCE, PRESSURES, Pressure};

/// How many programs a plain `cargo test` runs.
const COUNT: usize = 32;

/// How many of them have aspects that are asked for.
const COUNT_WITH: usize = 48;

#[track_caller]
fn none_fails(plan: &Plan) {
    let found = hunt::run(plan);
    let failed = found.failures.len();
    assert_eq!(failed, 0, "{failed} programs do something else under Baton; see above");
    let is_enough = plan.count < COUNT || found.evictions.values().all(|evictions| *evictions > 0);
    assert!(is_enough, "nothing was evicted: {:?}", found.evictions);
}

/// So many programs that have these aspects.
fn plan(count: usize, with: &[Aspect]) -> Plan {
    let (with, without, known) = (with.to_vec(), Vec::new(), Vec::new());
    let shrinking = Duration::from_secs(120);
    Plan { count, seed: SEED, with, without, shrinking, failures: 1, known, patience: PATIENCE }
}

#[test]
fn generated_programs_compute_under_baton_what_they_compute_bare() {
    none_fails(&plan(COUNT, &[]));
}

#[test]
fn generated_programs_find_memory_through_pointers_that_no_parameter_shows() {
    use Aspect::{Chains, Graphs, Host, Late, Launches, Managed, Tables, Variables, Words};
    none_fails(&plan(COUNT_WITH, &[Chains, Graphs, Host, Late, Launches, Managed, Tables, Variables, Words]));
}

#[test]
fn generated_programs_do_the_same_in_every_run_alone() {
    hunt::alike_alone(&plan(6, &[]));
}

#[test]
#[ignore = "long: two thousand programs, or as many as tests/generate says"]
fn generated_programs_compute_under_baton_what_they_compute_bare_by_the_thousand() {
    none_fails(&Plan::asked(2000));
}

#[test]
fn generated_programs_that_once_failed_compute_what_they_compute_bare() {
    let folder = baton_tests::root().join("tests/generated");
    let entries = std::fs::read_dir(&folder).expect("the repository's own folder");
    let files = entries.map(|entry| entry.expect("a readable folder").path());
    let scripts: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "json")).collect();
    // None of them has failed because a coordinator died.
    let pressures = PRESSURES.into_iter().filter(|one| *one != Pressure::Deaths).collect::<Vec<_>>();
    let faults = hunt::again(&scripts, 1, &pressures);
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
#[ignore = "long: for changes of the generator"]
fn generated_programs_end_well_and_alike_alone_by_the_hundred() {
    hunt::alike_alone(&Plan::asked(300));
}

#[track_caller]
fn exchanges_are_equal(count: usize, seed: u64) {
    let faults = hunt::exchanges(count, seed);
    assert!(faults.is_empty(), "{} of {count} exchanges:\n{}", faults.len(), faults.join("\n\n"));
}

#[test]
fn generated_exchanges_between_processes_are_equal() {
    exchanges_are_equal(15, SEED);
}

#[test]
#[ignore = "long: as many exchanges as tests/generate says"]
fn generated_exchanges_between_processes_are_equal_by_the_hundred() {
    exchanges_are_equal(
        number("GENERATE_COUNT").map_or(300, |count| count as usize),
        number("GENERATE_SEED").unwrap_or(SEED),
    );
}
