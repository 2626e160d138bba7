//! Kernels are launched while the memory that they use comes in as one piece: they wait for it on the GPU, and compute what they
//! compute alone, whatever becomes of their program meanwhile.

use std::time::Duration;

use baton_tests::coordinator::{Coordinator, Serving, program, tenant, with_driver};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, coordinator};
use serde_json::Value;

/// The kinds of streams: one that the program made, the legacy default stream, and the thread's own.
const STREAMS: [&str; 3] = ["0", "1", "2"];
/// How often it is tried again where a loaded machine may be too late to see something.
const TRIES: usize = 10;

/// All of it takes about a second to come in.
fn serving() -> Serving {
    Serving::arena("64MiB").option("--mode", "exclusive").setting("SIMCUDA_H2D_GBPS", "0.04")
}

#[track_caller]
fn ready(mut command: std::process::Command, place: Option<coordinator::Place>, arguments: &[&str]) -> Running {
    hold::ready(command.args(arguments), place)
}

#[track_caller]
fn joined(coordinator: &Coordinator, arguments: &[&str]) -> Running {
    let command = coordinator.place.joining("ahead", &program("ahead"), &[]);
    ready(command, Some(coordinator.place.clone()), arguments)
}

/// Its answers when it has a GPU to itself: to so many times `launch` and `wait`, and at the end.
#[track_caller]
fn alone(arguments: &[&str], rounds: usize) -> (Vec<String>, String) {
    let mut command = Driver::simulated().bare(program("ahead"));
    command.env("SIMCUDA_MEMORY", "512MiB");
    let mut running = ready(command, None, arguments);
    let round = |_| {
        assert_eq!(running.ask("launch", LIMIT), "launched");
        running.ask("wait", LIMIT)
    };
    let answers = (0..rounds).map(round).collect();
    (answers, running.ask("quit", LIMIT))
}

/// True if memory of it is still on its way.
fn is_arriving(coordinator: &Coordinator) -> bool {
    tenant(&coordinator.status(), "ahead")["arriving"] == true
}

/// All its memory has gone, and it launches. Says whether that was over while the memory was on its way.
#[track_caller]
fn launches_ahead(coordinator: &Coordinator, running: &mut Running) -> bool {
    while !coordinator.evict("ahead") {}
    assert_eq!(running.ask("launch", LIMIT), "launched");
    is_arriving(coordinator)
}

/// Rounds, in each of which its memory has gone before, until it has launched ahead and something was done meanwhile.
#[track_caller]
fn meanwhile(serving: &Serving, arguments: &[&str], mut what: impl FnMut(&Coordinator, &mut Running)) {
    let (want, last) = alone(arguments, TRIES);
    let coordinator = serving.start();
    coordinator.until_ready();
    let mut running = joined(&coordinator, arguments);
    let mut answers = want.iter();
    let mut seen = 0;
    for answer in answers.by_ref() {
        let ahead = launches_ahead(&coordinator, &mut running);
        if ahead {
            what(&coordinator, &mut running);
        }
        assert_eq!(running.ask("wait", LIMIT), *answer);
        seen += usize::from(ahead);
        if seen == 2 {
            break;
        }
    }
    assert_eq!(seen, 2, "nothing was launched before all memory had come");
    for answer in answers {
        assert_eq!(running.ask("launch", LIMIT), "launched");
        assert_eq!(running.ask("wait", LIMIT), *answer);
    }
    assert_eq!(running.ask("quit", LIMIT), last);
    coordinator.until_empty();
}

#[test]
fn kernels_are_launched_in_streams_of_every_kind_before_their_memory_has_come() {
    for stream in STREAMS {
        meanwhile(&serving(), &["--stream", stream], |_, running| {
            assert_eq!(running.ask("query", LIMIT), "busy");
        });
    }
}

#[test]
fn a_graph_of_kernels_is_launched_before_its_memory_has_come() {
    for stream in STREAMS {
        meanwhile(&serving(), &["--stream", stream, "--graph", "1"], |_, running| {
            assert_eq!(running.ask("query", LIMIT), "busy");
        });
    }
}

#[test]
fn a_program_launches_ahead_also_while_others_wait_for_their_turns() {
    let (want, last) = alone(&[], TRIES);
    let coordinator = serving().start();
    coordinator.until_ready();
    let command = coordinator.place.joining("ahead", &program("ahead"), &[]);
    let mut command = command;
    command.env("BATON_CLASS", "latency");
    let mut running = ready(command, Some(coordinator.place.clone()), &[]);
    // It always has something to do, and is less urgent.
    let rounds = ["--megabytes", "8", "--rounds", "100000000"];
    let other = coordinator.run("other", "batch", &program("fill_and_check"), &rounds);
    let mut seen = 0;
    for answer in &want {
        let ahead = launches_ahead(&coordinator, &mut running);
        seen += usize::from(ahead && tenant(&coordinator.status(), "other")["waiting"] == true);
        assert_eq!(running.ask("wait", LIMIT), *answer);
    }
    assert!(seen > 0, "nothing was launched before all memory had come, while another one waited");
    assert_eq!(running.ask("quit", LIMIT), last);
    drop(other);
    coordinator.until_empty();
}

