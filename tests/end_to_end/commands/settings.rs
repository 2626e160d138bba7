//! How coordinators and tenants are started: a refusal gives its reason, and programs come through as they are.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use baton_tests::coordinator::{Coordinator, Prepared, Serving, program, tenant};
use baton_tests::running::{Running, code, signal};
use baton_tests::{LIMIT, built};
use serde_json::Value;

// --- coordinators that are refused ------------------------------------------------------------------------

/// Why a coordinator with these options does not start, in words that have these among them.
#[track_caller]
fn refused(prepared: &Prepared, words: &[&str]) {
    let outcome = prepared.serve_in_vain();
    println!("{}", outcome.err.trim());
    assert!(outcome.err.starts_with("baton"), "{outcome:?}");
    for word in words {
        assert!(outcome.err.contains(word), "it does not say {word}: {outcome:?}");
    }
}

#[test]
fn an_arena_above_the_gpu_is_refused() {
    refused(&Serving::small("4GiB").prepare(), &["4 GiB", "512 MiB", "--arena"]);
}

#[test]
fn a_pool_above_memory_is_refused_and_force_is_named() {
    refused(&Serving::small("64MiB").option("--host-pool", "100TiB").prepare(), &["--host-pool", "--force"]);
}

#[test]
fn a_gpu_that_is_not_there_is_refused() {
    refused(&Serving::small("64MiB").option("--gpu", "7").prepare(), &["GPU 7"]);
}

#[test]
fn words_that_mean_nothing_are_refused() {
    for (name, value) in [("--arena", "much"), ("--host-pool", "12Gallons"), ("--quantum", "soon"), ("--arena", "300%")]
    {
        let outcome = Running::start(&mut Serving::small("64MiB").option(name, value).prepare().serve(), false, None)
            .finish(LIMIT);
        assert_ne!(outcome.status, "exit status: 0", "{name} {value}: {outcome:?}");
        assert!(outcome.err.contains(value) || outcome.err.contains(name), "{name} {value}: {outcome:?}");
    }
}

#[test]
fn a_second_coordinator_in_the_same_place_is_refused_and_the_first_does_not_notice() {
    let coordinator = Serving::small("64MiB").start();
    let mut running = hold(&coordinator, "tenant");
    let mut second = coordinator.place.baton(&["serve", "--driver", "sim", "--arena", "64MiB", "--host-pool", "64MiB"]);
    let outcome = Running::start(second.arg("--socket").arg(coordinator.place.socket()), false, None).finish(LIMIT);
    assert_eq!(outcome.status, "exit status: 1", "{outcome:?}");
    println!("{}", outcome.err.trim());
    assert!(outcome.err.contains(&coordinator.pid().to_string()), "it does not say which process: {outcome:?}");
    assert!(running.ask("touch", LIMIT).starts_with("touched "));
    assert_eq!(tenant(&coordinator.status(), "tenant")["class"], "normal");
}

#[test]
fn a_setting_in_a_file_counts_unless_the_command_line_says_otherwise() {
    let prepared = Serving::small("64MiB").prepare();
    let file = prepared.place.folder().join("baton.toml");
    std::fs::write(&file, "arena = \"32MiB\"\nhost-pool = \"96MiB\"\n").expect("a writable folder");
    let coordinator = Serving::small("64MiB").option("--config", &file.display().to_string()).start();
    let status = coordinator.status();
    assert_eq!(status["arena"]["configured_bytes"], 64 << 20);
    std::fs::write(&file, "arenas = \"32MiB\"\n").expect("a writable folder");
    let vain = Serving::small("64MiB").option("--config", &file.display().to_string()).prepare();
    refused(&vain, &["baton.toml"]);
}

// --- a service manager ------------------------------------------------------------------------------------

/// Has the coordinator read its settings again, and waits for what it says about that.
#[track_caller]
fn reloaded(coordinator: &Coordinator, settings: &str, file: &Path, says: &str) {
    std::fs::write(file, settings).expect("a writable folder");
    signal(coordinator.pid(), libc::SIGHUP);
    coordinator.until(says, |_| coordinator.log().contains(says));
}

