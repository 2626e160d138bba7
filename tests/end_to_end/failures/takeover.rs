//! The coordinator dies, and the next one goes on with its programs.

use std::time::Duration;

use baton_contract::socket_path;
use baton_tests::coordinator::{Coordinator, EndsWhatServes, Serving, program, tenant};
use baton_tests::faults::{Role, Strike, Victim};
use baton_tests::held::{self, Held};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, signal};
use baton_tests::strikes::{processes_die_at, with_board};
use baton_tests::{LIMIT, built};

/// A coordinator with a keeper, in whose arena one of two programs fits.
pub(super) fn serving() -> Serving {
    Serving::arena("64MiB").keeper()
}

#[track_caller]
pub(super) fn hold(coordinator: &Coordinator, name: &str, class: &str) -> Running {
    hold::joined(coordinator, name, class, "48", None)
}

/// Two programs, of which one fits at a time.
#[track_caller]
pub(super) fn two(coordinator: &Coordinator) -> [Running; 2] {
    ["one", "other"].map(|name| hold(coordinator, name, "normal"))
}

/// Has each of these programs change all its memory.
#[track_caller]
pub(super) fn touch(programs: &mut [Running], want: &str) {
    for program in programs {
        assert_eq!(program.ask("touch", LIMIT), want);
    }
}

/// Ends these programs, which are as they are alone, and have had nothing to say.
#[track_caller]
pub(super) fn quit(programs: &mut [Running], want: &str) {
    for program in programs {
        assert_eq!(program.ask("quit", LIMIT), want);
        assert_eq!(program.said(), "");
    }
}

/// Waits until these programs are the next coordinator's.
#[track_caller]
fn until_back(coordinator: &Coordinator, names: &[&str]) {
    coordinator.until("all are back", |status| names.iter().all(|name| !tenant(status, name).is_null()));
}

#[test]
fn programs_go_on_with_memory_on_the_gpu_and_on_the_host() {
    let want = hold::alone("48", &["touch"; 6]);
    let coordinator = serving().start();
    let mut programs = two(&coordinator);
    for answer in &want[..6] {
        touch(&mut programs, answer);
        coordinator.kill_served();
        let status = coordinator
            .until("both are back", |status| ["one", "other"].iter().all(|name| !tenant(status, name).is_null()));
        println!("{status:#}");
    }
    quit(&mut programs, &want[6]);
    coordinator.until_empty();
}

/// The pages of the next coordinator come as descriptors.
#[test]
fn a_program_that_can_open_no_more_descriptors_goes_on() {
    let coordinator = Serving::arena("128MiB").keeper().start();
    let program = built().programs.join("legal/descriptors");
    let mut command = coordinator.place.joining("full", &program, &["at-the-limit"]);
    let mut running = Running::start(&mut command, true, Some(coordinator.place.clone()));
    for round in 0..2 {
        assert_eq!(running.line(LIMIT), "waits");
        coordinator.kill_served();
        until_back(&coordinator, &["full"]);
        assert_eq!(running.ask("", LIMIT), format!("round {round}"));
    }
    assert_eq!(running.line(LIMIT), "the end");
    assert_eq!(running.said(), "");
    coordinator.until_empty();
}

#[test]
fn a_program_in_its_turn_goes_on_and_one_that_waits_gets_its_turn() {
    let want = hold::alone("48", &["touch"; 3]);
    let coordinator = serving().option("--quantum", "1h").start();
    let mut waits = hold(&coordinator, "waits", "normal");
    assert_eq!(waits.ask("touch", LIMIT), want[0]);
    let mut runs = hold(&coordinator, "runs", "normal");
    let busy = Busy::start(&mut runs, &coordinator.place);
    coordinator.until_tenant_is("runs", "running");
    waits.say("touch");
    for _ in 0..3 {
        coordinator.kill_served();
        until_back(&coordinator, &["waits", "runs"]);
    }
    // The busy one may have paused for so long that its turn was over.
    busy.end(&mut runs);
    assert_eq!(waits.line(LIMIT), want[1]);
    assert_eq!(runs.ask("touch", LIMIT), want[0]);
    assert_eq!(waits.ask("touch", LIMIT), want[2]);
    assert!(runs.ask("quit", LIMIT).ends_with(" ok"));
    assert_eq!(waits.ask("quit", LIMIT), want[3]);
    coordinator.until_empty();
}

