//! All of the GPU's memory is in one ledger: a program that needs memory outside the arena gets it while any line can give it, and what is
//! shown adds up to what the driver says.

use baton_tests::coordinator::{Coordinator, Serving, program, tenant, with_driver};
use baton_tests::hold::{self, Busy};
use baton_tests::running::Running;
use baton_tests::{LIMIT, MIB};
use serde_json::Value;

/// The ledger cannot see what the driver rounds up, the 2 MiB with which each program is probed, and what the coordinator takes when
/// it first looks at memory.
const HIDDEN: u64 = 12 * MIB;

/// A GPU of 256 MiB. Its contexts take 20 MiB each, as far as programs of [`maker`] make them.
fn serving(arena: &str) -> Serving {
    Serving::arena(arena).memory("256MiB")
}

/// A program with memory that does not move, on a driver whose contexts, arrays and managed memory take memory of the GPU.
#[track_caller]
fn maker(coordinator: &Coordinator, name: &str) -> Running {
    let mut command = coordinator.place.joining(name, &program("unmanaged"), &[]);
    with_driver(&mut command, "libcostly_driver.so");
    hold::ready(&mut command, Some(coordinator.place.clone()))
}

#[track_caller]
fn holder(coordinator: &Coordinator, name: &str, megabytes: &str) -> Running {
    hold::joined(coordinator, name, "normal", megabytes, None)
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// The MiB that a program is told are free, and in all.
#[track_caller]
fn info(running: &mut Running) -> (u64, u64) {
    let answer = running.ask("info", LIMIT);
    let words: Vec<&str> = answer.split_whitespace().collect();
    let ["free", free, "total", total] = words[..] else { panic!("{answer}") };
    (free.parse().expect("a number"), total.parse().expect("a number"))
}

/// Two programs of an arena of 64 MiB and next to no host pool, of which the second has asked what is free while the first had
/// 40 MiB.
#[track_caller]
fn beside_forty() -> (Coordinator, Running, Running, u64) {
    let coordinator = serving("64MiB").option("--host-pool", "16MiB").start();
    let mut first = maker(&coordinator, "first");
    let mut second = maker(&coordinator, "second");
    assert_eq!(first.ask("plain 40", LIMIT), "made");
    // Others' memory is shown a moment later.
    let told = loop {
        let mut asking = maker(&coordinator, "asking");
        let (free, _) = info(&mut asking);
        asking.ask("quit", LIMIT);
        if free <= 40 {
            break info(&mut second).0;
        }
    };
    assert!(told <= 40, "{told}");
    (coordinator, first, second, told)
}

#[test]
fn what_a_program_was_told_is_free_does_not_rise_when_others_leave() {
    let (coordinator, mut first, mut second, told) = beside_forty();
    assert_eq!(second.ask("plain 8", LIMIT), "made");
    assert_eq!(info(&mut second).0, told - 8);
    first.ask("quit", LIMIT);
    first.end(LIMIT);
    // A program that comes then is told of all of it.
    let mut third = maker(&coordinator, "third");
    while info(&mut third).0 < 48 {
        third.ask("quit", LIMIT);
        third = maker(&coordinator, "third");
    }
    assert_eq!(info(&mut second).0, told - 8, "others have left");
    assert_eq!(second.ask("plain 2", LIMIT), "made");
    assert_eq!(info(&mut second).0, told - 10);
    // All of it can be had, whatever it was told.
    assert_eq!(second.ask("plain 40", LIMIT), "made");
    assert_eq!(info(&mut second).0, 0);
    second.ask("drop", LIMIT);
    second.ask("drop", LIMIT);
    assert_eq!(info(&mut second).0, told - 8, "it has freed some");
    second.ask("drop", LIMIT);
    assert!(info(&mut second).0 >= 48, "it has freed everything");
}

#[test]
fn what_a_program_was_told_is_free_does_not_rise_when_others_give_back_what_cannot_move() {
    let coordinator = serving("160MiB").start();
    let mut first = maker(&coordinator, "first");
    let mut second = maker(&coordinator, "second");
    assert_eq!(first.ask("array 96", LIMIT), "made");
    assert_eq!(second.ask("plain 8", LIMIT), "made");
    let told = info(&mut second).0;
    assert!(told < 110, "{told}");
    first.ask("quit", LIMIT);
    first.end(LIMIT);
    coordinator.until("the arena has grown back", |status| number(&status["arena"]["bytes"]) > 140 * MIB);
    assert_eq!(info(&mut second).0, told);
}

/// The ledger's lines by name, in bytes, with what is unmanaged in one.
#[track_caller]
fn lines(status: &Value) -> Vec<(String, u64)> {
    let lines = status["ledger"]["lines"].as_object().expect("lines");
    let bytes = |value: &Value| match value.as_object() {
        Some(kinds) => kinds.values().map(number).sum(),
        None => number(value),
    };
    lines.iter().map(|(name, value)| (name.clone(), bytes(value))).collect()
}

/// Checks an invariant: every byte is in one line, and nearly all that is used is known.
#[track_caller]
fn adds_up(status: &Value) {
    let ledger = &status["ledger"];
    let all: u64 = lines(status).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(all, number(&ledger["total_bytes"]), "{ledger:#}");
    let hidden = number(&ledger["lines"]["hidden_bytes"]);
    assert_eq!(number(&ledger["known_bytes"]) + hidden, number(&ledger["driver_used_bytes"]), "{ledger:#}");
    assert!(hidden <= HIDDEN, "{hidden} bytes: {ledger:#}");
}

/// The bytes that the simulated driver itself reports as used, to a program that is no tenant.
#[track_caller]
fn driver_used(coordinator: &Coordinator) -> u64 {
    let mut command = coordinator.place.joining("nobody", &program("info"), &["--only-free", "1"]);
    command.env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", baton_tests::Driver::simulated().folder());
    let said = Running::start(&mut command, false, None).finish(LIMIT).succeeded().out;
    let words: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [free, total] = words[..] else { panic!("{said}") };
    total - free
}

fn squeezed(status: &Value) -> bool {
    status["arena"]["bytes"].as_u64() < status["arena"]["configured_bytes"].as_u64()
}

#[test]
fn the_arena_makes_way_for_arrays_and_grows_back() {
    let coordinator = serving("200MiB").start();
    let (mut first, mut second) = (holder(&coordinator, "first", "60"), holder(&coordinator, "second", "60"));
    let mut maker = maker(&coordinator, "maker");
    assert_eq!(maker.ask("array 90", LIMIT), "made");
    assert_eq!(maker.ask("array 60", LIMIT), "made", "one of the others can go");
    let status = coordinator.status();
    adds_up(&status);
    assert_eq!(number(&status["ledger"]["driver_used_bytes"]), driver_used(&coordinator));
    assert_eq!(number(&status["ledger"]["lines"]["unmanaged"]["array"]), 150 * MIB);
    assert_eq!(number(&tenant(&status, "maker")["unmanaged"]["array"]), 150 * MIB);
    assert!(squeezed(&status), "{:#}", status["arena"]);

    // The rest is enough for each of the others alone.
    for turn in 0..4 {
        let running = if turn % 2 == 0 { &mut first } else { &mut second };
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
    }
    assert_eq!(maker.ask("array 60", LIMIT), "answer 2", "no line can give that");
    adds_up(&coordinator.status());

    for _ in 0..2 {
        assert_eq!(maker.ask("drop", LIMIT), "dropped");
    }
    let status = coordinator.until("the arena is as large as it was", |status| !squeezed(status));
    adds_up(&status);
    assert_eq!(number(&tenant(&status, "maker")["leased_bytes"]), 0);
    for mut running in [first, second, maker] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn every_kind_is_a_line_and_goes_when_it_is_given_back() {
    let coordinator = serving("128MiB").start();
    let mut maker = maker(&coordinator, "maker");
    let of = |kind: &str| {
        let status = coordinator.status();
        adds_up(&status);
        let here = &tenant(&status, "maker")["unmanaged"][kind];
        (number(here), number(&status["ledger"]["lines"]["unmanaged"][kind]))
    };
    let made = [("array", "array 6", 6), ("managed", "managed 10", 10), ("array", "mipmap 8", 6 + 8 + 2)];
    for (kind, line, megabytes) in made {
        assert_eq!(maker.ask(line, LIMIT), "made", "{line}");
        let (here, in_all) = of(kind);
        // A mipmap's second level has half of each side.
        assert!(here.abs_diff(megabytes * MIB) <= MIB && in_all == here, "{line}: {here} and {in_all}");
    }
    assert_eq!(maker.ask("external 30", LIMIT), "made");
    let (here, in_all) = of("external");
    assert!(here == 30 * MIB && in_all <= HIDDEN, "{here}, and {in_all} is believed, as nothing more is used");
    for _ in 0..4 {
        assert_eq!(maker.ask("drop", LIMIT), "dropped");
    }
    for kind in ["array", "managed", "external"] {
        assert_eq!(of(kind), (0, 0), "{kind}");
    }
    assert!(maker.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn small_arrays_come_out_of_one_lease() {
    let coordinator = serving("128MiB").start();
    let mut maker = maker(&coordinator, "maker");
    assert_eq!(maker.ask("small 1", LIMIT), "made");
    let leased = number(&tenant(&coordinator.status(), "maker")["leased_bytes"]);
    assert!(leased >= MIB, "a step is more than a small array: {leased}");
    let fit = leased / (64 << 10);
    assert_eq!(maker.ask(&format!("small {}", fit - 1), LIMIT), "made");
    assert_eq!(number(&tenant(&coordinator.status(), "maker")["leased_bytes"]), leased);
    assert_eq!(maker.ask("small 1", LIMIT), "made");
    assert!(number(&tenant(&coordinator.status(), "maker")["leased_bytes"]) > leased);
    assert!(maker.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_program_is_told_what_it_could_have_and_what_it_has() {
    let coordinator = serving("128MiB").start();
    let mut maker = maker(&coordinator, "maker");
    let (free, total) = info(&mut maker);
    assert_eq!((free, total), (128, 128));
    assert_eq!(maker.ask("plain 20", LIMIT), "made");
    assert_eq!(maker.ask("array 30", LIMIT), "made");
    assert_eq!(info(&mut maker), (78, 128), "an array is its own memory too");
    // 256 less a context, and less this array: the arena has to give.
    assert_eq!(maker.ask("array 150", LIMIT), "made");
    let (free, total) = info(&mut maker);
    assert!(free == 0 && total <= 128, "{free} of {total}");
    let status = coordinator.status();
    adds_up(&status);
    assert!(squeezed(&status));
    assert_eq!(maker.ask("drop", LIMIT), "dropped");
    coordinator.until("the arena is as large as it was", |status| !squeezed(status));
    assert_eq!(info(&mut maker), (78, 128));
    assert!(maker.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn what_others_have_in_arena_and_pool_is_not_free() {
    let coordinator = serving("64MiB").option("--host-pool", "64MiB").start();
    let (mut first, mut second) = (holder(&coordinator, "first", "60"), holder(&coordinator, "second", "40"));
    let mut maker = maker(&coordinator, "maker");
    let (free, total) = info(&mut maker);
    assert_eq!(total, 64);
    assert!(free <= 28 - 2, "128 MiB less 100 and an extent: {free}");
    assert!(free >= 20, "not much less: {free}");
    assert_eq!(maker.ask(&format!("plain {free}"), LIMIT), "made", "what is free can be had");
    assert_eq!(maker.ask("plain 20", LIMIT), "answer 2");
    for running in [&mut first, &mut second, &mut maker] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn an_allocation_gets_what_was_given_back_a_moment_ago() {
    let coordinator = serving("224MiB").start();
    let mut maker = maker(&coordinator, "maker");
    for _ in 0..4 {
        assert_eq!(maker.ask("array 180", LIMIT), "made");
        assert_eq!(maker.ask("plain 100", LIMIT), "answer 2", "there are but 56");
        assert_eq!(maker.ask("drop", LIMIT), "dropped");
        assert_eq!(maker.ask("plain 200", LIMIT), "made");
        assert_eq!(maker.ask("array 100", LIMIT), "answer 2", "there are but 36");
        assert_eq!(maker.ask("drop", LIMIT), "dropped");
    }
    adds_up(&coordinator.status());
    assert!(maker.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn contexts_are_measured_and_go_with_their_arrays() {
    let coordinator = serving("128MiB").start();
    let (mut one, mut two) = (maker(&coordinator, "one"), maker(&coordinator, "two"));
    let contexts = |status: &Value, name: &str| number(&tenant(status, name)["contexts_bytes"]) / MIB;
    let status =
        coordinator.until("both are measured", |status| lines(status).contains(&("contexts_bytes".into(), 40 * MIB)));
    adds_up(&status);
    assert_eq!((contexts(&status, "one"), contexts(&status, "two")), (20, 20));
    assert_eq!(two.ask("array 10", LIMIT), "made");
    assert_eq!(two.ask("release", LIMIT), "released");
    let status = coordinator.until("it is gone", |status| contexts(status, "two") == 0);
    let shown = tenant(&status, "two");
    assert_eq!(number(&shown["unmanaged"]["array"]), 0, "{shown:#}");
    assert_eq!(contexts(&status, "one"), 20);
    assert!(one.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_context_is_made_although_a_program_that_runs_has_the_memory() {
    let coordinator = serving("256MiB").start();
    let (mut first, mut second) = (holder(&coordinator, "first", "120"), holder(&coordinator, "second", "120"));
    let busy = Busy::start(&mut second, &coordinator.place);
    coordinator.until_tenant_is("second", "running");
    let mut maker = maker(&coordinator, "maker");
    adds_up(&coordinator.status());
    busy.end(&mut second);
    for running in [&mut first, &mut second] {
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
    assert!(maker.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn an_array_is_refused_if_others_memory_would_no_longer_fit_arena_and_host_pool() {
    let coordinator = serving("230MiB").option("--host-pool", "96MiB").start();
    let mut maker = maker(&coordinator, "maker");
    let (mut first, mut second) = (holder(&coordinator, "first", "100"), holder(&coordinator, "second", "100"));
    assert_ne!(maker.ask("array 120", LIMIT), "made");
    adds_up(&coordinator.status());
    for running in [&mut first, &mut second] {
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
    }
    assert_eq!(maker.ask("array 20", LIMIT), "made");
    for running in [&mut first, &mut second, &mut maker] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn an_array_is_made_although_a_program_that_runs_has_the_memory() {
    let coordinator = serving("230MiB").start();
    let mut maker = maker(&coordinator, "maker");
    let (mut first, mut second) = (holder(&coordinator, "first", "100"), holder(&coordinator, "second", "100"));
    let busy = Busy::start(&mut second, &coordinator.place);
    coordinator.until_tenant_is("second", "running");
    assert_eq!(maker.ask("array 120", LIMIT), "made");
    adds_up(&coordinator.status());
    busy.end(&mut second);
    for running in [&mut first, &mut second, &mut maker] {
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn status_says_what_is_not_moved_and_why() {
    let coordinator = serving("128MiB").start();
    let mut maker = maker(&coordinator, "maker");
    for line in ["array 6", "managed 10"] {
        assert_eq!(maker.ask(line, LIMIT), "made");
    }
    let mut command = coordinator.place.baton(&["status", "--socket"]);
    let said = command.arg(coordinator.place.socket()).output().expect("baton can be started").stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("\nbeside it  unmanaged 16 MiB, contexts 20 MiB, "), "{said}");
    assert!(said.contains("not moved, because arrays have no addresses: maker 6 MiB\n"), "{said}");
    assert!(said.contains("not moved, because the driver itself moves managed memory: maker 10 MiB\n"), "{said}");
    assert!(maker.ask("quit", LIMIT).ends_with(" ok"));
    // All of it went with it.
    let status = coordinator.until_empty();
    adds_up(&status);
}
