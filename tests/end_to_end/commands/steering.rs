//! Users steer programs when they start them and while they run.

use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::hold::{self, Busy};
use serde_json::json;

/// Runs `baton VERB --socket … WORDS`. Returns its standard error if it fails.
fn steer(coordinator: &Coordinator, verb: &str, words: &[&str]) -> Result<(), String> {
    let mut command = coordinator.place.baton(&[verb, "--socket"]);
    let done = command.arg(coordinator.place.socket()).args(words).output().expect("baton can be started");
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

#[test]
fn a_paused_program_stops_in_the_middle_and_goes_on_when_it_is_resumed() {
    for (arena, flags) in [("128MiB", [].as_slice()), ("64MiB", &[]), ("128MiB", &["--no-preempt"])] {
        let want = hold::alone("48", &["touch"; 2]);
        let serving = flags.iter().fold(Serving::small(arena), |serving, flag| serving.flag(flag));
        let coordinator = serving.start();
        let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some("0.2"));
        let mut quick = hold::joined(&coordinator, "quick", "batch", "48", None);
        assert_eq!(slow.ask("leave", LIMIT), want[0].replace("touched", "left"));
        steer(&coordinator, "pause", &["slow"]).expect("it is there");
        coordinator.until_tenant_is("slow", "suspended");
        // The GPU is for the others, and with it the memory.
        for answer in &want[..2] {
            assert_eq!(quick.ask("touch", LIMIT), *answer);
        }
        let status = coordinator.status();
        assert_eq!(tenant(&status, "slow")["state"], "suspended");
        slow.say("touch");
        assert_eq!(quick.ask("quit", LIMIT), want[2]);
        assert_eq!(tenant(&coordinator.status(), "slow")["state"], "suspended", "nobody else wants the GPU");
        steer(&coordinator, "resume", &["slow"]).expect("it is there");
        assert_eq!(slow.line(LIMIT), want[1]);
        assert_eq!(slow.ask("quit", LIMIT), want[2]);
        coordinator.until_empty();
    }
}

#[test]
fn one_that_runs_beside_others_goes_on_where_it_was_paused() {
    let want = hold::alone("48", &["touch"; 2]);
    let coordinator = Serving::small("128MiB").start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", None);
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", Some("0.2"));
    for answer in &want[..2] {
        assert_eq!(slow.ask("touch", LIMIT), *answer);
        assert_eq!(quick.ask("leave", LIMIT), answer.replace("touched", "left"));
        steer(&coordinator, "pause", &["quick"]).expect("it is there");
        coordinator.until_tenant_is("quick", "suspended");
        steer(&coordinator, "resume", &["quick"]).expect("it is there");
    }
    for running in [&mut slow, &mut quick] {
        assert_eq!(running.ask("quit", LIMIT), want[2]);
    }
    coordinator.until_empty();
}

#[test]
fn a_program_that_becomes_urgent_runs_beside_others_and_takes_turns_when_it_no_longer_is() {
    let want = hold::alone("48", &["touch"; 3]);
    let coordinator = Serving::small("128MiB").start();
    // For its sake, the others keep little queued.
    let mut urgent = hold::joined(&coordinator, "urgent", "latency", "8", None);
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", None);
    let mut quick = hold::joined(&coordinator, "quick", "normal", "48", None);
    let both =
        |slow: &mut baton_tests::running::Running, quick: &mut baton_tests::running::Running, answer: &String| {
            for running in [slow, quick] {
                assert_eq!(running.ask("touch", LIMIT), *answer);
            }
        };
    both(&mut slow, &mut quick, &want[0]);
    steer(&coordinator, "set", &["quick", "class=latency", "slo=20ms"]).expect("it makes sense");
    let status = coordinator.status();
    assert_eq!(tenant(&status, "quick")["class"], "latency");
    assert_eq!(tenant(&status, "quick")["slo_ms"], json!(20.0));
    both(&mut slow, &mut quick, &want[1]);
    coordinator.until_tenant_is("quick", "idle");
    let busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until("they run at the same time", |status| {
        status["holder"] != "quick" && tenant(status, "quick")["state"] == "running"
    });
    busy.end(&mut quick);
    steer(&coordinator, "set", &["quick", "class=batch", "weight=3"]).expect("it makes sense");
    both(&mut slow, &mut quick, &want[2]);
    let busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until("it has the GPU to itself", |status| status["holder"] == "quick");
    busy.end(&mut quick);
    let status = coordinator.status();
    assert_eq!((&tenant(&status, "quick")["slo_ms"], &tenant(&status, "quick")["weight"]), (&json!(null), &json!(3)));
    for running in [&mut slow, &mut quick] {
        assert_eq!(running.ask("quit", LIMIT), want[3]);
    }
    assert!(urgent.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let coordinator = Serving::small("128MiB").start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "24", None);
    for (words, why) in [
        (&["nobody", "weight=2"][..], "no program called nobody"),
        (&["slow", "slo=20ms"], "for programs of class latency"),
        (&["slow", "weight=0"], "from 1 to 1000"),
        (&["slow", "class=latency", "weight=2"], "for programs of class normal or batch"),
        (&["slow", "colour=red"], "write class="),
        (&["slow", "slo=20"], "write for example 20ms"),
    ] {
        let said = steer(&coordinator, "set", words).expect_err("it makes no sense");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    assert!(steer(&coordinator, "pause", &["nobody"]).expect_err("nobody").contains("no program called nobody"));
    let status = coordinator.status();
    assert_eq!((&tenant(&status, "slow")["class"], &tenant(&status, "slow")["weight"]), (&json!("batch"), &json!(1)));
    assert!(slow.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn what_was_said_at_the_start_holds() {
    let coordinator = Serving::small("128MiB").start();
    let run = |words: &[&str]| {
        let mut command = coordinator.place.baton(&["run"]);
        command
            .arg("--socket")
            .arg(coordinator.place.socket())
            .args(words)
            .arg("--")
            .arg(program("hold"))
            .args(["--megabytes", "24"]);
        hold::ready(&mut command, Some(coordinator.place.clone()))
    };
    let mut heavy = run(&["--name", "heavy", "--class", "batch", "--weight", "3"]);
    let mut urgent = run(&["--name", "urgent", "--class", "latency", "--slo", "20ms"]);
    let status = coordinator.status();
    assert_eq!(tenant(&status, "heavy")["weight"], 3);
    assert_eq!(tenant(&status, "urgent")["slo_ms"], 20.0);
    for running in [&mut heavy, &mut urgent] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
    let said = coordinator.place.baton(&["run", "--slo", "20ms", "true"]).output().expect("baton can be started");
    assert!(String::from_utf8_lossy(&said.stderr).contains("for programs of class latency"), "{said:?}");
}
