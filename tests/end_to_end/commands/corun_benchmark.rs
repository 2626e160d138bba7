//! `baton bench corun` measures what it says it measures.

use baton_tests::{built, clean, run};
use serde_json::Value;

#[test]
fn the_corun_benchmark_measures_a_pair_in_every_way_and_compares_what_it_computes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("corun.json");
    let mut command = clean(built().bin.join("baton"));
    command.args(["bench", "corun", "--requests", "12", "--served", "short", "--batch", "table", "--out"]).arg(&file);
    let measured = run(&mut command).succeeded();
    let report: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("what it writes is JSON");
    assert_eq!(report["outputs_match"], true, "{report:#}");
    assert!(report["model"]["SIMCUDA_TIMESLICE_MS"].is_string(), "it says what is modelled: {report:#}");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| panic!("{value} is no list: {report:#}"));
    let is_positive = |value: &Value| {
        let number = value.as_f64().unwrap_or_else(|| panic!("{value} is no number: {report:#}"));
        assert!(number > 0.0 && number.is_finite(), "{value}: {report:#}");
    };
    let has_times = |times: &Value| {
        ["p50_ms", "p95_ms", "p99_ms", "max_ms"].iter().for_each(|name| is_positive(&times[name]));
        assert_eq!(list(&times["requests_ms"]).len(), 12);
    };

    let (served, batch) = (list(&report["served"]), list(&report["batch"]));
    assert_eq!((&served[0]["name"], &batch[0]["name"]), (&"short".into(), &"table".into()));
    is_positive(&served[0]["pace_ms"]);
    assert_eq!(list(&served[0]["alone"]).len(), 2);
    list(&served[0]["alone"]).iter().for_each(has_times);
    assert_eq!(list(&batch[0]["alone"]).len(), 2);
    list(&batch[0]["alone"]).iter().for_each(is_positive);

    let cells = list(&report["cells"]);
    let ways: Vec<_> = cells.iter().map(|cell| cell["way"].as_str().unwrap_or_default()).collect();
    assert_eq!(ways, ["baton", "exclusive", "no preemption", "bare"]);
    for cell in &cells {
        assert_eq!(cell["outputs_match"], true, "{cell:#}");
        assert_eq!((&cell["served"], &cell["batch"]), (&"short".into(), &"table".into()));
        has_times(&cell["times"]);
        is_positive(&cell["batch_per_second"]);
        ["p50", "p95", "p99", "batch"].iter().for_each(|name| is_positive(&cell["ratios"][name]));
        let bare = cell["way"] == "bare";
        assert_eq!((cell["options"].is_null(), cell["preemptions"].is_null()), (bare, bare), "{cell:#}");
        let row = format!("short table {} ", cell["way"].as_str().unwrap_or_default());
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(measured.out.lines().any(|line| words(line).starts_with(&row)), "no `{row}` in {measured:?}");
    }
    let pauses = |at: usize| cells[at]["preemptions"].as_u64();
    assert!(pauses(1) > Some(0) && pauses(2) == Some(0), "one at a time, and without preemption: {report:#}");
}