#[test]
fn a_program_has_waited_under_the_coordinators_before_too() {
    let want = hold::alone("48", &["touch"]);
    let coordinator = serving().option("--max-wait", "1h").start();
    let mut waits = hold(&coordinator, "waits", "batch");
    let mut runs = hold(&coordinator, "runs", "latency");
    assert_eq!(waits.ask("touch", LIMIT), want[0]);
    let busy = Busy::start(&mut runs, &coordinator.place);
    coordinator.until_tenant_is("runs", "running");
    waits.say("touch");
    let waited = || {
        let status = coordinator.until("it waits", |status| tenant(status, "waits")["waits_for"]["reason"] == "turn");
        tenant(&status, "waits")["waits_for"]["since_ms"].as_f64().expect("a time")
    };
    for _ in 0..3 {
        // If the busy one gets no processor for a moment, the other one has a short turn, and waits anew.
        std::thread::sleep(Duration::from_millis(400));
        let (before, since) = (waited(), std::time::Instant::now());
        coordinator.kill_served();
        until_back(&coordinator, &["waits", "runs"]);
        let at_least = before + since.elapsed().as_secs_f64() * 1e3;
        let told = waited();
        assert!(told >= at_least, "{told} of {at_least} ms");
    }
    busy.end(&mut runs);
    assert!(runs.ask("quit", LIMIT).ends_with(" ok"));
    assert!(waits.line(LIMIT).starts_with("touched "));
    assert!(waits.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

#[test]
fn preempted_work_goes_on_where_it_was() {
    let want = hold::alone("48", &["touch"; 2]);
    let coordinator = serving().start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some("0.05"));
    let mut quick = hold(&coordinator, "quick", "latency");
    assert_eq!(slow.ask("leave", LIMIT), want[0].replace("touched", "left"));
    let busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until("its memory is away", |status| {
        let slow = tenant(status, "slow");
        slow["state"] == "preempted" && slow["evicted_bytes"] != 0
    });
    coordinator.kill_served();
    coordinator.kill_served();
    busy.end(&mut quick);
    assert_eq!(slow.ask("touch", LIMIT), want[1]);
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

/// The first process that another one has started: the keeper of a coordinator, if that has started it, and the other way round.
fn child_of(pid: i32) -> Option<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    children.collect::<String>().split_whitespace().next()?.parse().ok()
}

#[test]
fn a_coordinator_outlives_its_keeper_and_has_another_one() {
    let want = hold::alone("48", &["touch"; 4]);
    let coordinator = serving().start();
    let _end = EndsWhatServes(&coordinator);
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    let (first, serves_now) = (coordinator.pid(), coordinator.served());
    signal(first, libc::SIGKILL);
    let second = coordinator.until("another one holds all", |_| log_has(&coordinator, "B0621", 1));
    assert_eq!(second["pid"], serves_now);
    touch(&mut programs, &want[1]);
    // Which the second one knows how to follow.
    coordinator.kill_served();
    until_back(&coordinator, &["one", "other"]);
    touch(&mut programs, &want[2]);
    // The second keeper has started this one, and does not answer now.
    let parent = |pid: i32| -> i32 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("each has a parent");
        line.trim().parse().expect("a number")
    };
    let second = parent(coordinator.served());
    signal(second, libc::SIGSTOP);
    // Its memory is another one's then, which the keeper is to know.
    let mut third = hold(&coordinator, "third", "normal");
    assert_eq!(third.ask("touch", LIMIT), want[0]);
    assert_eq!(third.ask("quit", LIMIT), hold::alone("48", &["touch"])[1]);
    coordinator.until("the stopped one is replaced", |_| log_has(&coordinator, "B0621", 2));
    let third = child_of(coordinator.served());
    assert!(third.is_some_and(|third| third != second), "{third:?}, {second}");
    coordinator.kill_served();
    until_back(&coordinator, &["one", "other"]);
    touch(&mut programs, &want[3]);
    quit(&mut programs, &want[4]);
    coordinator.until_empty();
}

