//! A fault of one tenant or of the coordinator costs the others nothing.

use std::process::Command;
use std::time::Duration;

use baton_tests::coordinator::{Coordinator, Serving, alone, program, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, signal};
use baton_tests::{LIMIT, MIB, built};
use serde_json::Value;

/// `hold` with so much memory, ready for its first line.
#[track_caller]
fn hold(coordinator: &Coordinator, name: &str, megabytes: &str) -> Running {
    let place = &coordinator.place;
    hold::ready(&mut place.joining(name, &program("hold"), &["--megabytes", megabytes]), Some(place.clone()))
}

/// Kills a child that `hold` has forked, when the test is over.
struct Child(i32);

impl Drop for Child {
    fn drop(&mut self) {
        signal(self.0, libc::SIGKILL);
    }
}

#[track_caller]
fn fork(running: &mut Running) -> Child {
    let line = running.ask("fork", LIMIT);
    Child(line.strip_prefix("forked ").and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("{line}")))
}

/// Waits until a tenant is gone, with all that it had.
#[track_caller]
fn until_gone(coordinator: &Coordinator, name: &str) -> Value {
    coordinator.until(&format!("{name} is gone"), |status| {
        let left = status["tenants"].as_array().expect("a list");
        let total = |field: &str| left.iter().map(|tenant| tenant[field].as_u64().expect("bytes")).sum::<u64>();
        tenant(status, name).is_null()
            && status["arena"]["lent_bytes"] == total("resident_bytes") + total("reserved_bytes")
            // Resident memory may have a place in the pool too.
            && status["host_pool"]["used_bytes"].as_u64() <= Some(total("bytes"))
    })
}

/// Brings a victim to where it is killed.
type BringAbout = fn(&Coordinator, &mut Running, &mut Running) -> Asked;

/// The questions that the other program was asked while the victim was brought to where it is killed.
#[derive(Default)]
struct Asked {
    /// How often it has touched its memory.
    touched: usize,
    /// True if it still has an answer to give to one more `touch`.
    touches: bool,
}

/// A tenant is killed, once without and once with a forked child that lives on. Another one, that has as much
/// memory and waits for it or comes later, computes what it does alone.
#[track_caller]
fn killed(serving: &Serving, bring_about: BringAbout) {
    let alone = [3, 4].map(|times| hold::alone("48", &vec!["touch"; times]));
    let [first, second, ..] = alone[0].as_slice() else { unreachable!("three touches") };
    for with_child in [false, true] {
        let coordinator = serving.start();
        let mut other = hold(&coordinator, "other", "48");
        assert_eq!(other.ask("touch", LIMIT), *first);
        let mut victim = hold(&coordinator, "victim", "48");
        let child = with_child.then(|| fork(&mut victim));
        let asked = bring_about(&coordinator, &mut victim, &mut other);
        victim.signal(libc::SIGKILL);
        victim.end(LIMIT);
        if !asked.touches {
            other.say("touch");
        }
        let [.., answer, last, end] = alone[asked.touched].as_slice() else { unreachable!("three touches or four") };
        assert_eq!(other.line(LIMIT), *answer);
        until_gone(&coordinator, "victim");
        // Its memory is there for the next one: without it, this one would not fit in arena and pool.
        let mut next = hold(&coordinator, "next", "48");
        assert_eq!(next.ask("touch", LIMIT), *first);
        assert_eq!(other.ask("touch", LIMIT), *last);
        assert_eq!(next.ask("touch", LIMIT), *second);
        assert_eq!(other.ask("quit", LIMIT), *end);
        drop(next);
        coordinator.until_empty();
        drop(child);
    }
}

/// Room for two tenants of 48 MiB, in arena and pool together, and not for three.
fn room_for_two() -> Serving {
    Serving::arena("64MiB").option("--host-pool", "64MiB")
}

/// Copies of 48 MiB take a second.
fn slow(serving: Serving) -> Serving {
    serving.setting("SIMCUDA_H2D_GBPS", "0.05").setting("SIMCUDA_D2H_GBPS", "0.05")
}

#[test]
fn a_tenant_killed_while_it_holds_the_baton_costs_the_others_nothing() {
    killed(&room_for_two(), |coordinator, victim, other| {
        victim.say("spin 600000");
        coordinator.until_tenant_is("victim", "running");
        other.say("touch");
        coordinator.until_tenant_is("victim", "running");
        Asked { touched: 0, touches: true }
    });
}

#[test]
fn a_tenant_killed_while_it_waits_costs_the_others_nothing() {
    killed(&room_for_two().option("--quantum", "1h"), |coordinator, victim, other| {
        let busy = Busy::start(other, &coordinator.place);
        coordinator.until_tenant_is("other", "running");
        victim.say("touch");
        coordinator.until_tenant_is("victim", "waiting");
        victim.signal(libc::SIGKILL);
        busy.end(other);
        Asked::default()
    });
}

