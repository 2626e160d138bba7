//! Programs of a gang have their GPUs at the same time, or not at all.

use std::sync::atomic::{AtomicBool, Ordering};

use baton_tests::LIMIT;
use baton_tests::coordinator::{Serving, SetAtEnd, program, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::machine::Machine;
use baton_tests::running::Running;

/// In each GPU's arena fits one of two programs, and one has it at a time.
fn serving() -> Serving {
    Serving::arena("64MiB").option("--host-pool", "128MiB").option("--mode", "exclusive").keeper()
}

/// A rank of a gang, on a GPU of its own.
#[track_caller]
fn rank(machine: &Machine, name: &str, gpu: usize, gang: &str) -> Running {
    let mut command = machine.joining(name, &program("hold"), &["--megabytes", "48"]);
    hold::ready(command.env("CUDA_VISIBLE_DEVICES", gpu.to_string()).env("BATON_GANG", gang), None)
}

fn switches(machine: &Machine, gpu: usize, name: &str) -> u64 {
    tenant(&machine.status(gpu), name)["switches"].as_u64().expect("a number")
}

#[test]
fn ranks_have_their_turns_together_beside_others() {
    let machine = Machine::start(&serving(), 2, &[]);
    let mut all: Vec<(usize, &str, Running)> = Vec::new();
    for gpu in 0..2 {
        all.push((gpu, ["rank-0", "rank-1"][gpu], rank(&machine, ["rank-0", "rank-1"][gpu], gpu, "7")));
    }
    // Two others on the second GPU: alone, the ranks would have turns of their own there.
    for (gpu, name) in [(0, "one"), (1, "two"), (1, "three")] {
        all.push((gpu, name, machine.hold(name, gpu, "48")));
    }
    let busy: Vec<Busy> = all.iter_mut().map(|(_, _, one)| Busy::start(one, &machine.prepared.place)).collect();
    machine
        .until(0, "many turns", |status| tenant(status, "rank-0")["switches"].as_u64().is_some_and(|count| count > 12));
    let [first, second] = [switches(&machine, 0, "rank-0"), switches(&machine, 1, "rank-1")];
    assert!(first.abs_diff(second) <= 1, "{first}, {second}");
    for (gpu, name) in [(0, "one"), (1, "two"), (1, "three")] {
        assert!(switches(&machine, gpu, name) > 3, "{name}: {:#}", machine.status(gpu));
    }
    for ((_, _, one), busy) in all.iter_mut().zip(busy) {
        busy.end(one);
    }
    let want = hold::alone("48", &["touch"]);
    for (_, name, one) in &mut all {
        assert_eq!(one.ask("touch", LIMIT), want[0], "{name}");
    }
    for (_, name, mut one) in all {
        assert_eq!((one.ask("quit", LIMIT), one.said().as_str()), (want[1].clone(), ""), "{name}");
    }
}

/// Another rank may be what it waits for, on the host.
#[test]
fn a_rank_without_work_is_let_in_with_the_others_and_does_not_end_their_turn() {
    let machine = Machine::start(&serving(), 2, &[]);
    let want = hold::alone("48", &["touch"; 3]);
    let mut ranks = [rank(&machine, "rank-0", 0, "7"), rank(&machine, "rank-1", 1, "7")];
    let mut others = [machine.hold("one", 0, "48"), machine.hold("two", 1, "48")];
    // The second GPU's other program is on it, and what it does has no end.
    let second = Busy::start(&mut others[1], &machine.prepared.place);
    machine.until(1, "at work", |status| tenant(status, "two")["state"] == "running");
    let said = machine.baton(&["suspend", "rank-1"]).succeeded().err;
    assert!(said.contains("B0824"), "its watchdog counts the time: {said}");
    let said = machine.baton(&["why", "rank-1"]).succeeded().out;
    assert!(said.contains("baton suspend") && said.contains("B0824"), "{said}");
    ranks[0].say("touch");
    let status = machine.until(0, "claimed", |status| tenant(status, "rank-0")["waits_for"]["reason"] == "gang");
    assert_eq!(tenant(&status, "rank-0")["waits_for"]["gpus"], serde_json::json!([1]));
    let said = machine.baton(&["why", "rank-0"]).succeeded().out;
    assert!(said.contains("GPU 1"), "{said}");
    // Claims hold nothing.
    assert_eq!(others[0].ask("touch", LIMIT), want[0]);
    machine.baton(&["resume", "rank-1"]).succeeded();
    assert_eq!(ranks[0].line(LIMIT), want[0]);
    second.end(&mut others[1]);
    for round in &want[1..3] {
        // Only the first works; the second one's GPU is another program's meanwhile.
        assert_eq!(&others[0].ask("touch", LIMIT), round);
        others[1].ask("touch", LIMIT);
        assert_eq!(&ranks[0].ask("touch", LIMIT), round);
    }
    let busy = Busy::start(&mut ranks[0], &machine.prepared.place);
    machine.until(0, "at work", |status| tenant(status, "rank-0")["state"] == "running");
    for _ in 0..3 {
        // Its own work goes on beside that.
        assert!(ranks[1].ask("spin 1", LIMIT).starts_with("spun"));
    }
    assert_eq!(&ranks[1].ask("touch", LIMIT), &want[0]);
    busy.end(&mut ranks[0]);
    ranks.iter_mut().for_each(|rank| drop(rank.ask("quit", LIMIT)));
    assert_eq!(&others[0].ask("quit", LIMIT), &want[3]);
    assert_eq!(others[1].ask("quit", LIMIT), hold::alone("48", &["touch"; 2])[2]);
}

#[test]
fn gangs_go_on_when_the_coordinator_or_a_rank_dies() {
    let want = hold::alone("48", &["touch"; 4]);
    let machine = Machine::start(&serving(), 3, &[]);
    // Three gangs in a circle.
    let named = [("a0", 0, "1"), ("a1", 1, "1"), ("b1", 1, "2"), ("b2", 2, "2"), ("c2", 2, "3"), ("c0", 0, "3")];
    let mut ranks: Vec<(usize, &str, Running)> =
        named.into_iter().map(|(name, gpu, gang)| (gpu, name, rank(&machine, name, gpu, gang))).collect();
    let touch = |ranks: &mut Vec<(usize, &str, Running)>, want: &str| {
        ranks.iter_mut().for_each(|(_, _, rank)| rank.say("touch"));
        for (_, name, rank) in ranks {
            assert_eq!(rank.line(LIMIT), want, "{name}");
        }
    };
    touch(&mut ranks, &want[0]);
    machine.kill_served(&[0, 1, 2]);
    touch(&mut ranks, &want[1]);
    machine.baton(&["upgrade", "--timeout", "60s"]).succeeded();
    touch(&mut ranks, &want[2]);
    // The rest of its gang goes on.
    let dies = ranks.iter().position(|(_, name, _)| *name == "b2").expect("there");
    ranks.remove(dies);
    touch(&mut ranks, &want[3]);
    for (_, name, mut rank) in ranks {
        assert_eq!((rank.ask("quit", LIMIT), rank.said().as_str()), (want[4].clone(), ""), "{name}");
    }
}

/// A gang on all GPUs, three in a circle, and one program alone on each GPU; spinning ranks are preempted.
#[test]
fn gangs_of_two_and_four_beside_others_are_evicted_under_way() {
    const ROUNDS: usize = 3;
    let want = hold::alone("24", &["touch"; ROUNDS]);
    let serving = Serving::arena("32MiB").option("--host-pool", "128MiB").option("--mode", "exclusive").keeper();
    let machine = Machine::start(&serving, 4, &[]);
    let gangs = [("a", &[0, 1, 2, 3][..]), ("b", &[0, 1]), ("c", &[1, 2]), ("d", &[2, 0])];
    let ranks = gangs.iter().zip(1..).flat_map(|((name, gpus), gang)| {
        gpus.iter().map(move |gpu| (format!("{name}{gpu}"), *gpu, Some(gang.to_string())))
    });
    let all: Vec<_> = ranks.chain((0..4).map(|gpu| (format!("alone{gpu}"), gpu, None))).collect();
    let mut programs: Vec<Running> = all
        .iter()
        .map(|(name, gpu, gang)| {
            let mut command = machine.joining(name, &program("hold"), &["--megabytes", "24"]);
            command.env("CUDA_VISIBLE_DEVICES", gpu.to_string());
            command.envs(gang.iter().map(|gang| ("BATON_GANG", gang)));
            hold::ready(&mut command, None)
        })
        .collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetAtEnd(&is_over);
        scope.spawn(|| {
            for (name, ..) in all.iter().step_by(3).cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                machine.baton(&["evict", "--no-wait", name]).succeeded();
            }
        });
        for round in &want[..ROUNDS] {
            programs.iter_mut().for_each(|program| program.say("touch"));
            for ((name, ..), program) in all.iter().zip(&mut programs) {
                assert_eq!(&program.line(LIMIT), round, "{name}");
            }
            // Half of the gangs spin, and the others have their turns beside that.
            let spinning = &mut programs[4..8];
            let busy: Vec<_> = spinning.iter_mut().map(|one| Busy::start(one, &machine.prepared.place)).collect();
            for idle in [0, 1, 2, 3, 8, 9] {
                assert!(programs[idle].ask("spin 1", LIMIT).starts_with("spun"), "{}", all[idle].0);
            }
            busy.into_iter().zip(&mut programs[4..8]).for_each(|(busy, one)| busy.end(one));
        }
    });
    for ((name, ..), mut program) in all.iter().zip(programs) {
        assert_eq!((program.ask("quit", LIMIT), program.said().as_str()), (want[ROUNDS].clone(), ""), "{name}");
    }
}

#[test]
fn run_names_a_gang() {
    let machine = Machine::start(&serving(), 2, &[]);
    let run = |options: &[&str], gpu: &str| {
        let mut command = machine.prepared.place.baton(&["run", "--driver", "sim"]);
        command.args(options).arg("--").arg(program("hold")).env("CUDA_VISIBLE_DEVICES", gpu);
        hold::ready(&mut command, None)
    };
    let mut all = [run(&["--gang=train"], "0"), run(&["--gang=train"], "1"), run(&["--gang"], "0"), run(&[], "1")];
    let log = machine.serve.err();
    let gangs: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_once(" is of gang ")?.1.split_once(':'))
        .map(|(gang, _)| gang)
        .collect();
    assert!(gangs.len() == 3 && gangs[0] == gangs[1] && gangs[1] != gangs[2], "{gangs:?} {log}");
    all.iter_mut().for_each(|one| drop(one.ask("quit", LIMIT)));
}
