//! Calls of the driver fail, and no program notices.

use std::time::Duration;

use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, tenant};
use baton_tests::faults::Strike;
use baton_tests::hold::{self, Busy};
use baton_tests::strikes::with_board;

use super::takeover::{hold, log_has, quit, serving, touch, two};

/// Each of these calls is made by a coordinator that takes over. The memory that the last one is about is on the GPU.
#[test]
fn one_that_cannot_take_over_is_followed_by_one_that_can() {
    const CALLS: [&str; 4] = ["cuInit", "cuDevicePrimaryCtxRetain", "cuEventCreate", "cuMemImportFromShareableHandle"];
    let want = hold::alone("48", &["touch"; CALLS.len()]);
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let mut programs = two(&coordinator);
    for (answer, call) in want.iter().zip(CALLS) {
        touch(&mut programs, answer);
        board.prepare(&Strike { error: 2, ..Strike::at(format!("coordinator calls {call}")) });
        coordinator.kill_served();
        assert!(board.struck().is_some(), "{call}");
    }
    quit(&mut programs, &want[CALLS.len()]);
    coordinator.until_empty();
}

/// Programs whose memory leaves and comes while each of these calls fails so many times in a row. Returns the coordinator, which has none
/// any more.
#[track_caller]
fn calls_fail(calls: &[&str], times: u32) -> Coordinator {
    let want = hold::alone("48", &vec!["touch"; calls.len() + 1]);
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    for (answer, call) in want[1..].iter().zip(calls) {
        let point = format!("coordinator calls {call}");
        board.prepare(&Strike { error: 999, again: times - 1, ..Strike::at(point) });
        touch(&mut programs, answer);
        assert!(board.struck().is_some(), "{call}");
    }
    quit(&mut programs, &want[calls.len() + 1]);
    coordinator.until_empty();
    coordinator
}

#[test]
fn a_copy_that_fails_is_done_again() {
    let coordinator = calls_fail(&["out_lane", "cuMemcpyDtoHAsync_v2", "in_lane", "cuEventSynchronize"], 1);
    assert!(!coordinator.log().contains("B0527"), "{}", coordinator.log());
}

#[test]
fn a_coordinator_that_cannot_copy_is_followed_by_one_that_can() {
    let coordinator = calls_fail(&["in_lane"], 2);
    assert!(log_has(&coordinator, "B0649", 1), "{}", coordinator.log());
}

#[test]
fn a_program_whose_memory_no_coordinator_can_copy_is_killed_and_the_other_one_goes_on() {
    let want = hold::alone("48", &["touch"; 2]);
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let [mut one, mut other] = two(&coordinator);
    for program in [&mut one, &mut other] {
        assert_eq!(program.ask("touch", LIMIT), want[0]);
    }
    let point = "coordinator calls in_lane".to_owned();
    // However many jobs its memory comes in by, all of them fail.
    board.prepare(&Strike { error: 999, again: u32::MAX, ..Strike::at(point) });
    one.say("touch");
    assert_eq!(one.finish(LIMIT).status, "signal: 9 (SIGKILL)");
    board.take_back();
    assert_eq!(other.ask("touch", LIMIT), want[1]);
    // The first comes after the program's end.
    coordinator.until("why", |_| log_has(&coordinator, "B0649", 1) && log_has(&coordinator, "B0558", 1));
    quit(&mut [other], &want[2]);
    coordinator.until_empty();
}

/// The driver does not pin it for the next coordinator.
#[test]
fn the_host_pool_with_data_is_used_although_it_cannot_be_pinned() {
    let want = hold::alone("48", &["touch"; 3]);
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    let point = "coordinator calls cuMemHostRegister_v2".to_owned();
    board.prepare(&Strike { error: 2, again: 1, ..Strike::at(point) });
    coordinator.kill_served();
    touch(&mut programs, &want[1]);
    assert!(log_has(&coordinator, "B0652", 1), "{}", coordinator.log());
    touch(&mut programs, &want[2]);
    quit(&mut programs, &want[3]);
    coordinator.until_empty();
}

/// Its call finds the gate closed for a pause, which then fails; its work ends before the gate has opened again.
#[test]
fn a_call_that_waits_when_a_pause_fails_is_known_to_the_next_coordinator() {
    let want = hold::alone("48", &["touch"; 2]);
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    // Its work takes about a second.
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some("0.1"));
    let mut quick = hold(&coordinator, "quick", "latency");
    assert_eq!(slow.ask("leave", LIMIT), want[0].replace("touched", "left"));
    coordinator.until("it can be paused", |status| tenant(status, "slow")["preemptible"] == true);
    let wait = Duration::from_millis(400);
    board.prepare(&Strike { error: 999, wait, ..Strike::at("coordinator calls simcudaPauseProcess") });
    let busy = Busy::start(&mut quick, &coordinator.place);
    while board.struck().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    slow.say("touch");
    coordinator.until("it waits for its turn", |status| {
        let has_the_gpu = tenant(status, "quick")["state"] == "running";
        has_the_gpu && tenant(status, "slow")["waits_for"]["reason"] == "turn"
    });
    coordinator.kill_served();
    busy.end(&mut quick);
    assert_eq!(slow.line(LIMIT), want[1]);
    for program in [&mut slow, &mut quick] {
        assert!(program.ask("quit", LIMIT).ends_with(" ok"));
    }
    coordinator.until_empty();
}