#[test]
fn a_tenant_killed_while_its_memory_comes_in_costs_the_others_nothing() {
    killed(&slow(room_for_two()), |coordinator, victim, other| {
        // The memory is the other's first, so that the victim's has to come in. The other one touches all of its own: of
        // what it had left on the host, and what the victim has, not all would have room there.
        assert!(other.ask("touch", LIMIT).starts_with("touched "));
        // It may have a turn yet for which it asked before it was ready.
        while !coordinator.evict("victim") {}
        victim.say("touch");
        coordinator.until_arriving("victim");
        Asked { touched: 1, touches: false }
    });
}

#[test]
fn a_tenant_killed_while_its_memory_goes_out_costs_the_others_nothing() {
    killed(&slow(room_for_two()), |coordinator, _, other| {
        other.say("touch");
        coordinator.until_arriving("other");
        Asked { touched: 0, touches: true }
    });
}

#[test]
fn tenants_with_all_their_memory_go_on_without_a_coordinator_and_the_others_are_told_why() {
    let want = hold::alone("40", &["touch", "touch"]);
    let mut coordinator = Serving::arena("64MiB").option("--quantum", "1h").start();
    let mut idle = hold(&coordinator, "idle", "40");
    let mut waits = hold(&coordinator, "waits", "40");
    let mut has_all = hold(&coordinator, "has_all", "40");
    assert_eq!(has_all.ask("touch", LIMIT), want[0]);
    // Its work lasts: a busy one may pause for so long, on a loaded machine, that its turn is over.
    assert_eq!(has_all.ask("linger", LIMIT), "lingers");
    coordinator.until_tenant_is("has_all", "running");
    waits.say("touch");
    let evicted = |status: &Value, name: &str| tenant(status, name)["evicted_bytes"] != 0;
    coordinator.until("one has all, two lack something", |status| {
        tenant(status, "has_all")["state"] == "running"
            && tenant(status, "waits")["state"] == "waiting"
            && evicted(status, "idle")
            && evicted(status, "waits")
            && !evicted(status, "has_all")
    });

    coordinator.end(libc::SIGKILL);
    assert_eq!(waits.line(LIMIT), "answer 46", "a call that waits in the gate");
    assert_eq!(idle.ask("touch", LIMIT), "answer 46", "a call made later");
    assert_eq!(idle.ask("touch", LIMIT), "answer 46", "and one more");
    for running in [&waits, &idle] {
        let err = running.said();
        assert!(err.starts_with("baton: ") && err.lines().count() == 1, "one line that says why: {err}");
        println!("{err}");
    }
    assert_eq!(has_all.ask("go", LIMIT), "gone");
    assert_eq!(has_all.ask("touch", LIMIT), want[1]);
    assert_eq!(has_all.ask("quit", LIMIT), want[2]);
    assert_eq!(waits.end(LIMIT).code(), Some(0), "its end does not hang");
}

/// A program that waits in the driver for work that was taken off the GPU in the middle, with its memory on the host.
#[track_caller]
fn waits_in_driver(coordinator: &Coordinator, other: &mut Running, adapt: impl Fn(&mut Command)) -> Running {
    let mut command = coordinator.place.joining("waits", &program("hold"), &["--megabytes", "48"]);
    command.env("BATON_CLASS", "batch").env("SIMCUDA_KERNEL_GFLOPS", "0.01");
    adapt(&mut command);
    let mut waits = hold::ready(&mut command, Some(coordinator.place.clone()));
    waits.say("touch");
    coordinator.until_tenant_is("waits", "running");
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    waits
}

#[test]
fn a_call_that_waits_for_interrupted_work_returns_when_the_coordinator_dies() {
    let mut coordinator = Serving::arena("64MiB").start();
    let mut other = hold::joined(&coordinator, "other", "latency", "48", None);
    let mut waits = waits_in_driver(&coordinator, &mut other, |_| ());
    let busy = Busy::start(&mut other, &coordinator.place);
    coordinator.until("its work is paused, and its memory away", |status| {
        let waits = tenant(status, "waits");
        waits["state"] == "preempted" && waits["evicted_bytes"] != 0
    });
    coordinator.end(libc::SIGKILL);
    let answer = waits.line(LIMIT);
    assert!(answer.starts_with("answer "), "{answer}");
    assert_eq!(waits.ask("touch", LIMIT), "answer 46", "a call made later");
    assert_eq!(waits.end(LIMIT).code(), Some(0), "its end does not hang");
    busy.end(&mut other);
}

