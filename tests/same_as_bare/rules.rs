//! The driver's rules for memory hold under Baton, whatever is done to a program's memory meanwhile.
//!
//! The programs of `tests/c/rules` say what the driver answers; its expected answers on an H200 are in
//! `bench/results/rules.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use baton_tests::coordinator::{Coordinator, Place, Serving};
use baton_tests::form::Form;
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, Outcome, built};

fn program(family: &str) -> PathBuf {
    built().programs.join("rules").join(family)
}

/// Runs a list of rules to its end; each time that it waits, something is done.
#[track_caller]
fn to_the_end(command: &mut Command, place: Option<Place>, mut meanwhile: impl FnMut()) -> Outcome {
    let mut running = Running::start(command, true, place);
    let mut said = String::new();
    while let Ok(line) = running.line_if_any(LIMIT) {
        if line == "waits" {
            meanwhile();
            running.say("");
        } else {
            said += &line;
            said.push('\n');
        }
    }
    Outcome { out: said, ..running.finish(LIMIT) }
}

/// The outcome on a GPU of its own.
#[track_caller]
fn alone(family: &str) -> Outcome {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Driver::simulated().bare(program(family));
    // Of a family's processes too.
    command.env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_GPU_FILE", folder.path().join("gpu"));
    to_the_end(&mut command, None, || {}).succeeded()
}

/// The same as a tenant, after `meanwhile` before each call.
#[track_caller]
fn shared(coordinator: &Coordinator, family: &str, mut meanwhile: impl FnMut()) -> Outcome {
    let place = &coordinator.place;
    let mut command = place.joining(family, &program(family), &["--wait"]);
    to_the_end(&mut command, Some(place.clone()), &mut meanwhile)
}

/// The lines of each rule.
fn by_rule(outcome: &Outcome) -> BTreeMap<&str, Vec<&str>> {
    let mut rules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in outcome.out.lines() {
        let (rule, rest) = line.split_once(' ').unwrap_or((line, ""));
        rules.entry(rule).or_default().push(rest);
    }
    rules
}

/// Says which rules differ.
#[track_caller]
fn same(alone: &Outcome, shared: &Outcome, what: &str) {
    let (left, right) = (by_rule(alone), by_rule(shared));
    let differ: Vec<String> = left
        .iter()
        .filter(|(rule, said)| right.get(*rule) != Some(*said))
        .map(|(rule, said)| {
            let other = right.get(rule).map_or(&[][..], Vec::as_slice);
            let first = said.iter().zip(other).find(|(left, right)| left != right);
            let (left, right) = first.map_or((said.len().to_string(), other.len().to_string()), |(left, right)| {
                ((*left).to_owned(), (*right).to_owned())
            });
            format!("{rule}\n  alone:  {left}\n  shared: {right}")
        })
        .collect();
    assert!(differ.is_empty(), "{what}, {} rules differ:\n{}", differ.len(), differ.join("\n"));
    assert_eq!(alone, shared, "{what}");
}

/// Undisturbed, and with all memory evicted before calls: before each, or before one in so many.
#[track_caller]
fn rules_hold(family: &str, form: Form) {
    let one_in = form.of(6, 1);
    let alone = alone(family);
    let coordinator = Serving::arena("192MiB").start();
    same(&alone, &shared(&coordinator, family, || {}), "undisturbed");
    let (mut calls, mut evictions) = (0, 0);
    let disturbed = shared(&coordinator, family, || {
        calls += 1;
        evictions += usize::from(calls % one_in == 0 && coordinator.evict(family));
    });
    same(&alone, &disturbed, "evicted before calls");
    assert!(evictions > 100 / one_in, "it was evicted {evictions} times");
    coordinator.until_empty();
}