/// As a service manager does when the process that it has started is gone.
#[test]
fn a_second_serve_keeps_a_coordinator_that_has_outlived_its_keeper() {
    let want = hold::alone("48", &["touch"; 3]);
    let coordinator = serving().start();
    let _end = EndsWhatServes(&coordinator);
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    // The first one is there: it stays.
    let said = coordinator.prepared().serve_in_vain();
    assert!(said.err.contains("serves GPU-"), "{said:?}");
    signal(coordinator.pid(), libc::SIGKILL);
    coordinator.until("the coordinator's own keeper holds all", |_| log_has(&coordinator, "B0621", 1));
    let own = coordinator.status()["keeper"].as_i64();
    let second = Running::start(&mut coordinator.prepared().serve(), false, None);
    coordinator.until("the new one keeps it", |status| status["keeper"] == second.pid());
    assert!(!std::path::Path::new(&format!("/proc/{}/exe", own.expect("there was one"))).exists());
    touch(&mut programs, &want[1]);
    coordinator.kill_served();
    until_back(&coordinator, &["one", "other"]);
    touch(&mut programs, &want[2]);
    quit(&mut programs, &want[3]);
    coordinator.until_empty();
    second.signal(libc::SIGTERM);
    let ended = second.finish(LIMIT);
    assert_eq!(ended.status, "exit status: 0", "{ended:?}");
    assert!(coordinator.place.try_status().is_err());
}

#[test]
fn a_suspended_program_stays_suspended() {
    let want = hold::alone("48", &["touch"; 1]);
    let coordinator = serving().start();
    let mut program = hold(&coordinator, "one", "normal");
    let set = |verb: &str| {
        let mut command = coordinator.place.baton(&[verb, "--socket"]);
        baton_tests::run(command.arg(coordinator.place.socket()).arg("one")).succeeded();
    };
    set("suspend");
    coordinator.kill_served();
    coordinator.until_tenant_is("one", "suspended");
    program.say("touch");
    coordinator.until("it waits", |status| tenant(status, "one")["state"] == "suspended");
    set("resume");
    assert_eq!(program.line(LIMIT), want[0]);
    coordinator.kill_served();
    until_back(&coordinator, &["one"]);
    assert_ne!(tenant(&coordinator.status(), "one")["state"], "suspended");
    assert_eq!(program.ask("quit", LIMIT), want[1]);
}

