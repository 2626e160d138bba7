//! Legal programs of unusual kinds do as Baton's what they do alone: they end, say the same, and keep their memory.
//!
//! The programs of `tests/c/legal` say which call they were in if they hang. Where a test is about memory that comes back,
//! the bus is so slow that calls are made meanwhile.

use std::process::Command;
use std::time::{Duration, Instant};

use baton_tests::coordinator::{Coordinator, Place, Serving, program, tenant, with_driver};
use baton_tests::hold::{self, Busy};
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, MIB, Outcome, built};
use serde_json::Value;

/// Longer than anything that still comes about takes.
const LONG: Duration = Duration::from_secs(20);

/// Programs are drained and never paused: paused work comes back whole.
pub(super) fn serving() -> Serving {
    Serving::arena("96MiB").option("--host-pool", "128MiB").flag("--no-preempt")
}

/// Memory comes back so slowly that calls are made meanwhile.
pub(super) fn slow() -> Serving {
    serving().setting("SIMCUDA_H2D_GBPS", "0.2").setting("SIMCUDA_D2H_GBPS", "6")
}

/// A coordinator under which no turn ends because its time is over.
pub(super) fn patient() -> Serving {
    serving().option("--quantum", "1h")
}

/// Runs a program to its end; each time that it waits, something is done, and it goes on.
#[track_caller]
pub(super) fn to_the_end(command: &mut Command, place: Option<Place>, mut meanwhile: impl FnMut(usize)) -> Outcome {
    command.env("LEGAL_DRIVER", Driver::simulated().library());
    let mut running = Running::start(command, true, place);
    let mut waits = 0;
    while let Ok(line) = running.line_if_any(LIMIT) {
        if line == "waits" {
            meanwhile(waits);
            waits += 1;
            running.say("");
        }
    }
    running.finish(LIMIT)
}

/// How many GPUs a program wants to see.
pub(super) fn gpus(name: &str) -> &'static str {
    if matches!(name, "several" | "multicast" | "apart") { "2" } else { "1" }
}

/// The outcome of a program's case on a GPU of its own, or on two.
#[track_caller]
fn alone(name: &str, case: &str) -> Outcome {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Driver::simulated().bare(built().programs.join("legal").join(name));
    command.arg(case).env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_GPUS", gpus(name)).env("SIMCUDA_PAGEABLE", "on");
    if name == "waiting" {
        command.env("SIMCUDA_WAITING", "on");
    }
    // Of a program's processes too.
    command.env("SIMCUDA_GPU_FILE", folder.path().join("gpu"));
    to_the_end(&mut command, None, |_| {}).succeeded()
}

/// A case of a program as a tenant of its name.
fn joining(coordinator: &Coordinator, name: &str, case: &str) -> Command {
    coordinator.place.joining(name, &built().programs.join("legal").join(name), &[case])
}

/// Its outcome as a tenant.
#[track_caller]
fn played(coordinator: &Coordinator, name: &str, case: &str, meanwhile: impl FnMut(usize)) -> Outcome {
    to_the_end(&mut joining(coordinator, name, case), Some(coordinator.place.clone()), meanwhile)
}

/// That is what it does alone.
#[track_caller]
fn same(coordinator: &Coordinator, name: &str, case: &str, meanwhile: impl FnMut(usize)) {
    let shared = played(coordinator, name, case, meanwhile);
    assert_eq!(shared, alone(name, case), "{name} {case}: shared (left) and alone (right)");
}

/// Moves all of an idle program's memory to the host.
#[track_caller]
pub(super) fn evict(coordinator: &Coordinator, name: &str) -> Value {
    let end = Instant::now() + LONG;
    while !coordinator.evict(name) {
        assert!(Instant::now() < end, "{name} cannot be evicted{}", coordinator.place.story());
    }
    coordinator.status()
}

/// The same of one whose memory may have to stay, for whatever reason.
fn try_to_evict(coordinator: &Coordinator, name: &str) {
    let mut command = coordinator.place.baton(&["evict", "--socket"]);
    command.arg(coordinator.place.socket()).arg(name).output().expect("baton can be started");
}