#[test]
fn settings_are_read_again_without_losing_a_program() {
    let prepared = Serving::small("64MiB").prepare();
    let file = prepared.place.folder().join("baton.toml");
    std::fs::write(&file, "max-programs = 1\n").expect("a writable folder");
    let coordinator = Serving::small("64MiB").option("--config", &file.display().to_string()).start();
    let mut first = hold(&coordinator, "first");
    let mut second = coordinator.join("second", &program("hold"), &["--megabytes", "8"]);
    coordinator.until("it waits to join", |status| status["newcomers"].as_array().map(Vec::len) == Some(1));

    let broken = "max-programs = \"many\"\n";
    reloaded(&coordinator, broken, &file, "the settings stay as they are: ");
    let more = "max-programs = 2\nheadroom = \"2MiB\"\narena = \"32MiB\"\n";
    reloaded(&coordinator, more, &file, "after a restart: headroom 2MiB (was 3%)");
    assert!(coordinator.log().contains("from now on: max-programs 2 (was 1)"), "{}", coordinator.log());
    assert!(second.line(LIMIT).starts_with("ready "), "there is room for it now");
    reloaded(&coordinator, "max-programs = 2\nlog-level = \"warn\"\n", &file, "from now on: log-level warn (was info)");

    assert_eq!(coordinator.status()["arena"]["configured_bytes"], 64 << 20, "the command line goes first");
    for running in [&mut first, &mut second] {
        assert!(running.ask("touch", LIMIT).starts_with("touched "));
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    }
}

#[test]
fn a_service_manager_hears_when_a_coordinator_is_ready_reads_its_settings_again_and_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = folder.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&address).expect("a socket");
    manager.set_read_timeout(Some(LIMIT)).expect("a socket");
    let hear = || {
        let mut said = [0; 1024];
        let length = manager.recv(&mut said).expect("it says something");
        String::from_utf8_lossy(&said[..length]).into_owned()
    };
    // It has started the keeper, which passes its signals on.
    let serving = Serving::small("64MiB").keeper();
    let mut coordinator = serving.setting("NOTIFY_SOCKET", &address.display().to_string()).start();
    let ready = hear();
    assert!(ready.starts_with("READY=1\nSTATUS=serving GPU 0 (Simulated GPU) at "), "{ready}");
    signal(coordinator.pid(), libc::SIGHUP);
    let reloading = hear();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(hear(), "READY=1\n");
    assert!(coordinator.log().contains("there is no file to read again"), "{}", coordinator.log());
    assert!(coordinator.end(libc::SIGTERM).success());
    assert_eq!(hear(), "STOPPING=1\n");
}

