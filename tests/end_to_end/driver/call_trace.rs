//! `BATON_TRACE` sees every driver call of a program, whichever door it came through.

use std::path::Path;

use baton_tests::{Driver, Outcome, built, clean, run};
use serde_json::Value;

/// The program that makes known calls, traced.
fn known_calls(mode: &str, file: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Driver::simulated().under_baton(built().programs.join("known_calls"));
    command.env_remove("BATON_LOG").env("BATON_DISABLE", "1");
    run(command.args(arguments).env("BATON_TRACE", mode).env("BATON_TRACE_FILE", file))
}

/// How often each symbol was called, and how often it failed, in the sums at the end of a trace.
fn sums(text: &str) -> Vec<(String, u64, u64)> {
    let last: Value = serde_json::from_str(text.lines().last().expect("the sums")).expect("JSON");
    let calls = last["calls"].as_array().expect("a list");
    let mut sums: Vec<_> = calls
        .iter()
        .map(|call| {
            let number = |field: &str| call[field].as_u64().expect("a number");
            assert!(number("max_nanoseconds") <= number("nanoseconds"));
            (call["symbol"].as_str().expect("a name").to_owned(), number("calls"), number("errors"))
        })
        .collect();
    sums.sort();
    sums
}

fn expected() -> Vec<(String, u64, u64)> {
    [("cuCtxSynchronize", 3, 3), ("cuDriverGetVersion", 5, 0), ("cuInit", 1, 0)]
        .map(|(name, calls, errors)| (name.to_owned(), calls, errors))
        .to_vec()
}

#[test]
fn counts_are_the_calls_that_were_made() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("trace.json");
    let outcome = known_calls("counts", &file, &[]).succeeded();
    assert_eq!(outcome.err, "");
    assert_eq!(sums(&std::fs::read_to_string(&file).expect("written at exit")), expected());
}

#[test]
fn calls_are_listed_in_their_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("trace.json");
    known_calls("calls", &file, &[]).succeeded();
    let text = std::fs::read_to_string(&file).expect("written");
    assert_eq!(sums(&text), expected());
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let order: Vec<_> = lines[..lines.len() - 1].iter().map(|line| line["symbol"].as_str().expect("a name")).collect();
    assert_eq!(order[0], "cuInit");
    assert_eq!(order[1..6], ["cuDriverGetVersion"; 5]);
    assert_eq!(order[6..], ["cuCtxSynchronize"; 3]);
    assert_eq!(lines[6]["answer"], 201);
}

#[test]
fn a_forked_child_counts_its_own_calls_only() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    known_calls("counts", &folder.path().join("trace.%p.json"), &["fork"]).succeeded();
    let mut all: Vec<_> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| sums(&std::fs::read_to_string(entry.expect("a file").path()).expect("text")))
        .collect();
    all.sort_by_key(Vec::len);
    assert_eq!(all, [vec![("cuDriverGetVersion".to_owned(), 1, 0)], expected()]);
}

#[test]
fn programs_that_never_call_the_driver_leave_no_trace() {
    let outcome = run(clean("true").env("LD_PRELOAD", built().shim()).env("BATON_TRACE", "counts")).succeeded();
    assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("", ""));
}

#[test]
fn results_are_the_same_while_tracing() {
    let driver = Driver::simulated();
    let programs = ["vector_add", "streams", "graph", "vmm", "errors"];
    for program in programs.map(|name| built().examples.join(name)) {
        let result = |out: &str| out.lines().last().map(str::to_owned);
        let bare = run(&mut driver.bare(&program)).succeeded();
        let traced = run(driver.under_baton(&program).env("BATON_TRACE", "counts")).succeeded();
        assert_eq!(result(&bare.out), result(&traced.out), "{}", program.display());
        assert!(traced.err.contains("driver calls"), "{traced:?}");
    }
}

#[test]
fn a_wrong_setting_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let outcome = known_calls("everything", &folder.path().join("trace"), &[]).succeeded();
    assert_eq!(
        outcome.err,
        "baton: BATON_TRACE=everything is neither `counts` nor `calls`; nothing is traced [B0358]\n"
    );
}

#[test]
fn the_file_is_the_one_that_was_named_at_the_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Driver::simulated().under_baton(built().programs.join("known_calls"));
    command.arg("elsewhere").env("BATON_TRACE", "counts").env("BATON_TRACE_FILE", "trace.json");
    let outcome = run(command.current_dir(folder.path())).succeeded();
    assert_eq!(outcome.err, "");
    assert_eq!(sums(&std::fs::read_to_string(folder.path().join("trace.json")).expect("written")), expected());
}

#[test]
fn a_full_standard_error_does_not_stop_the_program() {
    let driver = Driver::simulated();
    for (name, value) in [("BATON_TRACE", "everything"), ("BATON_TRACE", "calls"), ("BATON_DRIVER", "/nonexistent")] {
        let mut command = driver.under_baton("sh");
        command.args(["-c", "exec \"$0\" 2>/dev/full"]).arg(built().programs.join("known_calls")).env(name, value);
        let outcome = run(&mut command);
        assert!(outcome.status.starts_with("exit status: "), "{name}={value}: {outcome:?}");
    }
}

#[test]
fn work_that_is_not_ready_has_not_failed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("trace.json");
    let driver = Driver::simulated();
    let mut command = driver.under_baton(built().examples.join("host_flag"));
    run(command.env("BATON_TRACE", "calls").env("BATON_TRACE_FILE", &file)).succeeded();
    let text = std::fs::read_to_string(&file).expect("written");
    let answers: Vec<_> = text.lines().filter(|line| line.contains("\"cuStreamQuery\", \"answer\": 600")).collect();
    let errors = sums(&text).into_iter().find(|(name, _, _)| name == "cuStreamQuery").map(|(_, _, errors)| errors);
    assert!(!answers.is_empty(), "the example asks a stream that is busy");
    assert_eq!(errors, Some(0));
}
