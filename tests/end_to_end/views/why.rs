//! `baton why` says what a program waits for: each reason is brought about, and said.

use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::time::Duration;

use baton_contract::messages::{Answer, FromCoordinator, MemoryCommand, MemoryReport, Request, TurnReport};
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::running::Running;
use baton_tests::{LIMIT, MIB, built};
use serde_json::{Value, json};

fn baton(coordinator: &Coordinator, words: &[&str]) -> String {
    let mut command = coordinator.place.baton(&words[..1]);
    command.arg("--socket").arg(coordinator.place.socket()).args(&words[1..]);
    Running::start(&mut command, false, None).finish(LIMIT).succeeded().out
}

/// Waits until a program waits for this reason. Returns the coordinator's account of it.
#[track_caller]
fn until(coordinator: &Coordinator, name: &str, reason: &str) -> Value {
    let what = format!("{name} waits because of {reason}");
    let status = coordinator.until(&what, |status| tenant(status, name)["waits_for"]["reason"] == reason);
    tenant(&status, name)["waits_for"].clone()
}

/// The same of a reason that goes by: `baton why` is asked until it says this.
#[track_caller]
fn until_said(coordinator: &Coordinator, name: &str, words: &str) {
    coordinator.until(&format!("{name}: {words}"), |_| baton(coordinator, &["why", name]).contains(words));
}