/// Takes a program off the GPU in the middle of its work, has another one use so many megabytes there, and lets the first one go on.
#[track_caller]
pub(super) fn take_off_and_bring_back(coordinator: &Coordinator, name: &str, megabytes: &str) {
    let steer = |verb: &str| {
        let mut command = coordinator.place.baton(&[verb, "--socket"]);
        command.arg(coordinator.place.socket()).arg(name);
        assert!(command.status().expect("baton can be started").success());
    };
    steer("pause");
    coordinator.until_tenant_is(name, "suspended");
    let mut other = hold::joined(coordinator, "other", "normal", megabytes, None);
    assert!(other.ask("touch", LIMIT).starts_with("touched "));
    assert!(coordinator.status()["bytes_out"].as_u64() > Some(0), "nothing had to go");
    drop(other);
    steer("resume");
}

/// One that wants the GPU, which another one has.
#[track_caller]
pub(super) fn waiting(coordinator: &Coordinator) -> Running {
    let other = coordinator.join("other", &program("hold"), &["--megabytes", "8"]);
    coordinator.until_tenant_is("other", "waiting");
    other
}

#[test]
fn freeing_memory_holds_up_nobody_else() {
    let coordinator = serving().start();
    for case in ["beside-questions", "in-order-beside-destroy"] {
        same(&coordinator, "freeing", case, |_| {});
    }
}

#[test]
fn freeing_in_a_streams_order_does_not_wait() {
    let coordinator = serving().start();
    same(&coordinator, "freeing", "in-order", |_| {});
}

#[test]
fn what_is_freed_in_a_streams_order_stays_until_the_stream_is_there() {
    // Also while the program is off the GPU in the middle of that, and others have its memory.
    let coordinator = Serving::arena("64MiB").start();
    same(&coordinator, "freeing", "in-order-contents", |_| take_off_and_bring_back(&coordinator, "freeing", "60"));
}

#[test]
fn a_thread_frees_memory_while_a_blocking_stream_is_captured() {
    let coordinator = serving().start();
    for case in ["captured", "captured-elsewhere"] {
        same(&coordinator, "freeing", case, |_| {});
    }
}

#[test]
fn memory_that_is_freed_while_threads_leave_its_context_stays_until_its_work_has_ended() {
    let coordinator = serving().start();
    for case in ["freed", "freed-in-order", "freed-detaching", "pool"] {
        same(&coordinator, "leaving", case, |_| {});
    }
}

#[test]
fn contexts_are_left_and_made_anew_by_a_driver_that_has_no_numbers_for_them() {
    let coordinator = serving().start();
    for case in ["freed", "freed-detaching", "made-anew"] {
        let mut command = joining(&coordinator, "leaving", case);
        with_driver(&mut command, "libnumberless_driver.so");
        let shared = to_the_end(&mut command, Some(coordinator.place.clone()), |_| {});
        assert_eq!(shared, alone("leaving", case), "{case}: shared (left) and alone (right)");
    }
}

#[test]
fn what_we_have_in_a_context_goes_with_it() {
    let coordinator = slow().start();
    same(&coordinator, "leaving", "variables", |_| drop(evict(&coordinator, "leaving")));
}

#[test]
fn a_context_that_ends_and_is_made_anew_by_another_thread_is_another_one() {
    let coordinator = serving().start();
    same(&coordinator, "leaving", "made-anew", |_| {});
}

#[test]
fn nobody_waits_for_what_waits_in_another_context() {
    let coordinator = serving().start();
    for case in ["contexts-free", "contexts-in-order"] {
        same(&coordinator, "apart", case, |_| {});
    }
}

#[test]
fn nobody_waits_for_a_thread_that_is_stuck_with_a_full_queue() {
    let coordinator = serving().start();
    for case in ["stuck-frees", "stuck-pool", "stuck-legacy"] {
        same(&coordinator, "apart", case, |_| {});
    }
}

#[test]
fn nobody_waits_for_objects_that_cannot_be_made_as_long_as_a_stream_waits() {
    let coordinator = serving().setting("SIMCUDA_WAITING", "on").start();
    for case in ["calls", "contexts"] {
        same(&coordinator, "waiting", case, |_| {});
    }
}

#[test]
fn nobody_waits_for_such_objects_while_somebody_wants_the_gpu() {
    let coordinator = patient().setting("SIMCUDA_WAITING", "on").start();
    let mut other = None;
    same(&coordinator, "waiting", "calls", |_| other = Some(waiting(&coordinator)));
    assert!(other.expect("it has come").line(LIMIT).starts_with("ready "));
}

