//! Quotas limit each program of another user, and all of one user together: more is refused as where there is no more, and it is said
//! which quota holds. And what one may do to others.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use baton_contract::messages::{Answer, MemoryReport, Request};
use baton_tests::bare_tenant::BareTenant;
use baton_tests::coordinator::{Coordinator, Serving, program, tenant};
use baton_tests::guests::{GUEST, OTHER, asked_as, copied, joining, serving, shared_with};
use baton_tests::running::Running;
use baton_tests::{LIMIT, MIB, around, run};
use serde_json::Value;

/// A coordinator that takes in both, with such settings, on a GPU of 512 MiB.
fn with_guests(options: &[(&str, &str)]) -> Coordinator {
    let usual = Serving::arena("64MiB").memory("512MiB").option("--host-pool", "128MiB");
    let usual = usual.option("--allow-uid", &format!("{GUEST}-{OTHER}"));
    serving(shared_with(options.iter().fold(usual, |serving, (name, value)| serving.option(name, value))))
}

/// A program of a guest's, ready for its first line.
#[track_caller]
fn guest(coordinator: &Coordinator, user: u32, name: &str, which: &str, words: &[&str]) -> Running {
    let mut command = joining(coordinator.prepared(), user, name, &program(which), words);
    let mut running = Running::start(&mut command, true, Some(coordinator.place.clone()));
    assert!(running.line(LIMIT).starts_with("ready "), "{}", running.err());
    running
}

/// The quotas that hold a program, as the status says.
fn quotas(one: &Value) -> Vec<&str> {
    let met = one["quotas"].as_array().expect("a list").iter();
    met.map(|met| met["quota"].as_str().expect("a word")).collect()
}

