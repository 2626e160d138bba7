//! `baton doctor` tries what it says about preemption.

use std::time::Duration;

use baton_tests::coordinator::Serving;
use baton_tests::running::Running;

const LIMIT: Duration = Duration::from_secs(300);

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
    let line = preemption(&Serving::arena("64MiB"));
    assert!(line.starts_with("ok ") && line.ends_with("work can be paused in the middle of a kernel"), "{line}");
}

#[test]
fn doctor_says_why_work_is_waited_for() {
    let line = preemption(&Serving::arena("64MiB").setting("SIMCUDA_PAUSING", "off"));
    assert!(line.starts_with("less ") && line.ends_with("what there is to pause: work is waited for"), "{line}");
}
