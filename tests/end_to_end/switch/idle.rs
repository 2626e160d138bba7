//! Programs that have the GPU and nothing to do.

use baton_tests::LIMIT;
use baton_tests::coordinator::{Serving, tenant};
use baton_tests::hold::{self, Busy};

const CLASSES: [&str; 3] = ["latency", "normal", "batch"];

#[test]
fn one_that_has_the_gpu_and_nothing_to_do_is_idle_and_its_time_stands_still() {
    let want = hold::alone("8", &["touch", "touch"]);
    for class in CLASSES {
        let coordinator = Serving::arena("64MiB").start();
        let mut quiet = hold::joined(&coordinator, "quiet", class, "8", None);
        assert_eq!(quiet.ask("touch", LIMIT), want[0]);
        coordinator.until_tenant_is("quiet", "idle");
        let time = |status: &serde_json::Value| tenant(status, "quiet")["gpu_seconds"].as_f64();
        let status = coordinator.status();
        assert_eq!(status["holder"], "quiet", "it has it until another one wants it");
        let before = time(&status);
        // It rests on: its counted time does not grow once that is known.
        coordinator.until("time has passed", |now| {
            now["uptime_seconds"].as_f64() > status["uptime_seconds"].as_f64().map(|seconds| seconds + 0.3)
        });
        assert_eq!(time(&coordinator.status()), before);
        // Its next call goes on as if nothing had been, and is seen.
        let busy = Busy::start(&mut quiet, &coordinator.place);
        coordinator.until_tenant_is("quiet", "running");
        coordinator.until("its time is counted", |now| time(now) > before);
        busy.end(&mut quiet);
        assert_eq!(quiet.ask("quit", LIMIT), hold::alone("8", &["touch"])[1]);
        coordinator.until_empty();
    }
}

#[test]
fn one_that_rests_gives_way_to_whoever_asks_and_gets_the_gpu_back() {
    let want = hold::alone("40", &["touch", "touch"]);
    for class in CLASSES {
        let coordinator = Serving::arena("64MiB").start();
        let mut one = hold::joined(&coordinator, "one", class, "40", None);
        let mut other = hold::joined(&coordinator, "other", class, "40", None);
        for answer in &want[..2] {
            assert_eq!(one.ask("touch", LIMIT), *answer);
            coordinator.until_tenant_is("one", "idle");
            assert_eq!(other.ask("touch", LIMIT), *answer);
            coordinator.until_tenant_is("other", "idle");
        }
        assert_eq!(one.ask("quit", LIMIT), want[2]);
        assert_eq!(other.ask("quit", LIMIT), want[2]);
        coordinator.until_empty();
    }
}

#[test]
fn one_whose_turn_it_is_is_loading_until_its_memory_is_there() {
    let want = hold::alone("40", &["touch", "touch"]);
    // So slow that it is seen; and nothing runs before all is there.
    let serving = Serving::arena("64MiB").setting("SIMCUDA_H2D_GBPS", "0.02").option("--pipeline", "off");
    let coordinator = serving.start();
    let mut one = hold::joined(&coordinator, "one", "normal", "40", None);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    assert!(coordinator.evict("one"), "it is idle");
    one.say("touch");
    let status = coordinator.until_tenant_is("one", "loading");
    // It has frames for all of it by then, but what they are to hold is on its way.
    assert!(tenant(&status, "one")["missing_bytes"].as_u64() > Some(0), "{status:#}");
    assert_eq!(one.line(LIMIT), want[1]);
    assert_eq!(one.ask("quit", LIMIT), want[2]);
}

fn number(status: &serde_json::Value, name: &str) -> u64 {
    status[name].as_u64().expect("a number")
}

/// Room for one of two programs of 40 MB, and on the host for both.
fn for_one_of_two() -> Serving {
    Serving::arena("64MiB").option("--host-pool", "128MiB").option("--headroom", "0%")
}

#[test]
fn what_rests_is_copied_ahead_of_need_and_leaves_without_a_copy() {
    let want = hold::alone("40", &["touch", "touch", "touch"]);
    let coordinator = for_one_of_two().start();
    coordinator.until_ready();
    let mut one = hold::joined(&coordinator, "one", "normal", "40", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "40", None);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    coordinator.until_tenant_is("one", "idle");
    let mut before = coordinator.status();
    let (mut has_rested, mut rests) = (false, 0);
    for (is_other, answer) in [(true, &want[0]), (false, &want[1]), (true, &want[1]), (false, &want[2])] {
        let program = if is_other { &mut other } else { &mut one };
        assert_eq!(program.ask("touch", LIMIT), *answer);
        let now = coordinator.status();
        let was_paused = |now: &serde_json::Value| number(now, "preemptions") > number(&before, "preemptions");
        if has_rested && !was_paused(&now) {
            assert_eq!(number(&now, "bytes_out"), number(&before, "bytes_out"), "it was there already");
        }
        let least = number(&before, "bytes_ahead") + (40 << 20);
        let is_copied = |now: &serde_json::Value| number(now, "bytes_ahead") >= least;
        // On a busy machine the end of a program's work may be seen too late: then it is paused, and has the GPU again later.
        let rested = coordinator.until("what it has written is copied ahead", |now| is_copied(now) || was_paused(now));
        has_rested = is_copied(&rested) && !was_paused(&rested);
        before = rested;
        rests += usize::from(has_rested);
    }
    assert!(rests > 0, "it was paused each time");
    assert_eq!(other.ask("touch", LIMIT), want[2]);
    assert_eq!(one.ask("quit", LIMIT), want[3]);
    assert_eq!(other.ask("quit", LIMIT), want[3]);
    coordinator.until_empty();
}

#[test]
fn what_is_written_while_it_is_copied_ahead_leaves_as_it_is_then() {
    let want = hold::alone("40", &["touch", "touch", "touch", "touch"]);
    // So slow that the writing comes in the middle.
    let coordinator = for_one_of_two().setting("SIMCUDA_D2H_GBPS", "0.1").start();
    coordinator.until_ready();
    let mut one = hold::joined(&coordinator, "one", "normal", "40", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "40", None);
    assert_eq!(one.ask("touch", LIMIT), want[0]);
    assert_eq!(other.ask("touch", LIMIT), want[0]);
    // Each answer tells what came back too: it is the sum of what was there and is added.
    for answer in &want[1..4] {
        let before = coordinator.status();
        let comes = |name: &str| {
            coordinator.until(name, |status| number(status, name) > number(&before, name));
        };
        comes("scanned_bytes");
        assert_eq!(other.ask("stray", LIMIT), "strayed");
        comes("bytes_ahead");
        // The contents in the end are those that were scanned, and not those that were copied.
        assert_eq!(other.ask("return", LIMIT), "returned");
        coordinator.until_tenant_is("other", "idle");
        assert_eq!(one.ask("touch", LIMIT), *answer);
        assert_eq!(other.ask("touch", LIMIT), *answer);
    }
    assert_eq!(one.ask("quit", LIMIT), want[4]);
    assert_eq!(other.ask("quit", LIMIT), want[4]);
    coordinator.until_empty();
}
