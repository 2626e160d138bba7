//! Programs that wait for memory, which leaves others' so slowly that it might as well never come.

use serde_json::Value;

use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::hold;
use baton_tests::running::Running;

/// A coordinator that takes minutes to move 8 MiB to the host.
fn serving(arena: &str) -> Serving {
    Serving::arena(arena).option("--host-pool", "512MiB").setting("SIMCUDA_D2H_GBPS", "0.00005")
}

/// Waits until a program waits for memory that others have to leave.
#[track_caller]
fn until_it_waits(coordinator: &Coordinator, name: &str) {
    let waits = |status: &Value| tenant(status, name)["waits_for"]["reason"] == "others_memory";
    coordinator.until("it waits for memory of others", waits);
}

#[test]
fn one_that_waits_for_memory_keeps_no_others_from_their_turns() {
    let coordinator = serving("128MiB").start();
    let _idle = hold::joined(&coordinator, "idle", "normal", "64", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    let mut grows = hold::joined(&coordinator, "grows", "normal", "8", None);
    grows.say("alloc 64");
    until_it_waits(&coordinator, "grows");
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    assert!(!grows.has_answered(), "{}", grows.out());
    assert!(
        coordinator.log().contains("grows waits for memory, and none has come for a while"),
        "{}",
        coordinator.log()
    );
}

#[test]
fn one_that_starts_and_waits_for_room_for_its_context_keeps_no_others_from_their_turns() {
    let coordinator = serving("512MiB").start();
    let _idle = hold::joined(&coordinator, "idle", "normal", "456", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    let mut last = hold::joined(&coordinator, "last", "normal", "8", None);
    assert!(last.ask("touch", LIMIT).starts_with("touched "));
    let mut starts = coordinator.place.joining("starts", &program("hold"), &["--megabytes", "8"]);
    let mut starts = Running::start(&mut starts, true, Some(coordinator.place.clone()));
    until_it_waits(&coordinator, "starts");
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    assert!(!starts.has_answered(), "{}", starts.out());
}

#[test]
fn one_that_waits_for_memory_is_in_use() {
    let coordinator = serving("128MiB").start();
    let _idle = hold::joined(&coordinator, "idle", "normal", "64", None);
    let mut grows = hold::joined(&coordinator, "grows", "normal", "8", None);
    grows.say("alloc 64");
    until_it_waits(&coordinator, "grows");
    let asked = coordinator.asked("evict", "grows");
    assert!(!grows.has_answered(), "{}", grows.out());
    assert!(asked.err.contains("is in use again"), "{asked:?}");
}
