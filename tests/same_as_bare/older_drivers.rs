//! Legal programs on drivers of before CUDA 12.5 and before 12.0, which lack functions that Baton calls itself: they do as Baton's what
//! they do alone there.
//!
//! The programs are those of `legal.rs`. Where one names functions of CUDA 12, there is another build of it with the names of before.

use std::path::PathBuf;
use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving, with_driver};
use baton_tests::{Driver, LIMIT, Outcome, built, hold};

use super::legal::{
    evict, gpus, preempting_one_of_two, serving, serving_one_of_two, slow, slow_for_reach, take_off_and_bring_back,
    to_the_end, waiting,
};

/// The last driver that cannot record an event behind all work of a context, and one that has no numbers for contexts, does not tell
/// of kernel nodes by today's name, nor of any kernel's parameters.
const OLDER: [&str; 2] = ["12040", "11080"];

/// Has a program use a driver of this CUDA version, which has no newer functions.
fn on(version: &str, command: &mut Command) {
    with_driver(command, &format!("libdriver_{version}.so"));
    command.env("SIMCUDA_VERSION", version);
}

/// A program as it is made for drivers of this version.
fn program(version: &str, name: &str) -> PathBuf {
    let folder = built().programs.join("legal");
    let before_12 = folder.join("before_12").join(name);
    if version == "11080" && before_12.exists() { before_12 } else { folder.join(name) }
}

/// The outcome of a program on a GPU of its own, with a driver of this version.
#[track_caller]
fn alone(version: &str, name: &str, case: &str) -> Outcome {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let driver = Driver::of_tests(&format!("libdriver_{version}.so"));
    let mut command = driver.bare(program(version, name));
    command.arg(case).env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_GPUS", gpus(name));
    command.env("SIMCUDA_GPU_FILE", folder.path().join("gpu")).env("SIMCUDA_VERSION", version);
    // It opens the simulated driver by its name.
    command.env("LD_LIBRARY_PATH", format!("{}:{}", driver.folder().display(), built().bin.display()));
    to_the_end(&mut command, None, |_| {})
}

/// Its outcome as a tenant.
#[track_caller]
fn shared(version: &str, coordinator: &Coordinator, name: &str, case: &str, meanwhile: impl FnMut(usize)) -> Outcome {
    let mut command = coordinator.place.joining(name, &program(version, name), &[case]);
    on(version, &mut command);
    to_the_end(&mut command, Some(coordinator.place.clone()), meanwhile)
}

/// That is what it does alone.
#[track_caller]
fn same_on_older(version: &str, coordinator: &Coordinator, (name, case): (&str, &str), meanwhile: impl FnMut(usize)) {
    let shared = shared(version, coordinator, name, case, meanwhile);
    let alone = alone(version, name, case).succeeded();
    assert_eq!(shared, alone, "{name} {case} on {version}: shared (left) and alone (right)");
}

#[test]
fn work_of_a_stream_that_has_gone_is_waited_for_on_older_drivers() {
    let coordinator = serving().start();
    for version in OLDER {
        same_on_older(version, &coordinator, ("older", "freed"), |_| {});
    }
}

#[test]
fn programs_leave_the_gpu_by_the_functions_of_older_drivers() {
    let coordinator = serving().start();
    for version in OLDER {
        let mut other = hold::joined(&coordinator, "other", "normal", "80", None);
        same_on_older(version, &coordinator, ("older", "captures"), |_| {
            assert!(other.ask("touch", LIMIT).starts_with("touched "));
        });
        drop(other);
        // Work of its own waits for it when it is wanted off the GPU: it stays, and is asked again later.
        let mut other = None;
        same_on_older(version, &coordinator, ("older", "leaves"), |_| other = Some(waiting(&coordinator)));
        assert!(other.expect("it has come").line(LIMIT).starts_with("ready "));
    }
}

#[test]
fn contexts_and_streams_come_and_go_on_older_drivers() {
    let coordinator = serving().start();
    for version in OLDER {
        for case in ["freed", "freed-in-order", "made-anew"] {
            same_on_older(version, &coordinator, ("leaving", case), |_| {});
        }
        for case in ["beside-questions", "captured"] {
            same_on_older(version, &coordinator, ("freeing", case), |_| {});
        }
        same_on_older(version, &coordinator, ("ordering", "capture-kernel"), |_| {});
    }
}

