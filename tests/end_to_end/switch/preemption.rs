//! Work is taken off the GPU in the middle of a kernel, and goes on later as if nothing had been.

use std::time::{Duration, Instant};

use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, threads};
use baton_tests::{Driver, LIMIT, built};
use serde_json::Value;

/// So slow that new contents for 48 MiB take two seconds.
const SLOW: &str = "0.05";

fn serving() -> Serving {
    Serving::arena("64MiB").option("--mode", "exclusive")
}

/// New contents for all of its memory, which it does not wait for.
#[track_caller]
fn leave(slow: &mut Running, answer: &str) {
    assert_eq!(slow.ask("leave", LIMIT), answer.replace("touched", "left"));
}

/// The first program loses the GPU, and its memory, to the second one, twice; with work of its that ends by itself, or only after
/// the other one has had the GPU. How often work was paused.
fn taken_from_slow(serving: &Serving, lingers: bool) -> u64 {
    let want = hold::alone("48", &["touch", "touch"]);
    let coordinator = serving.start();
    coordinator.until_ready();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some(SLOW));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    for answer in &want[..2] {
        leave(&mut slow, answer);
        if lingers {
            assert_eq!(slow.ask("linger", LIMIT), "lingers");
        }
        assert_eq!(quick.ask("touch", LIMIT), *answer);
        if lingers {
            assert_eq!(slow.ask("go", LIMIT), "gone");
        }
    }
    assert_eq!(slow.ask("quit", LIMIT), want[2], "half a kernel before, the other half after");
    assert_eq!(quick.ask("quit", LIMIT), want[2]);
    let status = coordinator.until_empty();
    let to_quick = |record: &&Value| record["to"] == "quick" && record["from"] == "slow";
    let taken = status["recent"].as_array().expect("a list").iter().filter(to_quick);
    // Memory that the kernel has not come to yet has not changed, and is not copied.
    let left =
        |record: &Value| record["bytes_out"].as_u64().unwrap_or(0) + record["bytes_unchanged"].as_u64().unwrap_or(0);
    let most = taken.map(left).max().expect("it got the GPU");
    assert!(most >= 32 << 20, "most of the memory had to go: {status:#}");
    status["preemptions"].as_u64().expect("a number")
}

#[test]
fn who_is_urgent_does_not_wait_for_a_long_kernel() {
    assert!(taken_from_slow(&serving(), true) >= 2);
}

#[test]
fn who_may_not_be_preempted_is_drained() {
    assert_eq!(taken_from_slow(&serving().flag("--no-preempt"), false), 0);
}

#[test]
fn a_kernel_that_waits_for_the_host_is_taken_off_and_goes_on_waiting() {
    let arguments = ["--elements", "1000000", "--steps", "20"];
    let spins = built().examples.join("host_flag");
    let mut bare = Driver::simulated().bare(&spins);
    let solo = Running::start(bare.args(arguments).env("SIMCUDA_MEMORY", "512MiB"), false, None).result(LIMIT);
    let want = hold::alone("56", &["touch"; 6]);
    let coordinator = serving().start();
    let mut quick = hold::joined(&coordinator, "quick", "latency", "56", None);
    let pauses = || coordinator.status()["preemptions"].as_u64().expect("a number");
    let mut answers = want[..6].iter();
    // On a loaded machine it may have ended before another program came.
    for _ in 0..6 {
        let mut spinning = coordinator.run("spinning", "batch", &spins, &arguments);
        while spinning.ended().is_none()
            && let Some(answer) = answers.next()
        {
            coordinator.until("it spins, or has ended", |status| {
                tenant(status, "spinning")["state"] == "running" || spinning.ended().is_some()
            });
            assert_eq!(quick.ask("touch", LIMIT), *answer);
        }
        assert_eq!(spinning.result(LIMIT), solo, "interrupted (left) and alone (right)");
        if pauses() > 0 {
            break;
        }
    }
    for answer in answers {
        assert_eq!(quick.ask("touch", LIMIT), *answer);
    }
    let pauses = pauses();
    println!("{pauses} pauses");
    assert!(pauses >= 1, "a kernel that waits for the host cannot be drained");
    assert_eq!(quick.ask("quit", LIMIT), want[6]);
}

