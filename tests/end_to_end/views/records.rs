//! A coordinator's record outlives it, in whatever way it ends, and is for its user alone.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use baton_tests::coordinator::{Coordinator, Place, Serving, program};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{LIMIT, Outcome};
use serde_json::Value;

/// `baton WORDS`, about the coordinator that is at this place or was.
fn baton(place: &Place, words: &[&str]) -> Outcome {
    let mut command = place.baton(&words[..1]);
    command.arg("--socket").arg(place.socket()).args(&words[1..]);
    Running::start(&mut command, false, None).finish(LIMIT).succeeded()
}

/// The same where a record is named.
fn reads(place: &Place, words: &[&str]) -> Outcome {
    Running::start(&mut place.baton(words), false, None).finish(LIMIT)
}

/// Two programs take turns.
fn takes_turns(coordinator: &Coordinator) -> [Running; 2] {
    let mut both = ["one", "two"].map(|name| hold::joined(coordinator, name, "normal", "48", None));
    for _ in 0..2 {
        for one in &mut both {
            assert!(one.ask("touch", LIMIT).starts_with("touched "));
        }
    }
    both
}

/// The switches, waits and bytes of each program, without what depends on how long it is looked back.
fn rows(stats: &str) -> Vec<Vec<String>> {
    let cells =
        |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = stats.lines().skip(2).map(cells).collect();
    rows.into_iter()
        .map(|row| row.into_iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, cell)| cell).collect())
        .collect()
}

#[test]
fn what_has_happened_is_told_when_the_coordinator_has_ended() {
    let mut coordinator = Serving::small("64MiB").start();
    coordinator.until_ready();
    let place = coordinator.place.clone();
    for mut one in takes_turns(&coordinator) {
        assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    }
    coordinator.until_empty();
    let live = baton(&place, &["stats", "--last", "1h"]);
    let logs = baton(&place, &["logs"]).out;
    assert_eq!(live.err, "");
    assert_eq!(coordinator.end(libc::SIGTERM).code(), Some(0));

    let stats = baton(&place, &["stats"]);
    assert_eq!(rows(&stats.out), rows(&live.out));
    assert!(stats.err.starts_with("baton stats: no coordinator runs; this is the record "), "{stats:?}");
    assert_eq!(baton(&place, &["logs"]).out, logs);
    let why = baton(&place, &["why", "two"]).out;
    assert!(why.starts_with("two was there for ") && why.contains("turns.\n"), "{why}");
    let trace: Value = serde_json::from_str(&baton(&place, &["trace"]).out).expect("a trace");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 20), "{trace}");
    let none = reads(&place, &["why", "nobody", "--record", "1"]);
    assert!(none.err.contains("no program called nobody; `baton stats` lists them"), "{none:?}");
    // Commands that show the present state have nothing to show.
    let status = reads(&place, &["status", "--socket", &place.socket().display().to_string()]);
    assert_eq!(status.status, "exit status: 1", "{status:?}");
}

#[test]
fn a_run_leaves_its_record_behind_and_so_does_a_coordinator_that_is_killed() {
    let prepared = Serving::small("64MiB").prepare();
    let mut command =
        prepared.place.baton(&["run", "--driver=sim", "--arena=64MiB", "--host-pool=64MiB", "--name=first"]);
    command.arg("--socket").arg(prepared.place.socket()).arg("--").arg(program("hold")).args(["--megabytes", "8"]);
    let mut first = hold::ready(&mut command, None);
    assert!(first.ask("quit", LIMIT).ends_with(" ok"));
    first.finish(LIMIT).succeeded();
    // It ends by itself when its program has, and writes the last lines then.
    let is_complete = |logs: &Outcome| logs.err.contains("no coordinator runs") && logs.out.contains("first has left");
    while !is_complete(&baton(&prepared.place, &["logs"])) {}

    let mut coordinator = Coordinator::of(prepared);
    let place = coordinator.place.clone();
    let mut second = hold::joined(&coordinator, "second", "batch", "8", None);
    assert!(second.ask("touch", LIMIT).starts_with("touched "));
    let folder = place.folder().join("state/baton/records");
    let written = || {
        let all = std::fs::read_dir(&folder).expect("records").map(|one| one.expect("a record").path());
        all.map(|one| std::fs::read_to_string(one.join("events.jsonl")).unwrap_or_default()).collect::<Vec<_>>()
    };
    // Events are written down a moment later, without a request.
    while !written().iter().any(|text| text.contains("second") && text.contains("\"opened\"")) {}
    coordinator.end(libc::SIGKILL);
    assert!(baton(&place, &["logs"]).out.contains("second joined as batch"));
    assert!(reads(&place, &["logs", "--record", "2"]).succeeded().out.contains("first joined"), "the one before");
    let listed = reads(&place, &["records"]).succeeded().out;
    let names: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names.len(), 2, "{listed}");
    assert!(reads(&place, &["logs", "--record", names[0]]).succeeded().out.contains("second joined"));
    let path = folder.join(names[1]);
    assert!(reads(&place, &["logs", "--record", &path.display().to_string()]).succeeded().out.contains("first joined"));
    let unknown = reads(&place, &["logs", "--record", "3"]);
    assert!(unknown.err.contains("there is no record 3; `baton records` lists them"), "{unknown:?}");

    let mode = |path: &Path| path.metadata().expect("it is there").mode() & 0o777;
    for private in [&place.folder().join("state/baton"), &folder, &path] {
        assert_eq!(mode(private), 0o700, "{}", private.display());
    }
    assert_eq!(mode(&path.join("events.jsonl")), 0o600);
}

#[test]
fn where_nothing_can_be_recorded_the_coordinator_says_so_and_serves() {
    let prepared = Serving::small("64MiB").prepare();
    std::fs::create_dir_all(prepared.place.folder().join("state/baton")).expect("a folder");
    let others = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(prepared.place.folder().join("state/baton"), others).expect("ours");
    let coordinator = Coordinator::of(prepared);
    let mut one = hold::joined(&coordinator, "one", "batch", "8", None);
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
    let log = coordinator.log();
    assert!(log.contains("events are not recorded: ") && log.contains("others can enter this folder"), "{log}");
    let kept = Serving::small("64MiB").option("--no-record", "true");
    let coordinator = kept.start();
    assert!(!coordinator.place.folder().join("state").exists() && !coordinator.log().contains("recorded"));
}
