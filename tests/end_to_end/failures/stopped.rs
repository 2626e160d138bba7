//! Programs that are stopped at any moment cost only themselves: others do not wait for them, and they find their memory as it was.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, Serving, SetAtEnd, alone, program, tenant};
use baton_tests::faults::Strike;
use baton_tests::held::{self, Held};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, goes_on, signal, threads};
use baton_tests::strikes::with_board;

const CLASSES: [&str; 3] = ["latency", "normal", "batch"];

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// The programs that are stopped, and their arguments.
const VICTIMS: [&[&str]; 6] = [
    &["fill_and_check", "--megabytes", "44", "--rounds", "150", "--check", "10"],
    &["fill_and_check", "--megabytes", "30", "--rounds", "200", "--check", "3"],
    &["hidden", "--megabytes", "40", "--rounds", "20", "--gap-ms", "1"],
    &["streams", "--megabytes", "40", "--rounds", "20", "--gap-ms", "1"],
    &["capture", "--megabytes", "40", "--rounds", "30"],
    &["interrupted", "--megabytes", "40", "--rounds", "1500", "--every-us", "700"],
];

/// All of a process is stopped.
fn stopped_for(pid: i32, pause: Duration) {
    signal(pid, libc::SIGSTOP);
    std::thread::sleep(pause);
    goes_on(pid);
}

/// Only its control thread is held. None if it has none any more.
fn mute_for(pid: i32, pause: Duration) -> Option<()> {
    let held = Held::at_once(pid, held::CONTROL)?;
    std::thread::sleep(pause);
    drop(held);
    Some(())
}

/// One program that is stopped or mute again and again while another touches its memory: says how long that had to wait for one touch at most.
fn played(seed: u64, want: &[String]) -> Duration {
    let mut numbers = Numbers(seed);
    let coordinator = Serving::arena("64MiB").option("--host-pool", "256MiB").start();
    let class = numbers.one_of(&CLASSES.map(|class| class));
    let mut other = hold::joined(&coordinator, "other", class, "40", None);
    let [name, arguments @ ..] = VICTIMS[(seed % VICTIMS.len() as u64) as usize] else {
        unreachable!("each has a name")
    };
    let others = class;
    let class = numbers.one_of(&CLASSES.map(|class| class));
    println!("seed {seed}: {name}, {class}, is stopped; {others} waits");
    let victim = coordinator.run("victim", class, &program(name), arguments);
    let pid = victim.pid();
    let end = AtomicBool::new(false);
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        let end = &end;
        let _end = SetAtEnd(end);
        scope.spawn(move || {
            while !end.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(numbers.below(60_000)));
                let pause = Duration::from_millis([0, 1, 10, 300, 1000][numbers.below(5) as usize]);
                if numbers.below(2) == 0 {
                    stopped_for(pid, pause);
                } else if mute_for(pid, pause).is_none() {
                    return;
                }
            }
        });
        for want in want {
            let start = Instant::now();
            let got = other.ask("touch", LIMIT);
            let took = start.elapsed();
            if took > Duration::from_millis(700) && std::env::var_os("STOPPED_LOUD").is_some() {
                eprintln!("{took:?}{}", coordinator.log());
            }
            longest = longest.max(took);
            assert_eq!(got, *want, "seed {seed}");
        }
    });
    assert_eq!(victim.result(LIMIT), alone(name, arguments), "seed {seed}");
    assert!(other.ask("quit", LIMIT).ends_with(" ok"), "seed {seed}");
    coordinator.until_empty();
    longest
}

#[test]
fn another_program_goes_on_beside_one_that_was_stopped_while_it_had_the_gpu() {
    let want = hold::alone("50", &["touch", "touch"]);
    let untouched = hold::alone("50", &[]);
    for class in CLASSES.repeat(2) {
        let coordinator = Serving::arena("64MiB").option("--host-pool", "256MiB").start();
        let mut other = hold::joined(&coordinator, "other", "normal", "50", None);
        let mut stopped = hold::joined(&coordinator, "stopped", class, "50", None);
        let busy = Busy::start(&mut stopped, &coordinator.place);
        coordinator.until_tenant_is("stopped", "running");
        stopped.signal(libc::SIGSTOP);
        let start = Instant::now();
        assert_eq!(other.ask("touch", LIMIT), want[0]);
        println!("{class}: {:?}", start.elapsed());
        assert_eq!(tenant(&coordinator.status(), "stopped")["state"], "unresponsive");
        assert_eq!(other.ask("touch", LIMIT), want[1]);
        goes_on(stopped.pid());
        busy.end(&mut stopped);
        assert_eq!(stopped.ask("quit", LIMIT), untouched[0]);
        assert_eq!(other.ask("quit", LIMIT), want[2]);
        coordinator.until_empty();
    }
}

