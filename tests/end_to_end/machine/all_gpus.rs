//! One coordinator serves all GPUs of a machine.

use std::time::Duration;

use baton_tests::coordinator::{Serving, program, tenant};
use baton_tests::hold::Busy;
use baton_tests::machine::Machine;
use baton_tests::running::{Running, signal};
use baton_tests::{LIMIT, hold, http, openmetrics};
use serde_json::Value;

/// In each GPU's arena fits one of two programs.
fn serving() -> Serving {
    Serving::arena("64MiB").option("--host-pool", "128MiB").keeper()
}

/// Two programs on each of two GPUs.
#[track_caller]
fn programs(machine: &Machine) -> Vec<(usize, &'static str, Running)> {
    let named = [(0, "one"), (0, "other"), (1, "third"), (1, "fourth")];
    named.into_iter().map(|(gpu, name)| (gpu, name, machine.hold(name, gpu, "48"))).collect()
}

#[track_caller]
fn touch(programs: &mut [(usize, &'static str, Running)], want: &str) {
    for (_, name, program) in programs {
        assert_eq!(program.ask("touch", LIMIT), want, "{name}");
    }
}

#[track_caller]
fn quit(programs: Vec<(usize, &'static str, Running)>, want: &str) {
    for (_, name, mut program) in programs {
        assert_eq!((program.ask("quit", LIMIT).as_str(), program.said().as_str()), (want, ""), "{name}");
    }
}

fn until_back(machine: &Machine, programs: &[(usize, &'static str, Running)]) {
    for (gpu, name, _) in programs {
        machine.until(*gpu, "back", |status| !tenant(status, name).is_null());
    }
}

#[test]
fn programs_of_all_gpus_go_on_when_the_coordinator_dies_or_another_version_follows() {
    let want = hold::alone("48", &["touch"; 5]);
    let machine = Machine::start(&serving(), 2, &[]);
    let mut programs = programs(&machine);
    for gpu in 0..2 {
        let status = machine.status(gpu);
        assert_eq!((&status["gpu"]["number"], status["tenants"].as_array().map(Vec::len)), (&gpu.into(), Some(2)));
        machine.until(gpu, "ready", |status| status["host_pool"]["ready_bytes"] == status["host_pool"]["bytes"]);
    }
    touch(&mut programs, &want[0]);
    machine.kill_served(&[0, 1]);
    until_back(&machine, &programs);
    touch(&mut programs, &want[1]);
    let checked = machine.baton(&["upgrade", "--check"]).succeeded().out;
    assert!(["one", "other", "third", "fourth"].iter().all(|name| checked.contains(name)), "{checked}");
    let before = machine.status(1)["pid"].clone();
    let said = machine.baton(&["upgrade", "--timeout", "60s", "--gpu", &gpu_of(&machine, 1)]).succeeded().out;
    assert!(said.contains("4 programs") && machine.status(0)["pid"] == machine.status(1)["pid"], "{said}");
    assert_ne!(machine.status(1)["pid"], before);
    touch(&mut programs, &want[2]);
    // Its keeper dies: another one holds what belongs to either GPU.
    signal(machine.serve.pid(), libc::SIGKILL);
    machine.until(0, "kept", |status| status["keeper"].as_u64().is_some_and(|pid| pid != machine.serve.pid() as u64));
    touch(&mut programs, &want[3]);
    machine.kill_served(&[1, 0]);
    until_back(&machine, &programs);
    touch(&mut programs, &want[4]);
    quit(programs, &want[5]);
    for gpu in 0..2 {
        machine.until(gpu, "empty", |status| {
            status["extents"] == 0 && status["arena"]["lent_bytes"] == 0 && status["host_pool"]["used_bytes"] == 0
        });
    }
    machine.baton(&["stop"]).succeeded();
    assert!((0..2).all(|gpu| machine.try_status(gpu).is_none()));
}

/// The name of a GPU for a command.
fn gpu_of(machine: &Machine, gpu: usize) -> String {
    machine.sockets[gpu].file_stem().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn one_gpu_can_be_given_up_and_the_others_go_on() {
    let want = hold::alone("48", &["touch"; 2]);
    let mut machine = Machine::start(&serving(), 3, &[]);
    let mut first = machine.hold("first", 0, "48");
    assert_eq!(first.ask("touch", LIMIT), want[0]);
    machine.baton(&["stop", "--gpu", &gpu_of(&machine, 1)]).succeeded();
    assert!(machine.try_status(1).is_none());
    // The next coordinator does not serve it either.
    machine.kill_served(&[0, 2]);
    machine.until(0, "back", |status| !tenant(status, "first").is_null());
    assert_eq!(first.ask("touch", LIMIT), want[1]);
    assert!(machine.try_status(1).is_none());
    assert_eq!(first.ask("quit", LIMIT), want[2]);
    machine.baton(&["stop"]).succeeded();
    assert!(machine.serve.end(LIMIT).success(), "{}", machine.serve.err());
}

#[test]
fn a_gpu_that_another_coordinator_has_is_left_to_it_unless_it_is_named() {
    let first = Machine::start_on(&serving(), 2, 1, &["--gpu", "1"]);
    let [socket] = &first.sockets[..] else { panic!("one GPU: {:?}", first.sockets) };
    let mut all = Running::start(&mut first.prepared.serve_all(), false, None);
    while !all.err().contains("serving GPU 0") {
        assert!(all.ended().is_none(), "{}", all.err());
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = all.err();
    assert!(said.contains("GPU 1 is not served: ") && said.contains(&*socket.to_string_lossy()), "{said}");
    let refused = baton_tests::run(first.prepared.serve_all().args(["--gpu", "0,1"]));
    assert!(refused.status == "exit status: 1" && refused.err.contains("serves"), "{refused:?}");
    for (wrong, why) in
        [(&["--gpu=7"][..], "GPU 7"), (&["--gpu=1,1"], "B0448"), (&["--gpu=0,1", "--socket=x"], "B0449")]
    {
        let refused = baton_tests::run(first.prepared.serve_all().args(wrong));
        assert!(refused.status != "exit status: 0" && refused.err.contains(why), "{refused:?}");
    }
}

#[test]
fn commands_and_metrics_are_about_all_gpus() {
    let machine = Machine::start(&serving(), 2, &["--metrics", "127.0.0.1:0"]);
    let mut programs = programs(&machine);
    let json = machine.baton(&["status", "--json"]).succeeded().out;
    let all: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers: Vec<_> = all.iter().map(|status| status["gpu"]["number"].clone()).collect();
    assert_eq!(numbers, [0, 1]);
    for words in [&["status"][..], &["ps"], &["top"]] {
        let said = machine.baton(words).succeeded().out;
        assert!(programs.iter().all(|(_, name, _)| said.contains(name)), "{said}");
    }
    let suspended = machine.baton(&["suspend", "fourth", "one"]).succeeded();
    assert_eq!(suspended.out.lines().count(), 2, "{suspended:?}");
    for (gpu, name) in [(1, "fourth"), (0, "one")] {
        machine.until(gpu, "suspended", |status| tenant(status, name)["state"] == "suspended");
    }
    machine.baton(&["resume", "fourth", "one"]).succeeded();
    let unknown = machine.baton(&["suspend", "nobody"]);
    assert!(unknown.status == "exit status: 1" && unknown.err.lines().count() == 1, "{unknown:?}");
    let log = machine.serve.err();
    let port =
        log.split_once("metrics at http://").and_then(|(_, rest)| rest.split_once("/metrics")).expect("a port").0;
    let text = http::get(port.parse().expect("an address"), "/metrics", "").body;
    let metrics = openmetrics::read(&text);
    for (gpu, socket) in machine.sockets.iter().enumerate() {
        let name = gpu_of(&machine, gpu);
        assert_eq!(metrics.of("baton_tenants_departed_total", &[("gpu", &name)]).count(), 1, "{text}");
        let own = openmetrics::read(&http::get_unix(&socket.with_extension("metrics"), "/metrics").body);
        assert_eq!(own.of("baton_switches_total", &[]).count(), 1);
    }
    for (_, _, program) in &mut programs {
        program.ask("quit", LIMIT);
    }
}

/// Other settings hold when all programs have gone.
#[test]
fn all_gpus_that_were_served_are_taken_over_whatever_the_settings_say_by_then() {
    let want = hold::alone("48", &["touch"; 2]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("serve.toml");
    std::fs::write(&file, "gpu = \"2,1\"\n").expect("a file");
    let config = file.to_str().expect("a path");
    let machine = Machine::start_on(&serving(), 3, 2, &["--config", config]);
    // By the numbers of the GPUs.
    assert_eq!([machine.status(0), machine.status(1)].map(|status| status["gpu"]["number"].clone()), [1, 2]);
    let mut programs: Vec<_> = [(0, 1, "one"), (1, 2, "two")]
        .into_iter()
        .map(|(at, gpu, name)| (at, name, machine.hold(name, gpu, "48")))
        .collect();
    touch(&mut programs, &want[0]);
    std::fs::write(&file, "gpu = 1\n").expect("a file");
    machine.kill_served(&[0, 1]);
    until_back(&machine, &programs);
    touch(&mut programs, &want[1]);
    quit(programs, &want[2]);
}

#[test]
fn a_program_that_may_use_any_gpu_gets_the_one_with_the_most_room_or_the_least_waiting() {
    let machine = Machine::start(&serving().option("--mode", "exclusive"), 3, &[]);
    let run = |name: &str, megabytes: &str| {
        let mut command = machine.prepared.place.baton(&["run", "--driver", "sim", "--gpu", "any", "--name", name]);
        command.env_remove("BATON_SOCKET").arg("--").arg(program("hold")).args(["--megabytes", megabytes]);
        hold::ready(&mut command, None)
    };
    let gpu_of = |name: &str| {
        let on = (0..3).filter(|gpu| !tenant(&machine.status(*gpu), name).is_null()).collect::<Vec<_>>();
        assert_eq!(on.len(), 1, "{name} is on {on:?}");
        on[0]
    };
    let mut programs: Vec<Running> =
        [("one", "40"), ("two", "30"), ("three", "20")].map(|(name, mb)| run(name, mb)).into();
    let [one, two, three] = ["one", "two", "three"].map(gpu_of);
    let all = std::collections::BTreeSet::from([one, two, three]);
    assert_eq!(all.len(), 3, "each has a GPU of its own");
    programs.push(run("fourth", "10"));
    assert_eq!(gpu_of("fourth"), three, "the most room");
    // None has room for 48 now. On two GPUs, one of two programs waits.
    programs.extend([one, two].map(|gpu| machine.hold(&format!("beside{gpu}"), gpu, "8")));
    let busy = [0, 1, 4, 5].map(|at| (at, Busy::start(&mut programs[at], &machine.prepared.place)));
    for gpu in [one, two] {
        machine.until(gpu, "contended", |status| {
            let all = status["tenants"].as_array().into_iter().flatten();
            all.filter(|one| one["waiting"] == true || one["running"] == true).count() == 2
        });
    }
    let mut command = machine.prepared.place.baton(&["run", "--driver", "sim", "--gpu", "any", "--needs", "48MiB"]);
    command.env_remove("BATON_SOCKET").args(["--name", "fifth", "--"]).arg(program("hold")).args(["--megabytes", "48"]);
    programs.push(hold::ready(&mut command, None));
    assert_eq!(gpu_of("fifth"), three, "the least waiting");
    busy.into_iter().for_each(|(at, busy)| busy.end(&mut programs[at]));
    let refused = machine.baton(&["serve", "--driver", "sim", "--gpu", "any"]);
    assert!(refused.status != "exit status: 0" && refused.err.contains("B0450"), "{refused:?}");
    programs.into_iter().for_each(|mut one| assert!(one.ask("quit", LIMIT).starts_with("result ")));
}

/// The first one starts a coordinator of all GPUs.
#[test]
fn programs_that_may_use_any_gpu_are_spread_if_they_come_at_the_same_moment() {
    let prepared = Serving::arena("64MiB").setting("SIMCUDA_GPUS", "2").prepare();
    let start = |at: usize| {
        let mut command = prepared.place.baton(&[
            "run",
            "--driver",
            "sim",
            "--arena",
            "64MiB",
            "--host-pool",
            "256MiB",
            "--gpu",
            "any",
        ]);
        command.env_remove("BATON_SOCKET").args(["--name", &format!("program-{at}"), "--"]);
        Running::start(command.arg(program("hold")).args(["--megabytes", "8"]), true, None)
    };
    let mut programs: Vec<Running> = (0..4).map(start).collect();
    programs.iter_mut().for_each(|one| assert!(one.line(LIMIT).starts_with("ready "), "{}", one.said()));
    let gpus = |one: &Running| {
        let environment = std::fs::read(format!("/proc/{}/environ", one.pid())).expect("a process of ours");
        let all = String::from_utf8_lossy(&environment).into_owned();
        all.split('\0').find_map(|word| word.strip_prefix("CUDA_VISIBLE_DEVICES=").map(str::to_owned))
    };
    let chosen: std::collections::BTreeSet<_> = programs.iter().map(gpus).collect();
    assert!(chosen.len() == 2 && chosen.iter().flatten().all(|gpu| gpu.starts_with("GPU-")), "{chosen:?}");
    programs.into_iter().for_each(|mut one| assert!(one.ask("quit", LIMIT).starts_with("result ")));
}
