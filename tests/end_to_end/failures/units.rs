//! Programs that share memory take turns as one: what happens to one of them, or to the coordinator, keeps none off the GPU for ever.

use std::time::{Duration, Instant};

use serde_json::Value;

use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, EndsWhatServes, Serving, program, tenant};
use baton_tests::faults::{Strike, Victim};
use baton_tests::held::{self, Held};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, signal};
use baton_tests::strikes::with_board;

/// A coordinator under which a turn lasts for as long as there is work.
fn serving() -> Serving {
    Serving::small("64MiB").option("--quantum", "1h").option("--max-wait", "1h")
}

/// Programs with 16 MiB each, of which the second and later ones reach memory of the first.
#[track_caller]
fn united<const N: usize>(coordinator: &Coordinator, names: [&str; N]) -> [Running; N] {
    unite(coordinator, names.map(|name| hold::joined(coordinator, name, "normal", "16", None)))
}

/// The same, of programs that have joined.
#[track_caller]
fn unite<const N: usize>(coordinator: &Coordinator, mut programs: [Running; N]) -> [Running; N] {
    let shared = coordinator.place.folder().join("shared").display().to_string();
    let (first, others) = programs.split_first_mut().expect("there are some");
    assert_eq!(first.ask("alloc 8", LIMIT), "allocated");
    assert_eq!(first.ask(&format!("share {shared}"), LIMIT), "shared");
    for other in others {
        assert_eq!(other.ask(&format!("attach {shared}"), LIMIT), "attached");
    }
    programs
}

fn gives_up(coordinator: &Coordinator, name: &str) -> bool {
    coordinator.log().contains(&format!("{name} does not answer"))
}

/// Waits until a program has waited for longer than others may be silent, and ensures that none was given up.
#[track_caller]
fn none_is_given_up_while_it_waits(coordinator: &Coordinator, name: &str) {
    let is_any = || gives_up(coordinator, "");
    coordinator.until("it waits for long", |status| {
        let one = tenant(status, name);
        is_any() || one["state"] == "waiting" && one["waits_for"]["since_ms"].as_f64() > Some(1_500.0)
    });
    assert!(!is_any(), "{}", coordinator.log());
}

