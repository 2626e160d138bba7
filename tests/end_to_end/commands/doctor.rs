//! `baton doctor` tries what it says about preemption, and says with `baton run` and `baton serve` what a machine lacks.

use baton_tests::LIMIT;
use baton_tests::coordinator::Serving;
use baton_tests::running::Running;

/// Its line about preemption.
#[track_caller]
fn preemption(serving: &Serving) -> String {
    let prepared = serving.prepare();
    let mut command = prepared.place.baton(&["doctor", "--driver", "sim"]);
    let outcome = Running::start(&mut command, false, None).finish(LIMIT).succeeded();
    let line = outcome.out.lines().find(|line| line.contains(" preemption ")).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no such line: {outcome:?}"))
}

#[test]
fn doctor_pauses_a_kernel_and_says_so() {
    let line = preemption(&Serving::small("64MiB"));
    assert!(line.starts_with("ok ") && line.ends_with("work can be paused in the middle of a kernel"), "{line}");
}

#[test]
fn doctor_says_why_work_is_waited_for() {
    let line = preemption(&Serving::small("64MiB").setting("SIMCUDA_PAUSING", "off"));
    assert!(
        line.starts_with("less ") && line.ends_with("what there is to pause: work is waited for [B1211]"),
        "{line}"
    );
}

/// All commands that need the driver give this advice where `cuInit` answers with this error.
#[track_caller]
fn said_about(error: &str, advice: &str) {
    let prepared = Serving::small("64MiB").setting("SIMCUDA_INIT_ERROR", error).prepare();
    for words in
        [&["doctor", "--driver", "sim"][..], &["run", "--driver", "sim", "--", "true"], &["serve", "--driver", "sim"]]
    {
        let ended = Running::start(&mut prepared.place.baton(words), false, None).finish(LIMIT);
        assert_ne!(ended.status, "exit status: 0", "{words:?}: {ended:?}");
        let said = ended.out + &ended.err;
        let line = said.lines().find(|line| line.contains(&format!("cuInit with CUDA error {error}")));
        assert!(line.is_some_and(|line| line.contains(advice)), "{words:?}: {said}");
        assert!(error == "100" || !said.contains("install NVIDIA's driver"), "{words:?}: {said}");
    }
}

#[test]
fn a_gpu_that_waits_for_the_fabric_manager_is_named_as_such() {
    said_about("802", "start the fabric manager");
}

#[test]
fn a_driver_that_was_upgraded_under_a_running_machine_is_named_as_such() {
    said_about("803", "restart the machine");
}

#[test]
fn a_compatibility_library_on_a_gpu_that_does_not_take_it_is_named_as_such() {
    said_about("804", "take the compatibility library");
}

#[test]
fn a_machine_without_a_gpu_is_told_to_install_the_driver() {
    said_about("100", "install NVIDIA's driver");
}