#[test]
fn a_driver_that_cannot_pause_is_drained() {
    let pauses = taken_from_slow(&serving().setting("SIMCUDA_PAUSING", "off"), false);
    assert_eq!(pauses, 0);
}

/// Stops a program whose simulated GPU is busy. That GPU is threads of the program's, which can be taken off it between two
/// accesses to memory only: so they are stopped where one sleeps, and the others have nothing to do.
#[track_caller]
fn stop_between_accesses(program: &Running) {
    let end = Instant::now() + LIMIT;
    loop {
        program.signal(libc::SIGSTOP);
        while !threads(program.pid()).lines().all(|thread| thread.contains(" T (stopped) ")) {
            assert!(Instant::now() < end, "{}", threads(program.pid()));
        }
        let is_at = |thread: &str, call| thread.contains(&format!(" at {call} "));
        let threads_now = threads(program.pid());
        let gpu: Vec<&str> = threads_now.lines().filter(|thread| thread.contains(" simcuda-")).collect();
        let sleeping = gpu.iter().filter(|thread| is_at(thread, libc::SYS_clock_nanosleep)).count();
        let idle = gpu.iter().filter(|thread| is_at(thread, libc::SYS_futex)).count();
        if sleeping > 0 && sleeping + idle == gpu.len() {
            return;
        }
        assert!(Instant::now() < end, "{}", threads(program.pid()));
        program.signal(libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stopped_tenants_work_is_paused_all_the_same() {
    let want = hold::alone("24", &["touch", "touch"]);
    let coordinator = serving().start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "24", Some("0.01"));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "24", None);
    leave(&mut slow, &want[0]);
    stop_between_accesses(&slow);
    // Seconds of work are queued, and the gate stays open.
    assert_eq!(quick.ask("touch", LIMIT), want[0]);
    let status = coordinator.status();
    assert!(status["preemptions"].as_u64() >= Some(1), "{status:#}");
    assert_eq!(tenant(&status, "slow")["evicted_bytes"], 0);
    slow.signal(libc::SIGCONT);
    assert_eq!(quick.ask("touch", LIMIT), want[1]);
    assert_eq!(slow.ask("touch", LIMIT), want[1]);
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    assert_eq!(quick.ask("quit", LIMIT), want[2]);
    coordinator.until_empty();
}

#[test]
fn whoever_is_paused_when_the_coordinator_dies_goes_on_if_its_memory_is_there() {
    let want = hold::alone("24", &["touch", "touch"]);
    let mut coordinator = serving().start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "24", Some("0.05"));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "24", None);
    leave(&mut slow, &want[0]);
    let busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until_tenant_is("slow", "preempted");
    coordinator.end(libc::SIGKILL);
    assert_eq!(slow.ask("touch", LIMIT), want[1]);
    busy.end(&mut quick);
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_tenant_that_dies_while_it_is_paused_leaves_nothing_behind() {
    let want = hold::alone("48", &["touch"]);
    let coordinator = serving().start();
    let before = coordinator.until_ready();
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    for _ in 0..3 {
        let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some(SLOW));
        leave(&mut slow, &want[0]);
        let busy = Busy::start(&mut quick, &coordinator.place);
        coordinator.until_tenant_is("slow", "preempted");
        slow.signal(libc::SIGKILL);
        slow.end(LIMIT);
        busy.end(&mut quick);
        coordinator.until("slow is gone", |status| tenant(status, "slow").is_null());
    }
    assert_eq!(quick.ask("touch", LIMIT), want[0]);
    assert_eq!(quick.ask("quit", LIMIT), want[1]);
    let after = coordinator.until_empty();
    assert_eq!(after["arena"]["lent_bytes"], before["arena"]["lent_bytes"]);
}

