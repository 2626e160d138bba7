//! Memory that was on the host comes back in few large extents, whatever was freed meanwhile; and what was freed is used again.

use std::collections::BTreeSet;

use baton_contract::memory::SizeClass;
use baton_contract::messages::{Answer, ExtentId, FromCoordinator, MemoryCommand, Request, TurnReport};
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::faults::{Role, Strike, Victim};
use baton_tests::running::Running;
use baton_tests::strikes::{processes_die_at, with_board};
use baton_tests::{LIMIT, MIB, hold};
use serde_json::Value;

/// Where the first allocation of a bare tenant lies.
const START: u64 = 1 << 40;

/// An arena whose frames are as large as those of large ones.
fn serving() -> Serving {
    Serving::arena("512MiB").option("--host-pool", "512MiB")
}

fn bytes(status: &Value, name: &str, what: &str) -> u64 {
    tenant(status, name)[what].as_u64().expect("a number")
}

/// A tenant's memory goes to the host: says how it was cut then.
#[track_caller]
fn evict(coordinator: &Coordinator, bare: &mut BareTenant) -> (Vec<ExtentId>, Vec<(ExtentId, u64, SizeClass)>) {
    let mut recut = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let evict = scope.spawn(|| coordinator.evict("bare"));
        bare.yield_gpu();
        let resident = |status: &Value| bytes(status, "bare", "resident_bytes");
        while resident(&coordinator.status()) > 0 {
            hear(bare, &mut recut);
        }
        assert!(evict.join().expect("no panic"));
    });
    // How it is cut is said at once, or when it is to come back.
    bare.tell(&TurnReport::Demand);
    loop {
        match hear(bare, &mut recut) {
            Some(MemoryCommand::Prepare { .. }) => break,
            Some(_) => {}
            None => panic!("a turn without memory"),
        }
    }
    recut
}

