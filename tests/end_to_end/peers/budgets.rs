//! A peer that asks for too much, or for too many things at once, spends only its own share: the others are served as ever.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baton_contract::link::{self, Chosen};
use baton_contract::messages::{
    Admission, Answer, ExtentId, FromCoordinator, Message as _, Opening, Refusal, Request, TurnReport,
};
use baton_contract::wire::{GpuNumber, MAX_DESCRIPTORS};
use baton_tests::bare_tenant::{self, BareTenant, as_user, greeting};
use baton_tests::coordinator::{Coordinator, Prepared, Serving, SetAtEnd, other_descriptors, program, tenant};
use baton_tests::form::Form;
use baton_tests::guests::{copied, shared_with};
use baton_tests::hold;
use baton_tests::running::Running;
use baton_tests::{LIMIT, MIB, around, built};

/// A user who is let in: none of the other tests' guests, because the system counts descriptors on their way for each user.
const GUEST: u32 = 65534;
/// A user who is not let in.
const UNINVITED: u32 = 65533;
/// A tenant has no more descriptors on their way to it than this.
const MOST_UNREAD: usize = 64;

/// A coordinator that takes in programs of the guest's.
fn with_guests(serving: Serving) -> Prepared {
    shared_with(serving.option("--allow-uid", &GUEST.to_string()))
}

/// The same with so many descriptors at most.
fn with_descriptors(prepared: Prepared, most: usize) -> Coordinator {
    let limited = |serve: &Command| {
        let mut outer = Command::new("prlimit");
        outer.arg(format!("--nofile={most}:{most}")).arg("--");
        around(outer, serve)
    };
    Coordinator::of_as(prepared, limited)
}

/// Sends something if there is room for it.
fn try_send(socket: &OwnedFd, message: &[u8]) -> bool {
    match link::send(socket.as_fd(), message, &[], true) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("the coordinator listens: {error}"),
    }
}

/// A guest that has the GPU and memory in as many pieces as a message has room for.
fn guest_with_frames(coordinator: &Coordinator) -> (BareTenant, Vec<ExtentId>) {
    let hello = greeting(coordinator, "guest").encode(GpuNumber::ANY);
    let mut guest = as_user(GUEST, || BareTenant::greet(coordinator, &hello));
    guest.take_gpu();
    let (extents, _) = guest.allocate(2 * MIB * MAX_DESCRIPTORS as u64);
    (guest, extents.into_iter().map(|(id, _)| id).collect())
}

/// A process that does nothing, until this is dropped.
struct Stopped(i32);