#[test]
fn a_program_that_has_to_share_the_gpu_ends_when_its_memory_is_lost_with_the_coordinator() {
    let mut coordinator = Serving::arena("64MiB").start();
    let mut other = hold::joined(&coordinator, "other", "latency", "48", None);
    let waits = waits_in_driver(&coordinator, &mut other, |command| {
        command.env("BATON_REQUIRE", "1");
    });
    let busy = Busy::start(&mut other, &coordinator.place);
    coordinator.until("its memory is away", |status| tenant(status, "waits")["evicted_bytes"] != 0);
    coordinator.end(libc::SIGKILL);
    let outcome = waits.finish(LIMIT);
    assert_eq!(outcome.status, "exit status: 125", "{outcome:?}");
    assert!(outcome.err.contains("had memory of this program") && outcome.err.lines().count() == 1, "{outcome:?}");
    busy.end(&mut other);
}

#[test]
fn a_coordinator_that_is_stopped_leaves_a_place_for_the_next() {
    let mut coordinator = Serving::arena("64MiB").start();
    assert_eq!(coordinator.end(libc::SIGINT).code(), Some(0), "{}", coordinator.log());
    assert!(!coordinator.place.socket().exists());
    let mut coordinator = Serving::arena("64MiB").start();
    coordinator.end(libc::SIGKILL);
    assert!(coordinator.place.socket().exists());
    // A killed coordinator's remains are in no other's way.
    let mut next = coordinator.again();
    let mut running = hold(&next, "tenant", "24");
    assert_eq!(running.ask("touch", LIMIT), hold::alone("24", &["touch"])[0]);
    assert_eq!(running.end(LIMIT).code(), Some(0));
    next.until_empty();
    assert_eq!(next.end(libc::SIGTERM).code(), Some(0), "{}", next.log());
}

#[test]
fn memory_beyond_the_arena_is_refused_and_freeing_some_helps() {
    let want = hold::alone("24", &["touch", "touch"]);
    let coordinator = Serving::arena("64MiB").start();
    let mut other = hold(&coordinator, "other", "60");
    let mut running = hold(&coordinator, "running", "24");
    // 24 and 36 are fine, 62 are not, whatever the other has.
    for (line, answer) in [
        ("alloc 100", "answer 2"),
        ("alloc 36", "allocated"),
        ("touch", &want[0]),
        ("alloc 8", "answer 2"),
        ("free", "freed"),
        ("alloc 8", "allocated"),
        ("touch", &want[1]),
        ("quit", &want[2]),
    ] {
        assert_eq!(running.ask(line, LIMIT), answer, "{line}");
        assert!(other.ask("touch", LIMIT).starts_with("touched "));
    }
}