#[test]
fn programs_are_taken_off_the_gpu_and_brought_back_on_older_drivers() {
    let coordinator = Serving::arena("64MiB").start();
    for version in OLDER {
        let case = ("freeing", "in-order-contents");
        same_on_older(version, &coordinator, case, |_| take_off_and_bring_back(&coordinator, "freeing", "60"));
    }
}

#[test]
fn programs_that_capture_are_taken_off_the_gpu_and_brought_back_on_older_drivers() {
    let coordinator = Serving::arena("64MiB").start();
    for version in OLDER {
        for case in [("older", "captures"), ("older", "captures-blocking")] {
            same_on_older(version, &coordinator, case, |_| take_off_and_bring_back(&coordinator, "older", "60"));
        }
    }
}

#[test]
fn memory_is_found_that_arrives_where_the_driver_tells_less_of_graphs_and_kernels() {
    for serving in [slow_for_reach(), slow_for_reach().flag("--no-preempt")] {
        let coordinator = serving.start();
        coordinator.until_ready();
        let mut other = hold::joined(&coordinator, "other", "normal", "16", None);
        for version in OLDER {
            for way in ["late-graph", "graph-rows", "graph-direct", "chain", "variable", "packed", "write-words"] {
                same_on_older(version, &coordinator, ("reach", way), |_| {
                    evict(&coordinator, "reach");
                    other.ask("touch", LIMIT);
                });
            }
        }
    }
}

#[test]
fn graphs_that_once_read_host_memory_are_launched_on_older_drivers() {
    let coordinator = slow().start();
    for version in OLDER {
        for case in ["child", "disabled", "device-address"] {
            same_on_older(version, &coordinator, ("sources", case), |_| drop(evict(&coordinator, "sources")));
        }
    }
}

#[test]
fn what_ends_with_its_context_ends_on_older_drivers() {
    let coordinator = slow().start();
    for version in OLDER {
        same_on_older(version, &coordinator, ("leaving", "variables"), |_| drop(evict(&coordinator, "leaving")));
        same_on_older(version, &coordinator, ("lasting", "lost-captures"), |_| drop(evict(&coordinator, "lasting")));
    }
}

#[test]
fn an_allocation_is_nobodys_mapping_to_change_on_older_drivers() {
    let coordinator = serving().start();
    for version in OLDER {
        same_on_older(version, &coordinator, ("aliases", "owner"), |_| drop(evict(&coordinator, "aliases")));
    }
}

#[test]
fn nobody_waits_for_what_waits_elsewhere_on_older_drivers() {
    let coordinator = serving().start();
    for version in OLDER {
        for case in ["contexts-free", "contexts-in-order", "stuck-frees", "stuck-pool", "stuck-legacy"] {
            same_on_older(version, &coordinator, ("apart", case), |_| {});
        }
    }
}

#[test]
fn nobody_waits_for_what_waits_on_another_gpu_of_an_older_driver() {
    let coordinator = preempting_one_of_two().start();
    let want = hold::alone("92", &["touch"]);
    for version in OLDER {
        for case in ["gpus-free", "gpus-in-order"] {
            same_on_older(version, &coordinator, ("apart", case), |_| {});
        }
        same_on_older(version, &coordinator, ("apart", "gpus-leave"), |_| {
            let mut other = hold::joined(&coordinator, "other", "normal", "92", None);
            assert_eq!(other.ask("touch", LIMIT), want[0]);
        });
    }
}

#[test]
fn a_program_that_needs_what_the_driver_lacks_is_told_so_where_it_would_not_go_on_alone() {
    let coordinator = serving_one_of_two("0").start();
    for (name, case, lacks) in
        [("lasting", "few-maps", "cuTensorMapEncodeTiled"), ("multicast", "bound", "cuMulticastGetGranularity")]
    {
        let alone = alone("11080", name, case);
        assert!(alone.err.contains(&format!("undefined symbol: {lacks}")), "{alone:?}");
        // Our doors are there, and answer that nothing is behind them.
        let shared = shared("11080", &coordinator, name, case, |_| {});
        let told = shared.out.contains(lacks) && shared.out.contains("CUDA_ERROR_NOT_FOUND");
        assert!(told && shared.status == "exit status: 1", "{shared:?}");
        coordinator.until_empty();
    }
}
