//! A program may be stopped, or only its control thread held, at any point of its work: another one goes on that needs its memory, and
//! afterwards it finds that as it was.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use baton_tests::coordinator::{Coordinator, Serving, SetAtEnd, tenant};
use baton_tests::held::{self, Held};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, signal, threads};

/// One that takes longer than this for one answer hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// For both: only one of them fits into the arena.
const MEGABYTES: &str = "40";
/// So slow that new contents for all of it take half a second.
const SLOW: &str = "0.2";
/// How often the other one is asked to write all its memory anew, at most.
const MOST_TOUCHES: usize = 80;
/// How often a victim does, at most.
const MOST_TRIES: usize = 8;

const CLASSES: [&str; 3] = ["latency", "normal", "batch"];
const DELAYS: [u64; 4] = [0, 10, 300, 10_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// All of it does nothing.
    Stopped,
    /// Its own threads run, and it hears nothing that it is told.
    Mute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Running,
    Arriving,
    Leaving,
    Idle,
    Allocating,
    Freeing,
    Synchronizing,
    InAUnit,
}

const HOWS: [How; 2] = [How::Stopped, How::Mute];
const WHENS: [When; 8] = [
    When::Running,
    When::Arriving,
    When::Leaving,
    When::Idle,
    When::Allocating,
    When::Freeing,
    When::Synchronizing,
    When::InAUnit,
];

/// The answers to so many touches of a program that is alone.
fn answers() -> &'static [String] {
    static ANSWERS: OnceLock<Vec<String>> = OnceLock::new();
    ANSWERS.get_or_init(|| hold::alone(MEGABYTES, &["touch"; MOST_TOUCHES]))
}

/// Its last line after so many of them.
fn result_after(touches: usize) -> String {
    static RESULTS: OnceLock<Vec<String>> = OnceLock::new();
    let all = || (0..=MOST_TRIES).filter_map(|count| hold::alone(MEGABYTES, &vec!["touch"; count]).pop()).collect();
    RESULTS.get_or_init(all)[touches].clone()
}

/// The program that is stopped.
struct Victim {
    program: Running,
    touches: usize,
    /// The question that it has not answered yet.
    pending: Option<String>,
    busy: Option<Busy>,
    partner: Option<Running>,
}

impl Victim {
    fn answer_to_touch(&mut self) -> String {
        self.touches += 1;
        answers()[self.touches - 1].clone()
    }

    /// Queues work for half a second.
    fn leave(&mut self) {
        let answer = self.answer_to_touch();
        assert_eq!(self.program.ask("leave", LIMIT), answer.replace("touched", "left"));
    }

    /// Says a line, and waits until its thread waits for that.
    fn begin(&mut self, line: &str, answer: &str) {
        self.program.say(line);
        let is_waiting = |program: &Running| {
            let id = format!("{} ", program.pid());
            let all = threads(program.pid());
            all.lines().any(|thread| thread.starts_with(&id) && thread.contains(" S (sleeping) "))
        };
        let end = Instant::now() + LIMIT;
        while !is_waiting(&self.program) && !self.program.has_answered() {
            assert!(Instant::now() < end, "{line}");
            std::thread::yield_now();
        }
        self.pending = Some(answer.to_owned());
    }