#[test]
fn the_first_launch_of_a_switch_is_the_first_that_could_run() {
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut running = joined(&coordinator, &[]);
    // A switch is from one program to another.
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    let ahead = (0..TRIES).any(|_| {
        other.ask("touch", LIMIT);
        let ahead = launches_ahead(&coordinator, &mut running);
        running.ask("wait", LIMIT);
        ahead
    });
    assert!(ahead, "nothing was launched before all memory had come");
    // Its record is written when the program has told how it went, and there may be switches after it for which nothing came in.
    let is_it = |record: &Value| record["to"] == "ahead" && record["phases"]["first_launch_ms"].is_number();
    let its_record = |status: &Value| status["recent"].as_array()?.iter().rfind(|record| is_it(record)).cloned();
    let status = coordinator.until("the switch is on record", |status| its_record(status).is_some());
    let record = its_record(&status).expect("seen");
    assert_eq!(record["waits"], 0, "no call has waited: {record:#}");
    let [first, all] = ["first_launch_ms", "all_resident_ms"].map(|name| record["phases"][name].as_f64());
    let (first, all) = first.zip(all).unwrap_or_else(|| panic!("{record:#}"));
    assert!(first <= all && first > all / 2.0, "it waited for all memory: {record:#}");
}

#[test]
fn a_program_that_may_not_be_preempted_launches_when_its_memory_has_come() {
    for stream in STREAMS {
        let (want, last) = alone(&["--stream", stream], 2);
        let coordinator = serving().flag("--no-preempt").start();
        coordinator.until_ready();
        let mut running = joined(&coordinator, &["--stream", stream]);
        for answer in want {
            assert!(!launches_ahead(&coordinator, &mut running), "its work could not be paused if others came");
            assert_eq!(running.ask("wait", LIMIT), answer);
        }
        assert_eq!(running.ask("quit", LIMIT), last);
    }
}

#[test]
fn where_streams_cannot_wait_calls_do() {
    let (want, last) = alone(&[], 2);
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut command = coordinator.place.joining("ahead", &program("ahead"), &[]);
    with_driver(&mut command, "librefusing_driver.so");
    let mut running = ready(command, Some(coordinator.place.clone()), &[]);
    for answer in want {
        assert!(!launches_ahead(&coordinator, &mut running), "the driver has refused the wait");
        // A launch that was made twice would count twice.
        assert_eq!(running.ask("wait", LIMIT), answer);
    }
    assert_eq!(running.ask("quit", LIMIT), last);
}

#[test]
fn what_was_launched_ahead_is_paused_with_its_program_and_waits_for_all_its_memory() {
    let touched = hold::alone("56", &["touch"; TRIES]);
    for stream in STREAMS {
        let mut answers = touched.iter();
        let mut quick = None;
        let mut pauses = 0;
        meanwhile(&serving(), &["--stream", stream], |coordinator, _| {
            let quick = quick.get_or_insert_with(|| hold::joined(coordinator, "quick", "latency", "56", None));
            assert_eq!(quick.ask("touch", LIMIT), *answers.next().expect("as many as there are tries"));
            pauses = coordinator.status()["preemptions"].as_u64().expect("a number");
            if pauses > 1 {
                assert!(quick.ask("quit", LIMIT).ends_with(" ok"));
            }
        });
        assert!(pauses > 0, "it was never paused");
    }
}

