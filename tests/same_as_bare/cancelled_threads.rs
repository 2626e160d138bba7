//! Threads that are cancelled (`pthread_cancel`) while a call waits or talks for Baton: the call is made, and all others go on.

use baton_tests::coordinator::Serving;
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, Outcome, built};

/// Plays a case; each time that the program waits, something is done, and it goes on.
#[track_caller]
fn played(mut running: Running, meanwhile: impl Fn()) -> Outcome {
    while let Ok(line) = running.line_if_any(LIMIT) {
        if line == "waits" {
            meanwhile();
            running.say("");
        }
    }
    running.finish(LIMIT).succeeded()
}

/// Plays a case bare and under Baton, where its memory is evicted whenever it waits.
#[track_caller]
fn same(case: &str, serving: &Serving, settings: &[(&str, &str)]) {
    let program = built().programs.join("legal/cancelled");
    let bare = played(Running::start(Driver::simulated().bare(&program).arg(case), true, None), || {});
    let coordinator = serving.start();
    let mut command = coordinator.place.joining("cancelled", &program, &[case]);
    command.envs(settings.iter().copied()).env("BATON_REQUIRE", "1");
    let running = Running::start(&mut command, true, Some(coordinator.place.clone()));
    let under = played(running, || assert!(coordinator.evict("cancelled"), "it is idle"));
    assert_eq!(under, bare, "{case}");
    coordinator.until_empty();
}

fn serving() -> Serving {
    Serving::arena("64MiB")
}

#[test]
fn a_thread_that_is_cancelled_at_the_closed_gate_has_asked_for_all_others() {
    same("closed", &serving(), &[]);
    same("closed", &serving().setting("SIMCUDA_H2D_GBPS", "0.2"), &[("BATON_GATE", "whole")]);
}

#[test]
fn a_thread_that_is_cancelled_in_a_request_has_heard_its_answer() {
    same("ask", &serving(), &[]);
    // Each call is written down too.
    same("ask", &serving(), &[("BATON_TRACE", "calls"), ("BATON_TRACE_FILE", "/dev/null")]);
}

#[test]
fn a_thread_that_is_cancelled_while_it_waits_to_free_memory_has_freed_it() {
    same("free", &serving(), &[]);
    same("free", &serving().flag("--no-preempt"), &[]);
}

#[test]
fn a_thread_that_is_cancelled_while_it_joins_has_joined() {
    same("first", &serving(), &[]);
}

#[test]
fn a_thread_that_ends_at_any_moment_holds_up_nobody() {
    // It waits for longer than the program takes to cancel it.
    same("asynchronous", &serving().setting("SIMCUDA_H2D_GBPS", "0.05"), &[("BATON_GATE", "whole")]);
}
