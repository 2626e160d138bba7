//! Evicted memory comes back without a copy, as long as no other tenant has needed its frames.

use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::{LIMIT, MIB, hold};
use serde_json::Value;

fn number(status: &Value, field: &str) -> u64 {
    status[field].as_u64().expect("a number")
}

/// Evicts the program, which is about to be idle: the status then.
#[track_caller]
fn evicted(coordinator: &Coordinator) -> Value {
    while !coordinator.evict("holder") {
        std::thread::yield_now();
    }
    let status = coordinator.status();
    assert_eq!(tenant(&status, "holder")["evicted_bytes"], 40 * MIB, "{status:#}");
    status
}

#[test]
fn memory_whose_frames_nobody_needed_comes_back_without_a_copy() {
    let expected = hold::alone("40", &["touch"; 5]);
    let coordinator = Serving::arena("64MiB").unpoisoned().start();
    let mut holder = hold::joined(&coordinator, "holder", "normal", "40", None);
    let mut answers = vec![holder.ask("touch", LIMIT)];
    for _ in 0..2 {
        let before = evicted(&coordinator);
        answers.push(holder.ask("touch", LIMIT));
        assert_eq!(number(&coordinator.status(), "bytes_in"), number(&before, "bytes_in"));
    }

    // Now another program needs nearly all of it.
    let before = evicted(&coordinator);
    let mut other = hold::joined(&coordinator, "other", "normal", "60", None);
    assert!(other.ask("quit", LIMIT).ends_with(" ok"));
    answers.push(holder.ask("touch", LIMIT));
    let status = coordinator.status();
    let copied = number(&status, "bytes_in") - number(&before, "bytes_in");
    assert!((36 * MIB..=40 * MIB).contains(&copied), "all but what was left of the arena: {copied}, {status:#}");

    // Contents that were overwritten are not kept.
    let before = evicted(&coordinator);
    answers.push(holder.ask("touch", LIMIT));
    assert_eq!(number(&coordinator.status(), "bytes_in"), number(&before, "bytes_in"));
    answers.push(holder.ask("quit", LIMIT));
    assert_eq!(answers, expected);
}

#[test]
fn with_poison_nothing_is_kept() {
    let coordinator = Serving::arena("64MiB").start();
    let mut holder = hold::joined(&coordinator, "holder", "normal", "40", None);
    holder.ask("touch", LIMIT);
    let before = evicted(&coordinator);
    holder.ask("touch", LIMIT);
    assert_eq!(number(&coordinator.status(), "bytes_in") - number(&before, "bytes_in"), 40 * MIB);
    assert!(holder.ask("quit", LIMIT).ends_with(" ok"));
}