#[test]
fn a_driver_that_changes_no_mappings_before_paused_work_has_ended_loses_nobody() {
    let want = hold::alone("48", &["touch", "touch"]);
    let coordinator = serving().setting("SIMCUDA_PAUSING", "stuck").start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some(SLOW));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    for answer in &want[..2] {
        leave(&mut slow, answer);
        // Its memory has to go, so its work goes on until it can.
        assert_eq!(quick.ask("touch", LIMIT), *answer);
    }
    assert!(coordinator.status()["unmap_timeouts"].as_u64() >= Some(1), "{}", coordinator.log());
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    assert_eq!(quick.ask("quit", LIMIT), want[2]);
    coordinator.until_empty();
}

/// A busy machine is no driver that waits: where our threads get hardly any processor, an unmap takes long as well.
#[test]
fn a_program_whose_pager_gets_hardly_any_processor_is_preempted_all_the_same() {
    let want = hold::alone("48", &["touch", "touch"]);
    let coordinator = serving().start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some(SLOW));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    let exchange = |slow: &mut Running, quick: &mut Running, answer: &str| {
        leave(slow, answer);
        assert_eq!(quick.ask("touch", LIMIT), *answer);
    };
    exchange(&mut slow, &mut quick, &want[0]);
    // From the first time on it has the thread that is to unmap.
    let starved = Starved::of(slow.pid());
    exchange(&mut slow, &mut quick, &want[1]);
    drop(starved);
    assert_eq!(coordinator.status()["unmap_timeouts"], 0, "{}", coordinator.log());
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    assert_eq!(quick.ask("quit", LIMIT), want[2]);
    coordinator.until_empty();
}

/// A process whose threads of ours share one processor with a load that goes before them.
struct Starved(std::process::Child);

impl Starved {
    fn of(pid: i32) -> Self {
        const PROCESSOR: usize = 0;
        let pinned = |thread: i32| {
            // SAFETY: a set of zeros is a valid one, and lives over the calls; any thread may be asked about.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(PROCESSOR, &mut set);
                assert_eq!(libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set), 0);
            }
        };
        let mut load = std::process::Command::new("/bin/sh");
        let load =
            load.args(["-c", "while :; do :; done"]).stdin(std::process::Stdio::null()).spawn().expect("a shell");
        pinned(load.id() as i32);
        let starved = Self(load);
        for thread in
            std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").map(|thread| thread.expect("readable"))
        {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            if !name.starts_with("baton") {
                continue;
            }
            let number = thread.file_name().to_string_lossy().parse().expect("a number");
            pinned(number);
            let none = libc::sched_param { sched_priority: 0 };
            // SAFETY: a structure that lives over the call.
            assert_eq!(unsafe { libc::sched_setscheduler(number, libc::SCHED_IDLE, &none) }, 0);
        }
        starved
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It was let go on for long enough, and is paused again.
fn until_let_alone(coordinator: &Coordinator, name: &str) {
    let lines = [format!("{name} cannot unmap memory"), format!("{name} does not answer")];
    coordinator.until("it is let alone", |_| lines.iter().any(|line| coordinator.log().contains(line)));
}

/// A slow program and a quick one of so many MB each, with a driver on which mappings cannot be changed while work is paused.
fn that_cannot_unmap(megabytes: &str) -> (Coordinator, Running, Running) {
    under_one_that_cannot_unmap(&serving(), megabytes)
}

fn under_one_that_cannot_unmap(serving: &Serving, megabytes: &str) -> (Coordinator, Running, Running) {
    let coordinator = serving.clone().option("--max-wait", "1h").setting("SIMCUDA_PAUSING", "stuck").start();
    let [slow, quick] = [("slow", "batch"), ("quick", "latency")]
        .map(|(name, class)| hold::joined(&coordinator, name, class, megabytes, None));
    (coordinator, slow, quick)
}