#[test]
fn memory_beyond_arena_and_pool_is_refused_until_another_leaves() {
    let coordinator = room_for_two().option("--host-pool", "32MiB").start();
    let mut first = hold(&coordinator, "first", "40");
    let mut second = hold(&coordinator, "second", "40");
    for _ in 0..3 {
        assert!(first.ask("touch", LIMIT).starts_with("touched "));
        assert!(second.ask("touch", LIMIT).starts_with("touched "));
    }
    // 80 of 96 MiB are in use.
    assert_eq!(second.ask("alloc 20", LIMIT), "answer 2");
    assert!(first.ask("touch", LIMIT).starts_with("touched "));
    assert!(first.ask("quit", LIMIT).ends_with(" ok"));
    until_gone(&coordinator, "first");
    assert_eq!(second.ask("alloc 20", LIMIT), "allocated");
    assert!(second.ask("touch", LIMIT).starts_with("touched "));
    assert!(second.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn nobody_waits_for_the_memory_of_a_stopped_tenant_which_finds_it_again() {
    let want = hold::alone("48", &["touch", "touch"]);
    let coordinator = Serving::arena("64MiB").start();
    let mut stopped = hold(&coordinator, "stopped", "48");
    assert_eq!(stopped.ask("touch", LIMIT), want[0]);
    let mut other = hold(&coordinator, "other", "48");
    // Its memory is out: the other one needs nothing of it.
    stopped.signal(libc::SIGSTOP);
    assert_eq!(other.ask("touch", LIMIT), want[0]);
    stopped.signal(libc::SIGCONT);
    // Its memory is in, and is taken without asking.
    assert_eq!(stopped.ask("touch", LIMIT), want[1]);
    stopped.signal(libc::SIGSTOP);
    assert_eq!(other.ask("touch", LIMIT), want[1]);
    assert_eq!(tenant(&coordinator.status(), "stopped")["state"], "unresponsive");
    assert_eq!(other.ask("quit", LIMIT), want[2]);
    stopped.signal(libc::SIGCONT);
    assert_eq!(stopped.ask("quit", LIMIT), want[2]);
    coordinator.until_empty();
}

#[test]
fn an_allocation_gets_memory_that_a_stopped_tenant_has() {
    let want = hold::alone("8", &["alloc 40", "touch"]);
    let coordinator = Serving::arena("64MiB").start();
    let mut stopped = hold(&coordinator, "stopped", "48");
    assert!(stopped.ask("touch", LIMIT).starts_with("touched "));
    let mut other = hold(&coordinator, "other", "8");
    stopped.signal(libc::SIGSTOP);
    assert_eq!(other.ask("alloc 40", LIMIT), want[0]);
    assert_eq!(other.ask("touch", LIMIT), want[1]);
    stopped.signal(libc::SIGCONT);
    assert!(stopped.ask("quit", LIMIT).ends_with(" ok"));
    assert_eq!(other.ask("quit", LIMIT), want[2]);
    coordinator.until_empty();
}

#[test]
fn a_tenant_is_evicted_on_request_when_its_long_work_has_ended() {
    let coordinator = Serving::arena("64MiB").start();
    let mut working = hold(&coordinator, "works", "24");
    assert_eq!(working.ask("queue 2500", LIMIT), "queued");
    assert!(coordinator.evict("works"));
    let status = coordinator.until_ready();
    assert_eq!(status["tenants"][0]["resident_bytes"], 0, "{status:#}");
    assert!(working.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

#[test]
fn a_program_that_becomes_another_leaves_and_comes_again() {
    let coordinator = Serving::arena("64MiB").start();
    let mut running = hold(&coordinator, "becomes", "48");
    assert!(running.ask("touch", LIMIT).starts_with("touched "));
    running.say(&format!("exec {}", built().examples.join("vector_add").display()));
    let outcome = running.finish(LIMIT).succeeded();
    assert!(outcome.out.ends_with(" ok\n"), "{outcome:?}");
    assert_eq!(outcome.said(), "");
    let status = coordinator.until_empty();
    assert_eq!(status["departed"].as_array().map(Vec::len), Some(2), "{status:#}");
}

#[test]
fn programs_that_a_shell_starts_are_tenants_each_and_the_shell_is_none() {
    let coordinator = Serving::arena("64MiB").start();
    let script = format!(
        "{0} --megabytes 40 --rounds 4 & {0} --megabytes 40 --rounds 4 --seed 2; wait $!",
        program("fill_and_check").display()
    );
    let running = coordinator.run("script", "normal", "/bin/sh".as_ref(), &["-c", &script]);
    let outcome = running.finish(LIMIT).succeeded();
    let mut lines: Vec<_> = outcome.out.lines().map(str::to_owned).collect();
    let mut want = ["1", "2"]
        .map(|seed| alone("fill_and_check", &["--megabytes", "40", "--rounds", "4", "--seed", seed]))
        .to_vec();
    lines.sort();
    want.sort();
    assert_eq!(lines, want);
    let status = coordinator.until_empty();
    assert_eq!(status["departed"].as_array().map(Vec::len), Some(2), "{status:#}");
}

#[test]
fn a_small_pool_of_memory_is_never_short_by_a_tenants_death_in_between() {
    // Comes and goes, killed at any time: nothing may be lost, however often.
    let coordinator = room_for_two().start();
    let mut other = hold(&coordinator, "other", "48");
    for turn in 0_u64..12 {
        let mut victim = coordinator.join("victim", &program("hold"), &["--megabytes", "48"]);
        std::thread::sleep(Duration::from_millis(20 + 17 * turn));
        victim.signal(libc::SIGKILL);
        victim.end(LIMIT);
        assert!(other.ask("touch", LIMIT).starts_with("touched "));
    }
    let status = until_gone(&coordinator, "victim");
    assert_eq!(status["arena"]["bytes"], 64 * MIB);
    let mut next = hold(&coordinator, "next", "60");
    assert!(next.ask("quit", LIMIT).ends_with(" ok"));
    assert!(other.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

#[test]
fn who_is_killed_while_it_asks_for_memory_gets_none() {
    // The coordinator hears of its request, of the end of its connection and of its death, all at once.
    let coordinator = room_for_two().start();
    let serves = coordinator.served();
    for _ in 0..8 {
        let mut victim = hold(&coordinator, "victim", "8");
        signal(serves, libc::SIGSTOP);
        victim.say("alloc 8");
        std::thread::sleep(Duration::from_millis(20));
        victim.signal(libc::SIGKILL);
        victim.end(LIMIT);
        signal(serves, libc::SIGCONT);
        until_gone(&coordinator, "victim");
    }
}
