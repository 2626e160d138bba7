//! The ranks of a job that wait for each other on their GPUs, and reach each other's memory, have their turns together.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton_faults::Strike;
use baton_tests::coordinator::{Serving, SetAtEnd, program};
use baton_tests::hold;
use baton_tests::machine::Machine;
use baton_tests::running::Running;
use baton_tests::strikes::with_board;
use baton_tests::{Driver, LIMIT};
use serde_json::Value;
use tempfile::TempDir;

/// In each GPU's arena fits one of two programs, and one has it at a time.
fn serving() -> Serving {
    Serving::arena("64MiB").option("--host-pool", "192MiB").option("--mode", "exclusive").keeper()
}

/// The means by which ranks share memory, as the program knows them.
#[derive(Clone, Copy)]
enum Means {
    Handles,
    Host,
    Descriptors,
}

fn options(rank: usize, ranks: usize, means: Means, folder: &Path) -> Vec<String> {
    let of = |word: &str| word.to_owned();
    let (rank, ranks, means) = (rank.to_string(), ranks.to_string(), (means as u8).to_string());
    [
        of("--rank"),
        rank,
        of("--ranks"),
        ranks,
        of("--megabytes"),
        of("40"),
        of("--means"),
        means,
        of("--folder"),
        folder.display().to_string(),
    ]
    .into()
}

/// The ranks of a job, ready; `command` makes a command that runs this program with a name.
#[track_caller]
fn job(
    ranks: usize,
    means: Means,
    command: impl Fn(&str, &[String]) -> std::process::Command,
) -> (TempDir, Vec<Running>) {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |rank: usize| {
        Running::start(&mut command(&format!("rank-{rank}"), &options(rank, ranks, means, folder.path())), true, None)
    };
    // Each waits for the handles of the others.
    let mut all: Vec<Running> = (0..ranks).map(start).collect();
    all.iter_mut().for_each(|one| assert!(one.line(LIMIT).starts_with("ready "), "{}", one.said()));
    (folder, all)
}

/// All ranks obey, and answer the same.
#[track_caller]
fn ask(ranks: &mut [Running], line: &str) -> String {
    ranks.iter_mut().for_each(|rank| rank.say(line));
    let answers: Vec<String> = ranks.iter_mut().map(|rank| rank.line(LIMIT)).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    answers[0].clone()
}

/// Their answers when they have the GPUs to themselves; the last is their result.
fn alone(ranks: usize, rounds: usize) -> Vec<String> {
    let place = tempfile::tempdir().expect("a folder");
    let (_folder, mut all) = job(ranks, Means::Handles, |_, options| {
        let mut command = Driver::simulated().bare(program("collective"));
        command.args(options).env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_GPUS", ranks.to_string());
        command.env("SIMCUDA_GPU_FILE", place.path().join("gpu"));
        command
    });
    let mut answers: Vec<String> = (0..rounds).map(|_| ask(&mut all, "reduce")).collect();
    answers.push(ask(&mut all, "quit"));
    answers
}

#[track_caller]
fn job_on(machine: &Machine, ranks: usize) -> (TempDir, Vec<Running>) {
    job_by(machine, ranks, Means::Handles)
}

#[track_caller]
fn job_by(machine: &Machine, ranks: usize, means: Means) -> (TempDir, Vec<Running>) {
    job(ranks, means, |name, options| {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        machine.joining(name, &program("collective"), &options)
    })
}

/// The ranks have no name in common: they reach each other's memory.
#[track_caller]
fn run_together_beside_others(means: Means) {
    const ROUNDS: usize = 4;
    let want = alone(2, ROUNDS);
    let want_alone = hold::alone("48", &["touch"; ROUNDS]);
    // They would have the GPUs one by one: their turns end when they have nothing more to do.
    let machine = Machine::start(&serving().option("--quantum", "1h"), 2, &[]);
    let mut others: Vec<Running> = [0, 1].map(|gpu| machine.hold(&format!("alone{gpu}"), gpu, "48")).into();
    let (_folder, mut ranks) = job_by(&machine, 2, means);
    for round in 0..ROUNDS {
        others.iter_mut().for_each(|one| one.say("touch"));
        assert_eq!(ask(&mut ranks, "reduce"), want[round]);
        for one in &mut others {
            assert_eq!(one.line(LIMIT), want_alone[round]);
        }
    }
    assert_eq!(ask(&mut ranks, "quit"), want[ROUNDS]);
    for (one, said) in others.iter_mut().map(|one| one.ask("quit", LIMIT)).zip([&want_alone[ROUNDS]; 2]) {
        assert_eq!(&one, said);
    }
}

#[test]
fn ranks_that_open_each_others_memory_run_together_beside_others() {
    run_together_beside_others(Means::Handles);
}

#[test]
fn ranks_that_pin_the_same_host_memory_run_together_beside_others() {
    run_together_beside_others(Means::Host);
}

#[test]
fn ranks_that_import_each_others_descriptors_run_together_beside_others() {
    run_together_beside_others(Means::Descriptors);
}