#[test]
fn one_that_waits_in_the_driver_has_its_turns_also_if_it_was_given_up_before() {
    let want = hold::alone("40", &["touch", "touch"]);
    let coordinator = Serving::arena("64MiB").start();
    let mut slow = hold::joined(&coordinator, "slow", "normal", "40", None);
    let mut quick = hold::joined(&coordinator, "quick", "normal", "40", None);
    assert_eq!(slow.ask("leave", LIMIT), want[0].replace("touched", "left"));
    for answer in &want[..2] {
        assert_eq!(slow.ask("linger", LIMIT), "lingers");
        let probe = if *answer == want[0] { None } else { Held::in_a_call(slow.pid(), held::PROBE) };
        // As urgent as it: it has the next turn though it has not yet unmapped anything, and does not answer in that either.
        assert_eq!(quick.ask("touch", LIMIT), *answer);
        assert_eq!(slow.ask("go", LIMIT), "gone");
        if let Some(probe) = probe {
            assert!(probe.is_inside(), "{}", coordinator.log());
            coordinator.until("its work goes on", |status| tenant(status, "slow")["evicted_bytes"] == 0);
        }
    }
    assert_eq!(slow.ask("touch", LIMIT), want[1]);
    assert_eq!(slow.ask("quit", LIMIT), want[2]);
    assert_eq!(quick.ask("quit", LIMIT), want[2]);
    coordinator.until_empty();
}

#[test]
fn one_that_waits_in_the_driver_and_was_given_up_has_its_turns_also_if_its_memory_cannot_be_taken() {
    let serving = Serving::arena("128MiB").option("--isolation", "strict");
    let coordinator = serving.option("--quantum", "1h").option("--max-wait", "1h").start();
    let mut slow = hold::joined(&coordinator, "slow", "normal", "40", None);
    let mut quick = hold::joined(&coordinator, "quick", "normal", "40", None);
    // From then on it has a thread that can be held.
    assert_eq!(slow.ask("linger", LIMIT), "lingers");
    coordinator.asked("suspend", "slow").succeeded();
    coordinator.until_tenant_is("slow", "suspended");
    coordinator.asked("resume", "slow").succeeded();
    assert_eq!(slow.ask("go", LIMIT), "gone");
    assert_eq!(slow.ask("linger", LIMIT), "lingers");
    coordinator.until_tenant_is("slow", "running");
    let probe = Held::in_a_call(slow.pid(), held::PROBE).expect("it lives");
    let control = Held::at_once(slow.pid(), held::CONTROL).expect("it lives");
    assert!(quick.ask("touch", LIMIT).starts_with("touched "));
    assert_eq!(tenant(&coordinator.status(), "slow")["state"], "unresponsive");
    drop(control);
    coordinator.until("it is inside", |_| probe.is_inside());
    coordinator.until_tenant_is("slow", "running");
    drop(probe);
    assert_eq!(slow.ask("go", LIMIT), "gone");
    for program in [&mut slow, &mut quick] {
        assert!(program.ask("touch", LIMIT).starts_with("touched "));
        assert!(program.ask("quit", LIMIT).ends_with(" ok"));
    }
    coordinator.until_empty();
}

/// Each request to evict it looks at it, which must not put off the look that would find it alive.
#[test]
fn one_that_asked_while_it_was_silent_goes_on_also_if_it_is_to_be_evicted_all_the_time() {
    let want = hold::alone("40", &["touch", "touch"]);
    let coordinator = Serving::arena("64MiB").start();
    let mut silent = hold::joined(&coordinator, "silent", "normal", "40", None);
    let mut quick = hold::joined(&coordinator, "quick", "normal", "40", None);
    assert_eq!(silent.ask("touch", LIMIT), want[0]);
    assert_eq!(silent.ask("linger", LIMIT), "lingers");
    let control = Held::at_once(silent.pid(), held::CONTROL).expect("it lives");
    assert_eq!(quick.ask("touch", LIMIT), want[0]);
    assert_ne!(tenant(&coordinator.status(), "silent")["evicted_bytes"], 0, "its memory was not taken");
    // Its gate is open, so the call is inside, and keeps the gate from closing until it has its answer.
    silent.say("alloc 4");
    let first = format!("{} ", silent.pid());
    let waits = format!("at {} ", libc::SYS_poll);
    let asks = |threads: String| threads.lines().any(|line| line.starts_with(&first) && line.contains(&waits));
    coordinator.until("it asks", |_| asks(threads(silent.pid())));
    coordinator.evicting(&["silent".to_owned()], Duration::from_millis(3), || {
        drop(control);
        assert_eq!(silent.line(LIMIT), "allocated");
        assert_eq!(silent.ask("go", LIMIT), "gone");
    });
    for (line, answer) in [("free", "freed"), ("touch", &want[1]), ("quit", &want[2])] {
        assert_eq!(silent.ask(line, LIMIT), answer);
    }
    assert_eq!(quick.ask("touch", LIMIT), want[1]);
    assert_eq!(quick.ask("quit", LIMIT), want[2]);
    coordinator.until_empty();
}