#[test]
fn a_socket_that_a_service_manager_keeps_outlives_its_coordinators() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::process::CommandExt as _;

    let prepared = Serving::small("64MiB").keeper().prepare();
    let path = prepared.place.socket();
    let kept = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    bind(&kept, &SocketAddrUnix::new(&path).expect("short enough")).expect("free");
    listen(&kept, 8).expect("it listens");
    // As a service manager starts it: the socket is descriptor 3, and the variables are for this process.
    let started = || {
        let serve = prepared.serve();
        let mut command = Command::new("sh");
        command
            .args(["-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"", "sh"])
            .arg(serve.get_program())
            .args(serve.get_args());
        for (name, value) in serve.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let number = kept.as_raw_fd();
        // SAFETY: between fork and exec only these calls are made, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                // A descriptor that is the right one already would be closed by exec.
                let moved = if number == 3 { libc::fcntl(3, libc::F_SETFD, 0) } else { libc::dup2(number, 3) };
                if moved < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        Running::start(&mut command, false, None)
    };
    for name in ["first", "second"] {
        // It has connected before there is a coordinator.
        let mut joining = prepared.place.joining(name, &program("hold"), &["--megabytes", "8"]);
        let mut tenant = Running::start(&mut joining, true, None);
        let coordinator = started();
        assert!(tenant.line(LIMIT).starts_with("ready "));
        let serves = || prepared.place.try_status().ok().and_then(|status| status["pid"].as_i64());
        let first = serves().expect("it serves");
        signal(i32::try_from(first).expect("a process"), libc::SIGKILL);
        while serves().is_none_or(|next| next == first) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(tenant.ask("quit", LIMIT).ends_with(" ok"));
        coordinator.signal(libc::SIGTERM);
        let outcome = coordinator.finish(LIMIT);
        assert_eq!(outcome.status, "exit status: 0", "{outcome:?}");
        assert!(path.exists(), "it is the service manager's");
    }
    // A keeper that takes the place of the first one has it too, and so has the coordinator which that starts.
    let first = started();
    let status = |of: &str| prepared.place.try_status().ok().and_then(|status| status[of].as_i64());
    let until = |wanted: &dyn Fn() -> bool| {
        while !wanted() {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let keeper = i64::from(first.pid());
    until(&|| status("keeper") == Some(keeper));
    first.signal(libc::SIGKILL);
    until(&|| status("keeper").is_some_and(|now| now != keeper));
    let serves = status("pid").expect("it serves");
    signal(i32::try_from(serves).expect("a process"), libc::SIGKILL);
    until(&|| status("pid").is_some_and(|now| now != serves));
    let last = status("keeper").and_then(|keeper| i32::try_from(keeper).ok()).expect("there is one");
    signal(last, libc::SIGTERM);
    until(&|| !std::path::Path::new(&format!("/proc/{last}/exe")).exists());
    assert!(path.exists(), "it is the service manager's");
}

// --- programs that join, or do not ------------------------------------------------------------------------

#[track_caller]
fn hold(coordinator: &Coordinator, name: &str) -> Running {
    let mut running = coordinator.join(name, &program("hold"), &["--megabytes", "24"]);
    assert!(running.line(LIMIT).starts_with("ready "));
    running
}

/// Runs the example with this command, which succeeds. Returns its standard error.
#[track_caller]
fn runs_well(command: &mut Command) -> String {
    let outcome = Running::start(command, false, None).finish(LIMIT).succeeded();
    assert!(outcome.out.ends_with(" ok\n"), "{outcome:?}");
    outcome.said()
}

#[test]
fn a_program_on_another_gpu_passes_through_and_is_told_so_once() {
    let coordinator = Serving::small("64MiB").start();
    let other = coordinator.place.folder().join("other-gpu");
    let mut command = coordinator.place.joining("stranger", &built().examples.join("vector_add"), &[]);
    let err = runs_well(command.env("SIMCUDA_GPU_FILE", other));
    println!("{err}");
    assert!(err.starts_with("baton: ") && err.lines().count() == 1, "one line: {err}");
    assert!(err.contains("GPU"), "{err}");
    let status = coordinator.status();
    assert_eq!(status["departed"], Value::Array(Vec::new()), "{status:#}");
}

#[test]
fn a_disabled_program_passes_through_in_silence() {
    let coordinator = Serving::small("64MiB").start();
    let mut command = coordinator.place.joining("disabled", &built().examples.join("vector_add"), &[]);
    assert_eq!(runs_well(command.env("BATON_DISABLE", "1")), "");
    assert_eq!(coordinator.status()["departed"], Value::Array(Vec::new()));
}

#[test]
fn a_program_without_a_coordinator_passes_through_and_starts_none() {
    let prepared = Serving::small("64MiB").prepare();
    let mut command = prepared.place.joining("alone", &built().examples.join("vector_add"), &[]);
    let err = runs_well(&mut command);
    assert!(err.lines().count() <= 1, "{err}");
    assert!(!prepared.place.socket().exists());
    // Nor when no place is named.
    let err = runs_well(command.env_remove("BATON_SOCKET"));
    assert!(err.lines().count() == 1 && err.contains("running without Baton"), "{err}");
}

#[test]
fn a_program_finds_its_gpus_coordinator_without_being_told_where() {
    let prepared = Serving::small("64MiB").prepare();
    let mut command =
        prepared.place.baton(&["serve", "--driver", "sim", "--no-keeper", "--arena=64MiB", "--host-pool=64MiB"]);
    let served = Running::start(&mut command, false, None);
    let place = prepared.place.folder().join("runtime/baton");
    let end = std::time::Instant::now() + LIMIT;
    while !served.err().contains("serving GPU") {
        assert!(std::time::Instant::now() < end, "{}", served.err());
        std::thread::sleep(Duration::from_millis(5));
    }
    let names: Vec<_> = std::fs::read_dir(&place)
        .expect("the user's folder")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    let is_socket = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.starts_with("GPU-") && name.ends_with(".sock")
    };
    assert!(names.iter().any(is_socket), "{names:?}");
    let mut command = prepared.place.joining("found", &program("hold"), &["--megabytes", "24"]);
    let mut running = Running::start(command.env_remove("BATON_SOCKET"), true, None);
    assert!(running.line(LIMIT).starts_with("ready "));
    let asked = Running::start(&mut prepared.place.baton(&["status", "--json"]), false, None);
    let status: Value = serde_json::from_str(&asked.finish(LIMIT).succeeded().out).expect("JSON");
    assert_eq!(tenant(&status, "found")["pid"], running.pid(), "{status:#}");
    // And so does a command that is told which GPU is meant.
    let uuid = status["gpu"]["uuid"].as_str().expect("a UUID");
    let asked = Running::start(&mut prepared.place.baton(&["status", "--json", "--gpu", &uuid[..12]]), false, None);
    let status: Value = serde_json::from_str(&asked.finish(LIMIT).succeeded().out).expect("JSON");
    let rows = ["/tenants/0", "/arena", "/host_pool", "/ledger"];
    assert!(rows.iter().all(|row| status.pointer(row).is_some_and(|row| row["gpu"] == uuid)), "{status:#}");
    let mut other = prepared.place.baton(&["evict", "found", "--gpu", "GPU-ffff"]);
    let outcome = Running::start(&mut other, false, None).finish(LIMIT);
    assert!(outcome.status != "exit status: 0" && outcome.err.contains("no coordinator of GPU-ffff"), "{outcome:?}");
}

#[test]
fn class_and_name_come_from_the_environment_too() {
    let coordinator = Serving::small("64MiB").start();
    let mut command = coordinator.place.joining("urgent", &program("hold"), &["--megabytes", "24"]);
    let mut running = Running::start(command.env("BATON_CLASS", "latency"), true, Some(coordinator.place.clone()));
    running.line(LIMIT);
    let status = coordinator.status();
    let urgent = tenant(&status, "urgent");
    assert_eq!(urgent["class"], "latency");
    assert_eq!(urgent["pid"], running.pid());
    assert_eq!(urgent["bytes"], 24 << 20);
}

// --- `baton run` ------------------------------------------------------------------------------------------

#[test]
fn exit_code_and_signal_of_a_program_come_through() {
    let coordinator = Serving::small("64MiB").start();
    for (script, want) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9), ("kill -15 $$", 128 + 15)] {
        let mut running = coordinator.run("shell", "normal", Path::new("/bin/sh"), &["-c", script]);
        assert_eq!(code(running.end(LIMIT)), want, "{script}");
    }
    for (path, want) in [("/no/such/program", 127), ("no-such-program", 127), ("/etc/passwd", 126)] {
        let mut missing = coordinator.run("missing", "normal", Path::new(path), &[]);
        assert_eq!(code(missing.end(LIMIT)), want, "as a shell has it");
        assert!(missing.err().contains(path), "{}", missing.err());
    }
    // A signal to `baton run` is the program's.
    let mut running =
        coordinator.run("sleeps", "normal", Path::new("/bin/sh"), &["-c", "echo started; exec sleep 600"]);
    assert_eq!(running.line(LIMIT), "started");
    running.signal(libc::SIGTERM);
    assert_eq!(code(running.end(LIMIT)), 128 + 15);
}

