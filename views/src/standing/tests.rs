use super::*;

fn tenant(name: &str, state: State) -> Tenant {
    Tenant { name: name.to_owned(), state, ..Tenant::default() }
}

#[test]
fn who_has_the_gpu_is_whoever_runs_then_whoever_loads() {
    let of = |tenants: &[Tenant]| on_gpu(&Status { tenants: tenants.to_vec(), ..Status::default() });
    let mut loading = tenant("c", State::Loading);
    (loading.resident_bytes, loading.evicted_bytes, loading.missing_bytes) = (60, 40, 40);
    assert_eq!(of(&[]), "nobody");
    assert_eq!(of(&[tenant("a", State::Preempted), loading.clone()]), "c (loading 60 %)");
    assert_eq!(of(&[tenant("a", State::Stopping), tenant("b", State::Waiting)]), "a (stopping)");
    assert_eq!(of(&[tenant("a", State::Running), tenant("b", State::Running), loading]), "a, b");
    assert_eq!(of(&["a", "b", "c", "d"].map(|name| tenant(name, State::Running))), "a, b, c and 1 more");
}

#[test]
fn lines_of_nothing_are_left_out_but_for_what_is_free() {
    let mut unmanaged = [0; 7];
    (unmanaged[0], unmanaged[4]) = (1 << 20, 2 << 20);
    let lines = Lines { unmanaged: unmanaged.into(), own_bytes: 1 << 30, ..Lines::default() };
    assert_eq!(outside_arena(&lines), "unmanaged 3 MiB, the coordinator's 1 GiB, free 0 B");
}

#[test]
fn every_state_is_shown_once() {
    assert!(State::ALL.iter().all(|state| STATES.iter().filter(|shown| *shown == state).count() == 1));
}
