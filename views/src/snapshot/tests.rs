use super::*;

fn tenant(name: &str, state: &str) -> Tenant {
    Tenant { name: name.to_owned(), state: state.to_owned(), ..Tenant::default() }
}

#[test]
fn programs_count_with_the_most_that_they_had_and_the_bus_with_what_it_gave() {
    let text = r#"{"tenants": [{"name": "a", "peak_bytes": 5}], "departed": [{"name": "a", "peak_bytes": 7}],
        "recent": [{"bytes_in": 600000000, "in_seconds": 0.02}, {"bytes_in": 0, "in_seconds": 0}]}"#;
    let snapshot: Snapshot = serde_json::from_str(text).expect("a status");
    assert_eq!((snapshot.peak("a"), snapshot.peak("b")), (Some(7), None));
    assert_eq!(snapshot.bytes_per_second().map(f64::round), Some(3e10));
    assert_eq!(Snapshot::default().bytes_per_second(), None, "nothing was copied");
}

#[test]
fn who_has_the_gpu_is_whoever_runs_then_whoever_loads() {
    let of = |tenants: &[Tenant]| Snapshot { tenants: tenants.to_vec(), ..Snapshot::default() }.on_gpu();
    let mut loading = tenant("c", "loading");
    (loading.resident_bytes, loading.evicted_bytes, loading.missing_bytes) = (60, 40, 40);
    assert_eq!(of(&[]), "nobody");
    assert_eq!(of(&[tenant("a", "preempted"), loading.clone()]), "c (loading 60 %)");
    assert_eq!(of(&[tenant("a", "stopping"), tenant("b", "waiting")]), "a (stopping)");
    assert_eq!(of(&[tenant("a", "running"), tenant("b", "running"), loading]), "a, b");
    assert_eq!(of(&["a", "b", "c", "d"].map(|name| tenant(name, "running"))), "a, b, c and 1 more");
}

#[test]
fn lines_of_nothing_are_left_out_but_for_what_is_free() {
    let unmanaged = [("array".to_owned(), 1 << 20), ("graph".to_owned(), 2 << 20)].into();
    let lines = Lines { unmanaged, own_bytes: 1 << 30, ..Lines::default() };
    assert_eq!(lines.beside(), "unmanaged 3 MiB, the coordinator's 1 GiB, free 0 B");
}