/// A `baton run` that may have to start a coordinator, with `hold` as its program.
fn run_hold(prepared: &Prepared, name: &str) -> Running {
    let mut command = prepared.place.baton(&["run", "--driver", "sim", "--arena", "64MiB", "--host-pool", "128MiB"]);
    command.args(["--quantum", "5ms", "--name", name, "--socket"]).arg(prepared.place.socket());
    Running::start(command.arg("--").arg(program("hold")).args(["--megabytes", "48"]), true, None)
}

#[test]
fn runs_that_begin_at_once_start_one_coordinator_which_ends_after_the_last() {
    let prepared = Serving::small("64MiB").prepare();
    let mut running = ["one", "two", "three"].map(|name| run_hold(&prepared, name));
    running.iter_mut().for_each(|running| assert!(running.line(LIMIT).starts_with("ready ")));
    let status = prepared.place.try_status().expect("one coordinator for all");
    assert_eq!(status["tenants"].as_array().map(Vec::len), Some(3), "{status:#}");
    let log = std::fs::read_dir(prepared.place.folder())
        .expect("a folder")
        .map(|entry| entry.expect("readable").path())
        .find(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .expect("a log beside the socket");
    let said = std::fs::read_to_string(log).expect("a text");
    assert_eq!(said.matches("serving GPU").count(), 1, "{said}");
    let [one, ..] = &mut running;
    let first = one.ask("touch", LIMIT);
    for running in &mut running[1..] {
        assert_eq!(running.ask("touch", LIMIT), first);
    }
    for mut running in running {
        assert!(prepared.place.try_status().is_ok(), "it ended before the last of its tenants");
        assert!(running.ask("quit", LIMIT).ends_with(" ok"));
        assert_eq!(running.end(LIMIT).code(), Some(0));
    }
    let end = std::time::Instant::now() + LIMIT;
    while prepared.place.socket().exists() {
        assert!(std::time::Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = prepared.place.try_status().expect_err("nobody serves any more");
    assert!(asked.to_string().contains("no coordinator answers"), "{asked}");
    // And once more, where it has been before.
    let mut again = run_hold(&prepared, "again");
    assert!(again.line(LIMIT).starts_with("ready "));
    assert_eq!(again.ask("touch", LIMIT), first);
}

#[test]
fn who_asks_for_other_settings_than_the_coordinator_has_is_told_that_it_keeps_its_own() {
    let coordinator = Serving::small("64MiB").start();
    let mut command = coordinator.place.baton(&["run", "--driver", "sim", "--arena", "128MiB", "--socket"]);
    command.arg(coordinator.place.socket()).args(["--", "true"]);
    let outcome = Running::start(&mut command, false, None).finish(LIMIT).succeeded();
    assert!(outcome.err.contains("--arena"), "{outcome:?}");
}

#[test]
fn a_coordinator_that_is_ended_says_who_cannot_go_on() {
    let mut coordinator = Serving::small("40MiB").option("--host-pool", "128MiB").start();
    let (_one, _two) = (hold(&coordinator, "one"), hold(&coordinator, "two"));
    coordinator.end(libc::SIGTERM);
    let said = coordinator.log();
    assert!(said.contains("cannot go on without it: one") || said.contains("cannot go on without it: two"), "{said}");
}

#[test]
fn a_run_whose_coordinator_cannot_start_says_why() {
    let prepared = Serving::small("64MiB").prepare();
    let mut command = prepared.place.baton(&["run", "--driver", "sim", "--arena", "4GiB", "--socket"]);
    command.arg(prepared.place.socket()).arg("--").arg("/bin/true");
    let outcome = Running::start(&mut command, false, None).finish(LIMIT);
    println!("{}", outcome.err.trim());
    assert_ne!(outcome.status, "exit status: 0", "{outcome:?}");
    assert!(outcome.err.contains("4 GiB") && outcome.err.contains("--arena"), "{outcome:?}");
}

// --- the other commands -----------------------------------------------------------------------------------

#[test]
fn doctor_says_what_there_is() {
    let prepared = Serving::small("64MiB").prepare();
    let outcome = Running::start(&mut prepared.place.baton(&["doctor", "--driver", "sim"]), false, None).finish(LIMIT);
    println!("{}", outcome.out);
    assert!(outcome.out.lines().count() >= 3, "{outcome:?}");
}

#[test]
fn status_can_be_read_by_people() {
    let coordinator = Serving::small("64MiB").start();
    let _running = hold(&coordinator, "tenant-of-mine");
    let mut command = coordinator.place.baton(&["status", "--socket"]);
    let outcome = Running::start(command.arg(coordinator.place.socket()), false, None).finish(LIMIT).succeeded();
    println!("{}", outcome.out);
    assert!(outcome.out.contains("tenant-of-mine") && outcome.out.contains("Simulated GPU"), "{outcome:?}");
}