impl Stopped {
    fn new(pid: i32) -> Self {
        // SAFETY: our own child, which is not waited for meanwhile.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        while !stat().rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

/// How long the longest of so many took, while something else goes on; each is an answer to the owner, and a round of a tenant's.
fn longest(coordinator: &Coordinator, running: &mut Running, rounds: usize) -> Duration {
    let one = |_| {
        let start = Instant::now();
        coordinator.status();
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
        start.elapsed()
    };
    (0..rounds).map(one).max().expect("some")
}

/// So many connections at once, in several processes of a user; half of them say something. Meanwhile, and when all are there, the
/// owner gets answers, and comes in.
#[track_caller]
fn crowd(form: Form) {
    let (processes, each) = (4, form.of(150, 2500));
    for user in [UNINVITED, GUEST] {
        let coordinator = Coordinator::of(with_guests(Serving::small("64MiB")));
        let mut running = hold::joined(&coordinator, "tenant", "normal", "24", None);
        let without = longest(&coordinator, &mut running, 5);
        let hostile = copied(coordinator.prepared(), &built().bin.join("hostile"));
        let crowd = |_| {
            let mut command = Command::new(&hostile);
            command.arg("crowds").arg(coordinator.place.socket()).arg(each.to_string());
            Running::start(command.current_dir("/").uid(user).gid(user), true, None)
        };
        let mut crowds: Vec<Running> = (0..processes).map(crowd).collect();
        let (over, mut status_and_touch, mut came_in) = (AtomicBool::new(false), Duration::ZERO, Duration::ZERO);
        std::thread::scope(|scope| {
            let _end = SetAtEnd(&over);
            let held = scope.spawn(|| {
                for crowd in &mut crowds {
                    while crowd.line(LIMIT) != "held" {}
                }
            });
            // Once more when all are there.
            let mut are_all_there = false;
            while !std::mem::replace(&mut are_all_there, held.is_finished()) || came_in.is_zero() {
                status_and_touch = status_and_touch.max(longest(&coordinator, &mut running, 1));
                let start = Instant::now();
                let ended = coordinator
                    .run("new", "normal", &program("fill_and_check"), &["--megabytes", "8", "--rounds", "1"])
                    .finish(LIMIT);
                assert_eq!(ended.status, "exit status: 0", "{ended:?}");
                came_in = came_in.max(start.elapsed());
            }
        });
        println!(
            "user {user}, {} connections: status and touch in {status_and_touch:?} at most ({without:?} without), a new program in {came_in:?}",
            processes * each
        );
        drop(crowds);
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn whoever_says_little_is_heard_before_all_that_another_one_has_said() {
    let coordinator = Serving::small("64MiB").flag("--no-preempt").start();
    let [talkative, brief] = ["talkative", "brief"].map(|name| BareTenant::join(&coordinator, name));
    let report = TurnReport::Used { grant: 77, extents: Vec::new() }.encode(GpuNumber::FIRST);
    {
        let _stopped = Stopped::new(coordinator.pid());
        for _ in 0..100 {
            assert!(try_send(&talkative.control, &report), "there is room for that many");
        }
        // Bytes that are no message end a connection, which the log says.
        for tenant in [&talkative, &brief] {
            assert!(try_send(&tenant.control, b"nonsense"));
        }
    }
    let names = || -> Vec<String> {
        let log = coordinator.log();
        let cut_off = log
            .lines()
            .filter_map(|line| line.split_once("] ")?.1.split_once(" (process"))
            .filter(|(_, rest)| rest.contains("is disconnected"));
        cut_off.map(|(name, _)| name.to_owned()).collect()
    };
    coordinator.until("both are cut off", |_| names().len() == 2);
    assert_eq!(names(), ["brief", "talkative"]);
}

/// The first message on a connection, with its descriptors; none if it ends.
fn answer(socket: &OwnedFd) -> Option<(Admission, Vec<OwnedFd>)> {
    let received = link::receive(socket.as_fd(), false).ok().flatten()?;
    match FromCoordinator::decode(&received.message) {
        Ok((_, FromCoordinator::Admission(answer))) => Some((answer, received.descriptors)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_that_comes_when_the_coordinator_can_open_nothing_comes_again_and_runs_under_baton() {
    let coordinator = Serving::small("64MiB").option("--host-pool", "64MiB").start();
    coordinator.until_ready();
    // Room for its connection and the answer, and for nothing that a tenant needs.
    let open = coordinator.status()["descriptors"].as_u64().expect("a number");
    let limit = |most: u64| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: 20_000 };
        // SAFETY: a structure that lives over the call.
        let set = unsafe { libc::prlimit(coordinator.pid(), libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    };
    for spare in 1..8 {
        limit(open + spare);
        let mut command = coordinator.place.joining("late", &program("hold"), &["--megabytes", "24"]);
        // One that may run beside Baton, which is what must not happen.
        let mut running = Running::start(command.env_remove("BATON_REQUIRE"), true, Some(coordinator.place.clone()));
        let is_in = || coordinator.place.try_status().is_ok_and(|status| !tenant(&status, "late").is_null());
        while !running.err().contains("waiting: ") && !running.err().contains("without Baton") && !is_in() {
            std::thread::sleep(Duration::from_millis(20));
        }
        limit(20_000);
        assert!(running.line(LIMIT).starts_with("ready "), "{}", running.err());
        coordinator.until("it is in", |status| !tenant(status, "late").is_null());
        assert!(!running.err().contains("without Baton"), "with {spare} to open: {}", running.err());
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
        coordinator.until_empty();
    }
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_that_asks_for_frames_and_reads_none_takes_none_of_the_coordinators_descriptors() {
        let coordinator = Coordinator::of(with_guests(Serving::small("64MiB").flag("--no-preempt")));
        let (guest, ids) = guest_with_frames(&coordinator);
        let before = other_descriptors(&coordinator.until_ready());
        let request = Request::Frames { extents: ids.clone() }.encode(GpuNumber::FIRST);
        let (mut asked, mut most) = (0, 0);
        // Each status is answered after what was asked before it was heard, as far as it is heard.
        for _ in 0..30 {
            while asked < 1000 && try_send(&guest.requests, &request) {
                asked += 1;
            }
            most = most.max(other_descriptors(&coordinator.status()) - before);
        }
        println!("{asked} requests for 16 frames: {most} descriptors of the coordinator's");
        assert!(most <= MOST_UNREAD as i64, "{most} descriptors for {asked} requests that nobody reads the answers of");
        // While it does nothing more: so much was on its way.
        let stopped = Stopped::new(coordinator.pid());
        let (mut answers, mut on_the_way) = (0, 0);
        let mut hear = |received: link::Received| {
            let decoded = FromCoordinator::decode(&received.message);
            let expected = Answer::Frames { extents: ids.clone() };
            assert_eq!(decoded, Ok((GpuNumber::FIRST, FromCoordinator::Answer(expected))));
            answers += 1;
            received.descriptors.len()
        };
        while let Ok(Some(received)) = link::receive(guest.requests.as_fd(), true) {
            on_the_way += hear(received);
        }
        drop(stopped);
        assert!((1..=MOST_UNREAD).contains(&on_the_way), "{on_the_way} descriptors were on their way");
        // A peer that reads gets every answer in the end.
        let left = asked - on_the_way / MAX_DESCRIPTORS;
        for _ in 0..left {
            assert_eq!(hear(link::receive(guest.requests.as_fd(), false).expect("it lives").expect("an answer")), 16);
        }
        assert_eq!(answers, asked);
        coordinator.until("it has let go of all", |status| other_descriptors(status) <= before);
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn whoever_connects_for_ever_keeps_neither_tenants_nor_tools_from_being_served_and_fills_no_log() {
        for user in [UNINVITED, GUEST] {
            let coordinator = Coordinator::of(with_guests(Serving::small("64MiB")));
            let mut running = hold::joined(&coordinator, "tenant", "normal", "24", None);
            let socket = coordinator.place.socket();
            let (is_over, connections) = (AtomicBool::new(false), AtomicU64::new(0));
            let without = longest(&coordinator, &mut running, 20);
            let start = Instant::now();
            let took = std::thread::scope(|scope| {
                scope.spawn(|| {
                    as_user(user, || {
                        while !is_over.load(Ordering::Relaxed) {
                            if link::connect(&socket, Chosen::ByUser, LIMIT).is_ok() {
                                connections.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                });
                while connections.load(Ordering::Relaxed) < 1000 {
                    std::thread::yield_now();
                }
                let took = longest(&coordinator, &mut running, 20);
                while connections.load(Ordering::Relaxed) < 20_000 {
                    longest(&coordinator, &mut running, 1);
                }
                is_over.store(true, Ordering::Relaxed);
                took
            });
            let (seconds, log) = (start.elapsed().as_secs() as usize, coordinator.log());
            let (lines, connections) = (log.lines().count(), connections.into_inner());
            println!(
                "user {user}: {connections} connections in {seconds} s, {lines} lines logged; status and touch in {took:?} at most, {without:?} without"
            );
            assert!(lines < 100 + 4 * seconds, "{lines} lines in {seconds} s: {}", &log[..log.len().min(4000)]);
            if user == UNINVITED {
                // Each is told why it is sent away, as far as it listens.
                let told = as_user(user, || {
                    let socket = bare_tenant::connection(&socket);
                    link::receive(socket.as_fd(), false).expect("an answer").expect("an answer")
                });
                let answer = FromCoordinator::decode(&told.message);
                let Ok((_, FromCoordinator::Admission(Admission::Refused { text, .. }))) = answer else {
                    panic!("{answer:?}");
                };
                assert!(text.contains("--allow-uid"), "{text}");
                // That is said with the first one that comes when a second is over, which so many may not have taken.
                while !coordinator.log().contains(" more like this") {
                    assert!(start.elapsed() < LIMIT, "{log}");
                    as_user(user, || drop(link::connect(&socket, Chosen::ByUser, LIMIT)));
                }
            }
            assert!(running.ask("quit", LIMIT).ends_with(" ok"));
        }
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_tenant_that_reports_for_ever_keeps_nobody_else_waiting() {
        let coordinator = Coordinator::of(with_guests(Serving::small("64MiB").flag("--no-preempt")));
        let mut running = hold::joined(&coordinator, "tenant", "normal", "24", None);
        let without = longest(&coordinator, &mut running, 20);
        let hello = greeting(&coordinator, "guest").encode(GpuNumber::ANY);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let guest = as_user(GUEST, || BareTenant::greet(&coordinator, &hello));
                    let report = TurnReport::Used { grant: 77, extents: Vec::new() }.encode(GpuNumber::FIRST);
                    while !is_over.load(Ordering::Relaxed) {
                        let _ = try_send(&guest.control, &report);
                    }
                });
            }
            coordinator.until("they are there", |status| status["tenants"].as_array().map(Vec::len) == Some(3));
            println!("status and touch in {:?} at most, {without:?} without", longest(&coordinator, &mut running, 20));
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_that_connects_without_end_is_not_heard_each_time() {
        let coordinator = Coordinator::of(with_guests(Serving::small("64MiB")));
        let (socket, expect) = (coordinator.place.socket(), Opening::Expect.encode(GpuNumber::ANY));
        let ask = || {
            let socket = bare_tenant::connection(&socket);
            let _ = link::send(socket.as_fd(), &expect, &[], false);
            answer(&socket).expect("an answer").0
        };
        let start = Instant::now();
        let mut heard = 0;
        as_user(GUEST, || {
            loop {
                match ask() {
                    Admission::Offer { .. } => heard += 1,
                    Admission::Refused { reason: Refusal::Busy, text } if text.contains("connects more often") => break,
                    other => panic!("{other:?}"),
                }
                assert!(heard <= 300 + start.elapsed().as_millis() / 5, "{heard} in {:?}", start.elapsed());
            }
        });
        // Others are, and so is it in the end.
        assert!(matches!(ask(), Admission::Offer { .. }));
        as_user(GUEST, || while matches!(ask(), Admission::Refused { .. }) {});
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_that_holds_all_the_connections_it_may_does_not_lock_the_owner_out() {
        let prepared = with_guests(Serving::small("64MiB").option("--host-pool", "64MiB"));
        let mut coordinator = with_descriptors(prepared, 1024);
        let socket = coordinator.place.socket();
        let expect = Opening::Expect.encode(GpuNumber::ANY);
        let (held, told) = as_user(GUEST, || {
            let mut held = Vec::new();
            loop {
                assert!(held.len() < 1000, "there is a limit");
                let connection = bare_tenant::connection(&socket);
                let _ = link::send(connection.as_fd(), &expect, &[], false);
                match answer(&connection).expect("an answer").0 {
                    Admission::Offer { .. } => held.push(connection),
                    Admission::Refused { reason: Refusal::Busy, text } => break (held, text),
                    other => panic!("{other:?}"),
                }
            }
        });
        println!("a guest held {} connections: {told}", held.len());
        assert!(held.len() >= 16);
        let status = coordinator.status();
        assert_eq!(status["tenants"].as_array().map(Vec::len), Some(0));
        let mut own = hold::joined(&coordinator, "own", "normal", "24", None);
        assert!(own.ask("touch", LIMIT).starts_with("touched "));
        let mut stop = coordinator.place.baton(&["stop", "--now", "--socket"]);
        let stopped = Running::start(stop.arg(&socket), false, None).finish(LIMIT);
        assert_eq!(stopped.status, "exit status: 0", "{stopped:?}");
        coordinator.end(libc::SIGTERM);
        drop(held);
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_gets_no_more_than_its_part_of_the_tenants_and_the_owner_comes_in_at_once() {
        let coordinator = Coordinator::of(with_guests(Serving::small("64MiB").option("--max-programs", "8")));
        let hello = greeting(&coordinator, "guest").encode(GpuNumber::ANY);
        let socket = coordinator.place.socket();
        // Those who have been let in and those who wait, each with all that came.
        let (mut inside, mut waiting) = (Vec::new(), Vec::new());
        let refused = as_user(GUEST, || {
            loop {
                assert!(inside.len() + waiting.len() < 1000, "there is a limit");
                let connection = bare_tenant::connection(&socket);
                bare_tenant::greet(&connection, &hello).expect("it listens");
                let (answer, pages) = answer(&connection).expect("an answer");
                match answer {
                    Admission::Welcome { .. } => inside.push((connection, pages)),
                    Admission::Queued { .. } => waiting.push(connection),
                    Admission::Refused { reason: Refusal::Busy, text } => break text,
                    other => panic!("{other:?}"),
                }
            }
        });
        println!("{} of a guest are in, {} wait: {refused}", inside.len(), waiting.len());
        assert_eq!(inside.len(), 2, "a quarter of the places");
        let mut own = hold::joined(&coordinator, "own", "normal", "24", None);
        assert!(own.ask("touch", LIMIT).starts_with("touched "));
        let newcomers = coordinator.status()["newcomers"].as_array().map(Vec::len);
        assert_eq!(newcomers, Some(waiting.len()), "they wait for each other alone");
        // When one of them leaves, the next comes in.
        drop(inside.pop());
        assert!(matches!(answer(&waiting[0]), Some((Admission::Welcome { .. }, _))));
        assert!(own.ask("quit", LIMIT).ends_with(" ok"));
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn many_connections_at_once_keep_neither_tools_nor_programs_waiting() {
        crowd(Form::Short);
    }

    #[test]
    #[ignore = "root, long: 10,000 connections of each of two users"]
    fn ten_thousand_connections_at_once_keep_neither_tools_nor_programs_waiting() {
        crowd(Form::Long);
    }
}
