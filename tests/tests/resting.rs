//! Programs that have the GPU and nothing to do.

use baton_tests::coordinator::{Serving, tenant};
use baton_tests::hold::{self, Busy, LIMIT};

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
        // It rests on: what is counted when that is known is no more.
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
