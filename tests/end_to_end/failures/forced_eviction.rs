//! Memory that is taken without asking stays safe: a program that has it mapped does not go on by itself, and nothing is taken from one
//! of which unknown work may run.

use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use baton_contract::page::TenantPage;
use baton_tests::LIMIT;
use baton_tests::coordinator::{Coordinator, Serving, tenant};
use baton_tests::hold::{self, Busy};
use baton_tests::running::{Running, signal};

/// Another program, one that was stopped while it had the GPU, and how to end what that does there.
#[track_caller]
fn beside_a_stopped_one(coordinator: &Coordinator, before_it_stops: impl FnOnce(i32)) -> (Running, Running, Busy) {
    let other = hold::joined(coordinator, "other", "latency", "40", None);
    let mut stopped = hold::joined(coordinator, "stopped", "batch", "40", None);
    let busy = Busy::start(&mut stopped, &coordinator.place);
    coordinator.until_tenant_is("stopped", "running");
    before_it_stops(stopped.pid());
    stopped.signal(libc::SIGSTOP);
    (other, stopped, busy)
}

#[test]
fn a_program_whose_memory_others_have_ends_when_it_finds_the_coordinator_gone() {
    let mut coordinator = Serving::arena("64MiB").start();
    let (mut other, mut stopped, _busy) = beside_a_stopped_one(&coordinator, |_| {});
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    assert!(tenant(&coordinator.status(), "stopped")["evicted_bytes"].as_u64() > Some(0));
    coordinator.end(libc::SIGKILL);
    // The simulated driver lets one go on for a moment, and stops it again.
    while stopped.ended().is_none() && !stopped.err().contains("goes on with what it has") {
        signal(stopped.pid(), libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = stopped.ended();
    assert_eq!(ended.and_then(|status| status.signal()), Some(libc::SIGKILL), "{ended:?}: {}", stopped.err());
    assert!(stopped.err().contains("had given memory of this program to others"), "{}", stopped.err());
    // No program has written to the other one's memory.
    assert!(other.ask("quit", LIMIT).ends_with(" ok"));
}

/// A word of the page that a program shares with the coordinator, as that finds it there.
#[derive(Debug)]
struct Word {
    memory: File,
    at: u64,
}

impl Word {
    /// How often a program was about to make something that can be paused.
    #[track_caller]
    fn channels_begun(pid: i32) -> Self {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("our own child");
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).expect("our own child");
        // The only one that it writes: it is not urgent, and marks no activity.
        let is_ours = |line: &&str| line.contains(" rw-s ") && line.contains("/memfd:baton-page");
        let found: Vec<u64> = maps
            .lines()
            .filter(is_ours)
            .filter_map(|line| u64::from_str_radix(line.split_once('-')?.0, 16).ok())
            .collect();
        assert_eq!(found.len(), 1, "one page of this tenant's: {maps}");
        Self { memory, at: found[0] + offset_of!(TenantPage, channels_begun) as u64 }
    }

    fn add(&self, what: u32) {
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, self.at).expect("it is mapped");
        let sum = u32::from_ne_bytes(bytes).wrapping_add(what);
        self.memory.write_all_at(&sum.to_ne_bytes(), self.at).expect("it is mapped");
    }
}

#[test]
fn nothing_is_taken_from_a_program_that_was_about_to_make_what_nobody_can_pause_yet() {
    let coordinator = Serving::arena("64MiB").start();
    let mut word = None;
    let about_to_make = |pid| {
        let found = Word::channels_begun(pid);
        found.add(1);
        word = Some(found);
    };
    let (mut other, mut stopped, busy) = beside_a_stopped_one(&coordinator, about_to_make);
    other.say("touch");
    coordinator.until("it waits for ten times as long as for one that memory is taken from", |status| {
        assert!(!other.has_answered(), "the memory was taken: {}", coordinator.log());
        tenant(status, "other")["waits_for"]["since_ms"].as_f64() > Some(2_500.0)
    });
    assert_eq!(tenant(&coordinator.status(), "stopped")["evicted_bytes"], 0);
    // It goes on, and has made nothing.
    word.expect("it is known").add(u32::MAX);
    busy.is_enough();
    while !stopped.has_answered() {
        signal(stopped.pid(), libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(stopped.line(LIMIT), "spun");
    assert!(other.line(LIMIT).starts_with("touched "));
    assert!(stopped.ask("quit", LIMIT).ends_with(" ok") && other.ask("quit", LIMIT).ends_with(" ok"));
    coordinator.until_empty();
}
