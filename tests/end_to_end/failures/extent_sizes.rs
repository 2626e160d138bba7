//! Memory of an unresponsive program can be taken only in the pieces in which it is: others of its user go on with it all the same,
//! whatever pieces theirs is in.

use std::time::Duration;

use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, signal};

/// An arena whose pieces are of four sizes: 2, 8, 20 and 32 MiB.
const ARENA: u64 = 512;

fn serving() -> Coordinator {
    Serving::arena(&format!("{ARENA}MiB")).memory("1GiB").option("--host-pool", "1GiB").start()
}

/// A program with so many MiB, allocated in pieces of so many.
#[track_caller]
fn holding(coordinator: &Coordinator, name: &str, megabytes: u64, piece: u64) -> Running {
    let words = ["--megabytes", &megabytes.to_string(), "--piece", &piece.to_string()];
    let mut command = coordinator.place.joining(name, &program("hold"), &words);
    hold::ready(&mut command, Some(coordinator.place.clone()))
}

/// A program with so many MiB in such pieces, which was stopped while it had the GPU.
#[track_caller]
fn stopped(coordinator: &Coordinator, megabytes: u64, piece: u64) -> (Running, Busy) {
    let mut stopped = holding(coordinator, "stopped", megabytes, piece);
    let busy = Busy::start(&mut stopped, &coordinator.place);
    coordinator.until_tenant_is("stopped", "running");
    stopped.signal(libc::SIGSTOP);
    (stopped, busy)
}

/// How many MiB others have of its memory.
#[track_caller]
fn had_by_others(coordinator: &Coordinator) -> u64 {
    tenant(&coordinator.status(), "stopped")["evicted_bytes"].as_u64().expect("a number") >> 20
}

/// Both programs have what they had written.
#[track_caller]
fn both_end_well(coordinator: &Coordinator, (mut stopped, busy): (Running, Busy), mut other: Running, case: &str) {
    busy.is_enough();
    // The simulated driver lets one go on for a moment, and stops it again.
    while !stopped.has_answered() {
        signal(stopped.pid(), libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stopped.line(LIMIT), "spun", "{case}");
    assert!(stopped.ask("quit", LIMIT).ends_with(" ok"), "{case}");
    assert!(other.ask("quit", LIMIT).ends_with(" ok"), "{case}");
    coordinator.until_empty();
}

#[test]
fn a_program_comes_in_with_a_stopped_ones_memory_whatever_pieces_either_has() {
    const STOPPED: u64 = 320;
    const OTHER: u64 = 480;
    for (its, others) in [(2, 106), (8, 2), (20, 8), (32, 2), (32, 20)] {
        let case = format!("its pieces are of {its} MiB, the other's of {others}");
        let coordinator = serving();
        // It was there before: its memory is on the host by the time that it needs it.
        let mut other = holding(&coordinator, "other", OTHER, others);
        let stopped = stopped(&coordinator, STOPPED, its);
        assert!(other.ask("touch", LIMIT).starts_with("touched "), "{case}: {}", coordinator.log());
        let had = had_by_others(&coordinator);
        assert!(had >= STOPPED + OTHER - ARENA, "{case}: {had} MiB");
        both_end_well(&coordinator, stopped, other, &case);
    }
}

#[test]
fn a_program_allocates_in_a_stopped_ones_memory_whatever_pieces_either_has() {
    const STOPPED: u64 = 400;
    const OTHER: u64 = 40;
    const MORE: u64 = 100;
    for its in [2, 8, 20] {
        let case = format!("its pieces are of {its} MiB");
        let coordinator = serving();
        let mut other = holding(&coordinator, "other", OTHER, 8);
        let stopped = stopped(&coordinator, STOPPED, its);
        for _ in 0..4 {
            let answer = other.ask(&format!("alloc {MORE}"), LIMIT);
            assert_eq!(answer, "allocated", "{case}: {}", coordinator.log());
        }
        let had = had_by_others(&coordinator);
        assert!(had >= STOPPED + OTHER + 4 * MORE - ARENA, "{case}: {had} MiB");
        assert!(other.ask("touch", LIMIT).starts_with("touched "), "{case}: {}", coordinator.log());
        both_end_well(&coordinator, stopped, other, &case);
    }
}
