//! Programs run while their memory comes in, and compute what they compute alone.
//!
//! All memory of theirs is evicted again and again, at any moment; memory that is not back is not mapped, so that a call which is
//! let through too early fails. Freed and evicted memory is poisoned. Work is mostly drained, never paused: paused work comes back
//! whole. Where it may be paused, kernels are launched ahead of their memory.

use std::time::Duration;

use baton_tests::coordinator::{Serving, alone, program, tenant};
use baton_tests::form::Form;
use baton_tests::watch::Watch;
use baton_tests::{LIMIT, hold};
use serde_json::Value;

/// More pairs than this are never needed, also on a machine that is loaded so much that evictions come late.
const MOST_PAIRS: usize = 100;

/// Two programs at once, each evicted whenever it is idle for a moment; then two more, of which the second one is urgent, and
/// comes in at any time. Further pairs follow if no program has run while memory came in. Their seeds count from the first one.
#[track_caller]
fn evicted_all_the_time(name: &str, arguments: &[&str], first_seed: usize) {
    evicted_all_the_time_by(serving().flag("--no-preempt"), name, arguments, first_seed);
}

/// A slow bus, so that arrivals take longer than what waits for them.
fn serving() -> Serving {
    let serving = Serving::arena("96MiB").setting("SIMCUDA_H2D_GBPS", "0.6");
    serving.setting("SIMCUDA_D2H_GBPS", "6").option("--quantum", "5ms")
}

#[track_caller]
fn evicted_all_the_time_by(serving: Serving, name: &str, arguments: &[&str], first_seed: usize) {
    let coordinator = serving.start();
    coordinator.until_ready();
    let watch = Watch::start(&coordinator);
    let ran_meanwhile = |record: &Value| !record["phases"]["first_extent_ms"].is_null();
    let waited = |record: &Value| record["waits"].as_u64() > Some(0);
    let mut evictions = 0;
    for pair in 0.. {
        if pair >= 2 && watch.count(ran_meanwhile) > 0 && watch.count(waited) > 0 {
            break;
        }
        assert!(pair < MOST_PAIRS, "nobody has run, or waited, while memory came in");
        let class = if pair % 2 == 0 { "normal" } else { "latency" };
        let seeds = [0, 1].map(|which| (first_seed + 2 * pair + which).to_string());
        let arguments = seeds.each_ref().map(|seed| [arguments, &["--seed", seed]].concat());
        let solo = arguments.each_ref().map(|arguments| alone(name, arguments));
        let names = seeds.each_ref().map(|seed| format!("{name}-{seed}"));
        let running: Vec<_> = names
            .iter()
            .zip(["normal", class])
            .zip(&arguments)
            .map(|((tenant, class), arguments)| coordinator.run(tenant, class, &program(name), arguments))
            .collect();
        let (results, evicted) = coordinator.evicting(&names, Duration::from_millis(3), || {
            running.into_iter().map(|running| running.result(LIMIT)).collect::<Vec<String>>()
        });
        evictions += evicted;
        assert_eq!(results, solo, "shared (left) and alone (right)");
        coordinator.until_empty();
        watch.catch_up();
    }
    let records = watch.stop();
    let sum = |field: &str| records.iter().filter_map(|record| record[field].as_u64()).sum::<u64>();
    println!(
        "{name}: {evictions} evictions on request, {} switches, {} with the gate open while memory came in; {} calls waited; \
         {} MiB in",
        records.len(),
        records.iter().filter(|record| ran_meanwhile(record)).count(),
        sum("waits"),
        sum("bytes_in") >> 20
    );
}

fn pointers(form: Form) {
    let (megabytes, rounds, gap) = form.of(("24", "5", "100"), ("40", "10", "200"));
    let arguments = ["--megabytes", megabytes, "--rounds", rounds, "--gap-ms", gap];
    evicted_all_the_time("hidden", &arguments, 1);
}

#[test]
fn pointers_in_device_memory_lead_to_memory_that_is_there() {
    pointers(Form::Short);
}

