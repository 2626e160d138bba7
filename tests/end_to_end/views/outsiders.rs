//! Programs on the GPU that are no tenants are named, and so are those among them that began under Baton and lost it on the way.

use std::path::Path;
use std::process::Command;

use baton_tests::coordinator::{Coordinator, Place, Prepared, Serving, program};
use baton_tests::running::Running;
use baton_tests::{Driver, LIMIT, around, clean};
use serde_json::Value;

/// A program with the simulated driver and without Baton, in words for a shell: its environment is gone but for this.
fn without_environment(place: &Place) -> String {
    let bare = place.baton(&[]);
    let ours = bare.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
    let sims: Vec<String> =
        ours.filter(|(name, _)| name.starts_with("SIMCUDA_")).map(|(name, value)| format!("{name}={value}")).collect();
    let folder = Driver::simulated().folder().display().to_string();
    format!("env -i LD_LIBRARY_PATH='{folder}' {} '{}'", sims.join(" "), program("unmanaged").display())
}

/// A program that was started without Baton, and has memory of the GPU.
#[track_caller]
fn beside(place: &Place) -> Running {
    let mut command = clean("sh");
    command.args(["-c", &format!("exec {}", without_environment(place))]);
    holding(&mut command)
}

/// Starts a program and has it take memory.
#[track_caller]
fn holding(command: &mut Command) -> Running {
    let mut running = Running::start(command, true, None);
    let line = running.line(LIMIT);
    assert!(line.starts_with("ready "), "{line}");
    assert_eq!(running.ask("plain 8", LIMIT), "made");
    running
}

fn outsiders(status: &Value) -> &[Value] {
    status["outsiders"].as_array().map_or(&[], Vec::as_slice)
}

/// Waits until there is one, and gives it.
#[track_caller]
fn one(coordinator: &Coordinator) -> Value {
    let status = coordinator.until("somebody is no tenant", |status| !outsiders(status).is_empty());
    let [one] = outsiders(&status) else { panic!("{:#}", status["outsiders"]) };
    assert_eq!((one["name"].as_str(), one["bytes"].as_u64()), (Some("unmanaged"), Some(8 << 20)), "{one}");
    one.clone()
}

#[track_caller]
fn until_logged(coordinator: &Coordinator, text: &str) {
    coordinator.until(text, |_| coordinator.log().contains(text));
}

#[track_caller]
fn said_by(place: &Place, words: &[&str]) -> String {
    let mut command = place.baton(words);
    command.env("BATON_SOCKET", place.socket());
    Running::start(&mut command, false, None).finish(LIMIT).succeeded().out
}

#[test]
fn a_program_without_baton_is_named_until_it_ends() {
    let coordinator = Serving::small("64MiB").start();
    let mut tenant = holding(&mut coordinator.place.joining("tenant", &program("unmanaged"), &[]));
    let mut running = beside(&coordinator.place);
    let found = one(&coordinator);
    assert_eq!((found["pid"].as_i64(), &found["from_baton"]), (Some(running.pid().into()), &Value::Bool(false)));
    let line = format!("unmanaged (process {}) 8 MiB", running.pid());
    assert!(said_by(&coordinator.place, &["status"]).contains(&format!("on the GPU without Baton: {line}")));
    let doctor = said_by(&coordinator.place, &["doctor", "--driver", "sim"]);
    assert!(doctor.contains(&format!("on the GPU without Baton: {line}")), "{doctor}");
    until_logged(&coordinator, &format!("{line} uses the GPU without Baton"));
    running.ask("drop", LIMIT);
    running.end(LIMIT);
    coordinator.until("nobody else is there", |status| status["outsiders"].as_array().is_some_and(Vec::is_empty));
    let number = tenant.pid();
    tenant.ask("drop", LIMIT);
    tenant.end(LIMIT);
    coordinator.until("nobody at all is there", |status| status["outsiders"].as_array().is_some_and(Vec::is_empty));
    assert!(!coordinator.log().contains(&format!("(process {number}) 8 MiB")), "{}", coordinator.log());
}

#[test]
fn a_program_that_loses_its_environment_under_baton_run_is_named_as_such() {
    let coordinator = Serving::small("64MiB").start();
    let run = |script: &str| {
        let mut command = coordinator.place.baton(&["run", "--driver", "sim", "--socket"]);
        command.arg(coordinator.place.socket()).args(["--", "sh", "-c", script]);
        command
    };
    let lost = without_environment(&coordinator.place);
    // Its parents lead there; its parent has gone, and it is of that session; it has a session of its own, and a living parent.
    let in_session = |inner: Command| {
        // A program behind a pipe is there as long as another one writes.
        let mut shell = clean("sh");
        shell.args(["-c", "\"$0\" \"$@\" | cat", "setsid"]);
        around(shell, &inner)
    };
    let commands = [
        run(&format!("{lost}; true")),
        in_session(run(&format!("exec 3<&0; {lost} <&3 & exit 0"))),
        run(&format!("setsid --wait {lost}; true")),
    ];
    for mut command in commands {
        let mut running = holding(&mut command);
        let found = one(&coordinator);
        assert_eq!(found["from_baton"], true, "{command:?}: {found}");
        let line = format!("unmanaged (process {})", found["pid"]);
        for words in [&["status"][..], &["doctor", "--driver", "sim"]] {
            let said = said_by(&coordinator.place, words);
            assert!(said.contains("has it lost its environment?") && said.contains(&line), "{words:?}: {said}");
        }
        until_logged(&coordinator, &format!("{line} 8 MiB was started by a program under Baton"));
        running.ask("quit", LIMIT);
        running.end(LIMIT);
        coordinator.until("nobody else is there", |status| status["outsiders"].as_array().is_some_and(Vec::is_empty));
    }
}

#[test]
fn without_a_coordinator_doctor_asks_the_driver_who_is_there() {
    let Prepared { place, .. } = &Serving::small("64MiB").prepare();
    let said = said_by(place, &["doctor", "--driver", "sim"]);
    assert!(said.contains("no program uses the GPU without Baton"), "{said}");
    let running = beside(place);
    let said = said_by(place, &["doctor", "--driver", "sim"]);
    assert!(said.contains(&format!("without Baton: unmanaged (process {}) 8 MiB", running.pid())), "{said}");
    assert!(Path::new("/proc").join(running.pid().to_string()).exists());
}