    /// Says this line again and again until it has not answered when the coordinator sees it `so`.
    fn until_seen(
        &mut self,
        coordinator: &Coordinator,
        mut line: impl FnMut(&mut Self) -> (&'static str, String),
        so: impl Fn(&serde_json::Value) -> bool,
    ) {
        for _ in 0..MOST_TRIES {
            let (line, answer) = line(self);
            self.program.say(line);
            let program = &mut self.program;
            let mut has_answered = false;
            coordinator.until("it is so, or has answered", |status| {
                has_answered = program.has_answered();
                has_answered || so(tenant(status, "victim"))
            });
            if !has_answered {
                self.pending = Some(answer);
                return;
            }
            assert_eq!(self.program.line(LIMIT), answer);
        }
        // It is too quick to be met there on this machine, and idle.
    }
}

/// Brings a victim to where it is to be met. `touch` has the other one write its memory anew.
fn bring(coordinator: &Coordinator, class: &str, when: When, other: &mut Other) -> Victim {
    let is_slow = matches!(when, When::Leaving | When::Freeing | When::Synchronizing);
    let program = hold::joined(coordinator, "victim", class, MEGABYTES, is_slow.then_some(SLOW));
    let mut victim = Victim { program, touches: 0, pending: None, busy: None, partner: None };
    match when {
        When::Running => {}
        When::InAUnit => {
            let file = coordinator.place.folder().join("shared").display().to_string();
            let mut partner = hold::joined(coordinator, "partner", class, "4", None);
            assert_eq!(victim.program.ask("alloc 2", LIMIT), "allocated");
            assert_eq!(victim.program.ask(&format!("share {file}"), LIMIT), "shared");
            assert_eq!(partner.ask(&format!("attach {file}"), LIMIT), "attached");
            victim.partner = Some(partner);
        }
        // It has all its memory, and nothing to do.
        When::Idle => {
            let answer = victim.answer_to_touch();
            assert_eq!(victim.program.ask("touch", LIMIT), answer);
        }
        When::Arriving => {
            let line = |victim: &mut Victim| {
                other.touch();
                ("touch", victim.answer_to_touch())
            };
            victim.until_seen(coordinator, line, |victim| victim["arriving"] == true);
        }
        When::Leaving => {
            victim.leave();
            other.program.say("touch");
            other.is_asked = true;
            let program = &mut other.program;
            coordinator.until("it leaves", |status| {
                let it = tenant(status, "victim");
                it["state"] == "preempted" || it["evicted_bytes"].as_u64() > Some(0) || program.has_answered()
            });
        }
        When::Allocating => {
            let line = |victim: &mut Victim| {
                assert_eq!(victim.program.ask("free", LIMIT), "freed");
                other.touch();
                ("alloc 16", "allocated".to_owned())
            };
            victim.until_seen(coordinator, line, |victim| victim["state"] == "waiting" || victim["arriving"] == true);
        }
        When::Freeing => {
            assert_eq!(victim.program.ask("alloc 8", LIMIT), "allocated");
            victim.leave();
            victim.begin("free", "freed");
        }
        When::Synchronizing => {
            victim.leave();
            // Waits for the device, and nothing else.
            victim.begin("spin 0", "spun");
        }
    }
    if matches!(when, When::Running | When::InAUnit) {
        victim.busy = Some(Busy::start(&mut victim.program, &coordinator.place));
        coordinator.until_tenant_is("victim", "running");
    }
    victim
}

/// The one that needs its memory.
struct Other {
    program: Running,
    touches: usize,
    is_asked: bool,
}

impl Other {
    fn touch(&mut self) {
        if !std::mem::take(&mut self.is_asked) {
            self.program.say("touch");
        }
        assert_eq!(self.program.line(LIMIT), answers()[self.touches]);
        self.touches += 1;
    }
}

/// One cell: how long the other one waited for one touch at most, while the victim was stopped for so long; or until the other one has
/// had the GPU. None if that cannot be done here.
fn cell(how: How, when: When, class: &str, delay: Option<Duration>) -> Option<Duration> {
    // Some 100 ms for all memory of one.
    let serving = Serving::arena("64MiB").option("--host-pool", "256MiB");
    let coordinator = serving.setting("SIMCUDA_H2D_GBPS", "0.4").setting("SIMCUDA_D2H_GBPS", "0.4").start();
    // As urgent as any victim: it waits for no other's turn.
    let program = hold::joined(&coordinator, "other", "latency", MEGABYTES, None);
    let mut other = Other { program, touches: 0, is_asked: false };
    other.touch();
    let mut victim = bring(&coordinator, class, when, &mut other);
    let pid = victim.program.pid();
    let held = match how {
        How::Stopped => {
            signal(pid, libc::SIGSTOP);
            None
        }
        How::Mute => match Held::at_once(pid, held::CONTROL) {
            Some(held) => Some(held),
            None => {
                assert!(victim.program.ended().is_none(), "{}", victim.program.err());
                return None;
            }
        },
    };
    let (is_free, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (busy, mut longest) = (victim.busy.take(), Duration::ZERO);
    std::thread::scope(|scope| {
        let (is_free, is_over, busy) = (&is_free, &is_over, &busy);
        let _over = SetAtEnd(is_over);
        // The program at the other end hears of it when this one is gone.
        let (until_enough, enough) = channel::<()>();
        let mut until_enough = Some(until_enough);
        scope.spawn(move || {
            match delay {
                Some(delay) => std::thread::sleep(delay),
                None => drop(enough.recv()),
            }
            // From here on, its work belongs to its turn.
            if let Some(busy) = busy {
                busy.is_enough();
            }
            drop(held);
            is_free.store(true, Ordering::Relaxed);
            // The simulated driver lets one go on for a moment, and stops it again.
            while how == How::Stopped && !is_over.load(Ordering::Relaxed) {
                signal(pid, libc::SIGCONT);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let pause = delay.map_or(Duration::ZERO, |delay| delay / 50).max(Duration::from_millis(1));
        while other.touches < MOST_TOUCHES {
            let was_free = is_free.load(Ordering::Relaxed);
            let start = Instant::now();
            other.touch();
            longest = longest.max(start.elapsed());
            if was_free {
                break;
            }
            drop(until_enough.take());
            std::thread::sleep(pause);
        }
        while !is_free.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if busy.is_some() {
            assert_eq!(victim.program.line(LIMIT), "spun");
        }
        if let Some(answer) = victim.pending.take() {
            assert_eq!(victim.program.line(LIMIT), answer);
        }
        assert_eq!(victim.program.ask("quit", LIMIT), result_after(victim.touches));
    });
    if let Some(mut partner) = victim.partner.take() {
        assert!(partner.ask("quit", LIMIT).ends_with(" ok"));
    }
    assert!(other.program.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
    Some(longest)
}

/// All at these moments, each in one way, and held until the other one has had what it needs.
fn at(whens: &[When], how: How, classes: [&str; 2]) {
    for (at, when) in whens.iter().enumerate() {
        let class = classes[at % 2];
        match cell(how, *when, class, None) {
            Some(longest) => println!("{how:?}, {when:?}, {class}: {longest:?}"),
            None => return,
        }
    }
}

#[test]
fn one_that_is_stopped_between_its_calls_is_not_waited_for() {
    at(&WHENS[..4], How::Stopped, ["latency", "batch"]);
}

#[test]
fn one_that_is_stopped_in_a_call_is_not_waited_for() {
    at(&WHENS[4..], How::Stopped, ["normal", "latency"]);
}

#[test]
fn one_that_hears_nothing_between_its_calls_is_not_waited_for() {
    at(&WHENS[..4], How::Mute, ["batch", "normal"]);
}

#[test]
fn one_that_hears_nothing_in_a_call_is_not_waited_for() {
    at(&WHENS[4..], How::Mute, ["latency", "batch"]);
}

/// Every cell, some at once (`STOPPED_AT_ONCE`), or those whose name holds `STOPPED_ONLY`.
#[test]
#[ignore = "long"]
fn a_program_may_be_stopped_anywhere() {
    let at_once: usize = std::env::var("STOPPED_AT_ONCE").map_or(2, |count| count.parse().expect("a number"));
    let only = std::env::var("STOPPED_ONLY").unwrap_or_default();
    let all = HOWS.iter().flat_map(|how| WHENS.iter().map(move |when| (*how, *when)));
    let all = all.flat_map(|(how, when)| CLASSES.map(|class| (how, when, class)));
    let all = all.flat_map(|(how, when, class)| DELAYS.map(|delay| (how, when, class, delay)));
    let name = |(how, when, class, delay): &(How, When, &str, u64)| format!("{how:?} {when:?} {class} {delay}");
    let all: Vec<_> = all.filter(|one| name(one).contains(&only)).collect();
    let (left, found) = (Mutex::new(all.iter().copied().collect::<VecDeque<_>>()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(one) = left.lock().expect("nobody panics with it").pop_front() else { return };
                    let (how, when, class, delay) = one;
                    let got =
                        catch_unwind(AssertUnwindSafe(|| cell(how, when, class, Some(Duration::from_millis(delay)))));
                    let got = match got {
                        Ok(Some(longest)) => longest.as_millis().to_string(),
                        Ok(None) => "skipped".to_owned(),
                        Err(_) => "FAILED".to_owned(),
                    };
                    eprintln!("{}: {got}", name(&one));
                    found.lock().expect("nobody panics with it").push((one, got));
                }
            });
        }
    });
    let found = found.into_inner().expect("nobody panicked with it");
    let mut table = String::from("the other one's longest wait for one touch, ms\n\n| | ");
    for class in CLASSES {
        let _ = DELAYS.map(|delay| write!(table, "| {class}, {delay} ms "));
    }
    let _ = write!(table, "|\n|{}\n", "---|".repeat(2 + CLASSES.len() * DELAYS.len()));
    for how in HOWS {
        for when in WHENS {
            let _ = write!(table, "| {how:?} | {when:?} ");
            for class in CLASSES {
                for delay in DELAYS {
                    let one = found.iter().find(|(one, _)| *one == (how, when, class, delay));
                    let _ = write!(table, "| {} ", one.map_or("", |(_, got)| got));
                }
            }
            let _ = writeln!(table, "|");
        }
    }
    println!("{table}");
    assert!(found.iter().all(|(_, got)| got != "FAILED"), "some failed");
}