fn whom(waits: &Value) -> Vec<&str> {
    waits["whom"].as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

/// Copies of 48 MiB take two seconds.
fn slow(serving: Serving) -> Serving {
    serving.setting("SIMCUDA_H2D_GBPS", "0.025").setting("SIMCUDA_D2H_GBPS", "0.025")
}

fn exclusive() -> Serving {
    Serving::small("64MiB").option("--mode", "exclusive")
}

#[test]
fn a_program_that_waits_for_its_turn_is_told_behind_whom_and_until_when() {
    let coordinator = exclusive().option("--quantum", "1h").start();
    let mut other = hold::joined(&coordinator, "other", "batch", "8", None);
    let mut one = hold::joined(&coordinator, "one", "batch", "8", None);
    // Without a gap in which it would have nothing to do.
    assert_eq!(other.ask("queue 4000", LIMIT), "queued");
    until(&coordinator, "other", "running");
    until_said(&coordinator, "other", "waits for nothing: it has run on the GPU for");
    until(&coordinator, "one", "idle");
    until_said(&coordinator, "one", "waits for nothing: it has had nothing to do");
    one.say("touch");
    let waits = until(&coordinator, "one", "turn");
    assert_eq!((whom(&waits), &waits["bound"]), (vec!["other"], &json!("quantum")), "{waits:#}");
    until_said(&coordinator, "one", "for its turn, behind other. It is next, in");
    assert!(one.line(LIMIT).starts_with("touched "));
}

#[test]
fn whoever_waits_for_a_better_class_is_told_of_max_wait() {
    let coordinator = exclusive().option("--max-wait", "1h").start();
    let mut other = hold::joined(&coordinator, "other", "latency", "8", None);
    let mut one = hold::joined(&coordinator, "one", "batch", "8", None);
    assert_eq!(other.ask("queue 4000", LIMIT), "queued");
    coordinator.until("it has the GPU", |status| status["holder"] == "other");
    one.say("touch");
    let waits = until(&coordinator, "one", "turn");
    assert_eq!((whom(&waits), &waits["bound"]), (vec!["other"], &json!("max_wait")), "{waits:#}");
    until_said(&coordinator, "one", "(--max-wait)");
    assert!(one.line(LIMIT).starts_with("touched "));
}

#[test]
fn whoever_waits_for_work_that_cannot_be_preempted_is_told_whose() {
    let coordinator = exclusive().flag("--no-preempt").start();
    let mut other = hold::joined(&coordinator, "other", "batch", "8", None);
    let mut one = hold::joined(&coordinator, "one", "latency", "8", None);
    assert_eq!(other.ask("queue 4000", LIMIT), "queued");
    one.say("touch");
    let waits = until(&coordinator, "one", "drain");
    assert_eq!(whom(&waits), ["other"]);
    until_said(&coordinator, "one", "until the work of other on the GPU has ended");
    assert!(one.line(LIMIT).starts_with("touched "));
}

#[test]
fn whoever_waits_for_its_memory_is_told_how_much_is_to_come_and_whoevers_goes_for_that() {
    let coordinator = slow(exclusive()).start();
    coordinator.until_ready();
    let mut other = hold::joined(&coordinator, "other", "batch", "48", None);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    assert!(coordinator.evict("other"), "it is idle");
    until(&coordinator, "other", "idle");
    until_said(&coordinator, "other", "48 MiB of its memory are on the host");
    let mut one = hold::joined(&coordinator, "one", "batch", "48", None);
    assert!(one.ask("touch", LIMIT).starts_with("touched "));
    other.say("touch");
    let waits = until(&coordinator, "other", "others_memory");
    assert_eq!(whom(&waits), ["one"]);
    let waits = until(&coordinator, "other", "own_memory");
    assert!(waits["bytes"].as_u64() > Some(0) && waits["bytes_per_second"].as_u64() > Some(0), "{waits:#}");
    assert!(other.line(LIMIT).starts_with("touched "));
    one.say("touch");
    until_said(&coordinator, "one", "are still to come, at 0.0 GB/s");
    assert!(one.line(LIMIT).starts_with("touched "));
}

#[test]
fn a_suspended_program_is_told_how_it_goes_on() {
    let coordinator = Serving::small("64MiB").start();
    let mut one = hold::joined(&coordinator, "one", "batch", "8", None);
    baton(&coordinator, &["suspend", "one"]);
    until(&coordinator, "one", "suspended");
    until_said(&coordinator, "one", "`baton resume one` lets it go on");
    one.say("touch");
    until(&coordinator, "one", "suspended");
    baton(&coordinator, &["resume", "one"]);
    assert!(one.line(LIMIT).starts_with("touched "));
}

#[test]
fn whoever_shares_memory_with_a_suspended_program_is_told_which() {
    let coordinator = Serving::small("64MiB").flag("--no-preempt").start();
    let mut one = BareTenant::join(&coordinator, "one");
    let mut other = BareTenant::join(&coordinator, "other");
    let handle = [7; 64];
    assert_eq!(one.ask(&Request::ExportEvent { handle }).0, Answer::Noted);
    other.take_gpu();
    assert_eq!(other.ask(&Request::OpenEvent { handle }).0, Answer::TryAgain, "they are united first");
    other.yield_gpu();
    baton(&coordinator, &["suspend", "one"]);
    let waits = until(&coordinator, "other", "unit_suspended");
    assert_eq!(whom(&waits), ["one"]);
    until(&coordinator, "one", "suspended");
    until_said(&coordinator, "other", "shares memory with one");
    baton(&coordinator, &["resume", "other"]);
    until(&coordinator, "one", "idle");
    one.take_gpu();
}

#[test]
fn whoever_makes_way_for_urgent_work_is_told_whose() {
    let coordinator = Serving::small("128MiB").option("--max-wait", "1h").start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some("0.05"));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    quick.ask("spin 1", LIMIT);
    coordinator.until_tenant_is("quick", "idle");
    assert!(slow.ask("leave", LIMIT).starts_with("left "));
    let busy = Busy::start(&mut quick, &coordinator.place);
    // Between two requests there is none to make way for.
    coordinator.until("it has made way", |status| {
        let waits = &tenant(status, "slow")["waits_for"];
        waits["reason"] == "urgent" && whom(waits) == ["quick"]
    });
    until_said(&coordinator, "slow", "has made way for quick");
    busy.end(&mut quick);
    assert!(slow.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn an_urgent_program_that_takes_turns_is_told_that_not_all_fit() {
    let coordinator = Serving::small("64MiB").start();
    coordinator.until_ready();
    let mut large = hold::joined(&coordinator, "large", "latency", "48", None);
    let mut urgent = hold::joined(&coordinator, "urgent", "latency", "24", None);
    assert_eq!(large.ask("queue 4000", LIMIT), "queued");
    coordinator.until("it has the GPU", |status| status["holder"] == "large");
    urgent.say("touch");
    let waits = until(&coordinator, "urgent", "too_large_together");
    assert!(waits["bytes"].as_u64() >= Some(8 * MIB), "{waits:#}");
    assert!(urgent.line(LIMIT).starts_with("touched "));
}

#[test]
fn a_program_that_is_stopped_and_whose_memory_others_have_is_called_unresponsive() {
    let coordinator = Serving::small("64MiB").start();
    coordinator.until_ready();
    let mut stopped = hold::joined(&coordinator, "stopped", "batch", "48", None);
    assert!(stopped.ask("touch", LIMIT).starts_with("touched "));
    let mut other = hold::joined(&coordinator, "other", "batch", "8", None);
    stopped.signal(libc::SIGSTOP);
    assert_eq!(other.ask("alloc 40", LIMIT), "allocated");
    until(&coordinator, "stopped", "unresponsive");
    until_said(&coordinator, "stopped", "does not answer the coordinator for");
    stopped.signal(libc::SIGCONT);
    assert!(stopped.ask("touch", LIMIT).starts_with("touched "));
    assert!(stopped.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn whoever_can_open_no_more_descriptors_is_told_so() {
    let coordinator = Serving::small("64MiB").flag("--no-preempt").start();
    coordinator.until_ready();
    let mut bare = BareTenant::join(&coordinator, "bare");
    bare.take_gpu();
    bare.allocate(8 * MIB);
    evict(&coordinator, &mut bare, "bare");
    bare.tell(&TurnReport::Demand);
    loop {
        match bare.hear_of_memory().0 {
            MemoryCommand::Prepare { batch, .. } | MemoryCommand::Map { batch, .. } => {
                bare.tell(&MemoryReport::Undelivered { batch });
            }
            other => panic!("{other:?}"),
        }
        let waits = tenant(&coordinator.status(), "bare")["waits_for"].clone();
        if waits["reason"] == "descriptors" {
            assert!(waits["bytes"].as_u64() > Some(0), "{waits:#}");
            return until_said(&coordinator, "bare", "(`ulimit -n`)");
        }
    }
}

/// Moves a bare tenant's memory out, which obeys.
#[track_caller]
fn evict(coordinator: &Coordinator, bare: &mut BareTenant, name: &str) {
    std::thread::scope(|scope| {
        let evict = scope.spawn(|| coordinator.evict(name));
        while !evict.is_finished() {
            match bare.hear_within(Duration::from_millis(20)) {
                Some((FromCoordinator::Memory(command), _)) => bare.done(&command),
                Some((FromCoordinator::Turn(baton_contract::messages::TurnCommand::Revoke { grant, .. }), _)) => {
                    bare.tell(&TurnReport::Closed { grant, drain_micros: 0 });
                }
                _ => {}
            }
        }
        assert!(evict.join().expect("no panic"));
    });
}

#[test]
fn whoever_does_not_fit_beside_what_cannot_move_is_told_whose_it_is() {
    let coordinator = Serving::small("64MiB").flag("--no-preempt").start();
    coordinator.until_ready();
    let mut large = BareTenant::join(&coordinator, "large");
    large.take_gpu();
    large.allocate(60 * MIB);
    evict(&coordinator, &mut large, "large");
    let mut fixed = BareTenant::join(&coordinator, "fixed");
    fixed.take_gpu();
    let (extents, _) = fixed.allocate(12 * MIB);
    let extents = extents.iter().map(|(id, _)| *id).collect();
    assert_eq!(fixed.ask(&Request::MakeImmovable { extents }).0, Answer::Immovable);
    large.tell(&TurnReport::Demand);
    fixed.yield_gpu();
    // It tries again and again, and obeys.
    let (mut waits, mut said) = (Value::Null, String::new());
    while waits["reason"] != "arena" || !said.contains("do not fit beside memory of fixed that cannot move") {
        if let Some((FromCoordinator::Memory(command), _)) = large.hear_within(Duration::from_millis(20)) {
            large.done(&command);
        }
        let status = coordinator.status();
        if tenant(&status, "large")["waits_for"]["reason"] == "arena" {
            waits = tenant(&status, "large")["waits_for"].clone();
            said = baton(&coordinator, &["why", "large"]);
        }
    }
    assert_eq!((whom(&waits), waits["bytes"].as_u64()), (vec!["fixed"], Some(8 * MIB)), "{waits:#}");
}

#[test]
fn one_that_does_not_answer_and_one_that_is_cut_off_are_told_apart() {
    let coordinator = exclusive().flag("--no-preempt").start();
    let mut stopped = hold::joined(&coordinator, "stopped", "batch", "8", None);
    let mut other = hold::joined(&coordinator, "other", "latency", "8", None);
    assert_eq!(stopped.ask("linger", LIMIT), "lingers");
    stopped.signal(libc::SIGSTOP);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    until(&coordinator, "stopped", "unresponsive");
    until_said(&coordinator, "stopped", "does not answer the coordinator for");
    stopped.signal(libc::SIGKILL);
    let liar = BareTenant::join(&coordinator, "liar");
    // A program has its page mapped as long as it is the same program.
    let bytes = 4096;
    // SAFETY: new addresses, of a file that is as long, which this test does not look at.
    let page = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, liar.pages[1].as_raw_fd(), 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    assert!(liar.is_cut_off_for(&Request::Allocate { at: 1, bytes: 1 }));
    until(&coordinator, "liar", "disconnected");
    until_said(&coordinator, "liar", "is no longer connected");
    // SAFETY: mapped above.
    unsafe { libc::munmap(page, bytes) };
}

#[test]
fn whoever_waits_for_room_on_the_host_is_told_that_the_pool_is_not_ready() {
    // The coordinator's driver pins host memory only when told, so its pool is being prepared until then.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pins = folder.path().join("pins");
    let serving = Serving::small("64MiB").setting("PINS_WHEN_THERE_IS", pins.to_str().expect("UTF-8"));
    let coordinator = serving.start_as(|serve| {
        let words = serve.get_args().map(|word| match word == "sim" {
            true => built().programs.join("libpinning_driver.so").into_os_string(),
            false => word.to_owned(),
        });
        let mut command = Command::new(serve.get_program());
        command.args(words).envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("LD_LIBRARY_PATH", &built().bin);
        command
    });
    let _first = hold::joined(&coordinator, "first", "normal", "48", None);
    let mut command = coordinator.place.joining("second", &program("hold"), &["--megabytes", "48"]);
    let mut second = Running::start(&mut command, true, Some(coordinator.place.clone()));
    let waits = until(&coordinator, "second", "host_pool");
    assert!(waits["bytes"].as_u64() > Some(0), "{waits:#}");
    until_said(&coordinator, "second", "or still being prepared");
    std::fs::write(pins, "").expect("a writable folder");
    assert!(second.line(LIMIT).starts_with("ready "));
}

#[test]
fn one_that_waits_to_join_is_told_its_place() {
    let coordinator = Serving::small("64MiB").option("--max-programs", "1").start();
    let mut first = hold::joined(&coordinator, "first", "batch", "8", None);
    let mut late = coordinator.join("late", &baton_tests::coordinator::program("hold"), &["--megabytes", "8"]);
    let status = coordinator.until("late waits", |status| status["newcomers"][0]["name"] == "late");
    assert_eq!(status["newcomers"][0]["waits_for"]["reason"], "join");
    let said = baton(&coordinator, &["why", "late"]);
    assert!(said.contains("no more than 1 may share the GPU at once. It is the next to join."), "{said}");
    assert!(first.ask("quit", LIMIT).ends_with(" ok"));
    assert!(late.line(LIMIT).starts_with("ready "));
}