/// The output of one of the owner's commands, about all or one of the programs.
#[track_caller]
fn said(coordinator: &Coordinator, words: &[&str]) -> String {
    let mut command = coordinator.place.baton(words);
    command.arg("--socket").arg(coordinator.place.socket());
    let ended = run(&mut command);
    assert_eq!(ended.status, "exit status: 0", "{ended:?}");
    ended.out
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_gets_the_memory_of_its_quota_and_is_told_of_no_more() {
        let coordinator = with_guests(&[("--guest-arena", "16MiB"), ("--guest-host-pool", "8MiB")]);
        let mut first = guest(&coordinator, GUEST, "first", "unmanaged", &[]);
        assert_eq!(first.ask("info", LIMIT), "free 16 total 16");
        assert_eq!(first.ask("plain 18", LIMIT), "answer 2", "no memory, as where the GPU is full");
        assert_eq!(quotas(tenant(&coordinator.status(), "first")), ["arena"]);
        for words in [&["status"][..], &["why", "first"]] {
            let said = said(&coordinator, words);
            assert!(said.contains("quota") && said.contains("no more than 16 MiB (--guest-arena)"), "{said}");
        }
        assert!(coordinator.log().contains("first asked for 18 MiB and got none: a program of another user"));
        assert_eq!(first.ask("plain 16", LIMIT), "made");
        assert_eq!(first.ask("info", LIMIT), "free 0 total 16");
        assert_eq!(quotas(tenant(&coordinator.status(), "first")), [""; 0], "it has what it asked for last");

        // All of one user's have no more than both quotas together, and another user has its own.
        let mut second = guest(&coordinator, GUEST, "second", "unmanaged", &[]);
        assert_eq!(second.ask("info", LIMIT), "free 8 total 16");
        assert_eq!(second.ask("plain 10", LIMIT), "answer 2");
        assert_eq!(quotas(tenant(&coordinator.status(), "second")), ["host_pool"]);
        assert!(said(&coordinator, &["why", "second"]).contains("--guest-host-pool"));
        let mut other = guest(&coordinator, OTHER, "other", "unmanaged", &[]);
        assert_eq!(other.ask("plain 16", LIMIT), "made");
        let mut own = coordinator.join("own", &program("unmanaged"), &[]);
        assert!(own.line(LIMIT).starts_with("ready "));
        assert_eq!(own.ask("plain 60", LIMIT), "made");

        // The other can have the memory that one gives back.
        assert_eq!(first.ask("drop", LIMIT), "dropped");
        assert_eq!(second.ask("plain 10", LIMIT), "made");
        for mut running in [first, second, other, own] {
            assert!(running.ask("quit", LIMIT).ends_with(" ok"));
        }
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn however_many_guests_there_are_the_owner_has_memory_left() {
        let coordinator = with_guests(&[("--guest-host-pool", "100%")]);
        let hoard = |user: u32, at: usize| {
            let mut running = guest(&coordinator, user, &format!("hoard {user} {at}"), "unmanaged", &[]);
            while running.ask("plain 8", LIMIT) == "made" {}
            running
        };
        let _hoards = [(GUEST, 0), (OTHER, 0), (GUEST, 1), (OTHER, 1)].map(|(user, at)| hoard(user, at));
        let mut own = coordinator.join("own", &program("unmanaged"), &[]);
        assert!(own.line(LIMIT).starts_with("ready "));
        assert_eq!(own.ask("plain 20", LIMIT), "made");
        assert!(own.ask("quit", LIMIT).ends_with(" ok"));
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guests_memory_that_does_not_move_has_a_quota_too() {
        let coordinator = with_guests(&[("--guest-leases", "64MiB")]);
        let lease = |tenant: &BareTenant, least: u64, bytes: u64| match tenant
            .ask(&Request::UnmanagedMemory { least: least * MIB, bytes: bytes * MIB })
            .0
        {
            Answer::UnmanagedMemory { bytes } => bytes / MIB,
            other => panic!("{other:?}"),
        };
        let [first, mut second, other] = [(GUEST, "first"), (GUEST, "second"), (OTHER, "other")]
            .map(|(user, name)| BareTenant::join_as(user, &coordinator, name));
        assert_eq!(lease(&first, 40, 64), 64, "more is welcome");
        assert_eq!(lease(&second, 1, 1), 0);
        assert_eq!(quotas(tenant(&coordinator.status(), "second")), ["leases"]);
        assert!(said(&coordinator, &["why", "second"]).contains("--guest-leases"));
        assert_eq!([lease(&other, 64, 64), lease(&BareTenant::join(&coordinator, "own"), 100, 100)], [64, 100]);
        first.tell(&MemoryReport::Unleased { bytes: 40 * MIB });
        coordinator.until("it is given back", |status| tenant(status, "first")["leased_bytes"] == 24 * MIB);
        assert_eq!(lease(&second, 20, 64), 40, "what there is of the quota");
        assert_eq!(quotas(tenant(&coordinator.status(), "second")), [""; 0]);

        // Memory that others can reach stays in the arena: that counts too.
        second.take_gpu();
        let (extents, _) = second.allocate(2 * MIB);
        let extents: Vec<_> = extents.into_iter().map(|(extent, _)| extent).collect();
        assert_eq!(second.ask(&Request::MakeImmovable { extents: extents.clone() }).0, Answer::Movable);
        second.tell(&MemoryReport::Unleased { bytes: 2 * MIB });
        assert_eq!(second.ask(&Request::MakeImmovable { extents }).0, Answer::Immovable);
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_is_of_the_best_class_that_it_may_have_and_that_is_said() {
        let coordinator = with_guests(&[]);
        let start = |name: &str, class: &str, weight: &str| {
            let mut command = joining(coordinator.prepared(), GUEST, name, &program("hold"), &["--megabytes", "4"]);
            command.env("BATON_CLASS", class).env("BATON_WEIGHT", weight);
            let mut running = Running::start(&mut command, true, Some(coordinator.place.clone()));
            assert!(running.line(LIMIT).starts_with("ready "), "{}", running.err());
            running
        };
        let _running = [start("urgent", "latency", "1"), start("heavy", "normal", "9"), start("modest", "batch", "1")];
        let status = coordinator.status();
        let of = |name: &str| (tenant(&status, name)["class"].clone(), tenant(&status, name)["weight"].clone());
        assert_eq!(
            ["urgent", "heavy", "modest"].map(of),
            [("normal", 1), ("normal", 1), ("batch", 1)].map(|(a, b)| (a.into(), b.into()))
        );
        assert_eq!(
            ["urgent", "heavy", "modest"].map(|name| quotas(tenant(&status, name))),
            [vec!["class"], vec!["weight"], vec![]]
        );
        assert_eq!(tenant(&status, "urgent")["user"], GUEST);
        for words in [&["status"][..], &["why", "urgent"]] {
            let said = said(&coordinator, words);
            assert!(said.contains("asked for class latency") && said.contains("(--guest-class)"), "{said}");
        }
        assert!(coordinator.log().contains("urgent is not scheduled as it asked for"), "{}", coordinator.log());
        let refused = asked_as(coordinator.prepared(), GUEST, &["set", "modest", "class=latency"]);
        assert!(refused.status == "exit status: 1" && refused.err.contains("--guest-class"), "{refused:?}");
        // The owner may have it otherwise.
        said(&coordinator, &["set", "urgent", "class=latency"]);
        let status = coordinator.status();
        assert_eq!(
            (&tenant(&status, "urgent")["class"], quotas(tenant(&status, "urgent"))),
            (&"latency".into(), vec![])
        );
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_has_so_many_tenants_and_the_next_waits_for_one_of_them() {
        let coordinator = with_guests(&[("--guest-programs", "1")]);
        let mut first = guest(&coordinator, GUEST, "first", "hold", &["--megabytes", "4"]);
        let mut command = joining(coordinator.prepared(), GUEST, "second", &program("hold"), &["--megabytes", "4"]);
        let mut second = Running::start(&mut command, true, Some(coordinator.place.clone()));
        let waits = |status: &Value| status["newcomers"].as_array().is_some_and(|all| all.len() == 1);
        let status = coordinator.until("the second waits", waits);
        assert_eq!(quotas(&status["newcomers"][0]), ["tenants"]);
        for words in [&["status"][..], &["why", "second"]] {
            let said = said(&coordinator, words);
            assert!(
                said.contains("no more than 1 programs of its user") && said.contains("--guest-programs"),
                "{said}"
            );
        }
        let other = guest(&coordinator, OTHER, "other", "hold", &["--megabytes", "4"]);
        assert!(first.ask("quit", LIMIT).ends_with(" ok"));
        assert!(second.line(LIMIT).starts_with("ready "));
        for mut running in [second, other] {
            assert!(running.ask("quit", LIMIT).ends_with(" ok"));
        }
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_guest_steers_its_own_programs_and_the_owner_and_root_all() {
        let coordinator = with_guests(&[]);
        let _own = coordinator.join("own", &program("hold"), &["--megabytes", "4"]);
        let hold = |user: u32, name: &str| guest(&coordinator, user, name, "hold", &["--megabytes", "4"]);
        let (mut mine, _theirs) = (hold(GUEST, "mine"), hold(OTHER, "theirs"));
        let suspended = |name: &str| tenant(&coordinator.status(), name)["suspended"].clone();
        let verbs: [&[&str]; 5] = [&["suspend"], &["resume"], &["evict"], &["prefetch"], &["set"]];
        for verb in verbs {
            let words = |name: &'static str| -> Vec<&str> {
                let more: &[&str] = if verb == ["set"] { &["class=batch"] } else { &[] };
                [verb, &[name], more].concat()
            };
            for name in ["own", "theirs", "nobody"] {
                let ended = asked_as(coordinator.prepared(), GUEST, &words(name));
                assert!(ended.status == "exit status: 1", "{ended:?}");
                assert!(ended.err.contains(&format!("user {GUEST} has no program called {name} here")), "{ended:?}");
            }
            let ended = asked_as(coordinator.prepared(), GUEST, &words("mine"));
            assert_eq!(ended.status, "exit status: 0", "{verb:?} {ended:?}");
            if verb == ["suspend"] {
                assert_eq!(["mine", "own", "theirs"].map(suspended), [true, false, false].map(Value::from));
            }
            said(&coordinator, &words("theirs"));
        }
        let status = coordinator.status();
        assert_eq!(["own", "mine", "theirs"].map(|name| &tenant(&status, name)["class"]), ["normal", "batch", "batch"]);
        assert!(mine.ask("quit", LIMIT).ends_with(" ok"));
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn a_coordinators_socket_is_its_groups() {
        let group = 60007;
        let prepared = shared_with(Serving::arena("64MiB").option("--allow-group", &group.to_string()));
        let coordinator = serving(prepared);
        let prepared = coordinator.prepared();
        let found = std::fs::metadata(prepared.place.socket()).expect("a socket");
        assert_eq!((found.permissions().mode() & 0o777, found.gid()), (0o660, group));
        let hold = |name: &str| joining(prepared, GUEST, name, &program("hold"), &["--megabytes", "4"]);
        // In that group besides its own, as `newgrp` and logins have it.
        let grouped = |command: &Command| {
            let mut outer = Command::new("setpriv");
            outer.args([&format!("--reuid={GUEST}"), &format!("--regid={GUEST}"), &format!("--groups={group}"), "--"]);
            around(outer, command)
        };
        let mut command = coordinator.place.joining("member", &program("hold"), &["--megabytes", "4"]);
        for (name, value) in hold("member").get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let mut member = Running::start(&mut grouped(&command), true, Some(coordinator.place.clone()));
        assert!(member.line(LIMIT).starts_with("ready "), "{}", member.err());
        assert!(member.ask("quit", LIMIT).ends_with(" ok"));
        let ended = run(&mut hold("stranger"));
        assert_eq!(ended.status, "exit status: 125", "{ended:?}");
        assert!(!coordinator.log().contains("stranger"));

        let prepared = shared_with(Serving::arena("64MiB"));
        let mut serve =
            prepared.place.baton(&["serve", "--driver", "sim", "--arena", "64MiB", "--allow-group", "no such"]);
        let ended = run(serve.arg("--socket").arg(prepared.place.socket()));
        assert!(
            ended.status == "exit status: 1" && ended.err.contains("there is no group called no such"),
            "{ended:?}"
        );
    }

    #[test]
    #[ignore = "root: there are several users"]
    fn what_guests_have_on_the_host_is_not_even_read_by_the_coordinators_user() {
        // A coordinator of a user's who is not root, with guests and without.
        for guests in [true, false] {
            let serving = Serving::arena("64MiB");
            let serving = if guests { serving.option("--allow-uid", &GUEST.to_string()) } else { serving };
            let prepared = shared_with(serving);
            std::os::unix::fs::chown(prepared.place.folder(), Some(OTHER), None).expect("root may");
            std::os::unix::fs::chown(prepared.place.folder().join("runtime"), Some(OTHER), None).expect("root may");
            let files = ["baton", "libsimcuda.so", "libbaton.so"]
                .map(|name| copied(&prepared, &baton_tests::built().bin.join(name)));
            let as_another = |serve: &Command| {
                let mut outer = Command::new("setpriv");
                outer.args([&format!("--reuid={OTHER}"), &format!("--regid={OTHER}"), "--clear-groups", "--"]);
                let mut inner = Command::new(&files[0]);
                inner.args(serve.get_args());
                for (name, value) in serve.get_envs() {
                    inner.env(name, value.unwrap_or_default());
                }
                inner.env("BATON_DRIVER", &files[1]).current_dir("/");
                around(outer, &inner)
            };
            let mut serving = Running::start(&mut as_another(&prepared.serve()), false, None);
            while !serving.err().contains("is ready") {
                assert!(serving.ended().is_none(), "{}", serving.err());
                std::thread::sleep(Duration::from_millis(20));
            }
            let pid = serving.pid();
            // By a process of the coordinator's user, and of its group.
            let can = |words: [&str; 2]| {
                let mut other = Command::new(words[0]);
                other.arg(format!("/proc/{pid}/{}", words[1])).uid(OTHER).gid(OTHER).current_dir("/");
                run(&mut other).status == "exit status: 0"
            };
            assert_eq!([can(["ls", "fd"]), can(["cat", "environ"])].map(|can| !can), [guests; 2]);
            let pool = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("this is root");
            let flags = |part: &str| part.lines().find_map(|line| line.strip_prefix("VmFlags:")).map(str::to_owned);
            let slabs: Vec<&str> = pool.split("\n").filter(|line| line.contains("memfd:baton-pool")).collect();
            assert!(!slabs.is_empty());
            for slab in slabs {
                let (_, rest) = pool.split_once(slab).expect("it is in it");
                assert!(flags(rest).is_some_and(|flags| flags.contains(" dd")), "in a dump: {slab}");
            }
            serving.signal(libc::SIGTERM);
            serving.end(LIMIT);
        }
    }
}