#[track_caller]
fn all_end<'a>(programs: impl IntoIterator<Item = &'a mut Running>) {
    for program in programs {
        assert!(program.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn one_that_has_nothing_to_do_while_another_works_for_long_is_not_given_up() {
    let coordinator = serving().start();
    let mut programs = united(&coordinator, ["busy", "idle"]);
    let mut other = hold::joined(&coordinator, "other", "normal", "16", None);
    assert_eq!(programs[0].ask("queue 3000", LIMIT), "queued");
    other.say("touch");
    none_is_given_up_while_it_waits(&coordinator, "other");
    assert!(other.line(LIMIT).starts_with("touched "));
    all_end(programs.iter_mut().chain([&mut other]));
}

#[test]
fn those_that_are_let_in_after_a_pause_are_not_given_up() {
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut programs = united(&coordinator, ["busy", "idle"]);
    let mut other = hold::joined(&coordinator, "other", "batch", "16", None);
    // Not all fit together, so that it takes turns too.
    let mut urgent = hold::joined(&coordinator, "urgent", "latency", "48", None);
    assert_eq!(programs[0].ask("queue 4000", LIMIT), "queued");
    coordinator.until("they have the GPU", |status| status["holder"] == "busy" || status["holder"] == "idle");
    other.say("touch");
    coordinator.until_tenant_is("other", "waiting");
    assert!(urgent.ask("touch", LIMIT).starts_with("touched "));
    none_is_given_up_while_it_waits(&coordinator, "other");
    assert!(other.line(LIMIT).starts_with("touched "));
    all_end(programs.iter_mut().chain([&mut other, &mut urgent]));
}

#[test]
fn one_that_answers_before_the_others_are_off_the_gpu_goes_on() {
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let mut programs = united(&coordinator, ["first", "second"]);
    let mut other = hold::joined(&coordinator, "other", "normal", "16", None);
    for program in &mut programs {
        assert_eq!(program.ask("queue 3000", LIMIT), "queued");
    }
    let [first, second] = programs.each_ref().map(|program| Held::at_once(program.pid(), held::CONTROL));
    // Which is paused after the first one has answered.
    let wait = Duration::from_millis(500);
    board.prepare(&Strike { skip: 1, wait, ..Strike::at("coordinator carries out Preempt") });
    other.say("touch");
    coordinator.until("both are given up", |_| gives_up(&coordinator, "first") && gives_up(&coordinator, "second"));
    drop(first.expect("it has one"));
    std::thread::sleep(2 * wait);
    drop(second.expect("it has one"));
    assert!(other.line(LIMIT).starts_with("touched "));
    all_end(programs.iter_mut().chain([&mut other]));
}

#[test]
fn those_that_are_left_are_still_one_when_the_coordinator_is_followed() {
    let coordinator = Serving::small("64MiB").keeper().start();
    let [mut first, mut second, mut third] = united(&coordinator, ["first", "second", "third"]);
    assert!(first.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until("it has left", |status| tenant(status, "first").is_null());
    let mut other = hold::joined(&coordinator, "other", "normal", "16", None);
    for _ in 0..2 {
        // Their gates are closed. On a loaded machine they may be paused instead, and go on afterwards.
        coordinator.until("they have nothing to do", |_| {
            assert!(other.ask("touch", LIMIT).starts_with("touched "));
            tenant(&coordinator.status(), "second")["state"] == "idle"
        });
        coordinator.kill_served();
        coordinator
            .until("both are back", |status| ["second", "third"].iter().all(|name| !tenant(status, name).is_null()));
        coordinator.asked("suspend", "second").succeeded();
        third.say("touch");
        coordinator.until("what it shares memory with is suspended, and so is it", |status| {
            let third = tenant(status, "third");
            assert!(!matches!(third["state"].as_str(), Some("running")), "{third:#}");
            third["waits_for"]["reason"] == "unit_suspended"
        });
        coordinator.asked("resume", "second").succeeded();
        assert!(third.line(LIMIT).starts_with("touched "));
    }
    all_end([&mut second, &mut third, &mut other]);
}

#[test]
fn those_of_which_one_is_at_work_are_still_one_when_the_coordinator_is_followed() {
    let (serving, board) = with_board(serving().keeper());
    let coordinator = serving.start();
    coordinator.until_ready();
    let mut programs = united(&coordinator, ["first", "second", "third"]);
    for _ in 0..2 {
        assert_eq!(programs[0].ask("queue 1500", LIMIT), "queued");
        // So that it is off the GPU after the others.
        let point = "program hears Begin".to_owned();
        let victim = Victim::Process(programs[0].pid());
        board.prepare(&Strike { victim, signal: libc::SIGSTOP, ..Strike::at(point) });
        coordinator.kill_served();
        coordinator.until("it is stopped", |_| board.struck().is_some());
        coordinator.until("all are back", |status| !tenant(status, "first").is_null());
        programs[0].signal(libc::SIGCONT);
        assert!(programs[0].ask("touch", LIMIT).starts_with("touched "));
        coordinator.asked("suspend", "third").succeeded();
        for name in ["first", "second"] {
            programs[usize::from(name == "second")].say("touch");
            coordinator.until("what it shares memory with is suspended, and so is it", |status| {
                tenant(status, name)["waits_for"]["reason"] == "unit_suspended"
            });
        }
        coordinator.asked("resume", "third").succeeded();
        for program in &mut programs[..2] {
            assert!(program.line(LIMIT).starts_with("touched "));
        }
    }
    all_end(&mut programs);
}

#[test]
fn one_that_shares_memory_with_a_silent_one_says_that_it_waits_for_that() {
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut programs = united(&coordinator, ["first", "second"]);
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    assert_eq!(programs[0].ask("linger", LIMIT), "lingers");
    programs[0].signal(libc::SIGSTOP);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    programs[1].say("touch");
    coordinator.until("it says so", |status| {
        let second = tenant(status, "second");
        assert_ne!(second["state"], "suspended");
        second["waits_for"]["reason"] == "held" && second["waits_for"]["whom"][0] == "first"
    });
    programs[0].signal(libc::SIGCONT);
    assert_eq!(programs[0].ask("go", LIMIT), "gone");
    assert!(programs[1].line(LIMIT).starts_with("touched "));
    all_end(programs.iter_mut().chain([&mut other]));
}

#[test]
fn a_request_to_evict_one_whose_memory_stays_with_a_silent_one_is_refused() {
    let coordinator = Serving::small("64MiB").option("--isolation", "strict").start();
    coordinator.until_ready();
    let mut programs = united(&coordinator, ["first", "second"]);
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    assert_eq!(programs[0].ask("queue 3000", LIMIT), "queued");
    programs[0].signal(libc::SIGSTOP);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    coordinator.asked("suspend", "second").succeeded();
    let said = coordinator.asked("evict", "second");
    assert!(said.err.contains("does not answer"), "{said:?}");
    programs[0].signal(libc::SIGCONT);
    coordinator.asked("resume", "second").succeeded();
    all_end(programs.iter_mut().chain([&mut other]));
}

#[test]
fn work_that_is_paused_goes_on_with_a_coordinator_that_pauses_none() {
    let want = hold::alone("48", &["touch"; 2]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("serve.toml");
    let may_pause = |may: bool| std::fs::write(&file, format!("no-preempt = {}\n", !may)).expect("ours");
    may_pause(true);
    let coordinator = Serving::arena("64MiB").keeper().option("--config", file.to_str().expect("UTF-8")).start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some("0.05"));
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    assert_eq!(slow.ask("leave", LIMIT), want[0].replace("touched", "left"));
    let busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until_tenant_is("slow", "preempted");
    may_pause(false);
    coordinator.kill_served();
    coordinator.until("it is back", |status| !tenant(status, "slow").is_null());
    busy.end(&mut quick);
    assert_eq!(slow.ask("touch", LIMIT), want[1]);
    // Now it has the GPU until its work has ended.
    assert!(slow.ask("leave", LIMIT).starts_with("left "));
    assert!(quick.ask("touch", LIMIT).starts_with("touched "));
    all_end([&mut slow, &mut quick]);
    coordinator.until_empty();
}

#[test]
fn one_that_asks_for_room_with_its_gate_open_goes_on_with_a_coordinator_that_pauses_none() {
    let (serving, board) = with_board(Serving::small("64MiB").keeper().flag("--no-preempt"));
    let coordinator = serving.start();
    let [mut first, mut second] = united(&coordinator, ["first", "second"]);
    // It asks when there is another coordinator, which it has told that its gate is open.
    let wait = Duration::from_secs(1);
    board.prepare(&Strike { wait, ..Strike::at("program asks UnmanagedMemory") });
    first.say("managed 4");
    coordinator.until("it is about to ask", |_| board.struck().is_some());
    coordinator.kill_served();
    assert_eq!(first.line(LIMIT), "allocated");
    assert!(second.ask("touch", LIMIT).starts_with("touched "));
    all_end([&mut first, &mut second]);
}

#[test]
fn work_goes_on_with_a_coordinator_that_the_driver_lets_pause_none() {
    let coordinator = Serving::small("64MiB").keeper().setting("SIMCUDA_PAUSING", "off").start();
    let joined = |name| {
        let mut command = coordinator.place.joining(name, &program("hold"), &["--megabytes", "16"]);
        // So that only the coordinator's calls are refused.
        hold::ready(command.env("SIMCUDA_PAUSING", "on"), Some(coordinator.place.clone()))
    };
    let [mut first, mut second] = unite(&coordinator, ["first", "second"].map(joined));
    let mut other = joined("other");
    for _ in 0..3 {
        for program in [&mut first, &mut second] {
            assert_eq!(program.ask("queue 1500", LIMIT), "queued");
        }
        coordinator.kill_served();
        assert!(other.ask("touch", LIMIT).starts_with("touched "));
        assert_eq!(other.ask("queue 500", LIMIT), "queued");
        coordinator.kill_served();
        for program in [&mut first, &mut second] {
            assert!(program.ask("touch", LIMIT).starts_with("touched "));
        }
    }
    all_end([&mut first, &mut second, &mut other]);
}

#[test]
fn one_that_attaches_to_a_program_which_has_yet_to_come_back_waits_for_it() {
    let coordinator = Serving::small("64MiB").keeper().start();
    let [mut first, mut second] =
        ["first", "second"].map(|name| hold::joined(&coordinator, name, "normal", "16", None));
    let shared = coordinator.place.folder().join("shared").display().to_string();
    assert_eq!(first.ask("alloc 8", LIMIT), "allocated");
    assert_eq!(first.ask(&format!("share {shared}"), LIMIT), "shared");
    first.signal(libc::SIGSTOP);
    coordinator.kill_served();
    coordinator.until("the other one is back", |status| !tenant(status, "second").is_null());
    second.say(&format!("attach {shared}"));
    std::thread::sleep(Duration::from_millis(500));
    first.signal(libc::SIGCONT);
    assert_eq!(second.line(LIMIT), "attached");
    assert!(first.ask("touch", LIMIT).starts_with("touched "));
    all_end([&mut first, &mut second]);
}

/// Stops one of two programs that share memory, in the middle of its work or when it has none, and ensures that others get memory all
/// the same: there is enough beside what the two share.
#[track_caller]
fn keeps_no_memory_from_others(stopped: usize, has_work: bool) {
    let coordinator = Serving::small("64MiB").start();
    coordinator.until_ready();
    let mut programs = united(&coordinator, ["first", "second"]);
    let mut other = hold::joined(&coordinator, "other", "normal", "48", None);
    for program in &mut programs {
        assert!(program.ask("touch", LIMIT).starts_with("touched "));
        if has_work {
            assert_eq!(program.ask("queue 3000", LIMIT), "queued");
        }
    }
    programs[stopped].signal(libc::SIGSTOP);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    programs[stopped].signal(libc::SIGCONT);
    for program in programs.iter_mut().chain([&mut other]) {
        assert!(program.ask("touch", LIMIT).starts_with("touched "));
    }
    all_end(programs.iter_mut().chain([&mut other]));
}

#[test]
fn an_owner_is_stopped_at_work() {
    keeps_no_memory_from_others(0, true);
}

#[test]
fn an_owner_is_stopped_when_it_has_nothing_to_do() {
    keeps_no_memory_from_others(0, false);
}

#[test]
fn a_sharer_is_stopped_at_work() {
    keeps_no_memory_from_others(1, true);
}

#[test]
fn a_sharer_is_stopped_when_it_has_nothing_to_do() {
    keeps_no_memory_from_others(1, false);
}

/// Stops one of two programs that share memory when a successor asks it to come back, and ensures that others get memory.
#[track_caller]
fn keeps_no_memory_from_others_after_a_takeover(stopped: usize) {
    let (serving, board) = with_board(Serving::small("64MiB").keeper());
    let coordinator = serving.start();
    coordinator.until_ready();
    let mut programs = united(&coordinator, ["first", "second"]);
    let mut other = hold::joined(&coordinator, "other", "normal", "48", None);
    for program in &mut programs {
        assert_eq!(program.ask("queue 3000", LIMIT), "queued");
    }
    let point = "program hears Begin".to_owned();
    let victim = Victim::Process(programs[stopped].pid());
    board.prepare(&Strike { victim, signal: libc::SIGSTOP, ..Strike::at(point) });
    coordinator.kill_served();
    coordinator.until("it is stopped", |_| board.struck().is_some());
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    programs[stopped].signal(libc::SIGCONT);
    all_end(programs.iter_mut().chain([&mut other]));
}

#[test]
fn an_owner_that_is_stopped_before_it_closes_its_gate_keeps_no_memory_from_others() {
    keeps_no_memory_from_others_after_a_takeover(0);
}

#[test]
fn a_sharer_that_is_stopped_before_it_closes_its_gate_keeps_no_memory_from_others() {
    keeps_no_memory_from_others_after_a_takeover(1);
}

/// Memory that no other program may get.
fn lent(status: &Value) -> Option<u64> {
    status["arena"]["lent_bytes"].as_u64()
}

/// Waits until programs have only so many MiB, because nothing of others is left.
#[track_caller]
fn until_only_is_left(coordinator: &Coordinator, megabytes: u64) {
    coordinator.until("nothing of the other one is left", |status| lent(status) == Some(megabytes << 20));
}

/// Has a program lose its connection, though it goes on.
#[track_caller]
fn loses_its_connection(program: &mut Running) {
    assert_eq!(program.ask("disconnect", LIMIT), "disconnected");
}

#[test]
fn memory_that_is_freed_while_a_program_without_a_connection_has_it_is_given_to_none() {
    let coordinator = Serving::small("64MiB").start();
    let [mut first, mut second] = united(&coordinator, ["first", "second"]);
    loses_its_connection(&mut second);
    coordinator.until("it has lost it", |status| tenant(status, "second")["disconnected"] == true);
    let before = lent(&coordinator.status());
    assert_eq!(first.ask("free", LIMIT), "freed");
    assert_eq!(lent(&coordinator.status()), before, "the other one's work may still write there");
    second.signal(libc::SIGKILL);
    until_only_is_left(&coordinator, 16);
    all_end([&mut first]);
}

/// Two programs share memory, and one of them loses its connection before the coordinator dies; ensures that the other one goes on with the
/// next coordinator, and that memory which both had is given to no other, until that one has ended.
#[track_caller]
fn goes_on_without(lost: usize, left: u64) {
    goes_on_without_one_lost(lost, left, |coordinator, program| {
        coordinator.kill_served_after(|| loses_its_connection(program));
    });
    // The coordinator before has heard of it.
    goes_on_without_one_lost(lost, left, |coordinator, program| {
        loses_its_connection(program);
        let name = ["first", "second"][lost];
        coordinator.until("it has lost it", |status| tenant(status, name)["disconnected"] == true);
        coordinator.kill_served_after(|| ());
    });
}

/// The same, if the keeper is another one by then.
#[test]
fn memory_of_one_that_has_lost_its_connection_is_known_to_the_next_keeper_too() {
    goes_on_without_one_lost(1, 32, |coordinator, program| {
        loses_its_connection(program);
        coordinator.until("it has lost it", |status| tenant(status, "second")["disconnected"] == true);
        signal(coordinator.pid(), libc::SIGKILL);
        coordinator.until("another one holds all", |_| coordinator.log().contains("B0621"));
        coordinator.kill_served();
    });
}

#[track_caller]
fn goes_on_without_one_lost(lost: usize, left: u64, lose: impl FnOnce(&Coordinator, &mut Running)) {
    let coordinator = Serving::small("64MiB").keeper().start();
    let _end = EndsWhatServes(&coordinator);
    let mut programs = united(&coordinator, ["first", "second"]);
    let mut other = hold::joined(&coordinator, "other", "normal", "16", None);
    lose(&coordinator, &mut programs[lost]);
    let other_one = &mut programs[1 - lost];
    assert!(other_one.ask("touch", LIMIT).starts_with("touched "));
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    let before = lent(&coordinator.status());
    assert_eq!(other_one.ask("free", LIMIT), "freed");
    assert_eq!(lent(&coordinator.status()), before, "the other one's work may still write there");
    programs[lost].signal(libc::SIGKILL);
    until_only_is_left(&coordinator, left);
    all_end([&mut programs[1 - lost], &mut other]);
}

#[test]
fn one_goes_on_with_the_next_coordinator_when_the_other_has_become_another_program() {
    let coordinator = Serving::small("64MiB").keeper().start();
    let mut programs = united(&coordinator, ["first", "second"]);
    coordinator.kill_served_after(|| {
        programs[1].say("exec /bin/cat");
        let name = format!("/proc/{}/comm", programs[1].pid());
        let end = Instant::now() + LIMIT;
        while !std::fs::read_to_string(&name).is_ok_and(|name| name == "cat\n") {
            assert!(Instant::now() < end, "it is still the same program");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(programs[0].ask("touch", LIMIT).starts_with("touched "));
    until_only_is_left(&coordinator, 24);
    programs[1].signal(libc::SIGKILL);
    all_end([&mut programs[0]]);
}

#[test]
fn an_owner_goes_on_with_the_next_coordinator_without_a_sharer_that_has_lost_its_connection() {
    goes_on_without(1, 32);
}

#[test]
fn a_sharer_goes_on_with_the_next_coordinator_without_an_owner_that_has_lost_its_connection() {
    // It has the memory of both now.
    goes_on_without(0, 40);
}