#[test]
fn nobody_waits_for_such_objects_when_memory_has_gone_and_comes_back() {
    let coordinator = Serving::arena("96MiB").option("--host-pool", "128MiB").setting("SIMCUDA_WAITING", "on");
    let coordinator = coordinator.setting("SIMCUDA_H2D_GBPS", "0.2").start();
    same(&coordinator, "waiting", "calls", |_| take_off_and_bring_back(&coordinator, "waiting", "90"));
}

#[test]
fn a_capture_puts_no_order_between_other_streams() {
    let coordinator = serving().start();
    for case in ["capture", "capture-kernel"] {
        same(&coordinator, "ordering", case, |_| {});
    }
}

#[test]
fn a_capture_begins_beside_another_one_while_somebody_wants_the_gpu() {
    let coordinator = patient().start();
    let mut command = joining(&coordinator, "ordering", "side-by-side");
    // Between its answers there is time for a capture to begin.
    with_driver(&mut command, "libhesitant_driver.so");
    let mut other = None;
    let shared = to_the_end(&mut command, Some(coordinator.place.clone()), |_| other = Some(waiting(&coordinator)));
    assert_eq!(shared, alone("ordering", "side-by-side"), "shared (left) and alone (right)");
    assert!(other.expect("it has come").line(LIMIT).starts_with("ready "));
}

#[test]
fn launches_in_a_threads_own_stream_wait_for_no_other_while_somebody_wants_the_gpu() {
    let coordinator = patient().start();
    let mut other = None;
    same(&coordinator, "per_thread", "launches", |_| other = Some(waiting(&coordinator)));
    assert!(other.expect("it has come").line(LIMIT).starts_with("ready "));
}

#[test]
fn threads_allocate_at_once_from_a_pool_that_has_nothing_yet() {
    let coordinator = serving().start();
    for case in ["first-pool", "small-pool"].repeat(5) {
        same(&coordinator, "per_thread", case, |_| {});
    }
}

#[test]
fn threads_go_on_beside_one_that_launches_into_a_full_queue() {
    let coordinator = patient().start();
    let mut other = None;
    same(&coordinator, "ordering", "full-queue", |_| other = Some(waiting(&coordinator)));
    assert!(other.expect("it has come").line(LIMIT).starts_with("ready "));
}

#[test]
fn an_allocation_has_no_second_address_at_which_others_memory_could_be() {
    let coordinator = serving().start();
    let want = hold::alone("94", &["touch"; 2]);
    let mut other = None;
    same(&coordinator, "aliases", "retain", |waits| match (waits, &mut other) {
        (0, _) => {
            evict(&coordinator, "aliases");
            let mut next = hold::joined(&coordinator, "other", "normal", "94", None);
            assert_eq!(next.ask("touch", LIMIT), want[0]);
            other = Some(next);
        }
        (_, Some(other)) => {
            assert_eq!(other.ask("touch", LIMIT), want[1]);
            assert_eq!(other.ask("quit", LIMIT), want[2]);
        }
        _ => unreachable!("it waits first once and then again"),
    });
}

#[test]
fn an_allocation_is_nobodys_mapping_to_change_or_to_hand_on() {
    let coordinator = serving().start();
    same(&coordinator, "aliases", "owner", |_| drop(evict(&coordinator, "aliases")));
}

#[test]
fn an_allocation_is_handed_on_to_devices_on_the_bus_and_to_other_processes() {
    let answers = "a descriptor for another device: 0\n\
                   order for another device: 0\n\
                   a handle for another process: 0\n";
    assert!(alone("aliases", "leaving").out.starts_with(answers));
    same(&serving().start(), "aliases", "leaving", |_| {});
}

/// Programs export memory by descriptors of the driver's.
fn by_the_driver(serving: Serving) -> Serving {
    serving.setting("BATON_EXPORT", "driver")
}

#[test]
fn memory_is_exported_while_work_waits_for_its_program() {
    let cases = [("export", false), ("two", false), ("two", true), ("bus", false)];
    for ((case, evicted), by) in cases.into_iter().flat_map(|case| [(case, "baton"), (case, "driver")]) {
        let serving = Serving::arena("96MiB").option("--host-pool", "128MiB");
        let coordinator = if by == "driver" { by_the_driver(serving) } else { serving }.start();
        let other = coordinator.join("other", &program("hold"), &["--megabytes", "40"]);
        same(&coordinator, "exported", case, |_| {
            if evicted {
                evict(&coordinator, "exported");
            }
        });
        drop(other);
    }
}

