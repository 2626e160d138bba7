//! Programs that fit the GPU together run together: urgent ones at any time, the others in the gaps.

use baton_contract::messages::{FromCoordinator, TurnCommand};
use baton_tests::LIMIT;
use baton_tests::bare_tenant::{self, BareTenant};
use baton_tests::coordinator::{Coordinator, Serving, alone, program, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::running::Running;
use serde_json::Value;

fn number(status: &Value, field: &str) -> u64 {
    status[field].as_u64().expect("a number")
}

/// Two programs that fit together, of which the urgent one has come to run beside the other.
#[track_caller]
fn together(coordinator: &Coordinator, speed: Option<&str>) -> (Running, Running) {
    let slow = hold::joined(coordinator, "slow", "batch", "48", speed);
    let mut quick = hold::joined(coordinator, "quick", "latency", "48", None);
    quick.ask("spin 1", LIMIT);
    coordinator.until_tenant_is("quick", "idle");
    (slow, quick)
}

#[test]
fn who_is_urgent_runs_beside_others_and_nobody_is_paused_for_it() {
    let want = hold::alone("48", &["touch"; 4]);
    // No request lasts so long.
    let coordinator = Serving::arena("128MiB").option("--burst", "1h").option("--latency-slack", "100%").start();
    let (mut slow, mut quick) = together(&coordinator, Some("0.05"));
    let before = coordinator.status();
    for answer in &want[..4] {
        assert_eq!(slow.ask("leave", LIMIT), answer.replace("touched", "left"));
        assert_eq!(quick.ask("touch", LIMIT), *answer);
        assert_eq!(tenant(&coordinator.status(), "slow")["state"], "running");
    }
    let after = coordinator.status();
    for field in ["preemptions", "deschedules", "bytes_in", "bytes_out"] {
        assert_eq!(number(&after, field), number(&before, field), "{field}");
    }
    assert_eq!(quick.ask("quit", LIMIT), want[4]);
    assert_eq!(slow.ask("quit", LIMIT), want[4]);
    coordinator.until_empty();
}

#[test]
fn the_others_wait_for_any_of_many_urgent_programs() {
    let want = hold::alone("48", &["touch"]);
    let coordinator = Serving::arena("128MiB").start();
    // More than fit one word of the activity page, and nothing to do.
    let crowd: Vec<BareTenant> = (0..70)
        .map(|number| BareTenant::greet(&coordinator, &bare_tenant::urgent(&coordinator, &format!("urgent-{number}"))))
        .collect();
    let (mut slow, mut quick) = together(&coordinator, None);
    assert_eq!(quick.ask("queue 700", LIMIT), "queued");
    assert_eq!(slow.ask("touch", LIMIT), want[0]);
    assert_eq!(tenant(&coordinator.status(), "quick")["state"], "idle", "its work came first");
    assert!(slow.ask("quit", LIMIT).ends_with(" ok"));
    assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
    drop(crowd);
}

#[test]
fn how_long_requests_take_is_known_though_they_pass_without_a_message() {
    let coordinator = Serving::arena("128MiB").start();
    let (mut slow, mut quick) = together(&coordinator, None);
    let requests = |status: &Value| tenant(status, "quick")["requests"].clone();
    let before = requests(&coordinator.until_tenant_is("quick", "idle"))["count"].as_u64().unwrap_or(0);
    assert_eq!(quick.ask("queue 300", LIMIT), "queued");
    let after = coordinator.until("the request is written down", |status| {
        requests(status)["count"].as_u64().is_some_and(|count| count > before)
    });
    assert!(requests(&after)["max"].as_f64().is_some_and(|ms| ms >= 297.0), "to within 1 %: {after:#}");
    assert!(tenant(&after, "slow")["requests"].is_null(), "{after:#}");
    assert!(slow.ask("quit", LIMIT).ends_with(" ok"));
    assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_limit_on_what_is_in_flight_ends_when_the_last_better_tenant_has_left() {
    let coordinator = Serving::arena("128MiB").start();
    let mut slow = BareTenant::join(&coordinator, "slow");
    slow.take_gpu();
    let urgent = ["one", "two"].map(|name| BareTenant::greet(&coordinator, &bare_tenant::urgent(&coordinator, name)));
    let limit = |slow: &BareTenant| match slow.hear() {
        (FromCoordinator::Turn(TurnCommand::LimitInFlight { .. }), _) => true,
        (FromCoordinator::Turn(TurnCommand::LiftLimit { watch: false }), _) => false,
        (other, _) => panic!("{other:?}"),
    };
    assert!(limit(&slow), "it cannot be preempted, so its queue is waited for");
    drop(urgent);
    assert!(!limit(&slow), "nobody better is there");
}

#[test]
fn the_others_wait_while_somebody_urgent_is_at_work() {
    let want = hold::alone("48", &["touch"]);
    let coordinator = Serving::arena("128MiB").start();
    let (mut slow, mut quick) = together(&coordinator, None);
    // Work that is queued: its program makes no call meanwhile.
    assert_eq!(quick.ask("queue 700", LIMIT), "queued");
    assert_eq!(slow.ask("touch", LIMIT), want[0]);
    assert_eq!(tenant(&coordinator.status(), "quick")["state"], "idle", "its work came first");
    // No program waits for what a stopped or a dead program said.
    for signal in [libc::SIGSTOP, libc::SIGKILL] {
        assert_eq!(quick.ask("queue 600000", LIMIT), "queued");
        coordinator.until_tenant_is("quick", "running");
        quick.signal(signal);
        slow.ask("touch", LIMIT);
        quick.signal(libc::SIGCONT);
    }
    assert!(slow.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

#[test]
fn a_burst_takes_the_others_off_the_gpu_until_it_is_over() {
    let want = hold::alone("48", &["touch"; 3]);
    let coordinator = Serving::arena("128MiB").start();
    let (mut slow, mut quick) = together(&coordinator, Some("0.05"));
    for answer in &want[..3] {
        assert_eq!(slow.ask("leave", LIMIT), answer.replace("touched", "left"));
        let busy = Busy::start(&mut quick, &coordinator.place);
        coordinator.until_tenant_is("slow", "preempted");
        busy.end(&mut quick);
        assert_eq!(quick.ask("touch", LIMIT), *answer);
    }
    let status = coordinator.status();
    assert!(number(&status, "deschedules") >= 3, "they are counted");
    assert_eq!((number(&status, "bytes_in"), number(&status, "bytes_out")), (0, 0), "all memory stays where it is");
    assert_eq!(slow.ask("quit", LIMIT), want[3]);
    assert_eq!(quick.ask("quit", LIMIT), want[3]);
    coordinator.until_empty();
}

#[test]
fn one_that_dies_or_is_cut_off_during_a_burst_leaves_nothing_behind() {
    let coordinator = Serving::arena("128MiB").start();
    let before = coordinator.until_ready();
    for _ in 0..3 {
        let (mut slow, mut quick) = together(&coordinator, Some("0.02"));
        slow.ask("leave", LIMIT);
        let busy = Busy::start(&mut quick, &coordinator.place);
        coordinator.until_tenant_is("slow", "preempted");
        slow.signal(libc::SIGKILL);
        busy.end(&mut quick);
        assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
        coordinator.until_empty();
    }
    assert_eq!(coordinator.status()["arena"]["lent_bytes"], before["arena"]["lent_bytes"]);
}

#[test]
fn whoever_makes_way_for_a_burst_goes_on_when_the_coordinator_dies() {
    let want = hold::alone("48", &["touch"]);
    let mut coordinator = Serving::arena("128MiB").start();
    let (mut slow, mut quick) = together(&coordinator, Some("0.05"));
    assert_eq!(slow.ask("leave", LIMIT), want[0].replace("touched", "left"));
    let busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until_tenant_is("slow", "preempted");
    coordinator.end(libc::SIGKILL);
    busy.end(&mut quick);
    assert_eq!(slow.ask("quit", LIMIT), want[1]);
}

#[test]
fn who_made_way_goes_on_when_the_one_at_work_is_killed() {
    let want = hold::alone("48", &["touch"]);
    // No program gets a turn for having waited for long, and no command asks for the status: only the death itself can be noticed.
    let coordinator = Serving::arena("128MiB").option("--max-wait", "1h").start();
    let (mut slow, mut quick) = together(&coordinator, Some("0.05"));
    assert_eq!(slow.ask("leave", LIMIT), want[0].replace("touched", "left"));
    let _busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until_tenant_is("slow", "preempted");
    quick.signal(libc::SIGKILL);
    assert_eq!(slow.ask("quit", LIMIT), want[1]);
}

#[test]
fn a_burst_without_end_does_not_keep_the_others_off_for_ever() {
    let want = hold::alone("48", &["touch"]);
    let coordinator = Serving::arena("128MiB").option("--max-wait", "200ms").start();
    let (mut slow, mut quick) = together(&coordinator, None);
    quick.say("spin 600000");
    coordinator.until_tenant_is("quick", "running");
    assert_eq!(slow.ask("touch", LIMIT), want[0]);
    assert!(!quick.has_answered(), "the burst has ended");
    coordinator.until_tenant_is("quick", "running");
    quick.signal(libc::SIGKILL);
    assert_eq!(slow.ask("quit", LIMIT), want[1]);
}

#[test]
fn when_not_all_fit_any_more_they_take_turns_and_when_they_do_they_run_together_again() {
    let want = hold::alone("48", &["touch"; 6]);
    let coordinator = Serving::arena("128MiB").start();
    let (mut slow, mut quick) = together(&coordinator, None);
    let mut third = hold::joined(&coordinator, "third", "normal", "64", None);
    for answer in &want[..3] {
        for running in [&mut slow, &mut quick] {
            assert_eq!(running.ask("touch", LIMIT), *answer);
        }
        third.ask("touch", LIMIT);
    }
    let crowded = coordinator.status();
    assert!(number(&crowded, "bytes_out") > 0, "{crowded:#}");
    assert!(third.ask("quit", LIMIT).ends_with(" ok"));
    for answer in &want[3..6] {
        for running in [&mut slow, &mut quick] {
            assert_eq!(running.ask("touch", LIMIT), *answer);
        }
    }
    let busy = Busy::start(&mut quick, &coordinator.place);
    // A program runs beside the one that has the baton.
    coordinator.until("both run", |status| {
        status["holder"] == "slow" && tenant(status, "quick")["state"] == "running"
            || status["holder"] == Value::Null && tenant(status, "quick")["state"] == "running"
    });
    busy.end(&mut quick);
    for running in [&mut slow, &mut quick] {
        assert_eq!(running.ask("quit", LIMIT), want[6]);
    }
    coordinator.until_empty();
}

#[test]
fn an_allocation_that_does_not_fit_beside_others_gets_its_room_all_the_same() {
    let want = hold::alone("48", &["touch", "alloc 56", "touch", "free", "touch"]);
    let coordinator = Serving::arena("128MiB").start();
    let (mut slow, mut quick) = together(&coordinator, None);
    for running in [&mut quick, &mut slow] {
        for (line, answer) in ["touch", "alloc 56", "touch", "free", "touch"].iter().zip(&want) {
            assert_eq!(running.ask(line, LIMIT), *answer, "{line}");
        }
    }
    for running in [&mut quick, &mut slow] {
        assert_eq!(running.ask("quit", LIMIT), want[5]);
    }
    coordinator.until_empty();
}

#[test]
fn in_exclusive_mode_only_one_runs() {
    let want = hold::alone("48", &["touch"; 2]);
    let coordinator = Serving::arena("128MiB").option("--mode", "exclusive").start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some("0.05"));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    for answer in &want[..2] {
        assert_eq!(slow.ask("leave", LIMIT), answer.replace("touched", "left"));
        assert_eq!(quick.ask("touch", LIMIT), *answer);
    }
    assert!(number(&coordinator.status(), "preemptions") >= 2);
    for running in [&mut quick, &mut slow] {
        assert_eq!(running.ask("quit", LIMIT), want[2]);
    }
    coordinator.until_empty();
}

#[test]
fn many_programs_of_both_kinds_compute_what_they_compute_alone() {
    // They fit together now and then. A program that waits for long gets a turn, and every request is a burst.
    let mut serving = Serving::arena("96MiB");
    for (option, value) in [("--max-wait", "200ms"), ("--burst", "0s"), ("--quantum", "20ms")] {
        serving = serving.option(option, value);
    }
    let coordinator = serving.start();
    let kinds = [("latency", "8", "20"), ("batch", "28", "10")];
    let all = || kinds.iter().flat_map(|kind| (1..=4).map(move |seed| (kind, seed.to_string())));
    let started: Vec<_> = all()
        .map(|((class, megabytes, rounds), seed)| {
            let arguments = ["--megabytes", megabytes, "--rounds", rounds, "--seed", &seed];
            let name = format!("{class}-{seed}");
            (coordinator.run(&name, class, &program("fill_and_check"), &arguments), arguments.map(str::to_owned))
        })
        .collect();
    for (running, arguments) in started {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(running.result(LIMIT), alone("fill_and_check", &arguments), "{arguments:?}");
    }
    coordinator.until_empty();
}
