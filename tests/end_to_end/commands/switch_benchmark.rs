//! `baton bench switch` measures what it says it measures.

use baton_tests::{built, clean, run};
use serde_json::Value;

#[test]
fn the_switch_benchmark_evicts_a_server_in_every_way_and_compares_its_answers() {
    let command = ["bench", "switch", "--json", "--driver", "sim", "--repeat", "2"];
    let measured = run(clean(built().bin.join("baton")).args(command)).succeeded();
    assert_eq!(measured.out.lines().count(), 1, "{measured:?}");
    let report: Value = serde_json::from_str(&measured.out).expect("one JSON object");
    assert_eq!(report["outputs_match"], true, "{report:#}");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is no number: {report:#}"));
    let weights = number(&report["server_bytes"]);
    assert!(weights + number(&report["trainer_bytes"]) > number(&report["arena_bytes"]));

    let variants = report["variants"].as_array().expect("a list");
    let options: Vec<String> = variants
        .iter()
        .map(|variant| {
            let words = variant["options"].as_array().into_iter().flatten().filter_map(Value::as_str);
            words.collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(options, ["", "", "--pipeline extents", "--pipeline one", "--pipeline off", "--no-hash"]);
    for (at, variant) in variants.iter().enumerate() {
        assert_eq!(variant["outputs_match"], true, "{variant:#}");
        assert_eq!(variant["requests_ms"].as_array().map(Vec::len), Some(2), "{variant:#}");
        assert!(number(&variant["p50_ms"]) > 0.0 && number(&variant["max_ms"]) >= number(&variant["p50_ms"]));
        let switches = &variant["switches"];
        assert_eq!(switches.is_null(), at == 0, "only where nothing is evicted there are no switches: {variant:#}");
        if at > 0 {
            // None where all of it came ahead of the turn.
            assert!(["groups", "extents"].iter().all(|figure| number(&switches[*figure]) >= 0.0), "{variant:#}");
            assert!(number(&switches["phases"]["all_resident_ms"]) >= number(&switches["phases"]["decided_ms"]));
        }
    }
    let came = |variant: &Value| number(&variant["switches"]["bytes_in"]) >= weights;
    assert!(
        variants[1..].iter().any(came),
        "all that was evicted comes back, mostly in the turn itself: {variants:#?}"
    );
}
