//! Programs that do not answer and of which nothing, or not all, can be taken: others wait for them, or they are killed, as `--on-stuck`
//! says.

use std::process::Command;
use std::time::Duration;

use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::guests::{GUEST, joining, permit, serving, shared_with};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, signal};
use baton_tests::{LIMIT, around};
use serde_json::Value;

/// The memory that cannot be taken from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    /// Anything: it cannot be paused (`--no-preempt`).
    All,
    /// Memory that others can reach.
    Pinned,
    /// Nothing, but a program of its own user's only could have it.
    ItsUsers,
    /// Nothing, but its pieces are larger than those into which what others need can be cut.
    ItsSizes,
}

/// How much memory each program has: one alone fits.
fn megabytes(keeps: Keeps) -> [&'static str; 2] {
    match keeps {
        Keeps::All | Keeps::ItsUsers => ["40", "48"],
        // 24 MiB more are what others reach.
        Keeps::Pinned => ["16", "48"],
        // In pieces of 32 MiB. Of the second one's, which are of 10, every other is left.
        Keeps::ItsSizes => ["320", "480"],
    }
}

/// The owner of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Own,
    Guests,
}

/// The program's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    WaitedFor,
    Killed,
    /// It would be killed, and the coordinator may not.
    Spared,
}

fn options(keeps: Keeps, on_stuck: Option<&str>) -> Serving {
    let serving = match keeps {
        Keeps::ItsSizes => Serving::arena("512MiB").memory("1GiB").option("--host-pool", "1GiB"),
        _ => Serving::arena("64MiB"),
    };
    let serving = serving.option("--stuck-after", "200ms").option("--allow-uid", &GUEST.to_string());
    let serving = if keeps == Keeps::All { serving.flag("--no-preempt") } else { serving };
    match on_stuck {
        Some(what) => serving.option("--on-stuck", what),
        None => serving,
    }
}

/// The program that needs its memory.
#[track_caller]
fn other(coordinator: &Coordinator, keeps: Keeps) -> Running {
    if keeps != Keeps::ItsSizes {
        return hold::joined(coordinator, "other", "latency", megabytes(keeps)[1], None);
    }
    let words = ["--megabytes", megabytes(keeps)[1], "--piece", "10"];
    let mut command = coordinator.place.joining("other", &program("hold"), &words);
    command.env("BATON_CLASS", "latency");
    let mut other = hold::ready(&mut command, Some(coordinator.place.clone()));
    assert_eq!(other.ask("thin", LIMIT), "thinned");
    other
}

/// The program that stops while it has the GPU, and more memory than leaves room for the other one.
#[track_caller]
fn holder(coordinator: &Coordinator, whose: Whose, keeps: Keeps) -> (Running, Busy) {
    let (hold, piece) = (program("hold"), if keeps == Keeps::ItsSizes { "32" } else { "8" });
    let words = ["--megabytes", megabytes(keeps)[0], "--piece", piece];
    let mut command: Command = match whose {
        Whose::Own => coordinator.place.joining("stopped", &hold, &words),
        Whose::Guests => joining(coordinator.prepared(), GUEST, "stopped", &hold, &words),
    };
    let mut stopped = hold::ready(&mut command, Some(coordinator.place.clone()));
    if keeps == Keeps::Pinned {
        assert_eq!(stopped.ask("alloc 24", LIMIT), "allocated");
        assert_eq!(stopped.ask("pin", LIMIT), "pinned");
    }
    let busy = Busy::start(&mut stopped, &coordinator.place);
    // It may run before all its memory is there: the rest would not come when it is stopped, and others could have that room.
    coordinator.until("it has all its memory in its turn", |status| {
        let one = tenant(status, "stopped");
        one["state"] == "running" && one["evicted_bytes"] == 0
    });
    (stopped, busy)
}

fn waits_for_it(status: &Value) -> bool {
    tenant(status, "other")["waits_for"]["whom"].as_array().is_some_and(|whom| whom == &["stopped"])
}

#[track_caller]
fn why(coordinator: &Coordinator) -> String {
    let mut command = coordinator.place.baton(&["why", "other", "--socket"]);
    command.arg(coordinator.place.socket());
    baton_tests::run(&mut command).succeeded().out
}

