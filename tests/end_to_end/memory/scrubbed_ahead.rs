//! A little memory is kept overwritten for the next allocation, and given up when there is no more than all need.

use baton_tests::MIB;
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving};
use serde_json::Value;

/// No work is paused, so that a bare tenant hears nothing about that.
fn coordinator() -> Coordinator {
    Serving::arena("64MiB").flag("--no-preempt").start()
}

fn clean(status: &Value) -> Option<u64> {
    status["arena"]["clean_bytes"].as_u64()
}

#[test]
fn each_new_allocation_finds_a_frame_that_was_overwritten_before_it_was_asked_for() {
    let coordinator = coordinator();
    assert_eq!(clean(&coordinator.status()), Some(0), "nobody is there to ask for it");
    let mut bare = BareTenant::join(&coordinator, "bare");
    bare.take_gpu();
    for _ in 0..4 {
        coordinator.until("a frame is ready", |status| clean(status) == Some(2 * MIB));
        bare.allocate(2 * MIB);
    }
}

#[test]
fn what_is_kept_ready_goes_to_whoever_needs_all_there_is() {
    let coordinator = coordinator();
    let mut bare = BareTenant::join(&coordinator, "bare");
    bare.take_gpu();
    coordinator.until("a frame is ready", |status| clean(status) == Some(2 * MIB));
    bare.allocate(64 * MIB);
    let status = coordinator.status();
    assert_eq!((clean(&status), status["arena"]["lent_bytes"].as_u64()), (Some(0), Some(64 * MIB)));
    // Also while memory is away: then none is left over.
    let mut other = BareTenant::join(&coordinator, "other");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bare.yield_gpu();
            let (command, _) = bare.hear_of_memory();
            bare.done(&command);
        });
        other.take_gpu();
        other.allocate(2 * MIB);
    });
    assert_eq!(coordinator.status()["arena"]["frame_bytes"].as_u64(), Some(64 * MIB));
}
