//! A program that spans GPUs shares each of them: it has its turn on all at the same time, and its memory moves on each.

use std::sync::atomic::{AtomicBool, Ordering};

use baton_tests::coordinator::{Serving, SetAtEnd, program, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::machine::Machine;
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT};

/// In each GPU's arena fits one of two programs, and one has it at a time.
fn serving() -> Serving {
    Serving::arena("64MiB").option("--host-pool", "192MiB").option("--mode", "exclusive").keeper()
}

/// A program with so many megabytes on each of so many GPUs.
#[track_caller]
fn span(machine: &Machine, name: &str, gpus: &str, megabytes: &str) -> Running {
    hold::ready(&mut machine.joining(name, &program("span"), &["--megabytes", megabytes, "--gpus", gpus]), None)
}

/// Its answers to these lines when it has the GPUs to itself; the last answer is its result.
#[track_caller]
fn alone(gpus: &str, megabytes: &str, lines: &[&str]) -> Vec<String> {
    let mut command = Driver::simulated().bare(program("span"));
    command.args(["--megabytes", megabytes, "--gpus", gpus]).env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_GPUS", gpus);
    let mut running = hold::ready(&mut command, None);
    let mut answers: Vec<_> = lines.iter().map(|line| running.ask(line, LIMIT)).collect();
    answers.push(running.ask("quit", LIMIT));
    answers
}

/// Two of them have more memory than the GPUs have, and so do a program alone on each.
#[test]
fn programs_that_span_gpus_have_all_of_their_memory_on_each() {
    let machine = Machine::start(&serving(), 2, &[]);
    let want = alone("2", "48", &["touch", "round", "touch"]);
    let want_alone = hold::alone("48", &["touch"; 3]);
    let mut wide: Vec<Running> = ["a", "b"].map(|name| span(&machine, name, "2", "48")).into();
    let mut others: Vec<Running> = [0, 1].map(|gpu| machine.hold(&format!("alone{gpu}"), gpu, "48")).into();
    for gpu in 0..2 {
        let status = machine.status(gpu);
        for name in ["a", "b"] {
            let bytes = |key: &str| tenant(&status, name)[key].as_u64().expect("bytes");
            assert!(bytes("resident_bytes") + bytes("evicted_bytes") >= 46 << 20, "{name} on GPU {gpu}: {status:#}");
        }
    }
    for (round, line) in ["touch", "round", "touch"].iter().enumerate() {
        others.iter_mut().for_each(|one| one.say("touch"));
        wide.iter_mut().for_each(|one| one.say(line));
        for one in &mut wide {
            assert_eq!(one.line(LIMIT), want[round]);
        }
        for one in &mut others {
            assert_eq!(one.line(LIMIT), want_alone[round]);
        }
    }
    for (one, want) in
        wide.iter_mut().map(|one| (one, &want[3])).chain(others.iter_mut().map(|one| (one, &want_alone[3])))
    {
        assert_eq!((&one.ask("quit", LIMIT), one.said().as_str()), (want, ""));
    }
}

/// On each GPU it sees the whole of it, less what it has there.
#[test]
fn it_sees_the_memory_of_each_gpu() {
    let machine = Machine::start(&serving(), 2, &[]);
    let mut wide = span(&machine, "wide", "2", "32");
    assert_eq!(wide.ask("memory", LIMIT), "memory 64 32 64 32");
    let mut other = machine.hold("other", 1, "48");
    assert_eq!(wide.ask("memory", LIMIT), "memory 64 32 64 32");
    other.ask("quit", LIMIT);
    wide.ask("quit", LIMIT);
}

/// A context alone is no work: many programs make one on each GPU that they find.
#[test]
fn a_gpu_that_a_program_only_looks_at_keeps_it_from_nothing() {
    let machine = Machine::start(&serving(), 2, &[]);
    let want = alone("1", "48", &["touch"; 2]);
    let mut busy_one = machine.hold("busy", 1, "48");
    let mut looks = span(&machine, "looks", "1", "48");
    let busy = Busy::start(&mut busy_one, &machine.prepared.place);
    machine.until(1, "at work", |status| tenant(status, "busy")["state"] == "running");
    machine.baton(&["suspend", "--gpu", "1", "looks"]);
    assert_eq!(looks.ask("look", LIMIT), "looked");
    // It is a tenant there, and has yet to ask for anything.
    machine.until(1, "joined", |status| status["tenants"].as_array().is_some_and(|all| all.len() == 2));
    for want in &want[..2] {
        assert_eq!(&looks.ask("touch", LIMIT), want);
    }
    assert_eq!(tenant(&machine.status(1), "looks")["switches"], 0);
    busy.end(&mut busy_one);
    busy_one.ask("quit", LIMIT);
    assert_eq!((looks.ask("quit", LIMIT), looks.said().as_str()), (want[2].clone(), ""));
}

/// Spinning programs, which read each GPU's memory on another one, are preempted, evicted under way, and have new coordinators.
#[test]
fn they_go_on_when_they_are_evicted_under_way_and_when_the_coordinator_dies() {
    const ROUNDS: usize = 4;
    let machine = Machine::start(&serving(), 3, &[]);
    let lines = [&["round"][..], &["touch"; ROUNDS]].concat();
    let mut want = alone("2", "40", &lines);
    let mut want_of_three = alone("3", "40", &lines);
    let want_alone = hold::alone("40", &["touch"; ROUNDS]);
    let reading = |name: &str, gpus: &str, want: &mut Vec<String>| {
        let mut program = span(&machine, name, gpus, "40");
        assert_eq!(program.ask("round", LIMIT), want.remove(0));
        program
    };
    let (a, b) = (reading("a", "2", &mut want), reading("b", "3", &mut want_of_three));
    let mut programs = vec![
        ("a", a, &want),
        ("b", b, &want_of_three),
        ("one", machine.hold("one", 1, "40"), &want_alone),
        ("two", machine.hold("two", 2, "40"), &want_alone),
    ];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetAtEnd(&is_over);
        scope.spawn(|| {
            for name in ["a", "one", "b", "two"].iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                machine.baton(&["evict", "--no-wait", name]);
            }
        });
        for round in 0..ROUNDS {
            programs.iter_mut().for_each(|(_, program, _)| program.say("touch"));
            if round == 1 {
                machine.kill_served(&[0, 1, 2]);
            }
            for (name, program, want) in &mut programs {
                assert_eq!(program.line(LIMIT), want[round], "{name} in round {round}");
            }
            // One of them spins on its GPUs, and the others have their turns beside that.
            let spinner = round % 2;
            let busy = Busy::start(&mut programs[spinner].1, &machine.prepared.place);
            for at in [1 - spinner, 2, 3] {
                let (name, program, _) = &mut programs[at];
                let said = program.ask(if at < 2 { "memory" } else { "spin 1" }, LIMIT);
                assert!(said.starts_with("memory 64") || said.starts_with("spun"), "{name}: {said}");
            }
            busy.end(&mut programs[spinner].1);
        }
    });
    for (name, mut program, want) in programs {
        assert_eq!((&program.ask("quit", LIMIT), program.said().as_str()), (&want[ROUNDS], ""), "{name}");
    }
}