#[test]
fn where_no_work_can_be_paused_an_export_by_the_driver_is_refused_at_once_and_works_later() {
    same(&serving().start(), "exported", "export", |_| {});
    let coordinator = by_the_driver(serving()).start();
    let shared = played(&coordinator, "exported", "export", |_| {});
    assert!(shared.err.contains("work on the GPU does not end"), "{shared:?}");
    let refused = alone("exported", "export").out.replace("a stream waits: 0", "a stream waits: 801");
    assert_eq!(shared.out, refused);
}

#[test]
fn programs_that_pass_memory_on_by_descriptors_run_together() {
    for case in ["one-piece", "pieces", "pool", "imported"] {
        // No tenant has to leave: one waits for work that the other can do only if it has the GPU too.
        let coordinator = patient().start();
        same(&coordinator, "passed", case, |_| try_to_evict(&coordinator, "passed"));
        let log = coordinator.log();
        assert!(log.contains("share memory or events"), "{case}: {log}");
        coordinator.until_empty();
    }
}

#[test]
fn programs_that_pass_memory_on_leave_and_come_back_together() {
    let coordinator = Serving::arena("96MiB").start();
    let words = ["--megabytes", "80", "--rounds", "40", "--check", "10"];
    let other = coordinator.run("other", "normal", &program("fill_and_check"), &words);
    for case in ["one-piece", "pieces", "pool", "imported"] {
        same(&coordinator, "passed", case, |_| try_to_evict(&coordinator, "passed"));
    }
    assert_eq!(other.result(LIMIT), baton_tests::coordinator::alone("fill_and_check", &words));
    coordinator.until_empty();
}

#[test]
fn programs_that_pass_memory_on_and_have_no_room_together_take_turns() {
    let coordinator = serving().start();
    same(&coordinator, "passed", "much", |_| try_to_evict(&coordinator, "passed"));
    coordinator.until_empty();
    let coordinator = by_the_driver(serving()).start();
    same(&coordinator, "passed", "much", |_| try_to_evict(&coordinator, "passed"));
    let log = coordinator.log();
    assert!(log.contains("cannot run together"), "{log}");
    coordinator.until_empty();
}

#[test]
fn another_device_on_the_bus_reaches_the_programs_memory() {
    let coordinator = serving().start();
    let want = hold::alone("80", &["touch"; 2]);
    let mut other = None;
    same(&coordinator, "bus", "device", |waits| {
        try_to_evict(&coordinator, "bus");
        let immovable = tenant(&coordinator.status(), "bus")["immovable_bytes"].clone();
        assert_eq!(immovable, 4 * MIB, "what others reach is shown");
        let other = other.get_or_insert_with(|| hold::joined(&coordinator, "other", "normal", "80", None));
        assert_eq!(other.ask("touch", LIMIT), want[waits]);
    });
}

#[test]
fn graphs_that_once_read_host_memory_are_launched_while_memory_arrives() {
    let coordinator = slow().start();
    for case in ["child", "disabled"] {
        same(&coordinator, "sources", case, |_| drop(evict(&coordinator, "sources")));
    }
}

#[test]
fn addresses_of_the_device_are_taken_for_the_hosts_while_memory_arrives() {
    let coordinator = slow().start();
    same(&coordinator, "sources", "device-address", |_| drop(evict(&coordinator, "sources")));
}

#[test]
fn pinned_memory_goes_while_launches_name_it_and_memory_arrives() {
    let coordinator = slow().start();
    same(&coordinator, "sources", "pinned-freed", |_| drop(evict(&coordinator, "sources")));
}

/// Ways in which the addresses of a program's memory come to kernels.
const WAYS: &[&str] = &[
    "late-copy",
    "late-in-legacy",
    "late-behind-legacy",
    "late-behind-event",
    "late-behind-kernel",
    "late-2d",
    "late-by-host-function",
    "late-synchronous",
    "late-registered",
    "late-graph",
    "graph-rows",
    "graph-direct",
    "direct",
    "direct-deep",
    "chain",
    "variable",
    "managed",
    "write-words",
    "write-halves",
    "write-lower-halves",
    "fill-halves",
    "fill-quarters",
    "fill-bytes",
    "fill-2d",
    "copy-parts",
    "copy-odd",
    "move-halves",
    "move-rows-of-halves",
    "packed",
    "before",
];

