//! Memory that holds nothing but zeros, as a cache that is yet to be filled.

use baton_tests::coordinator::{Serving, tenant};
use baton_tests::{LIMIT, MIB, hold};

#[test]
fn zeros_leave_before_all_else_and_need_no_copy_and_no_room_in_the_host_pool() {
    let want = [hold::alone("24", &["touch", "touch"]), hold::alone("30", &["touch"])];
    let coordinator = Serving::arena("64MiB").option("--host-pool", "64MiB").unpoisoned().start();
    let mut one = hold::joined(&coordinator, "one", "normal", "24", None);
    assert_eq!(one.ask("touch", LIMIT), want[0][0]);
    // Never written: zeros.
    assert_eq!(one.ask("alloc 24", LIMIT), "allocated");
    let mut other = hold::joined(&coordinator, "other", "normal", "30", None);
    assert_eq!(other.ask("touch", LIMIT), want[1][0]);
    let status = coordinator.status();
    let gone = tenant(&status, "one")["evicted_bytes"].as_u64().expect("a number");
    assert!((14 * MIB..=24 * MIB).contains(&gone), "{status:#}");
    assert_eq!(
        (status["bytes_out"].as_u64(), status["host_pool"]["used_bytes"].as_u64()),
        (Some(0), Some(0)),
        "{status:#}"
    );
    assert_eq!(one.ask("touch", LIMIT), want[0][1]);
    coordinator.until("all of it is back", |status| tenant(status, "one")["evicted_bytes"] == 0);
    // Only what the other one holds had to go for that.
    let status = coordinator.status();
    assert_eq!(status["bytes_in"], 0, "{status:#}");
    assert_eq!(one.ask("quit", LIMIT), want[0][2]);
    assert_eq!(other.ask("quit", LIMIT), want[1][1]);
    coordinator.until_empty();
}

#[test]
fn what_was_zero_gets_room_in_the_host_pool_when_it_is_not() {
    let want = hold::alone("40", &["touch", "touch"]);
    let coordinator = Serving::arena("64MiB").option("--host-pool", "64MiB").unpoisoned().start();
    let mut one = hold::joined(&coordinator, "one", "normal", "40", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    assert_eq!(other.ask("alloc 32", LIMIT), "allocated");
    for answer in &want[..2] {
        assert_eq!(one.ask("touch", LIMIT), *answer);
        coordinator.evict("one");
        coordinator.evict("other");
        let status = coordinator.status();
        assert!(["one", "other"].iter().all(|name| tenant(&status, name)["resident_bytes"] == 0), "{status:#}");
        // 40 and 8 MiB, and what each of them has for its sums.
        assert!(status["host_pool"]["used_bytes"].as_u64() <= Some(52 * MIB), "{status:#}");
    }
    // Written in memory that was zeros, and gone again.
    assert_eq!(other.ask("free", LIMIT), "freed");
    for (line, answer) in [("thin", "thinned"), ("thicken", "thickened")] {
        assert_eq!(other.ask(line, LIMIT), answer);
    }
    coordinator.evict("other");
    assert_eq!(one.ask("quit", LIMIT), want[2]);
    assert!(other.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

#[test]
fn frames_that_held_zeros_are_as_good_as_overwritten_ones_for_whoever_comes_next() {
    let want = [hold::alone("8", &["touch"]), hold::alone("8", &["touch"])];
    let coordinator = Serving::arena("64MiB").unpoisoned().start();
    let clean = |status: &serde_json::Value| status["arena"]["clean_bytes"].as_u64().expect("a number");
    let mut one = hold::joined(&coordinator, "one", "normal", "8", None);
    // Never written: zeros.
    assert_eq!(one.ask("alloc 32", LIMIT), "allocated");
    assert_eq!(one.ask("touch", LIMIT), want[0][0]);
    coordinator.evict("one");
    // Besides these 2 MiB are kept ready.
    let status = coordinator.status();
    assert!((30 * MIB..=36 * MIB).contains(&clean(&status)), "{status:#}");
    // They hold nothing of it: others find zeros there, and what it held comes back.
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    assert_eq!(other.ask("alloc 40", LIMIT), "allocated");
    assert_eq!(other.ask("touch", LIMIT), want[1][0]);
    assert_eq!(other.ask("free", LIMIT), "freed");
    assert_eq!(one.ask("quit", LIMIT), want[0][1]);
    assert_eq!(other.ask("quit", LIMIT), want[1][1]);
    coordinator.until_empty();
}