/// The families whose rules the simulated driver follows.
const MEASURED: &[&str] = &["vmm", "pools", "ipc", "devices"];
/// Rules in which the simulated driver differs from the measured one, and why.
const NOT_SIMULATED: &[(&str, &str)] = &[
    ("create-locations", "memory of the host"),
    ("properties", "memory of the host"),
    ("host-numa-memory", "memory of the host"),
    ("create-handle-types", "memory that a fabric shares"),
    ("free-sync", "cuMemFree leaves the used bytes of a pool as they are, which nobody can rely on"),
    ("free-sync-waits", "a fill into memory that was freed: undefined, and not played here"),
    ("properties-wrong", "of a released handle the driver reads what it has freed"),
    ("old-handle", "a handle of freed memory opens what has come to its address; here it opens nothing"),
];

/// The answers of an H200, family by family and rule by rule.
fn measured(family: &str) -> BTreeMap<String, Vec<String>> {
    let file = baton_tests::root().join("bench/results/rules.json");
    let all: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("the repository's own file")).expect("JSON");
    serde_json::from_value(all["families"][family].clone()).expect("lists of lines by rule")
}

#[test]
fn the_simulated_driver_answers_as_the_measured_one() {
    for family in MEASURED {
        let alone = alone(family);
        let simulated = by_rule(&alone);
        let differ: Vec<String> = measured(family)
            .iter()
            .filter(|(rule, said)| simulated.get(rule.as_str()).is_none_or(|simulated| simulated != *said))
            .map(|(rule, said)| {
                format!("{rule}\n  measured:  {said:?}\n  simulated: {:?}", simulated.get(rule.as_str()))
            })
            .filter(|line| !NOT_SIMULATED.iter().any(|(rule, _)| line.starts_with(&format!("{rule}\n"))))
            .collect();
        assert!(differ.is_empty(), "{family}, {} rules differ:\n{}", differ.len(), differ.join("\n"));
    }
}

#[test]
fn what_processes_share_follows_the_drivers_rules() {
    rules_hold("ipc", Form::Short);
}

#[test]
fn what_was_opened_outlives_whoever_has_allocated_it() {
    for (rule, said) in [
        ("read-after-exporter-ends", "contents right with the other process gone: 1"),
        ("read-after-free", "contents right there: 1"),
    ] {
        for evicts in [false, true] {
            let coordinator = Serving::arena("160MiB").start();
            let place = &coordinator.place;
            let mut command = place.joining("ipc", &program("ipc"), &["--wait", "--faults", rule]);
            let outcome = to_the_end(&mut command, Some(place.clone()), || {
                if evicts {
                    coordinator.evict("ipc");
                }
            });
            assert!(outcome.out.contains(&format!("{rule} {said}")), "evicted: {evicts}, {outcome:?}");
            coordinator.until_empty();
        }
    }
}

#[test]
fn what_other_devices_reach_follows_the_drivers_rules() {
    rules_hold("devices", Form::Short);
}

#[test]
fn what_the_newest_cuda_brought_follows_the_drivers_rules() {
    rules_hold("newest", Form::Short);
}

#[test]
fn all_that_the_newest_cuda_brought_is_called() {
    const OLDER: u32 = 13000;
    let listed: Vec<(String, String, u32, String)> =
        serde_json::from_str(baton_contract::SYMBOLS_CUDA).expect("the list is JSON rows");
    let program = std::fs::read_to_string(baton_tests::root().join("tests/c/rules/newest.c")).expect("a file of ours");
    let plain = listed.iter().filter(|(_, twin, version, _)| *version > OLDER && twin.is_empty());
    let calls =
        |symbol: &str| program.matches(&format!("{symbol}(")).count() + program.matches(&format!("{symbol},")).count();
    // Once it is declared.
    let missing: Vec<_> = plain.filter(|row| calls(&row.3) < 2).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn pools_follow_the_drivers_rules() {
    rules_hold("pools", Form::Short);
}

#[test]
fn a_programs_own_mappings_follow_the_drivers_rules() {
    rules_hold("vmm", Form::Short);
}

#[test]
#[ignore = "long: evicted before every call"]
fn all_rules_hold_with_memory_evicted_before_every_call() {
    for family in ["vmm", "pools", "ipc", "devices", "newest"] {
        rules_hold(family, Form::Long);
    }
}
