//! A program that searches all memory it can get finds nothing that another one has written: of another user's or its own, in whatever way
//! each has got its memory, and however the other one has left it.

use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving, program};
use baton_tests::guests::{GUEST, OTHER, joining, serving, shared_with};
use baton_tests::running::{Running, signal};
use baton_tests::{LIMIT, hold};

/// The coordinator's own, whatever its number.
const OWN: u32 = 0;

/// How the one that has marked its memory gives it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// It frees all, and lives.
    Frees,
    /// It ends with all that it has.
    Ends,
    Killed,
    /// It lives and is idle: the memory that the search needs is evicted.
    Evicted,
    /// It is stopped: the memory that the search needs is taken.
    Stopped,
    /// It is killed after that.
    StoppedAndKilled,
}

const ALL: [Leaves; 6] =
    [Leaves::Frees, Leaves::Ends, Leaves::Killed, Leaves::Evicted, Leaves::Stopped, Leaves::StoppedAndKilled];

/// The pattern that the search looks for. The coordinator's new memory is full of it: the driver promises nothing about that.
const MARK: &str = "5eaf00d15eaf00d1";
const NEW_MEMORY: &str = "SIMCUDA_NEW_MEMORY";

/// A program of this user's, ready for its first line.
#[track_caller]
fn started(coordinator: &Coordinator, user: u32, name: &str) -> Running {
    let search = program("search");
    let mut command: Command = match user {
        OWN => coordinator.place.joining(name, &search, &[]),
        user => joining(coordinator.prepared(), user, name, &search, &[]),
    };
    // The driver has to clear memory that a program gets from its own driver.
    command.env_remove(NEW_MEMORY);
    hold::ready(&mut command, Some(coordinator.place.clone()))
}

/// What a program leaves behind at its end is free a while later, and the search gets no more than what is free.
#[track_caller]
fn until_all_is_free(coordinator: &Coordinator) {
    coordinator.until("the memory is free", |status| {
        let tenants = status["tenants"].as_array().expect("a list");
        let arena = &status["arena"];
        tenants.len() == 1
            && arena["lent_bytes"] == tenants[0]["resident_bytes"]
            && arena["bytes"] == arena["configured_bytes"]
    });
}

/// Nothing of what one user's program has written is found by another's, whichever way it goes.
#[track_caller]
fn nothing_is_found(options: &dyn Fn(Serving) -> Serving, users: [u32; 2], all: &[Leaves]) {
    for leaves in all {
        let case = format!("{users:?}, {leaves:?}");
        // Freed memory keeps its bytes, if they are not overwritten.
        let usual = Serving::arena("64MiB").unpoisoned().setting(NEW_MEMORY, MARK).option("--guest-arena", "100%");
        let usual = usual.option("--allow-uid", &format!("{GUEST}-{OTHER}"));
        let coordinator = serving(shared_with(options(usual)));
        let [mut marks, mut looks] =
            [(users[0], "marks"), (users[1], "looks")].map(|(user, name)| started(&coordinator, user, name));
        assert_eq!(marks.ask("mark 8", LIMIT), "marked", "{case}");
        assert_eq!(marks.ask("check", LIMIT), "checked", "{case}");
        match leaves {
            Leaves::Frees => assert_eq!(marks.ask("drop", LIMIT), "dropped", "{case}"),
            Leaves::Ends => assert!(marks.ask("quit", LIMIT).ends_with(" ok"), "{case}"),
            Leaves::Killed => marks.signal(libc::SIGKILL),
            Leaves::Evicted => {}
            Leaves::Stopped | Leaves::StoppedAndKilled => marks.signal(libc::SIGSTOP),
        }
        if matches!(leaves, Leaves::Ends | Leaves::Killed) {
            marks.end(LIMIT);
            until_all_is_free(&coordinator);
        }
        let mut look = || {
            let found = looks.ask("look 60", LIMIT);
            let seen = found.strip_prefix("found 0 in ").unwrap_or_else(|| panic!("{case}: {found}"));
            // Each of the four kinds that move has got most of the arena at some time: memory that the other one has had.
            assert!(seen.parse::<u64>().expect("a number") >= 4 * 32, "{case}: {found}");
        };
        look();
        match leaves {
            Leaves::StoppedAndKilled => {
                marks.signal(libc::SIGKILL);
                marks.end(LIMIT);
                until_all_is_free(&coordinator);
                look();
            }
            Leaves::Stopped | Leaves::Evicted => {
                marks.say("check");
                while !marks.has_answered() {
                    signal(marks.pid(), libc::SIGCONT);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                assert_eq!(marks.line(LIMIT), "checked", "{case}");
                look();
            }
            _ => {}
        }
        assert!(looks.ask("quit", LIMIT).ends_with(" ok"), "{case}");
        looks.end(LIMIT);
        drop(marks);
    }
}

/// Where nothing is taken for others.
const LIVING: [Leaves; 4] = [Leaves::Frees, Leaves::Ends, Leaves::Killed, Leaves::Evicted];

fn strict(serving: Serving) -> Serving {
    serving.option("--isolation", "strict")
}

#[test]
fn a_program_finds_nothing_of_another_one_of_its_user() {
    nothing_is_found(&|serving| serving, [OWN, OWN], &ALL);
}

#[test]
fn a_program_finds_nothing_of_any_other_with_strict_isolation() {
    nothing_is_found(&strict, [OWN, OWN], &LIVING);
}

#[test]
fn a_program_finds_nothing_of_another_one_of_its_user_where_nothing_can_be_paused() {
    nothing_is_found(&|serving| serving.flag("--no-preempt"), [OWN, OWN], &LIVING);
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: there are several users"]
    fn a_program_finds_nothing_of_another_users() {
        for users in [[GUEST, OWN], [OWN, GUEST], [GUEST, OTHER]] {
            nothing_is_found(&|serving| serving, users, &LIVING);
        }
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_finds_nothing_of_another_one_with_strict_isolation() {
        nothing_is_found(&strict, [GUEST, OTHER], &LIVING);
    }
}
