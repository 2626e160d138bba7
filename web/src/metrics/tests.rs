use baton_report::status::Status;

use super::*;

fn tenant(id: u32, name: &str) -> Tenant {
    Tenant { id, name: name.to_owned(), class: "batch".to_owned(), state: State::Idle, ..Tenant::default() }
}

fn known() -> Known {
    let mut status = Status { bucket_seconds: vec![0.1, 1.0], ..Status::default() };
    status.gpu.uuid = "GPU-0".into();
    status.version = "1.0".to_owned();
    let mut urgent = tenant(1, "a \"name\" \\ of\ntwo lines");
    urgent.totals.wait_buckets = Buckets { counts: vec![2, 1, 1], sum_seconds: 12.5 };
    urgent.pod = Some("5f8a".to_owned());
    let (namespace, name, container) = ("prod".to_owned(), "chat-0".to_owned(), "model".to_owned());
    let pods = [(1, Pod { namespace, name, container })].into();
    status.tenants = vec![urgent, tenant(2, "other")];
    Known { status, pods }
}

#[test]
fn every_metric_has_series_and_is_described_once() {
    let mut known = known();
    known.status.tenants[0].totals.request_buckets = Buckets { counts: vec![1, 0, 0], sum_seconds: 0.1 };
    let text = of(vec![Arc::new(known)]);
    for metric in &METRICS {
        let name = metric.full_name();
        let shown = text.lines().filter(|line| line.starts_with(&name)).count();
        assert!(shown > 0, "{name}: {text}");
    }
    assert_eq!(text.matches("# TYPE").count(), METRICS.len());
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn names_of_tenants_are_escaped_and_buckets_add_up() {
    let text = of(vec![Arc::new(known())]);
    let labels = r#"gpu="GPU-0",tenant="a \"name\" \\ of\ntwo lines",class="batch",pod_uid="5f8a",namespace="prod",pod="chat-0",container="model""#;
    for line in [
        format!("baton_tenant_wait_seconds_sum{{{labels}}} 12.5"),
        format!("baton_tenant_wait_seconds_count{{{labels}}} 4"),
        format!("baton_tenant_wait_seconds_bucket{{le=\"0.1\",{labels}}} 2"),
        format!("baton_tenant_wait_seconds_bucket{{le=\"1.0\",{labels}}} 3"),
        format!("baton_tenant_wait_seconds_bucket{{le=\"+Inf\",{labels}}} 4"),
    ] {
        assert!(text.lines().any(|there| there == line), "{line} is not in {text}");
    }
}

#[test]
fn who_has_left_is_not_named_and_still_counts() {
    let mut known = known();
    known.status.departed_totals.gpu_seconds = 7.5;
    known.status.departed_totals.totals.slo_misses = 3;
    let text = of(vec![Arc::new(known)]);
    assert!(text.contains("baton_tenant_gpu_seconds_total{gpu=\"GPU-0\",tenant=\"departed\"} 7.5\n"), "{text}");
    assert!(text.contains("baton_slo_misses_total{gpu=\"GPU-0\",tenant=\"departed\"} 3\n"), "{text}");
}

#[test]
fn the_older_format_describes_counters_by_their_full_names() {
    let text = classic(&of(vec![Arc::new(known())]));
    assert!(text.contains("# TYPE baton_switches_total counter\nbaton_switches_total{"), "{text}");
    assert!(text.contains("# TYPE baton_build_info gauge\nbaton_build_info{"), "{text}");
    assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
}

#[test]
fn openmetrics_is_for_those_who_ask_for_it() {
    for (accepted, wanted) in [
        ("", false),
        ("*/*", false),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", false),
        ("application/openmetrics-text", true),
        ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", true),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", true),
        ("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.9", false),
        ("application/openmetrics-text;q=0", false),
        ("application/openmetrics-text;q=0, text/plain", false),
        ("application/openmetrics-text;q=much", false),
    ] {
        assert_eq!(is_openmetrics(accepted), wanted, "{accepted}");
    }
}

#[test]
fn each_gpu_has_its_series_and_the_coordinator_is_described_once() {
    let mut second = known();
    second.status.gpu.uuid = "GPU-1".into();
    second.status.switches = 7;
    let text = of(vec![Arc::new(known()), Arc::new(second)]);
    let count = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        ["baton_build_info{", "baton_switches_total{", "# TYPE baton_switches "].map(count),
        [1, 2, 1],
        "{text}"
    );
    assert!(text.contains("baton_switches_total{gpu=\"GPU-1\"} 7\n"), "{text}");
}