/// The host memory that is free is less then, for example, by what the host pool has.
#[test]
fn a_next_coordinator_has_the_sizes_of_the_first_whatever_the_settings_are_by_then() {
    let want = hold::alone("48", &["touch"; 3]);
    let prepared = Serving::arena("64MiB").prepare();
    let file = prepared.place.folder().join("serve.toml");
    let settings = |sizes: [&str; 2]| {
        let [arena, pool] = sizes;
        std::fs::write(&file, format!("arena = \"{arena}\"\nhost-pool = \"{pool}\"\n")).expect("ours");
    };
    settings(["64MiB", "192MiB"]);
    let mut serve = prepared.place.baton(&["serve", "--driver", "sim", "--config"]);
    let served = Running::start(serve.arg(&file).arg("--socket").arg(prepared.place.socket()), false, None);
    let place = &prepared.place;
    let status = || place.try_status().ok();
    while status().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut programs = ["one", "other"].map(|name| {
        let mut joining = place.joining(name, &program("hold"), &["--megabytes", "48"]);
        let mut running = Running::start(&mut joining, true, Some(place.clone()));
        assert!(running.line(LIMIT).starts_with("ready "));
        running
    });
    for (answer, sizes) in want[..3].iter().zip([["32MiB", "96MiB"], ["96MiB", "9999GiB"], ["much", "more"]]) {
        touch(&mut programs, answer);
        settings(sizes);
        let before = status().expect("it serves")["pid"].clone();
        signal(i32::try_from(before.as_i64().expect("a number")).expect("a process"), libc::SIGKILL);
        while status().is_none_or(|status| status["pid"] == before) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    quit(&mut programs, &want[3]);
    assert!(served.err().contains("the settings stay as they are"), "{}", served.err());
    served.signal(libc::SIGTERM);
    assert_eq!(served.finish(LIMIT).status, "exit status: 0");
}

pub(super) fn log_has(coordinator: &Coordinator, message: &str, times: usize) -> bool {
    coordinator.log().matches(message).count() >= times
}

/// Kills the coordinator of these programs, (class, options of `fill_and_check`), so many times, while they compute.
#[track_caller]
fn kill_beside(coordinator: &Coordinator, programs: &[(&str, &[&str])], kills: u64) {
    let want: Vec<_> =
        programs.iter().map(|(_, options)| baton_tests::coordinator::alone("fill_and_check", options)).collect();
    let start = |(at, (class, options)): (usize, &(&str, &[&str]))| {
        coordinator.run(&format!("{class}-{at}"), class, &program("fill_and_check"), options)
    };
    let programs: Vec<_> = programs.iter().enumerate().map(start).collect();
    for turn in 0..kills {
        // Times that have no common measure with what the programs do.
        std::thread::sleep(Duration::from_millis(60 + 37 * turn % 101));
        coordinator.kill_served();
    }
    for (program, want) in programs.into_iter().zip(want) {
        let outcome = program.finish(LIMIT).succeeded();
        assert_eq!(outcome.out.trim_end(), want.trim_end());
        assert_eq!(outcome.said(), "");
    }
    coordinator.until_empty();
}

#[test]
#[ignore = "long"]
fn at_any_moment() {
    let rounds = ["--megabytes", "40", "--rounds", "60"];
    kill_beside(&serving().start(), &[("normal", &rounds[..]); 3], 8);
}

/// Some of them are descheduled, about to close their gates, or to be let in, whenever the coordinator dies.
#[test]
fn programs_that_co_run_go_on() {
    let programs: [(&str, &[&str]); 3] = [
        ("batch", &["--megabytes", "16", "--rounds", "150"]),
        ("normal", &["--megabytes", "16", "--rounds", "80", "--gap-ms", "10"]),
        ("latency", &["--megabytes", "16", "--rounds", "60", "--gap-ms", "20"]),
    ];
    kill_beside(&Serving::arena("128MiB").keeper().start(), &programs, 12);
}

/// The arbiter is told how much of its memory is away, and it co-runs only when that is there.
#[test]
fn an_urgent_program_whose_memory_is_away_has_it_back_before_it_co_runs() {
    let want = hold::alone("16", &["touch"; 4]);
    let coordinator = Serving::arena("128MiB").keeper().start();
    let [mut other, mut urgent] =
        ["normal", "latency"].map(|class| hold::joined(&coordinator, class, class, "16", None));
    for (answer, next) in [(&want[0], &want[1]), (&want[2], &want[3])] {
        assert_eq!(urgent.ask("touch", LIMIT), *answer);
        assert!(other.ask("touch", LIMIT).starts_with("touched "));
        coordinator.asked("evict", "latency").succeeded();
        coordinator.until("it is evicted", |status| tenant(status, "latency")["resident_bytes"] == 0);
        // It asks for a turn, and none hears that.
        coordinator.kill_served_after(|| {
            urgent.say("touch");
            std::thread::sleep(Duration::from_millis(50));
        });
        assert_eq!(urgent.line(LIMIT), *next);
    }
    for program in [&mut other, &mut urgent] {
        assert!(program.ask("quit", LIMIT).ends_with(" ok"));
    }
}

/// Others have some of its frames then, which it still has mapped, and the next coordinator gives it its memory back.
#[test]
fn one_whose_memory_was_taken_goes_on() {
    let want = hold::alone("48", &["touch"; 3]);
    let coordinator = serving().start();
    let mut silent = hold(&coordinator, "silent", "normal");
    let mut quick = hold(&coordinator, "quick", "normal");
    assert_eq!(silent.ask("touch", LIMIT), want[0]);
    for answer in &want[..2] {
        assert_eq!(silent.ask("linger", LIMIT), "lingers");
        let control = Held::at_once(silent.pid(), held::CONTROL).expect("it lives");
        assert_eq!(quick.ask("touch", LIMIT), *answer);
        assert_ne!(tenant(&coordinator.status(), "silent")["evicted_bytes"], 0, "its memory was not taken");
        coordinator.kill_served();
        until_back(&coordinator, &["quick"]);
        drop(control);
        assert_eq!(silent.ask("go", LIMIT), "gone");
        assert_eq!(silent.ask("spin 1", LIMIT), "spun");
    }
    assert_eq!(silent.ask("touch", LIMIT), want[1]);
    assert_eq!(quick.ask("touch", LIMIT), want[2]);
    for (program, answer) in [(&mut silent, &want_after(2)), (&mut quick, &want_after(3))] {
        assert_eq!(program.ask("quit", LIMIT), *answer);
        assert_eq!(program.said(), "");
    }
    coordinator.until_empty();
}

/// Its work could be in the middle of a kernel whose memory is on the host.
#[test]
fn paused_work_that_the_next_one_can_neither_pause_nor_let_run_is_killed() {
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", Some("0.05"));
    let mut quick = hold(&coordinator, "quick", "latency");
    assert!(slow.ask("leave", LIMIT).starts_with("left "));
    let busy = Busy::start(&mut quick, &coordinator.place);
    coordinator.until_tenant_is("slow", "preempted");
    let point = "coordinator calls simcudaPauseProcess".to_owned();
    board.prepare(&Strike { error: 1, again: u32::MAX, ..Strike::at(point) });
    slow.say("touch");
    coordinator.kill_served();
    assert_eq!(slow.finish(LIMIT).status, "signal: 9 (SIGKILL)");
    assert!(log_has(&coordinator, "B0558", 1), "{}", coordinator.log());
    board.take_back();
    busy.end(&mut quick);
    assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

/// The place of programs is the next coordinator's too, also if it was made anew.
#[test]
fn programs_join_the_next_one_where_the_first_ones_socket_was_removed() {
    let coordinator = serving().start();
    let socket = coordinator.place.socket();
    let mut first = hold(&coordinator, "first", "normal");
    std::fs::remove_file(&socket).expect("it is there");
    while coordinator.place.try_status().is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    coordinator.kill_served();
    let mut second = hold(&coordinator, "second", "normal");
    for program in [&mut first, &mut second] {
        assert_eq!(program.ask("quit", LIMIT), want_after(0));
    }
    coordinator.until_empty();
}

/// No other one comes then: what is on the host is lost, and each program hears of it.
#[test]
fn when_both_die_a_program_goes_on_or_has_an_error() {
    let want = hold::alone("48", &["touch"; 2]);
    let coordinator = serving().start();
    let _end = EndsWhatServes(&coordinator);
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    let serves = coordinator.served();
    // In this order the keeper starts no other one.
    signal(coordinator.pid(), libc::SIGSTOP);
    for process in [serves, coordinator.pid()] {
        signal(process, libc::SIGKILL);
    }
    let [one, other] = &mut programs;
    assert_eq!(other.ask("touch", LIMIT), want[1]);
    let answer = one.ask("touch", LIMIT);
    assert!(answer.starts_with("answer "), "{answer}");
    assert!(one.said().contains("B0351") && other.said().contains("B0350"), "{}{}", one.said(), other.said());
}

#[test]
fn the_next_one_serves_although_the_locks_file_was_removed() {
    let want = hold::alone("48", &["touch"]);
    let coordinator = serving().start();
    let mut programs = two(&coordinator);
    let user = rustix::process::geteuid().as_raw();
    let folders = socket_path::systems_folder(user).map(|folder| folder.join("baton"));
    let name = format!("{}.lock", coordinator.status()["gpu"]["uuid"].as_str().expect("a name"));
    let mut files = folders.into_iter().chain([socket_path::fallback(user)]).map(|folder| folder.join(&name));
    let lock = files.find(|file| file.exists()).expect("it is in one of these folders");
    let before = coordinator.served();
    // It would put the file there again.
    signal(before, libc::SIGSTOP);
    std::fs::remove_file(&lock).expect("of this user");
    signal(before, libc::SIGKILL);
    coordinator.until_next(before);
    assert!(lock.exists());
    touch(&mut programs, &want[0]);
    quit(&mut programs, &want[1]);
    coordinator.until_empty();
}

#[test]
fn a_coordinator_of_baton_run_is_followed_too_and_both_end_after_the_last_program() {
    let want = hold::alone("48", &["touch"; 2]);
    let prepared = Serving::arena("64MiB").prepare();
    let mut programs = ["one", "other"].map(|name| {
        let words = ["run", "--driver", "sim", "--arena", "64MiB", "--host-pool", "192MiB", "--name", name, "--socket"];
        let mut run = prepared.place.baton(&words);
        run.arg(prepared.place.socket()).arg("--").arg(program("hold")).args(["--megabytes", "48"]);
        let mut running = Running::start(&mut run, true, Some(prepared.place.clone()));
        assert!(running.line(LIMIT).starts_with("ready "));
        running
    });
    let number = |of: &str| prepared.place.try_status().ok().and_then(|status| status[of].as_i64());
    let (first, keeper) = (number("pid").expect("it serves"), number("keeper").expect("there is one"));
    for answer in &want[..2] {
        touch(&mut programs, answer);
        if number("pid") == Some(first) {
            signal(i32::try_from(first).expect("a process"), libc::SIGKILL);
        }
    }
    assert_ne!(number("pid"), Some(first));
    for program in &mut programs {
        assert_eq!(program.ask("quit", LIMIT), want[2]);
        // The second one is told that the coordinator has its own settings.
        assert!(program.err().lines().all(|line| line.starts_with("baton run: ")), "{}", program.err());
    }
    drop(programs);
    let end = std::time::Instant::now() + LIMIT;
    while std::path::Path::new(&format!("/proc/{keeper}/exe")).exists() {
        assert!(std::time::Instant::now() < end, "the keeper stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!prepared.place.socket().exists());
}

#[test]
fn a_signal_that_comes_before_the_coordinator_serves_ends_it_all_the_same() {
    let prepared = Serving::small("64MiB").keeper().prepare();
    for wait in [0, 1, 3, 6, 12, 25, 50] {
        let running = Running::start(&mut prepared.serve(), false, None);
        std::thread::sleep(Duration::from_millis(wait));
        running.signal(libc::SIGTERM);
        let outcome = running.finish(LIMIT);
        let expected = ["exit status: 0", "signal: 15 (SIGTERM)", "exit status: 143"];
        assert!(expected.contains(&outcome.status.as_str()), "after {wait} ms: {outcome:?}");
        assert!(prepared.place.try_status().is_err(), "after {wait} ms one serves");
    }
    let mut coordinator = Coordinator::of(prepared);
    assert!(coordinator.end(libc::SIGTERM).success());
}

/// The result after so many touches.
pub(super) fn want_after(touches: usize) -> String {
    hold::alone("48", &vec!["touch"; touches]).pop().expect("the result")
}

#[test]
fn one_that_dies_again_and_again_is_not_started_for_ever() {
    let mut coordinator = serving().option("--restarts", "3").option("--orphan-wait", "1s").start();
    for _ in 0..3 {
        coordinator.kill_served();
    }
    signal(coordinator.served(), libc::SIGKILL);
    assert_eq!(coordinator.wait().code(), Some(128 + libc::SIGKILL));
    assert!(coordinator.log().contains("have waited long enough"), "{}", coordinator.log());
}

/// Two coordinators may have taken its work off the GPU by then, each once.
#[test]
fn a_call_that_waits_for_interrupted_work_returns_when_no_coordinator_comes_any_more() {
    let mut coordinator = serving().option("--restarts", "1").option("--orphan-wait", "1s").start();
    let mut waits = hold::joined(&coordinator, "waits", "batch", "48", Some("0.01"));
    let mut quick = hold(&coordinator, "quick", "latency");
    waits.say("touch");
    coordinator.until_tenant_is("waits", "running");
    assert!(quick.ask("touch", LIMIT).starts_with("touched "));
    let busy = Busy::start(&mut quick, &coordinator.place);
    let until_paused = || {
        coordinator.until("its work is paused, and its memory away", |status| {
            let waits = tenant(status, "waits");
            waits["state"] == "preempted" && waits["evicted_bytes"] != 0
        });
    };
    until_paused();
    coordinator.kill_served();
    until_paused();
    signal(coordinator.served(), libc::SIGKILL);
    let answer = waits.line(LIMIT);
    assert!(answer.starts_with("answer "), "{answer}");
    assert_eq!(waits.ask("touch", LIMIT), "answer 46", "a call made later");
    assert_eq!(waits.end(LIMIT).code(), Some(0), "its end does not hang");
    busy.end(&mut quick);
    assert_eq!(coordinator.wait().code(), Some(128 + libc::SIGKILL));
}

#[test]
#[ignore = "long: programs wait for a minute"]
fn programs_wait_for_a_coordinator_that_has_died_too_often() {
    let want = hold::alone("48", &["touch"; 2]);
    let coordinator = serving().option("--restarts", "1").option("--orphan-wait", "90s").start();
    let mut programs = two(&coordinator);
    for answer in &want[..2] {
        touch(&mut programs, answer);
        coordinator.kill_served();
    }
    assert!(log_has(&coordinator, "B0646", 1), "{}", coordinator.log());
    quit(&mut programs, &want[2]);
    coordinator.until_empty();
}

/// The keeper dies when the coordinator that it has started comes to this point. That one has another keeper, which has all.
#[track_caller]
fn keeper_dies_in_a_takeover(serving: Serving, point: &str) {
    let want = hold::alone("48", &["touch"; 3]);
    let (serving, board) = with_board(serving);
    let coordinator = serving.start();
    let _end = EndsWhatServes(&coordinator);
    coordinator.until_ready();
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    let victim = Victim::Of(Role::Keeper);
    board.prepare(&Strike { victim, signal: libc::SIGKILL, ..Strike::at(point) });
    coordinator.kill_served();
    coordinator.until("another keeper holds all", |_| log_has(&coordinator, "B0621", 1));
    assert!(board.struck().is_some());
    touch(&mut programs, &want[1]);
    coordinator.kill_served();
    touch(&mut programs, &want[2]);
    quit(&mut programs, &want[3]);
    coordinator.until_empty();
}

/// The host pool is not ready yet when the next keeper takes the place of the last one.
#[test]
fn a_keeper_that_dies_in_a_takeover_is_followed_by_one_that_has_all() {
    let serving = serving().setting("SIMCUDA_PIN_MS_PER_GIB", "3000");
    keeper_dies_in_a_takeover(serving, "coordinator calls cuMemHostRegister_v2");
}

/// It has been told all that there is by then, and uses the keeper for the first time after it.
#[test]
fn a_coordinator_whose_keeper_dies_when_it_starts_takes_over_all_the_same() {
    keeper_dies_in_a_takeover(serving(), "coordinator calls cuStreamCreate");
}

/// It is unmapped by then, and no coordinator knows.
#[test]
fn memory_that_is_being_freed_during_a_takeover_is_put_nowhere() {
    let want = hold::alone("16", &["touch"]);
    let (serving, board) = with_board(serving());
    let coordinator = serving.start();
    let mut program = hold::joined(&coordinator, "one", "normal", "16", None);
    for _ in 0..2 {
        assert_eq!(program.ask("alloc 24", LIMIT), "allocated");
        let strike = Strike::at("program has unmapped");
        let victim = Victim::Of(Role::Coordinator);
        board.prepare(&Strike { victim, signal: libc::SIGKILL, wait: Duration::from_secs(2), ..strike });
        assert_eq!(program.ask("free", LIMIT), "freed");
        // The shim keeps it for later, and gives it up when memory of another size is needed.
        assert_eq!(program.ask("alloc 32", LIMIT), "allocated");
        assert!(board.struck().is_some());
        assert_eq!(program.ask("free", LIMIT), "freed");
    }
    assert_eq!(program.ask("touch", LIMIT), want[0]);
    assert_eq!(program.ask("quit", LIMIT), want[1]);
    coordinator.until_empty();
}

/// Two tenants that have no frames of each other, on a GPU without more memory than both need in turn.
fn strict() -> Serving {
    Serving::arena("64MiB").memory("96MiB").option("--isolation", "strict").keeper()
}

/// Memory is free to the driver only then. The coordinator does not wait, and all of it is not too much for the GPU.
#[test]
fn frames_are_made_when_the_keeper_has_let_go_of_others() {
    let want = hold::alone("48", &["touch"; 3]);
    let (serving, board) = with_board(strict());
    let coordinator = serving.start();
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    for answer in &want[1..3] {
        let (point, wait) = ("keeper drops Frame".to_owned(), Duration::from_millis(400));
        board.prepare(&Strike { wait, ..Strike::at(point) });
        touch(&mut programs, answer);
        assert!(board.struck().is_some());
    }
    quit(&mut programs, &want[3]);
    assert!(!coordinator.log().contains("WARN"), "{}", coordinator.log());
    coordinator.until_empty();
}

#[test]
fn a_stopped_keeper_is_followed_by_another_one_and_its_frames_are_free() {
    let want = hold::alone("48", &["touch"; 3]);
    let coordinator = strict().start();
    let mut programs = two(&coordinator);
    for (round, answer) in want[..3].iter().enumerate() {
        let keeper = coordinator.status()["keeper"].as_i64().and_then(|keeper| i32::try_from(keeper).ok());
        signal(keeper.expect("a process"), libc::SIGSTOP);
        touch(&mut programs, answer);
        coordinator.until("another one holds all", |_| log_has(&coordinator, "B0621", round + 1));
    }
    quit(&mut programs, &want[3]);
    let _end = EndsWhatServes(&coordinator);
    coordinator.until_empty();
}

/// Its programs would hang if their coordinator died then: its sockets are open as long as it is there.
#[test]
fn a_stopped_keeper_is_followed_by_another_one_although_nothing_is_asked_of_it() {
    let want = hold::alone("48", &["touch"; 2]);
    let coordinator = serving().start();
    let _end = EndsWhatServes(&coordinator);
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    signal(coordinator.pid(), libc::SIGSTOP);
    coordinator.until("another one holds all", |_| log_has(&coordinator, "B0621", 1));
    coordinator.kill_served();
    until_back(&coordinator, &["one", "other"]);
    touch(&mut programs, &want[1]);
    quit(&mut programs, &want[2]);
    coordinator.until_empty();
}

#[test]
fn a_coordinator_that_hangs_is_followed_by_another_one() {
    let want = hold::alone("48", &["touch"; 2]);
    let coordinator = serving().option("--hangs", "2").start();
    let mut programs = two(&coordinator);
    touch(&mut programs, &want[0]);
    let before = coordinator.served();
    signal(before, libc::SIGSTOP);
    coordinator.until_next(before);
    until_back(&coordinator, &["one", "other"]);
    assert!(log_has(&coordinator, "B0658", 1), "{}", coordinator.log());
    touch(&mut programs, &want[1]);
    quit(&mut programs, &want[2]);
    coordinator.until_empty();
}

#[test]
fn a_coordinator_that_is_told_to_read_its_settings_while_it_starts_reads_them_later() {
    // It takes long to begin.
    let serving = serving().setting("SIMCUDA_PIN_MS_PER_GIB", "3000");
    let coordinator = serving.start();
    let mut program = hold(&coordinator, "one", "normal");
    let before = coordinator.served();
    signal(before, libc::SIGKILL);
    for _ in 0..200 {
        // The keeper passes this on to the next one as soon as that is there.
        signal(coordinator.pid(), libc::SIGHUP);
        std::thread::sleep(Duration::from_millis(1));
    }
    coordinator.until_next(before);
    until_back(&coordinator, &["one"]);
    assert!(log_has(&coordinator, "B0613", 1) && !log_has(&coordinator, "B0613", 2), "{}", coordinator.log());
    assert!(program.ask("quit", LIMIT).ends_with(" ok"));
}

/// The steps by which memory in several pieces becomes one, which others can have.
const EXPORT: [&str; 8] = [
    "program tells Consolidate",
    "program told Consolidate",
    "coordinator hears Consolidate",
    "coordinator calls cuMemcpyDtoDAsync_v2",
    "coordinator tells Consolidated",
    "coordinator told Consolidated",
    "program hears Consolidated",
    "program obeyed Consolidated",
];

/// The next coordinator hears a question twice that was asked before the program was told of it, and is asked again then.
#[test]
fn memory_is_exported_when_processes_die_at_any_step() {
    let want = hold::alone("16", &["touch"]);
    let begin = |coordinator: &Coordinator| (hold::joined(coordinator, "one", "normal", "16", None), Vec::new());
    let serving = serving().setting("BATON_EXPORT", "driver");
    processes_die_at(&EXPORT, serving, begin, &[("export 6", "exported"), ("touch", &want[0])]);
}