#[test]
#[ignore = "long"]
fn programs_are_stopped_at_random() {
    let count: u64 = std::env::var("STOPPED_COUNT").map_or(20, |count| count.parse().expect("a number"));
    let first: u64 = std::env::var("STOPPED_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut want = hold::alone("40", &["touch"; 60]);
    want.pop();
    for seed in first..first + count {
        let longest = played(seed, &want);
        println!("seed {seed}: {longest:?}");
    }
}

/// The frame is in two programs' memory then, and others are to have it.
#[test]
fn memory_that_a_silent_program_has_mapped_too_can_be_exported() {
    let coordinator = Serving::arena("64MiB").option("--host-pool", "256MiB").start();
    let mut silent = hold::joined(&coordinator, "silent", "normal", "48", None);
    let mut quick = hold::joined(&coordinator, "quick", "normal", "60", None);
    for _ in 0..2 {
        assert!(silent.ask("touch", LIMIT).starts_with("touched "));
        assert_eq!(silent.ask("linger", LIMIT), "lingers");
        let control = Held::at_once(silent.pid(), held::CONTROL).expect("it lives");
        assert!(quick.ask("touch", LIMIT).starts_with("touched "));
        assert_eq!(quick.ask("export 2", LIMIT), "exported");
        drop(control);
        assert_eq!(silent.ask("go", LIMIT), "gone");
    }
    for program in [&mut silent, &mut quick] {
        assert!(program.ask("quit", LIMIT).ends_with(" ok"));
        assert_eq!(program.said(), "");
    }
}

#[test]
fn memory_that_is_freed_while_others_have_it_is_not_brought_back() {
    let (serving, board) = with_board(Serving::arena("64MiB").option("--host-pool", "256MiB"));
    let coordinator = serving.start();
    let mut silent = hold::joined(&coordinator, "silent", "normal", "48", None);
    let mut quick = hold::joined(&coordinator, "quick", "normal", "60", None);
    for _ in 0..2 {
        assert_eq!(silent.ask("alloc 4", LIMIT), "allocated");
        assert!(silent.ask("touch", LIMIT).starts_with("touched "));
        let wait = Duration::from_millis(600);
        board.prepare(&Strike { wait, ..Strike::at("program has unmapped") });
        assert_eq!(silent.ask("free", LIMIT), "freed");
        assert!(quick.ask("touch", LIMIT).starts_with("touched "));
        assert!(board.struck().is_some(), "it freed nothing");
    }
    for program in [&mut silent, &mut quick] {
        assert!(program.ask("quit", LIMIT).ends_with(" ok"));
        assert_eq!(program.said(), "");
    }
}

/// With strict isolation the memory of stopped programs stays their own. Another one waits for it, and gets it when they go on.
#[track_caller]
fn waits_for(coordinator: &Coordinator, stopped: &mut [Running], other: &mut Running, request: &str) {
    std::thread::scope(|scope| {
        let allocation = scope.spawn(|| other.ask(request, LIMIT));
        // It waits, or there is none for it.
        let is_told = |log: &str| ["B0510", "B0515", "B0524"].iter().any(|id| log.contains(id));
        coordinator.until("it is told", |_| is_told(&coordinator.log()));
        assert!(coordinator.log().contains("[B0515]"), "{}", coordinator.log());
        stopped.iter().for_each(|one| goes_on(one.pid()));
        assert_eq!(allocation.join().expect("an answer"), "allocated");
    });
    for program in stopped.iter_mut().chain([other]) {
        assert!(program.ask("touch", LIMIT).starts_with("touched "));
        assert!(program.ask("quit", LIMIT).ends_with(" ok"));
        assert_eq!(program.said(), "");
    }
    coordinator.until_empty();
}

/// All of its memory is leaving by then, so none is left that it could be asked for.
#[test]
fn an_allocation_waits_for_memory_that_a_stopped_program_was_about_to_give_up() {
    let (serving, board) = with_board(Serving::arena("64MiB").option("--isolation", "strict"));
    let coordinator = serving.start();
    let mut stopped = hold::joined(&coordinator, "stopped", "normal", "40", None);
    let mut other = hold::joined(&coordinator, "other", "normal", "4", None);
    assert!(stopped.ask("touch", LIMIT).starts_with("touched "));
    board.prepare(&Strike { signal: libc::SIGSTOP, ..Strike::at("program hears Unmap") });
    waits_for(&coordinator, &mut [stopped], &mut other, "alloc 60");
}

#[test]
fn memory_beside_the_arena_is_waited_for_if_stopped_programs_have_it() {
    let serving = Serving::arena("512MiB").option("--host-pool", "512MiB").option("--isolation", "strict");
    let coordinator = serving.start();
    let mut stopped = ["one", "two"].map(|name| hold::joined(&coordinator, name, "normal", "220", None));
    let mut other = hold::joined(&coordinator, "other", "normal", "4", None);
    for program in stopped.iter_mut().chain([&mut other]) {
        assert!(program.ask("touch", LIMIT).starts_with("touched "));
    }
    stopped.iter().for_each(|one| one.signal(libc::SIGSTOP));
    waits_for(&coordinator, &mut stopped, &mut other, "managed 64");
}
