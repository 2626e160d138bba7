//! Copies of a process that uses the GPU: CUDA does not work there, and the driver says so itself, whatever the parent's other threads
//! were doing.

use baton_tests::coordinator::Serving;
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, built, clean, run};

/// How many copies a test makes.
const COPIES: &str = "300";

#[test]
fn a_copy_of_a_process_has_the_drivers_answers_however_it_was_made() {
    let coordinator = Serving::arena("256MiB").start();
    let program = built().programs.join("legal/copies");
    for way in ["fork", "_Fork", "clone"] {
        let bare = run(Driver::simulated().bare(&program).args([way, "3"])).succeeded();
        assert!(bare.out.contains("free: 3\n") && bare.out.contains("init: 3\n"), "{bare:?}");
        for trace in [false, true] {
            let mut command = coordinator.place.joining("copies", &program, &[way, COPIES]);
            let folder = tempfile::tempdir().expect("a temporary folder");
            if trace {
                command.env("BATON_TRACE", "counts").env("BATON_TRACE_FILE", folder.path().join("trace"));
            }
            let under = Running::start(&mut command, false, Some(coordinator.place.clone())).finish(LIMIT);
            assert_eq!(under, bare, "{way}, traced: {trace}");
        }
        coordinator.until_empty();
    }
}

#[test]
fn a_copy_of_a_process_that_uses_two_gpus_has_them_too() {
    let coordinator = Serving::arena("256MiB").setting("SIMCUDA_GPUS", "2").option("--gpu", "0").start();
    let program = built().programs.join("legal/copies");
    for way in ["fork", "_Fork", "clone"] {
        let bare = run(Driver::simulated().bare(&program).args([way, "3"]).env("SIMCUDA_GPUS", "2")).succeeded();
        let mut command = coordinator.place.joining("copies", &program, &[way, COPIES]);
        let under = Running::start(&mut command, false, Some(coordinator.place.clone())).finish(LIMIT);
        assert_eq!(under, bare, "{way}");
    }
    coordinator.until_empty();
}

#[test]
fn a_copy_of_a_process_that_uses_the_gpu_has_no_hooks() {
    let driver = built().programs.join("libwitness_driver.so");
    let at_once = [("fork", "")];
    // No handlers run for these: whichever call comes first leads the others past us.
    let firsts = ["cuMemFree_v2", "cuMemcpyHtoD_v2", "cuGetProcAddress_v2", "cuOfTomorrow"];
    let after_a_call = ["_Fork", "clone"].map(|way| firsts.map(|first| (way, first)));
    for (way, first) in at_once.into_iter().chain(after_a_call.into_iter().flatten()) {
        let mut command = clean(built().programs.join("hookless"));
        command.env("LD_PRELOAD", built().shim()).env("BATON_DRIVER", &driver).env("BATON_UNKNOWN", "whole");
        command.arg(way).arg(&driver);
        let outcome = run(command.args(Some(first).filter(|first| !first.is_empty()))).succeeded();
        let expected = "all calls come from hooks\n\
                        cuInit -> 0\n\
                        in the copy: 0 from hooks, 0 allocations, all refused\n";
        assert_eq!(outcome.out, expected, "{way} {first}");
    }
}

#[test]
fn a_copy_has_them_too_while_its_parent_takes_turns_with_another_program() {
    let coordinator = Serving::arena("256MiB").start();
    let program = built().programs.join("legal/copies");
    let bare = run(Driver::simulated().bare(&program).args(["clone", "3"])).succeeded();
    let programs = ["fork", "clone"].map(|way| {
        let mut command = coordinator.place.joining(way, &program, &[way, COPIES]);
        Running::start(&mut command, false, Some(coordinator.place.clone()))
    });
    for running in programs {
        assert_eq!(running.finish(LIMIT), bare);
    }
    coordinator.until_empty();
}

#[test]
fn copies_from_before_the_driver_is_used_and_programs_that_are_run_join_by_themselves() {
    let coordinator = Serving::arena("256MiB").start();
    let program = built().programs.join("legal/copies");
    let mut left = 0;
    let ways = ["fork", "_Fork", "clone"].map(|way| [(way, "early"), (way, "run")]);
    for (way, when) in ways.into_iter().flatten().chain([("vfork", "run"), ("spawn", "run")]) {
        let mut command = coordinator.place.joining("copies", &program, &[way, "3", when]);
        let ran = run(command.env("BATON_REQUIRE", "1")).succeeded();
        assert_eq!((ran.out.as_str(), ran.said().as_str()), ("", ""), "{way} {when}");
        // A parent that has used the GPU is one more.
        left += if when == "run" { 4 } else { 3 };
        let departed = coordinator.until_empty()["departed"].clone();
        assert_eq!(departed.as_array().map(Vec::len), Some(left), "{way} {when}");
    }
}
