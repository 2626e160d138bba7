//! NVML tells a program of its own GPU's memory what `cuMemGetInfo` tells it, and of other GPUs what it knows.

use std::process::Command;

use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, built, clean};

/// The library's own answer for each GPU.
const ITS_OWN: &str = "nvml 81920 80896 1024, 81920 80896 512";

/// A program that asks a management library of the tests' own, which knows the simulated GPU.
fn asking(mut command: Command, coordinator: &Coordinator, library: &str) -> Running {
    let uuid = coordinator.status()["gpu"]["uuid"].as_str().expect("a text").to_owned();
    let folders = format!("{}:{}", built().programs.join("nvml").display(), Driver::simulated().folder().display());
    command.arg(library).env("LD_LIBRARY_PATH", folders).env("FAKE_NVML_UUID", uuid);
    Running::start(&mut command, true, Some(coordinator.place.clone()))
}

/// The answer of the driver's call, in NVML's words.
#[track_caller]
fn as_nvml(running: &mut Running) -> String {
    let said = running.ask("driver", LIMIT);
    let words: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [total, free] = words[..] else { panic!("{said}") };
    format!("nvml {total} {free} {0}, {total} {free} {0}", total - free)
}

#[test]
fn it_agrees_with_the_driver_about_the_gpu_that_is_shared() {
    let coordinator = Serving::arena("64MiB").start();
    let program = built().programs.join("ask_memory");
    let path = built().programs.join("nvml/libnvidia-ml.so.1").display().to_string();
    for library in ["libnvidia-ml.so.1", path.as_str()] {
        let mut running = asking(coordinator.place.joining("asks", &program, &[]), &coordinator, library);
        assert_eq!(running.ask("nvml", LIMIT), "nvml 64 64 0, 64 64 0", "before it joins");
        assert_eq!(running.ask("other", LIMIT), ITS_OWN, "another GPU");
        assert_eq!(running.ask("join", LIMIT), "joined");
        assert_eq!(running.ask("nvml", LIMIT), as_nvml(&mut running));
        assert_eq!(running.ask("alloc 24", LIMIT), "allocated");
        assert_eq!(running.ask("nvml", LIMIT), "nvml 64 40 24, 64 40 24");
        assert_eq!(running.ask("nvml", LIMIT), as_nvml(&mut running));
        assert_eq!(running.ask("other", LIMIT), ITS_OWN, "another GPU");
        assert_eq!(running.end(LIMIT).code(), Some(0));
    }
}

#[test]
fn a_program_without_baton_is_told_what_the_library_knows() {
    let coordinator = Serving::arena("64MiB").start();
    let program = built().programs.join("ask_memory");
    let mut disabled = coordinator.place.joining("disabled", &program, &[]);
    disabled.env("BATON_DISABLE", "1");
    for command in [clean(&program), disabled] {
        let mut running = asking(command, &coordinator, "libnvidia-ml.so.1");
        assert_eq!(running.ask("nvml", LIMIT), ITS_OWN);
        assert_eq!(running.ask("other", LIMIT), ITS_OWN);
    }
}
