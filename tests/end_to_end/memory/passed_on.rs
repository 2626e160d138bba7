//! Memory that processes pass on by descriptors moves: those that have it take turns, and it is there once.

use std::time::Instant;

use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::running::Running;
use baton_tests::strikes::processes_die_at;

/// The size of what is shared, in MiB, and its first contents.
const SHARED: &str = "24";
const FIRST: &str = "5";

fn started(coordinator: &Coordinator, name: &str, megabytes: &str) -> Running {
    let seed = name.len().to_string();
    let mut running = coordinator.join(name, &program("weights"), &["--megabytes", megabytes, "--seed", &seed]);
    assert!(running.line(LIMIT).starts_with("ready "));
    running
}

/// One of two programs fits; they find each other by a socket.
fn serving() -> Serving {
    let folder = tempfile::tempdir().expect("a temporary folder").keep();
    Serving::arena("64MiB").keeper().setting("WEIGHTS", folder.join("weights").to_str().expect("UTF-8"))
}

/// A process that has made memory and shares it.
#[track_caller]
fn daemon(coordinator: &Coordinator) -> Running {
    let mut daemon = started(coordinator, "daemon", "4");
    assert_eq!(daemon.ask(&format!("give {SHARED} {FIRST}"), LIMIT), "given");
    daemon
}

/// One that has that memory too, and so many megabytes of its own.
#[track_caller]
fn reader(coordinator: &Coordinator, name: &str, megabytes: &str) -> Running {
    let mut reader = started(coordinator, name, megabytes);
    assert_eq!(reader.ask("take", LIMIT), "taken", "{}", coordinator.place.story());
    reader
}

#[track_caller]
fn check(running: &mut Running, seed: &str) {
    assert_eq!(running.ask(&format!("check {seed}"), LIMIT), "right");
}

fn are_united(coordinator: &Coordinator) -> bool {
    coordinator.log().contains("share memory or events")
}

#[track_caller]
fn evict(coordinator: &Coordinator, name: &str) {
    let end = Instant::now() + LIMIT;
    while !coordinator.evict(name) {
        assert!(Instant::now() < end, "{name} cannot be evicted{}", coordinator.place.story());
    }
}

/// More than fits the GPU: 24 MiB that all have, and 30 MiB of each reader's own.
#[test]
fn weights_are_there_once_and_their_readers_take_turns() {
    let coordinator = serving().start();
    let mut daemon = daemon(&coordinator);
    let mut readers = ["one", "three"].map(|name| reader(&coordinator, name, "30"));
    for round in 0..4 {
        readers.iter_mut().for_each(|reader| check(reader, FIRST));
        evict(&coordinator, ["daemon", "one", "three"][round % 3]);
    }
    assert!(!are_united(&coordinator), "{}", coordinator.log());
    // Any of them writes, and all have it.
    for (round, seed) in ["6", "7", "8"].into_iter().enumerate() {
        match round {
            2 => assert_eq!(daemon.ask(&format!("write {seed}"), LIMIT), "written"),
            one => assert_eq!(readers[one].ask(&format!("write {seed}"), LIMIT), "written"),
        }
        evict(&coordinator, ["one", "daemon", "three"][round]);
        check(&mut daemon, seed);
        readers.iter_mut().for_each(|reader| check(reader, seed));
    }
    let status = coordinator.status();
    let all: u64 = status["tenants"].as_array().expect("a list").iter().filter_map(|one| one["bytes"].as_u64()).sum();
    assert!(all < (24 + 2 * 30 + 3 * 6) << 20, "{status:#}");
    for mut running in readers.into_iter().chain([daemon]) {
        assert_eq!(running.ask("quit", LIMIT), "result weights ok");
    }
    coordinator.until_empty();
}

/// The readers come first, and get memory of their own when they have the weights already.
#[test]
fn readers_that_grow_later_take_turns_too() {
    let coordinator = serving().start();
    let mut daemon = daemon(&coordinator);
    let mut readers = ["one", "three"].map(|name| reader(&coordinator, name, "2"));
    for reader in &mut readers {
        assert_eq!(reader.ask("grow 28", LIMIT), "grown");
        // It sees the weights as its own: it cannot have more than fits beside them.
        assert_eq!(reader.ask("free 16", LIMIT), "less");
        assert_eq!(reader.ask("grow 60", LIMIT), "answer 2");
    }
    for _ in 0..3 {
        readers.iter_mut().for_each(|reader| check(reader, FIRST));
    }
    check(&mut daemon, FIRST);
    assert!(!are_united(&coordinator), "{}", coordinator.log());
}