#[test]
fn one_that_cannot_unmap_finds_its_memory_where_it_was() {
    let want = hold::alone("48", &["touch", "touch", "touch"]);
    let (coordinator, mut slow, mut quick) = that_cannot_unmap("48");
    for answer in &want[..3] {
        leave(&mut slow, answer);
        assert_eq!(slow.ask("linger", LIMIT), "lingers");
        // Its work waits for its program, so it never can: the other one gets what it has all the same.
        assert_eq!(quick.ask("touch", LIMIT), *answer);
        assert_eq!(slow.ask("go", LIMIT), "gone");
    }
    assert_eq!(slow.ask("quit", LIMIT), want[3]);
    assert_eq!(quick.ask("quit", LIMIT), want[3]);
    coordinator.until_empty();
}

#[test]
fn who_cannot_unmap_for_long_is_paused_again_and_goes_on_in_its_turn() {
    let want = hold::alone("24", &["touch"]);
    let (coordinator, mut slow, mut quick) = that_cannot_unmap("24");
    leave(&mut slow, &want[0]);
    assert_eq!(slow.ask("linger", LIMIT), "lingers");
    // All fits, so no program waits for that; it only runs in spite of the other one's turn, for a while.
    assert_eq!(quick.ask("linger", LIMIT), "lingers");
    until_let_alone(&coordinator, "slow");
    assert_eq!(quick.ask("go", LIMIT), "gone");
    assert_eq!(quick.ask("touch", LIMIT), want[0]);
    assert_eq!(slow.ask("go", LIMIT), "gone");
    assert_eq!(slow.ask("quit", LIMIT), want[1]);
    assert_eq!(quick.ask("quit", LIMIT), want[1]);
    coordinator.until_empty();
}

#[test]
fn who_waits_in_the_driver_for_paused_work_goes_on_when_the_coordinator_dies() {
    let want = hold::alone("24", &["touch"]);
    let (mut coordinator, mut slow, mut quick) = that_cannot_unmap("24");
    leave(&mut slow, &want[0]);
    assert_eq!(slow.ask("linger", LIMIT), "lingers");
    assert_eq!(quick.ask("linger", LIMIT), "lingers");
    until_let_alone(&coordinator, "slow");
    coordinator.end(libc::SIGKILL);
    assert_eq!(quick.ask("go", LIMIT), "gone");
    assert_eq!(slow.ask("go", LIMIT), "gone");
    assert_eq!(slow.ask("quit", LIMIT), want[1]);
    assert_eq!(quick.ask("touch", LIMIT), want[0]);
    assert_eq!(quick.ask("quit", LIMIT), want[1]);
}

/// Its control loop waits for that work too, and yet hears of the next coordinator.
#[test]
fn who_waits_in_the_driver_for_paused_work_goes_on_with_the_next_coordinator() {
    let want = hold::alone("24", &["touch"]);
    let (coordinator, mut slow, mut quick) = under_one_that_cannot_unmap(&serving().keeper(), "24");
    leave(&mut slow, &want[0]);
    assert_eq!(slow.ask("linger", LIMIT), "lingers");
    assert_eq!(quick.ask("linger", LIMIT), "lingers");
    until_let_alone(&coordinator, "slow");
    for _ in 0..2 {
        coordinator.kill_served();
        coordinator
            .until("both are back", |status| ["slow", "quick"].iter().all(|name| !tenant(status, name).is_null()));
    }
    assert_eq!(quick.ask("go", LIMIT), "gone");
    assert_eq!(slow.ask("go", LIMIT), "gone");
    assert_eq!(slow.ask("quit", LIMIT), want[1]);
    assert_eq!(quick.ask("touch", LIMIT), want[0]);
    assert_eq!(quick.ask("quit", LIMIT), want[1]);
    coordinator.until_empty();
}