/// The same in pages of the program that the driver does not know of.
const PAGEABLE_WAYS: &[&str] = &["direct-pageable", "chain-pageable", "direct", "chain", "packed"];

/// The memory of `reach` takes half a second to come back.
pub(super) fn slow_for_reach() -> Serving {
    let serving = Serving::arena("28MiB").option("--host-pool", "64MiB");
    serving.setting("SIMCUDA_H2D_GBPS", "0.05").setting("REACH_MEGABYTES", "2")
}

/// Memory of the program has gone, and comes back while it uses it in these ways.
#[track_caller]
fn reached_while_memory_arrives(serving: &Serving, ways: &[&str]) {
    let coordinator = serving.start();
    coordinator.until_ready();
    let mut other = hold::joined(&coordinator, "other", "normal", "16", None);
    for way in ways {
        same(&coordinator, "reach", way, |_| {
            evict(&coordinator, "reach");
            // So that nothing of it is left on the GPU by chance.
            other.ask("touch", LIMIT);
        });
    }
}

#[test]
fn kernels_find_memory_that_arrives_however_its_addresses_come_to_them() {
    reached_while_memory_arrives(&slow_for_reach().flag("--no-preempt"), WAYS);
}

#[test]
fn kernels_find_memory_that_arrives_where_they_can_wait_for_it_on_the_gpu() {
    reached_while_memory_arrives(&slow_for_reach(), WAYS);
}

#[test]
fn kernels_find_memory_that_arrives_through_pages_of_their_program() {
    let serving = slow_for_reach().flag("--no-preempt").setting("SIMCUDA_PAGEABLE", "on");
    reached_while_memory_arrives(&serving, PAGEABLE_WAYS);
}

#[test]
fn a_program_without_a_descriptor_to_spare_gets_its_memory_back() {
    let coordinator = serving().start();
    same(&coordinator, "descriptors", "at-the-limit", |_| drop(evict(&coordinator, "descriptors")));
}