/// Their kernels spin for each other when they are taken off their GPUs.
#[test]
fn they_are_evicted_inside_a_collective_and_have_new_coordinators() {
    const ROUNDS: usize = 4;
    let want = alone(3, ROUNDS);
    let want_alone = hold::alone("48", &["touch"; ROUNDS]);
    let machine = Machine::start(&serving(), 3, &[]);
    let mut others: Vec<Running> = [0, 1, 2].map(|gpu| machine.hold(&format!("alone{gpu}"), gpu, "48")).into();
    let (_folder, mut ranks) = job_on(&machine, 3);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetAtEnd(&is_over);
        scope.spawn(|| {
            for name in ["rank-1", "alone2", "rank-0", "alone0"].iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                machine.baton(&["evict", "--no-wait", name]);
            }
        });
        for round in 0..ROUNDS {
            // One of them begins later: the others' kernels spin meanwhile, and other programs have their turns.
            let (last, first) = ranks.split_last_mut().expect("several");
            first.iter_mut().for_each(|rank| assert_eq!(rank.ask("begin", LIMIT), "begun"));
            for one in &mut others {
                assert_eq!(one.ask("touch", LIMIT), want_alone[round]);
            }
            if round == 1 {
                machine.kill_served(&[0, 1, 2]);
            }
            assert_eq!(last.ask("begin", LIMIT), "begun");
            assert_eq!(ask(&mut ranks, "end"), want[round]);
        }
    });
    assert_eq!(ask(&mut ranks, "quit"), want[ROUNDS]);
    others.iter_mut().for_each(|one| assert_eq!(one.ask("quit", LIMIT), want_alone[ROUNDS]));
}

/// A GPU's server may take over later than the others. The ranks' memory there is away until then, and their work, which other servers have
/// paused too, reads it.
#[test]
fn they_go_on_when_the_last_gpu_is_taken_over() {
    let want = alone(2, 1);
    let want_alone = hold::alone("60", &["touch"]);
    let (serving, board) = with_board(serving());
    let machine = Machine::start(&serving, 2, &[]);
    // All of the ranks' memory makes way.
    let mut others: Vec<Running> = [0, 1].map(|gpu| machine.hold(&format!("alone{gpu}"), gpu, "60")).into();
    let (_folder, mut ranks) = job_on(&machine, 2);
    assert_eq!(ranks[0].ask("begin", LIMIT), "begun");
    others.iter_mut().for_each(|one| assert_eq!(one.ask("touch", LIMIT), want_alone[0]));
    board.prepare(&Strike { wait: Duration::from_secs(2), ..Strike::at("coordinator hears of old Stands") });
    machine.kill_served(&[0, 1]);
    assert!(board.struck().is_some());
    assert_eq!(ranks[1].ask("begin", LIMIT), "begun");
    assert_eq!(ask(&mut ranks, "end"), want[0]);
    assert_eq!(ask(&mut ranks, "quit"), want[1]);
    others.iter_mut().for_each(|one| assert_eq!(one.ask("quit", LIMIT), want_alone[1]));
}

/// Their work has to end by itself, and waits for the other rank's: neither may wait for the other one to come back.
#[test]
fn they_have_new_coordinators_that_cannot_preempt() {
    let want = alone(2, 1);
    let machine = Machine::start(&serving().flag("--no-preempt"), 2, &[]);
    let (_folder, mut ranks) = job_on(&machine, 2);
    assert_eq!(ranks[0].ask("begin", LIMIT), "begun");
    machine.kill_served(&[0, 1]);
    assert_eq!(ranks[1].ask("begin", LIMIT), "begun");
    assert_eq!(ask(&mut ranks, "end"), want[0]);
    assert_eq!(ask(&mut ranks, "quit"), want[1]);
}

/// A rank that was stopped goes on where it was. When one has died, the kernel of the other spins for ever, and its program can be ended.
#[test]
fn ranks_may_be_stopped_at_any_stage_and_one_that_dies_holds_up_no_other_program() {
    const STAGES: usize = 3;
    let want = alone(2, STAGES);
    let want_alone = hold::alone("48", &["touch"; STAGES + 1]);
    let machine = Machine::start(&serving(), 2, &[]);
    let mut others: Vec<Running> = [0, 1].map(|gpu| machine.hold(&format!("alone{gpu}"), gpu, "48")).into();
    let (_folder, mut ranks) = job_on(&machine, 2);
    for stage in 0..STAGES {
        let stopped = |ranks: &[Running], at: usize| {
            if at == stage {
                ranks[1].signal(libc::SIGSTOP);
                std::thread::sleep(Duration::from_millis(100));
                ranks[1].signal(libc::SIGCONT);
            }
        };
        others.iter_mut().for_each(|one| one.say("touch"));
        stopped(&ranks, 0);
        assert_eq!(ranks[0].ask("begin", LIMIT), "begun");
        stopped(&ranks, 1);
        assert_eq!(ranks[1].ask("begin", LIMIT), "begun");
        stopped(&ranks, 2);
        assert_eq!(ask(&mut ranks, "end"), want[stage]);
        others.iter_mut().for_each(|one| assert_eq!(one.line(LIMIT), want_alone[stage]));
    }
    assert_eq!(ranks[0].ask("begin", LIMIT), "begun");
    ranks[1].signal(libc::SIGKILL);
    for gpu in 0..2 {
        let has_it = |status: &Value| {
            status["tenants"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "rank-1"))
        };
        machine.until(gpu, "gone", |status| !status.is_null() && !has_it(status));
    }
    others.iter_mut().for_each(|one| assert_eq!(one.ask("touch", LIMIT), want_alone[STAGES]));
    ranks[0].signal(libc::SIGKILL);
    for (gpu, other) in others.iter_mut().enumerate() {
        machine.until(gpu, "alone", |status| status["tenants"].as_array().is_some_and(|all| all.len() == 1));
        assert_eq!(other.ask("quit", LIMIT), want_alone[STAGES + 1]);
    }
}
