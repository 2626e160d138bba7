//! `baton demo` shows what it says it shows.

use std::path::Path;
use std::process::Command;

use baton_tests::coordinator::{Prepared, Serving};
use baton_tests::terminal::Terminal;
use baton_tests::{root, run, with_environment_of};
use serde_json::Value;

/// `baton demo` on the simulated driver; all of its files are in the place's folder.
fn demo(prepared: &Prepared) -> Command {
    let mut command = prepared.place.baton(&["demo", "--driver", "sim"]);
    command.env("TMPDIR", prepared.place.folder()).current_dir(root());
    command
}

fn prepared() -> Prepared {
    let small = Serving::small("64MiB");
    small.setting("BATON_SERVE_ARENA", "64MiB").setting("BATON_SERVE_HOST_POOL", "64MiB").prepare()
}

/// The figures in a sentence.
fn figures(line: &str) -> Vec<f64> {
    let words = line.split(' ').map(|word| word.trim_end_matches([',', '.']));
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Both sentences, with two figures each, and a command behind them.
#[track_caller]
fn has_the_end(lines: &[String]) -> String {
    for wanted in [("together took", "one after the other"), ("P99 beside the training", "without Baton")] {
        let said = lines.iter().find(|line| line.contains(wanted.0) && line.contains(wanted.1));
        let said = said.unwrap_or_else(|| panic!("no sentence of {wanted:?}: {lines:#?}"));
        assert_eq!(figures(said).len(), 2, "{said}");
    }
    let next = lines.iter().rev().find(|line| !line.is_empty()).expect("not all are empty");
    assert!(next.contains(" run --driver sim -- "), "{lines:#?}");
    next.clone()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_demo_shares_a_gpu_that_is_too_small_and_its_times_are_those_of_the_recorder() {
    let prepared = prepared();
    let once = || {
        let shown = run(demo(&prepared).arg("--json")).succeeded();
        assert_eq!(shown.out.lines().count(), 1, "{shown:?}");
        serde_json::from_str::<Value>(&shown.out).expect("one JSON object")
    };
    let mut report = once();
    // A machine with much else to do may take the time that is won.
    let is_won = |report: &Value| {
        let gaps = &report["gaps"];
        number(&gaps["together_seconds"]) < number(&gaps["one_after_the_other_seconds"])
            && number(&report["beside"]["with_baton"]["times"]["p99_ms"])
                < number(&report["beside"]["without_baton"]["times"]["p99_ms"])
    };
    while !is_won(&report) {
        eprintln!("again: {report:#}");
        report = once();
    }
    assert_eq!(report["outputs_match"], true);
    let gaps = &report["gaps"];
    let programs = gaps["programs"].as_array().expect("a list");
    assert_eq!(programs.len(), 2);
    let sum = |field: &str| programs.iter().map(|program| number(&program[field])).sum::<f64>();
    let (arena, peak) = (number(&gaps["arena_bytes"]), sum("peak_bytes"));
    assert!(peak > arena && programs.iter().all(|program| number(&program["peak_bytes"]) <= arena), "{gaps:#}");
    for moved in ["switches", "bytes_in", "bytes_out"] {
        assert!(number(&gaps[moved]) > 0.0, "{gaps:#}");
    }
    assert!((number(&gaps["one_after_the_other_seconds"]) - sum("solo_seconds")).abs() < 1e-6, "{gaps:#}");
    let [together, recorded] = ["together_seconds", "recorded_seconds"].map(|field| number(&gaps[field]));
    // The recorder sees programs from when they join, one of them at a time has the GPU, and they were there at the same time.
    assert!(recorded <= together && sum("gpu_seconds") <= recorded && recorded < sum("shared_seconds"), "{gaps:#}");
    assert!(programs.iter().all(|program| number(&program["gpu_seconds"]) > 0.0), "{gaps:#}");
    let beside = &report["beside"];
    assert!(number(&beside["requests"]) >= 100.0, "{beside:#}");
    for way in ["with_baton", "without_baton"] {
        let times = beside[way]["times"]["requests_ms"].as_array().expect("a list");
        assert_eq!(times.len() as f64, number(&beside["requests"]), "{way}");
        assert!(number(&beside[way]["steps_per_second"]) > 0.0, "{beside:#}");
    }
}

#[test]
fn on_a_terminal_the_demo_goes_on_in_place_and_its_last_screen_has_all_of_it() {
    let prepared = prepared();
    let mut terminal = Terminal::start(&mut demo(&prepared), 24, 80);
    let is_at_hand = |what: &'static str| {
        move |lines: &[String]| lines.iter().any(|line| line.contains(what) && line.ends_with(" s left"))
    };
    for step in ["train alone", "notebook alone", "both", "both without Baton: "] {
        let lines = terminal.until(step, is_at_hand(step));
        assert_eq!(lines.iter().filter(|line| line.ends_with(" s left")).count(), 1, "{lines:#?}");
    }
    assert!(terminal.end().success());
    let lines = terminal.until("the end", |lines| lines.iter().any(|line| line.starts_with("Next")));
    has_the_end(&lines);
    // Nothing has left the screen, and nothing is left of what was shown in place.
    assert!(lines[0].starts_with("Baton on ") && !lines.iter().any(|line| line.ends_with(" s left")), "{lines:#?}");
}

#[test]
fn into_a_pipe_the_demo_prints_few_lines_and_the_command_that_it_names_works() {
    let prepared = prepared();
    let shown = run(&mut demo(&prepared)).succeeded();
    assert!(!shown.out.contains(['\r', '\u{1b}']) && shown.out.lines().count() <= 24, "{}", shown.out);
    let lines: Vec<String> = shown.out.lines().map(str::to_owned).collect();
    let next = has_the_end(&lines);
    let mut shell = with_environment_of(Command::new("sh"), &demo(&prepared));
    let outcome = run(shell.args(["-c", &next]).current_dir(root())).succeeded();
    assert!(outcome.out.ends_with(" ok\n"), "{outcome:?}");
}

/// True if a process has this folder in its environment.
fn is_used(folder: &Path) -> bool {
    let folder = folder.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").expect("Linux has it").filter_map(Result::ok);
    let environments = all.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).any(|text| text.contains(&folder))
}

#[test]
fn ctrl_c_ends_the_demo_at_any_step_and_leaves_nothing() {
    for step in ["train alone", "both", "both with Baton: "] {
        let prepared = prepared();
        let mut terminal = Terminal::start(&mut demo(&prepared), 24, 80);
        terminal.until(step, |lines| lines.iter().any(|line| line.contains(step) && line.ends_with(" s left")));
        terminal.keys("\u{3}");
        assert_eq!(terminal.end().code(), Some(130), "{step}");
        let lines =
            terminal.until("what ended it", |lines| lines.iter().any(|line| line == "baton demo: interrupted [B0012]"));
        assert!(!lines.iter().any(|line| line.ends_with(" s left")), "{step}: {lines:#?}");
        assert!(!is_used(prepared.place.folder()), "{step}");
        let left: Vec<_> =
            std::fs::read_dir(prepared.place.folder()).expect("ours").map(|one| one.expect("ours")).collect();
        assert!(!left.iter().any(|one| one.file_name().to_string_lossy().starts_with(".tmp")), "{step}: {left:?}");
    }
}