#[test]
fn what_was_launched_ahead_outlasts_a_suspension() {
    let steer = |coordinator: &Coordinator, verb: &str| {
        let mut command = coordinator.place.baton(&[verb, "--socket"]);
        let done = command.arg(coordinator.place.socket()).arg("ahead").output().expect("baton can be started");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    meanwhile(&serving(), &[], |coordinator, running| {
        steer(coordinator, "pause");
        coordinator.until_tenant_is("ahead", "suspended");
        running.say("query");
        steer(coordinator, "resume");
        assert!(["busy", "idle"].contains(&running.line(LIMIT).as_str()));
    });
}

/// No other coordinator follows, so the memory never comes.
#[test]
fn what_was_launched_ahead_ends_when_the_coordinator_dies() {
    for stream in STREAMS {
        let mut coordinator = serving().start();
        coordinator.until_ready();
        let mut running = joined(&coordinator, &["--stream", stream]);
        while !launches_ahead(&coordinator, &mut running) {
            assert!(running.ask("wait", LIMIT).starts_with("done "));
        }
        running.say("wait");
        coordinator.end(libc::SIGKILL);
        let ended = running.end(LIMIT);
        assert!(ended.code().is_some_and(|code| code != 0), "its work has not had all its memory: {ended:?}");
        assert!(running.said().contains("B0351"));
    }
}

#[test]
fn a_full_queue_a_free_and_a_new_stream_are_no_harm() {
    // More than the queue has room for: then the thread waits inside the driver.
    let full = ["--extra", "1500"];
    let (want, last) = alone(&full, 2);
    let coordinator = serving().start();
    coordinator.until_ready();
    let mut running = joined(&coordinator, &full);
    for answer in want {
        launches_ahead(&coordinator, &mut running);
        assert_eq!(running.ask("wait", LIMIT), answer);
    }
    assert_eq!(running.ask("quit", LIMIT), last);
    drop(coordinator);
    meanwhile(&serving(), &[], |_, running| {
        for (line, answer) in [("alloc", "allocated"), ("free", "freed")] {
            assert_eq!(running.ask(line, LIMIT), answer);
        }
    });
    // The driver may give a new stream the handle of the last one.
    let (want, last) = alone(&[], 3);
    let coordinator = serving().start();
    let mut running = joined(&coordinator, &[]);
    for answer in want {
        while !coordinator.evict("ahead") {}
        for (line, answer) in [("poke", "poked"), ("again", "made"), ("launch", "launched")] {
            assert_eq!(running.ask(line, LIMIT), answer);
        }
        assert_eq!(running.ask("wait", LIMIT), answer);
    }
    assert_eq!(running.ask("quit", LIMIT), last);
}

#[test]
fn a_context_is_destroyed_when_what_was_launched_ahead_has_ended() {
    let coordinator = serving().start();
    coordinator.until_ready();
    for stream in STREAMS {
        let mut running = joined(&coordinator, &["--stream", stream]);
        let mut seen = 0;
        for _ in 0..TRIES {
            seen += usize::from(launches_ahead(&coordinator, &mut running));
            if seen == 3 {
                break;
            }
            assert_eq!(running.ask("destroy", LIMIT), "destroyed");
        }
        assert_eq!(seen, 3, "nothing was launched before all memory had come, in a first context or a second one");
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
        coordinator.until_empty();
    }
}

#[test]
fn when_the_coordinator_dies_before_all_memory_has_come_calls_fail() {
    for _ in 0..TRIES {
        let mut coordinator = serving().start();
        coordinator.until_ready();
        let mut running = joined(&coordinator, &[]);
        let ahead = launches_ahead(&coordinator, &mut running);
        coordinator.end(libc::SIGKILL);
        if ahead && running.ask("alloc", LIMIT) == "answer 46" {
            // Work that waits for the memory waits for ever.
            assert_eq!(running.ask("query", LIMIT), "busy");
            return;
        }
    }
    panic!("nothing was launched before all memory had come");
}

/// All memory goes again and again, at any moment; programs take turns, and one is urgent.
#[test]
fn programs_that_launch_ahead_compute_right_when_they_are_evicted_all_the_time() {
    const ROUNDS: usize = 8;
    let serving = Serving::arena("64MiB").option("--mode", "exclusive").setting("SIMCUDA_H2D_GBPS", "0.6");
    let coordinator = serving.start();
    coordinator.until_ready();
    let kinds = [("0", "normal"), ("1", "latency"), ("2", "normal")];
    let names = kinds.map(|(stream, _)| format!("ahead-{stream}"));
    let run = |(stream, class): (&str, &str), name: &str| {
        let arguments = ["--stream", stream, "--extra", "40"];
        let (want, last) = alone(&arguments, ROUNDS);
        let mut command = coordinator.place.joining(name, &program("ahead"), &[]);
        command.env("BATON_CLASS", class);
        let mut running = ready(command, Some(coordinator.place.clone()), &arguments);
        for answer in want {
            assert_eq!(running.ask("launch", LIMIT), "launched");
            assert_eq!(running.ask("wait", LIMIT), answer);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(running.ask("quit", LIMIT), last);
    };
    let ((), evictions) = coordinator.evicting(&names, Duration::from_millis(3), || {
        std::thread::scope(|scope| {
            for (kind, name) in kinds.into_iter().zip(&names) {
                scope.spawn(move || run(kind, name));
            }
        });
    });
    println!("{evictions} evictions");
    coordinator.until_empty();
}
