//! `baton demo` shows what it says it shows.

use baton_tests::{built, clean, run};
use serde_json::Value;

#[test]
fn the_demo_shares_a_gpu_that_is_too_small_and_compares_results() {
    let shown = run(clean(built().bin.join("baton")).args(["demo", "--json", "--driver", "sim"])).succeeded();
    assert_eq!(shown.out.lines().count(), 1, "{shown:?}");
    let report: Value = serde_json::from_str(&shown.out).expect("one JSON object");
    assert_eq!(report["outputs_match"], true);
    let bytes = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} is no number of bytes: {report:#}"));
    let arena = bytes(&report["arena_bytes"]);
    let tenants = report["tenants"].as_array().expect("a list");
    assert_eq!(tenants.len(), 3);
    assert!(tenants.iter().all(|tenant| bytes(&tenant["peak_bytes"]) <= arena));
    let together: u64 = tenants.iter().map(|tenant| bytes(&tenant["peak_bytes"])).sum();
    assert!(together > arena, "{together} bytes fit the arena's {arena}");
    let mut classes: Vec<_> = tenants.iter().filter_map(|tenant| tenant["class"].as_str()).collect();
    classes.sort_unstable();
    assert_eq!(classes, ["batch", "latency", "normal"]);
    for tenant in tenants {
        assert!(tenant["name"].is_string());
        assert!(tenant["solo_seconds"].as_f64() > Some(0.0) && tenant["shared_seconds"].as_f64() > Some(0.0));
    }
    let (median, longest) = (report["switch_ms_p50"].as_f64(), report["switch_ms_max"].as_f64());
    assert!(median > Some(0.0) && longest >= median, "{report:#}");
    // How much moves depends on how long the programs run at the same time: on a loaded machine, that may be little.
    for moved in ["switches", "bytes_in", "bytes_out"] {
        assert!(bytes(&report[moved]) > 0, "{report:#}");
    }
}