#[test]
fn evicted_memory_is_imported() {
    let coordinator = serving().start();
    let mut daemon = daemon(&coordinator);
    let mut other = started(&coordinator, "other", "30");
    evict(&coordinator, "daemon");
    coordinator.until("it is away", |status| tenant(status, "daemon")["resident_bytes"] == 0);
    let mut reader = reader(&coordinator, "one", "30");
    check(&mut reader, FIRST);
    assert_eq!(other.ask("touch", LIMIT), "touched well");
    check(&mut daemon, FIRST);
}

#[test]
fn memory_that_cannot_be_there_with_the_importers_own_is_refused() {
    let coordinator = serving().start();
    let mut daemon = daemon(&coordinator);
    let mut reader = started(&coordinator, "one", "44");
    assert_eq!(reader.ask("take", LIMIT), "answer 2");
    check(&mut daemon, FIRST);
    assert_eq!(reader.ask("touch", LIMIT), "touched well");
}

/// The processes that are left have all of it, whichever way the others have gone.
#[test]
fn memory_stays_with_those_that_are_left() {
    for way in ["drop", "quit", "killed"] {
        let coordinator = serving().start();
        let mut running = vec![daemon(&coordinator)];
        running.extend(["one", "three"].map(|name| reader(&coordinator, name, "20")));
        while running.len() > 1 {
            let mut gone = running.remove(0);
            match way {
                "drop" => {
                    assert_eq!(gone.ask("drop", LIMIT), "dropped");
                    check(&mut gone, "0");
                }
                "quit" => assert_eq!(gone.ask("quit", LIMIT), "result weights ok"),
                _ => drop(gone),
            }
            running.iter_mut().for_each(|one| check(one, FIRST));
            evict(&coordinator, "three");
        }
        check(&mut running[0], FIRST);
        drop(running);
        coordinator.until_empty();
    }
}

/// They wait for each other on the GPU: from when both want it they have it at the same time.
#[test]
fn those_that_wait_for_each_other_are_united() {
    let coordinator = serving().option("--quantum", "1h").start();
    let mut daemon = daemon(&coordinator);
    let mut reader = reader(&coordinator, "one", "16");
    check(&mut reader, FIRST);
    assert!(!are_united(&coordinator), "{}", coordinator.log());
    assert_eq!(daemon.ask("zero", LIMIT), "zeroed");
    daemon.say("turns 1");
    reader.say("turns 0");
    assert_eq!([daemon.line(LIMIT), reader.line(LIMIT)], ["turned", "turned"]);
    assert!(are_united(&coordinator), "{}", coordinator.log());
}

/// There is no room for both, so each spins until its turn is over.
#[test]
fn those_that_wait_for_each_other_without_room_for_both_go_on() {
    let coordinator = serving().option("--quantum", "20ms").start();
    let mut daemon = daemon(&coordinator);
    assert_eq!(daemon.ask("grow 30", LIMIT), "grown");
    let mut reader = reader(&coordinator, "one", "30");
    assert_eq!(daemon.ask("zero", LIMIT), "zeroed");
    daemon.say("turns 1");
    reader.say("turns 0");
    assert_eq!([daemon.line(LIMIT), reader.line(LIMIT)], ["turned", "turned"]);
    assert!(!are_united(&coordinator), "{}", coordinator.log());
}

/// The steps by which a tenant gets memory that is another one's.
const TAKE: [&str; 10] = [
    "program asks Meet",
    "coordinator hears Meet",
    "program asks Attach",
    "coordinator hears Attach",
    "coordinator keeps Fact",
    "coordinator kept Fact",
    "coordinator forgets Fact",
    "coordinator tells Attached",
    "coordinator told Attached",
    "program is answered Attached",
];

/// The steps by which memory changes its owner when another tenant arrives.
#[test]
fn memory_changes_its_owner_when_processes_die_at_any_step() {
    let begin = |coordinator: &Coordinator| {
        let daemon = daemon(coordinator);
        let [mut one, mut three] = ["one", "three"].map(|name| reader(coordinator, name, "30"));
        check(&mut one, FIRST);
        check(&mut three, FIRST);
        (one, vec![daemon, three])
    };
    let points = ["coordinator keeps Fact", "coordinator kept Fact", "coordinator forgets Fact"];
    processes_die_at(&points, serving(), begin, &[("check 5", "right")]);
}

#[test]
fn memory_is_imported_when_processes_die_at_any_step() {
    let begin = |coordinator: &Coordinator| {
        let mut others = vec![daemon(coordinator), reader(coordinator, "three", "30")];
        check(&mut others[1], FIRST);
        (started(coordinator, "one", "30"), others)
    };
    processes_die_at(&TAKE, serving(), begin, &[("take", "taken"), ("check 5", "right")]);
}