#[test]
#[ignore = "long: ten rounds"]
fn pointers_in_device_memory_lead_to_memory_that_is_there_for_many_rounds() {
    pointers(Form::Long);
}

fn streams(form: Form) {
    let (megabytes, rounds) = form.of(("24", "6"), ("40", "12"));
    let arguments = ["--megabytes", megabytes, "--rounds", rounds, "--gap-ms", "10"];
    evicted_all_the_time("streams", &arguments, 5);
}

#[test]
fn streams_and_threads_wait_each_for_their_own() {
    streams(Form::Short);
}

#[test]
#[ignore = "long: twelve rounds"]
fn streams_and_threads_wait_each_for_their_own_for_many_rounds() {
    streams(Form::Long);
}

fn graphs(form: Form) {
    let (megabytes, rounds, rest) = form.of(("24", "5", "100"), ("40", "10", "200"));
    let arguments = ["--megabytes", megabytes, "--rounds", rounds, "--rest-ms", rest];
    evicted_all_the_time("capture", &arguments, 9);
}

#[test]
fn graphs_wait_for_what_their_nodes_name() {
    graphs(Form::Short);
}

#[test]
#[ignore = "long: ten rounds"]
fn graphs_wait_for_what_their_nodes_name_for_many_rounds() {
    graphs(Form::Long);
}

fn allocations(form: Form) {
    let arguments = ["--megabytes", "60", "--rounds", form.of("3", "10")];
    evicted_all_the_time("fill_and_check", &arguments, 13);
}

#[test]
fn allocations_come_and_go_while_memory_comes_in() {
    allocations(Form::Short);
}

#[test]
#[ignore = "long: ten rounds"]
fn allocations_come_and_go_while_memory_comes_in_for_many_rounds() {
    allocations(Form::Long);
}

/// Streams, captures and hidden pointers again, with kernels that are launched ahead.
#[test]
fn kernels_go_ahead_in_programs_that_can_be_preempted() {
    let serving = || serving().option("--arena", "40MiB").option("--mode", "exclusive");
    let usual = ["--megabytes", "24", "--rounds", "4"];
    for (name, rest) in [("hidden", "--gap-ms"), ("capture", "--rest-ms")] {
        evicted_all_the_time_by(serving(), name, &[&usual[..], &[rest, "50"]].concat(), 17);
    }
    evicted_all_the_time_by(serving(), "streams", &[&usual[..], &["--gap-ms", "10"]].concat(), 21);
}

/// It looks idle while it waits for its memory, but to send that away again would be to keep it waiting for ever.
#[test]
fn who_is_let_in_while_memory_comes_in_is_not_evicted_on_request() {
    let want = hold::alone("40", &["touch", "touch"]);
    // Five seconds for all of it.
    let serving = Serving::arena("96MiB").flag("--no-preempt").setting("SIMCUDA_H2D_GBPS", "0.008");
    let coordinator = serving.start();
    coordinator.until_ready();
    let [mut slow, mut other] =
        [("slow", "40"), ("other", "8")].map(|(name, size)| hold::joined(&coordinator, name, "normal", size, None));
    assert_eq!(slow.ask("touch", LIMIT), want[0]);
    assert!(coordinator.evict("slow"), "it is idle");
    slow.say("touch");
    coordinator.until("slow is let in before all is there", |status| {
        status["holder"] == "slow" && tenant(status, "slow")["arriving"] == true
    });
    other.say("touch");
    let turns = |status: &Value| tenant(status, "other")["switches"].clone();
    let before = turns(&coordinator.until_tenant_is("other", "waiting"));
    assert!(!coordinator.evict("slow"), "it was evicted while its memory came in");
    coordinator.until("all of slow is there", |status| {
        let all_came = status["bytes_in"].as_u64() >= Some(40 << 20);
        assert!(all_came || turns(status) == before, "its turn was over before it had its memory");
        all_came
    });
    assert_eq!(slow.line(LIMIT), want[1]);
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    other.line(LIMIT);
}