/// The next command about memory is carried out; none if it is a turn instead.
#[track_caller]
fn hear(bare: &mut BareTenant, recut: &mut (Vec<ExtentId>, Vec<(ExtentId, u64, SizeClass)>)) -> Option<MemoryCommand> {
    match bare.hear().0 {
        FromCoordinator::Memory(command) => {
            if let MemoryCommand::Recut { gone, extents } = &command {
                recut.0.extend(gone);
                recut.1.extend(extents);
            }
            bare.done(&command);
            Some(command)
        }
        FromCoordinator::Turn(command) => {
            bare.obey(&command);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Waits until all is mapped again.
#[track_caller]
fn until_back(bare: &mut BareTenant, extents: &[(ExtentId, u64, SizeClass)]) {
    let mut missing: BTreeSet<ExtentId> = extents.iter().map(|(id, ..)| *id).collect();
    while !missing.is_empty() {
        if let Some(MemoryCommand::Map { extents, .. }) = hear(bare, &mut (Vec::new(), Vec::new())) {
            missing.retain(|id| !extents.contains(id));
        }
    }
}

fn sizes(extents: &[(ExtentId, u64, SizeClass)]) -> Vec<(u64, u64)> {
    extents.iter().map(|(_, at, class)| ((at - START) / MIB, class.bytes() / MIB)).collect()
}

#[test]
fn neighbours_come_back_as_one_and_what_was_freed_of_it_does_not() {
    let coordinator = serving().flag("--no-preempt").start();
    let mut bare = BareTenant::join(&coordinator, "bare");
    bare.take_gpu();
    let small: Vec<ExtentId> = (0..22).flat_map(|_| bare.allocate(2 * MIB).0).map(|(id, _)| id).collect();
    let (gone, now) = evict(&coordinator, &mut bare);
    assert_eq!(gone, small);
    assert_eq!(sizes(&now), [(0, 8), (8, 8), (16, 8), (24, 8), (32, 8), (40, 2), (42, 2)]);
    until_back(&mut bare, &now);

    // The program frees 4 MiB, of two of them, and takes half of that again.
    let freed = (START + 6 * MIB, 4 * MIB);
    assert_eq!(bare.ask(&Request::Spare { ranges: vec![freed] }).0, Answer::Noted);
    assert_eq!(bytes(&coordinator.status(), "bare", "spare_bytes"), 4 * MIB);
    assert_eq!(bare.ask(&Request::Reuse { at: START + 6 * MIB, bytes: 2 * MIB }).0, Answer::Noted);
    let status = coordinator.status();
    assert_eq!((bytes(&status, "bare", "spare_bytes"), bytes(&status, "bare", "bytes")), (2 * MIB, 44 * MIB));

    let (gone, cut) = evict(&coordinator, &mut bare);
    assert!(gone.contains(&now[1].0));
    // The first has no neighbour any more: it may stay what it was.
    let kept = now.iter().filter(|(id, ..)| !gone.contains(id));
    let mut left: Vec<_> = kept.chain(&cut).copied().collect();
    left.sort_by_key(|(_, at, _)| *at);
    assert_eq!(
        sizes(&left),
        [(0, 8), (10, 8), (18, 8), (26, 8), (34, 8), (42, 2)],
        "what is left is as few as can be: {left:?}"
    );
    until_back(&mut bare, &left);
    let status = coordinator.status();
    assert_eq!((bytes(&status, "bare", "spare_bytes"), bytes(&status, "bare", "bytes")), (0, 42 * MIB));
    assert_eq!(status["host_pool"]["used_bytes"], 42 * MIB, "{status:#}");
}

#[test]
fn what_a_tenant_frees_or_takes_that_it_does_not_have_ends_its_connection() {
    let coordinator = serving().flag("--no-preempt").start();
    let asks: [fn() -> Request; _] = [
        || Request::Spare { ranges: vec![(START - 2 * MIB, 4 * MIB)] },
        || Request::Spare { ranges: vec![(START, 2 * MIB), (START, 2 * MIB)] },
        || Request::Spare { ranges: vec![(START + 1, 2 * MIB)] },
        || Request::Spare { ranges: vec![(u64::MAX - 2 * MIB + 1, 2 * MIB)] },
        || Request::Reuse { at: START, bytes: 2 * MIB },
        || Request::Allocate { at: START, bytes: 2 * MIB },
        || Request::Allocate { at: START - 2 * MIB, bytes: 4 * MIB },
        || Request::Allocate { at: START + 1, bytes: 2 * MIB },
        || Request::Allocate { at: u64::MAX - 2 * MIB + 1, bytes: 2 * MIB },
    ];
    for (at, ask) in asks.into_iter().enumerate() {
        let mut bare = BareTenant::join(&coordinator, &format!("bare-{at}"));
        bare.take_gpu();
        bare.allocate(8 * MIB);
        assert!(bare.is_cut_off_for(&ask()), "{:?}", ask());
        drop(bare);
        coordinator.until("the next one can come", |status| status["holder"].is_null());
    }
}

/// A program with so many MiB in pieces of 2 MiB, which has been on the host once.
#[track_caller]
fn in_small_pieces(coordinator: &Coordinator, megabytes: &str) -> Running {
    let options = ["--megabytes", megabytes, "--piece", "2"];
    let mut command = coordinator.place.joining("holder", &program("hold"), &options);
    let mut holder = hold::ready(&mut command, Some(coordinator.place.clone()));
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    evict_idle(coordinator);
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    holder
}

/// Evicts the program, which is about to be idle.
#[track_caller]
fn evict_idle(coordinator: &Coordinator) {
    while !coordinator.evict("holder") {
        std::thread::yield_now();
    }
}

#[test]
fn a_program_of_many_small_allocations_comes_back_in_few_pieces_and_frees_them_one_by_one() {
    let coordinator = serving().start();
    let mut holder = in_small_pieces(&coordinator, "130");
    let status = coordinator.status();
    assert!(status["extents"].as_u64() <= Some(18), "{status:#}");
    assert_eq!(holder.ask("thin", LIMIT), "thinned");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    // Some of it is kept for the next allocation.
    let status = coordinator.until("what was freed is told", |status| bytes(status, "holder", "spare_bytes") > 0);
    let all = bytes(&status, "holder", "bytes");
    let mut asked = coordinator.place.baton(&["status", "--socket"]);
    let shown = baton_tests::run(asked.arg(coordinator.place.socket())).succeeded().out;
    assert!(shown.contains("freed, and kept until its program next leaves the GPU: holder "), "{shown}");
    // Spare memory is used again: the program has no more than before.
    assert_eq!(holder.ask("thicken", LIMIT), "thickened");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    let status = coordinator.status();
    assert_eq!(bytes(&status, "holder", "bytes"), all, "{status:#}");
    assert_eq!(bytes(&status, "holder", "spare_bytes"), 0);
    // And what is not used is not kept on the host.
    assert_eq!(holder.ask("thin", LIMIT), "thinned");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    evict_idle(&coordinator);
    let status = coordinator.status();
    assert_eq!(bytes(&status, "holder", "spare_bytes"), 0, "{status:#}");
    assert!(bytes(&status, "holder", "bytes") <= all / 2 + 4 * MIB, "{status:#}");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    assert_eq!(holder.ask("thicken", LIMIT), "thickened");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    assert!(holder.ask("quit", LIMIT).ends_with(" ok"));
    drop(holder);
    coordinator.until_empty();
}

#[test]
fn what_is_spare_is_no_obstacle_to_what_its_program_asks_for() {
    let coordinator = serving().option("--headroom", "0").start();
    let mut holder = in_small_pieces(&coordinator, "320");
    assert_eq!(holder.ask("thin", LIMIT), "thinned");
    // With what is spare that is more than the arena.
    assert_eq!(holder.ask("alloc 280", LIMIT), "allocated");
    let status = coordinator.status();
    assert!(bytes(&status, "holder", "bytes") <= 512 * MIB, "{status:#}");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    assert_eq!(holder.ask("alloc 280", LIMIT), "answer 2", "and what is too much is so still");
    assert_eq!(holder.ask("free", LIMIT), "freed");
    assert_eq!(holder.ask("thicken", LIMIT), "thickened");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    assert!(holder.ask("quit", LIMIT).ends_with(" ok"));
    drop(holder);
    coordinator.until_empty();
}

/// The coordinator has given up the room of what was freed by then, and its program does not know.
#[test]
fn memory_of_which_some_was_freed_is_found_again_when_the_coordinator_dies_before_it_says_how_it_is_cut() {
    let (serving, board) = with_board(serving().keeper());
    let coordinator = serving.start();
    let mut holder = in_small_pieces(&coordinator, "130");
    for _ in 0..2 {
        assert!(holder.ask("touch", LIMIT).starts_with("touched "));
        assert_eq!(holder.ask("thin", LIMIT), "thinned");
        assert!(holder.ask("touch", LIMIT).starts_with("touched "));
        coordinator.until("what was freed is told", |status| bytes(status, "holder", "spare_bytes") > 0);
        board.prepare(&Strike { signal: libc::SIGKILL, ..Strike::at("coordinator tells Recut") });
        let before = coordinator.served();
        while board.struck().is_none() {
            coordinator.asked("evict", "holder");
        }
        coordinator.until_next(before);
        coordinator.until("it is back", |status| !tenant(status, "holder").is_null());
        assert!(holder.ask("touch", LIMIT).starts_with("touched "));
        assert_eq!(holder.ask("thicken", LIMIT), "thickened");
    }
    assert!(holder.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}

/// Otherwise the next one cuts memory anew as if it were in use, and the program gets addresses again that still have some.
#[test]
fn memory_that_is_freed_when_the_coordinator_dies_is_known_to_be_spare() {
    let (serving, board) = with_board(serving().keeper());
    let coordinator = serving.start();
    let mut holder = in_small_pieces(&coordinator, "130");
    let victim = Victim::Of(Role::Coordinator);
    board.prepare(&Strike { victim, signal: libc::SIGKILL, ..Strike::at("program asks Spare") });
    let before = coordinator.served();
    assert_eq!(holder.ask("thin", LIMIT), "thinned");
    assert!(board.struck().is_some(), "it told nothing");
    coordinator.until_next(before);
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    evict_idle(&coordinator);
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    assert_eq!(holder.ask("thicken", LIMIT), "thickened");
    assert!(holder.ask("touch", LIMIT).starts_with("touched "));
    assert!(holder.ask("quit", LIMIT).ends_with(" ok"));
    assert_eq!(holder.said(), "");
    coordinator.until_empty();
}

#[test]
fn memory_is_freed_and_used_again_when_processes_die_at_any_step() {
    let points = ["program asks Spare", "coordinator hears Spare", "program asks Reuse", "coordinator hears Reuse"];
    let acts = [("thin", "thinned"), ("thicken", "thickened")];
    processes_die_at(
        &points,
        serving().keeper(),
        |coordinator| (in_small_pieces(coordinator, "130"), Vec::new()),
        &acts,
    );
}