/// One program is stopped while another one needs its memory.
#[track_caller]
fn stopped(coordinator: &Coordinator, whose: Whose, keeps: Keeps, becomes: Becomes) {
    // It was there before: it has memory, which is on the host by the time that it needs it.
    let mut other = other(coordinator, keeps);
    let case = format!("{whose:?}, {keeps:?}, {becomes:?}");
    let (mut holder, busy) = holder(coordinator, whose, keeps);
    let pid = holder.pid();
    holder.signal(libc::SIGSTOP);
    other.say("touch");
    let killed = || coordinator.log().contains("does not answer, and others wait for it: it is killed");
    let spared = || coordinator.log().contains("does not answer, and the coordinator may not kill it");
    if becomes == Becomes::Killed {
        holder.end(LIMIT);
        // It says so when it has done it.
        coordinator.until(&format!("{case}: it was killed"), |_| killed());
        assert!(other.line(LIMIT).starts_with("touched "), "{case}");
    } else {
        let reasons = ["held", "arena"];
        let waits = |status: &Value| {
            let waits = &tenant(status, "other")["waits_for"];
            // Ten times as long as it would be killed after, from the last moment at which that could begin.
            let is_long = waits["since_ms"].as_f64() > Some(9_000.0) || becomes == Becomes::Spared && spared();
            waits_for_it(status) && reasons.contains(&waits["reason"].as_str().unwrap_or_default()) && is_long
        };
        coordinator.until(&format!("{case}: it waits"), waits);
        let said = why(coordinator);
        assert!(said.contains("memory") && said.contains("stopped"), "{case}: {said}");
        assert!(!killed() && !other.has_answered() && holder.ended().is_none(), "{case}: {}", coordinator.log());
        assert_eq!(spared(), becomes == Becomes::Spared, "{case}: {}", coordinator.log());
        assert!(coordinator.log().contains("] stopped does not answer"), "{case}: {}", coordinator.log());
        busy.is_enough();
        if keeps == Keeps::ItsSizes {
            // No more than it has in small pieces: a rest is cut into them.
            let evicted = tenant(&coordinator.status(), "stopped")["evicted_bytes"].as_u64();
            assert!(evicted <= Some(12 << 20), "{evicted:?} bytes are taken");
        }
        // The simulated driver lets one go on for a moment, and stops it again.
        while !holder.has_answered() {
            signal(pid, libc::SIGCONT);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(holder.line(LIMIT), "spun", "{case}");
        // Memory that others can reach is there until its program gives it up.
        assert!(holder.ask("quit", LIMIT).ends_with(" ok"), "{case}");
        assert!(other.line(LIMIT).starts_with("touched "), "{case}");
    }
    assert!(other.ask("quit", LIMIT).ends_with(" ok"), "{case}");
    coordinator.until_empty();
}

#[test]
fn ones_own_program_that_nothing_can_be_taken_of_is_waited_for_and_named() {
    let coordinator = options(Keeps::All, None).start();
    stopped(&coordinator, Whose::Own, Keeps::All, Becomes::WaitedFor);
}

#[test]
fn ones_own_program_whose_memory_others_reach_is_waited_for_and_named() {
    let coordinator = options(Keeps::Pinned, None).start();
    stopped(&coordinator, Whose::Own, Keeps::Pinned, Becomes::WaitedFor);
}

#[test]
fn ones_own_program_that_is_in_the_way_is_killed_if_that_is_wanted() {
    for keeps in [Keeps::All, Keeps::Pinned, Keeps::ItsSizes] {
        let coordinator = options(keeps, Some("kill")).start();
        stopped(&coordinator, Whose::Own, keeps, Becomes::Killed);
    }
}

#[test]
fn ones_own_program_whose_pieces_are_too_large_for_others_is_waited_for_and_named() {
    let coordinator = options(Keeps::ItsSizes, None).start();
    stopped(&coordinator, Whose::Own, Keeps::ItsSizes, Becomes::WaitedFor);
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: there are several users"]
    fn ones_own_program_whose_memory_no_guest_could_have_is_waited_for_and_named() {
        let coordinator = serving(shared_with(options(Keeps::ItsUsers, None).option("--guest-arena", "100%")));
        let guest = |name| {
            let hold = program("hold");
            let mut command = joining(coordinator.prepared(), GUEST, name, &hold, &["--megabytes", "40"]);
            hold::ready(&mut command, Some(coordinator.place.clone()))
        };
        let mut guests = ["guest", "other"].map(guest);
        let (mut own, busy) = holder(&coordinator, Whose::Own, Keeps::ItsUsers);
        own.signal(libc::SIGSTOP);
        guests.iter_mut().for_each(|guest| guest.say("touch"));
        for name in ["guest", "other"] {
            let is_named = |status: &Value| {
                let waits = &tenant(status, name)["waits_for"];
                waits["reason"] == "held" && waits["whom"] == serde_json::json!(["stopped"])
            };
            coordinator.until(&format!("{name} waits for it"), is_named);
        }
        busy.is_enough();
        while !own.has_answered() {
            signal(own.pid(), libc::SIGCONT);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(own.line(LIMIT), "spun");
        for program in &mut guests {
            assert!(program.line(LIMIT).starts_with("touched "));
        }
        for program in guests.iter_mut().chain([&mut own]) {
            assert!(program.ask("quit", LIMIT).ends_with(" ok"));
        }
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guests_program_that_is_in_the_way_is_killed_unless_it_is_to_be_waited_for() {
        let cases = [
            (Keeps::All, None, Becomes::Killed),
            (Keeps::Pinned, None, Becomes::Killed),
            (Keeps::ItsUsers, None, Becomes::Killed),
            (Keeps::Pinned, Some("wait"), Becomes::WaitedFor),
            (Keeps::ItsUsers, Some("wait"), Becomes::WaitedFor),
        ];
        for (keeps, on_stuck, becomes) in cases {
            let coordinator = serving(shared_with(options(keeps, on_stuck)));
            stopped(&coordinator, Whose::Guests, keeps, becomes);
        }
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guests_program_that_the_coordinator_may_not_kill_is_waited_for() {
        // One of root's would be allowed to.
        let without = |serve: &Command| {
            let mut outer = Command::new("setpriv");
            outer.args(["--bounding-set=-kill", "--inh-caps=-kill", "--"]);
            around(outer, serve)
        };
        let coordinator = Coordinator::of_as(shared_with(options(Keeps::All, None)), without);
        permit(&coordinator.place.folder().join("gpu"), 0o666);
        stopped(&coordinator, Whose::Guests, Keeps::All, Becomes::Spared);
    }
}