#[test]
fn an_urgent_program_that_does_nothing_keeps_nobody_waiting() {
    let coordinator = Serving::arena("128MiB").option("--host-pool", "128MiB").start();
    let mut slow = hold::joined(&coordinator, "slow", "batch", "48", None);
    let mut quick = hold::joined(&coordinator, "quick", "latency", "48", None);
    quick.ask("touch", LIMIT);
    coordinator.until_tenant_is("quick", "idle");
    // When all fit together again, it is back by itself already, and at rest.
    evict(&coordinator, "quick");
    let third = hold::joined(&coordinator, "third", "normal", "64", None);
    quick.ask("touch", LIMIT);
    drop(third);
    coordinator.until("it is beside others again", |status| status["holder"] != "quick");
    let end = Instant::now() + LONG;
    while tenant(&coordinator.status(), "quick")["state"] != "idle" {
        assert!(Instant::now() < end, "it counts as at work{}", coordinator.place.story());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(slow.ask("touch", LIMIT).starts_with("touched "));
}
#[test]
fn streams_that_were_captured_leave_nothing_in_the_driver() {
    let coordinator = serving().start();
    same(&coordinator, "lasting", "captured-streams", |_| {});
}

#[test]
fn threads_that_launch_while_somebody_wants_the_gpu_leave_nothing_in_the_driver() {
    let coordinator = patient().start();
    let mut other = None;
    same(&coordinator, "lasting", "threads", |_| other = Some(waiting(&coordinator)));
    assert!(other.expect("it has come").line(LIMIT).starts_with("ready "));
}

#[test]
fn a_capture_that_went_with_its_context_is_over() {
    let coordinator = serving().start();
    same(&coordinator, "lasting", "lost-captures", |_| drop(evict(&coordinator, "lasting")));
}

#[test]
fn streams_that_are_made_while_a_context_might_go_are_known() {
    let coordinator = patient().start();
    let mut other = None;
    same(&coordinator, "lasting", "streams-beside-release", |_| other = Some(waiting(&coordinator)));
    assert!(other.expect("it has come").line(LIMIT).starts_with("ready "));
}

#[test]
fn memory_that_could_not_be_freed_is_still_shown() {
    let coordinator = serving().start();
    let mut shown = Vec::new();
    same(&coordinator, "lasting", "managed", |_| {
        shown.push(tenant(&coordinator.status(), "lasting")["unmanaged_bytes"].as_u64());
    });
    assert_eq!(shown, [Some(8 * MIB), Some(0)]);
}

#[test]
fn a_program_that_has_made_many_tensor_maps_runs_while_its_memory_arrives() {
    let coordinator = serving().setting("SIMCUDA_H2D_GBPS", "0.1").start();
    for case in ["few-maps", "many-maps"] {
        let mut before = 0;
        same(&coordinator, "lasting", case, |waits| match waits {
            0 => before = evict(&coordinator, "lasting")["bytes_in"].as_u64().expect("bytes"),
            _ => {
                let came = coordinator.status()["bytes_in"].as_u64().expect("bytes") - before;
                assert!(came < 32 * MIB, "{case}: it had to wait for all of its memory");
            }
        });
    }
}

/// A coordinator of one of two GPUs.
pub(super) fn serving_one_of_two(gpu: &str) -> Serving {
    serving().setting("SIMCUDA_GPUS", "2").option("--gpu", gpu)
}

/// One that takes programs off in the middle of their work.
pub(super) fn preempting_one_of_two() -> Serving {
    Serving::arena("96MiB").option("--host-pool", "128MiB").setting("SIMCUDA_GPUS", "2").option("--gpu", "0")
}

/// All memory of a program on the shared GPU goes to the host: none stays because the other GPU can access it.
#[track_caller]
fn until_it_is_away(coordinator: &Coordinator, name: &str) {
    let status = evict(coordinator, name);
    let bytes = |what: &str| tenant(&status, name)[what].as_u64().expect("a number");
    assert_eq!((bytes("resident_bytes"), bytes("immovable_bytes")), (0, 0), "{status:#}");
}

/// A program that sees two GPUs, started as users start theirs.
#[track_caller]
fn same_on_two(coordinator: &Coordinator, name: &str, case: &str, meanwhile: impl FnMut(usize)) {
    let place = &coordinator.place;
    let mut command = place.baton(&["run", "--name", name, "--driver", "sim", "--socket"]);
    command.arg(place.socket()).arg("--").arg(built().programs.join("legal").join(name)).arg(case);
    let shared = to_the_end(&mut command, Some(place.clone()), meanwhile);
    assert_eq!(shared, alone(name, case), "{case}: shared (left) and alone (right)");
}

#[test]
fn a_program_on_another_gpu_is_left_alone() {
    let coordinator = serving_one_of_two("0").start();
    same_on_two(&coordinator, "several", "second-alone", |_| {
        assert_eq!(coordinator.status()["tenants"], Value::Array(Vec::new()), "it has joined");
    });
    same_on_two(&coordinator, "several", "second-size", |_| {});
}

/// A program is on all its GPUs, or on none.
#[test]
fn work_on_another_gpu_waits_for_this_one() {
    let coordinator = serving_one_of_two("0").option("--quantum", "1h").option("--max-wait", "1h").start();
    let mut other = hold::joined(&coordinator, "other", "normal", "8", None);
    let busy = Busy::start(&mut other, &coordinator.place);
    coordinator.until_tenant_is("other", "running");
    std::thread::scope(|scope| {
        let both = scope.spawn(|| same_on_two(&coordinator, "several", "second-beside", |_| {}));
        coordinator.until_tenant_is("several", "waiting");
        assert!(!both.is_finished(), "it works on the other GPU");
        busy.end(&mut other);
        both.join().expect("it is as alone");
    });
}

#[test]
fn nobody_waits_for_what_waits_on_another_gpu() {
    let coordinator = serving_one_of_two("0").start();
    for case in ["gpus-free", "gpus-in-order"] {
        same_on_two(&coordinator, "apart", case, |_| {});
    }
}

#[test]
fn a_program_leaves_the_gpu_while_a_thread_of_it_waits_on_another_one() {
    let coordinator = preempting_one_of_two().start();
    let want = hold::alone("92", &["touch"]);
    same_on_two(&coordinator, "apart", "gpus-leave", |_| {
        let mut other = hold::joined(&coordinator, "other", "normal", "92", None);
        assert_eq!(other.ask("touch", LIMIT), want[0]);
    });
}

#[test]
fn a_program_joins_while_a_thread_of_it_waits_on_another_gpu() {
    let coordinator = serving_one_of_two("0").start();
    for case in ["taken-freeing", "taken-copying"] {
        same_on_two(&coordinator, "apart", case, |_| {});
    }
}

#[test]
fn a_program_joins_the_coordinator_of_the_gpu_that_it_works_on() {
    let coordinator = serving_one_of_two("1").start();
    let mut sees = 0;
    same_on_two(&coordinator, "several", "second-alone", |_| {
        let status = evict(&coordinator, "several");
        sees = tenant(&status, "several")["evicted_bytes"].as_u64().expect("bytes");
    });
    assert!(sees >= 8 * MIB, "{sees}");
}

#[test]
fn copies_go_between_a_gpu_that_is_shared_and_one_that_is_not() {
    let coordinator = serving_one_of_two("0").start();
    for case in ["copies", "copies-second-first"] {
        same_on_two(&coordinator, "several", case, |_| until_it_is_away(&coordinator, "several"));
    }
}

#[test]
fn kernels_on_another_gpu_reach_memory_that_they_were_given_access_to() {
    let coordinator = serving_one_of_two("0").start();
    same_on_two(&coordinator, "several", "peers", |_| until_it_is_away(&coordinator, "several"));
}

/// Calls on the other GPU are made while the memory is on its way.
#[test]
fn kernels_on_another_gpu_wait_for_mappings_that_they_may_use() {
    let coordinator = slow().setting("SIMCUDA_GPUS", "2").option("--gpu", "0").start();
    same_on_two(&coordinator, "several", "mapped", |_| until_it_is_away(&coordinator, "several"));
}

#[test]
fn a_handle_in_several_pieces_is_given_to_another_gpu_while_streams_wait_and_exported_later() {
    for (serving, is_paused) in [(serving_one_of_two("0"), false), (preempting_one_of_two(), true)] {
        let coordinator = serving.start();
        same_on_two(&coordinator, "several", "handles", |_| {
            if is_paused {
                take_off_and_bring_back(&coordinator, "several", "92");
            }
        });
        coordinator.until_empty();
    }
}

#[test]
fn memory_that_is_bound_to_a_multicast_object_stays() {
    let coordinator = serving_one_of_two("0").start();
    let mut immovable = Vec::new();
    same_on_two(&coordinator, "multicast", "bound", |_| {
        try_to_evict(&coordinator, "multicast");
        immovable.push(tenant(&coordinator.status(), "multicast")["unmanaged_bytes"].clone());
    });
    let bound = Value::from(6 * MIB);
    assert_eq!(immovable, [Value::from(0), bound.clone(), bound, Value::from(6 * MIB)]);
    coordinator.until_empty();
}

#[test]
fn nobody_waits_for_a_thread_that_waits_for_other_gpus() {
    let coordinator = serving_one_of_two("0").start();
    let want = hold::alone("80", &["touch"]);
    same_on_two(&coordinator, "multicast", "waiting", |_| {
        let mut other = hold::joined(&coordinator, "other", "normal", "80", None);
        assert_eq!(other.ask("touch", LIMIT), want[0]);
    });
}

#[test]
fn what_a_program_is_told_of_memory_of_another_gpu_is_what_the_driver_says() {
    let coordinator = serving_one_of_two("0").start();
    same_on_two(&coordinator, "several", "questions", |_| {});
}

#[test]
fn work_on_another_gpu_finds_the_memory_of_one_that_the_program_is_taken_off() {
    let serving = Serving::arena("64MiB").option("--host-pool", "128MiB").setting("SIMCUDA_GPUS", "2");
    let coordinator = serving.start();
    let steer = |verb: &str| {
        let mut command = coordinator.place.baton(&[verb, "--socket"]);
        command.arg(coordinator.place.socket()).arg("several").output().expect("baton can be started");
    };
    for case in ["taken-later", "taken-across"] {
        same_on_two(&coordinator, "several", case, |waits| {
            if waits == 1 {
                return steer("resume");
            }
            steer("pause");
            let mut other = hold::joined(&coordinator, "other", "normal", "60", None);
            assert!(other.ask("touch", LIMIT).starts_with("touched "), "{case}");
        });
    }
}
