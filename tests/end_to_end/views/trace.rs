//! `baton trace` writes down what has happened, as a trace, a page and a picture, and its sums are those of `baton status`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use baton_client as client;
use baton_contract::messages::TurnReport;
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::trace_file::{TraceFile, read};
use baton_tests::{LIMIT, Outcome, run};
use serde_json::Value;

/// So slow that new contents for 48 MiB take two seconds.
const SLOW: &str = "0.05";
/// A name that a user may give a program.
const ODD: &str = "slow </script>&<b>\"'";

fn trace(coordinator: &Coordinator, words: &[&str]) -> Command {
    let mut command = coordinator.place.baton(&["trace", "--socket"]);
    command.arg(coordinator.place.socket()).args(words);
    command
}

#[track_caller]
fn traced(coordinator: &Coordinator, words: &[&str]) -> Outcome {
    run(&mut trace(coordinator, words)).succeeded()
}

#[track_caller]
fn parsed(text: &str) -> TraceFile {
    read(text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Two programs that do not fit the GPU together, one of which has a kernel that does not end, use it by turns, twice.
#[track_caller]
fn take_turns(coordinator: &Coordinator) {
    let want = hold::alone("48", &["touch", "touch"]);
    let mut slow = hold::joined(coordinator, ODD, "batch", "48", Some(SLOW));
    let mut quick = hold::joined(coordinator, "quick", "latency", "48", None);
    for answer in &want[..2] {
        assert_eq!(slow.ask("leave", LIMIT), answer.replace("touched", "left"));
        assert_eq!(slow.ask("linger", LIMIT), "lingers");
        assert_eq!(quick.ask("touch", LIMIT), *answer);
        assert_eq!(slow.ask("go", LIMIT), "gone");
    }
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    assert_eq!(quick.ask("quit", LIMIT), want[2]);
}

#[test]
fn a_trace_tells_how_programs_took_turns_and_its_sums_are_those_of_the_status() {
    let coordinator = Serving::small("64MiB").option("--mode", "exclusive").start();
    coordinator.until_ready();
    take_turns(&coordinator);
    let status = coordinator.until_empty();
    let written = traced(&coordinator, &["--last", "1h"]);
    assert_eq!(written.err, "", "all is known");
    let trace = parsed(&written.out);

    let switches = trace.instants.iter().filter(|(name, ..)| name == "switch").count();
    assert_eq!(switches as u64, number(&status["switches"]));
    assert_eq!(trace.about["switches"], status["switches"]);
    for (kind, sum) in [("copy_in", "bytes_in"), ("copy_out", "bytes_out")] {
        assert_eq!(trace.bytes(kind), number(&status[sum]), "{sum}");
        assert_eq!(trace.about[sum], status[sum]);
    }
    assert!(trace.bytes("copy_out") > 0, "memory had to go: {status:#}");

    let states = trace.states(ODD);
    for state in ["running", "preempted", "waiting for memory"] {
        assert!(states.contains(&state), "{state} is not among {states:?}");
    }
    assert!(trace.states("quick").iter().any(|state| state.starts_with("running")));
    assert!(trace.of_kind("evicting").count() > 0);
    // One has it before the first switch.
    for (track, owner) in trace.slices.iter().filter(|(track, _)| trace.tracks[track] == "owner") {
        assert!(owner.len() as u64 > number(&status["switches"]), "{track:?}");
    }
    assert!(trace.flows.len() as u64 >= number(&status["switches"]), "each turn was asked for");
    for (group, name) in trace.counters.keys().filter(|(_, name)| name == "resident") {
        let levels = &trace.counters[&(*group, name.clone())];
        assert_eq!(levels.last().map(|(_, bytes)| *bytes), Some(0.0), "they have ended: {levels:?}");
        assert!(levels.iter().any(|(_, bytes)| *bytes >= f64::from(32 << 20)));
    }
}

#[test]
fn the_page_and_the_picture_are_files_of_their_own_that_load_nothing() {
    let coordinator = Serving::small("64MiB").option("--mode", "exclusive").start();
    take_turns(&coordinator);
    coordinator.until_empty();
    let escaped = "slow &lt;/script&gt;&amp;&lt;b&gt;&quot;&#39;";
    for (kind, begins) in [("--html", "<!DOCTYPE html>"), ("--svg", "<svg ")] {
        let file = coordinator.place.folder().join("picture");
        let written = traced(&coordinator, &[kind, "--last", "1h", "-o", file.to_str().expect("UTF-8")]);
        assert_eq!((written.out.as_str(), written.err.as_str()), ("", ""));
        let text = fs::read_to_string(&file).expect("it was written");
        assert!(text.starts_with(begins) && text.contains("running") && text.contains("preempted"), "{text}");
        assert!(text.contains(&escaped[..12]) && !text.contains("<b>"), "{text}");
        let elsewhere = text.replace("http://www.w3.org/", "");
        assert!(!elsewhere.contains("http:") && !elsewhere.contains("https:") && !elsewhere.contains("src="), "{text}");
    }
    let both = run(&mut trace(&coordinator, &["--html", "--svg"]));
    assert!(both.err.contains("cannot be used with"), "{both:?}");
}

#[test]
fn a_coordinator_to_which_nothing_has_happened_has_an_empty_trace() {
    let coordinator = Serving::small("64MiB").start();
    let trace = parsed(&traced(&coordinator, &["-o", "-"]).out);
    assert_eq!((trace.of_kind("state").count(), trace.about["switches"].as_u64()), (0, Some(0)));
    assert!(traced(&coordinator, &["--html"]).out.contains("No program used the GPU in this time."));
}

#[test]
fn what_is_recorded_from_now_on_begins_now_and_ends_with_the_users_signal() {
    let want = hold::alone("48", &["touch", "touch"]);
    let coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "normal", "48", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "48", None);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    let before = number(&coordinator.status()["switches"]);
    let mut recording = Running::start(&mut trace(&coordinator, &["--for", "1h"]), false, None);
    until(&mut recording, "it records", |recording| recording.err().contains("recording"));
    assert_eq!(other.ask("touch", LIMIT), want[0]);
    assert_eq!(one.ask("touch", LIMIT), want[1]);
    let switches = number(&coordinator.status()["switches"]) - before;
    recording.signal(libc::SIGINT);
    let trace = parsed(&recording.finish(LIMIT).succeeded().out);
    assert!(switches >= 2 && trace.about["switches"].as_u64() >= Some(switches), "{switches}: {:?}", trace.about);
    assert!(trace.about["from_ns"].as_u64() > Some(0));
    assert!(one.ask("quit", LIMIT).ends_with(" ok") && other.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_recording_goes_as_far_as_its_coordinator() {
    let mut coordinator = Serving::small("64MiB").start();
    let mut recording = Running::start(&mut trace(&coordinator, &["--for", "1h"]), false, None);
    until(&mut recording, "it records", |recording| recording.err().contains("recording"));
    coordinator.end(libc::SIGTERM);
    let written = recording.finish(LIMIT).succeeded();
    parsed(&written.out);
    assert!(written.err.contains("the recording ends here"), "{written:?}");
}

#[test]
fn what_the_coordinator_has_forgotten_is_said() {
    let coordinator = Serving::small("64MiB").start();
    let tenant = BareTenant::join(&coordinator, "restless");
    for _ in 0..70_000 {
        tenant.tell(&TurnReport::Demand);
    }
    let end = Instant::now() + LIMIT;
    while client::events(&coordinator.place.socket(), 0).expect("it answers").oldest == 0 {
        assert!(Instant::now() < end, "all was said");
        std::thread::sleep(Duration::from_millis(20));
    }
    let file = coordinator.place.folder().join("picture");
    let written = traced(&coordinator, &["--svg", "--last", "1h", "-o", file.to_str().expect("UTF-8")]);
    assert!(written.err.contains("the coordinator only knows the last"), "{written:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let coordinator = Serving::small("64MiB").start();
    let file = Path::new("/nowhere/trace.json");
    let outcome = run(&mut trace(&coordinator, &["-o", file.to_str().expect("UTF-8")]));
    assert_eq!(outcome.err, "baton trace: /nowhere/trace.json: No such file or directory (os error 2) [B0004]\n");
}

#[track_caller]
fn until(running: &mut Running, what: &str, is_so: impl Fn(&Running) -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so(running) {
        assert!(running.ended().is_none() && Instant::now() < end, "never: {what}: {}", running.said());
        std::thread::sleep(Duration::from_millis(5));
    }
}
