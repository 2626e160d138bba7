//! Other users on the machine: the files that they have put in our way are not believed, and a user that wants too much gets an answer.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use baton_contract::link::{self, Chosen};
use baton_contract::messages::{Admission, FromCoordinator, Message as _, Opening, Refusal};
use baton_contract::wire::GpuNumber;
use baton_tests::bare_tenant::{BareTenant, greeting};
use baton_tests::coordinator::{Coordinator, Prepared, Serving, program, tenant};
use baton_tests::running::{Running, cpu_time};
use baton_tests::{LIMIT, around, built, run};

/// A coordinator is refused a place that another user has prepared, with a sentence.
#[track_caller]
fn is_refused(command: &mut Command, words: &[&str]) {
    let ended = run(command);
    assert!(ended.status == "exit status: 1" || ended.status == "exit status: 125", "{ended:?}");
    assert!(ended.said().lines().count() == 1 && words.iter().all(|word| ended.err.contains(word)), "{ended:?}");
}

/// `serve` and `run`, which make their runtime folder if it is not there.
fn commands(prepared: &Prepared) -> [Command; 2] {
    let mut run = prepared.place.baton(&["run", "--driver", "sim", "--"]);
    run.arg("/bin/true");
    [prepared.place.baton(&["serve", "--driver", "sim", "--arena=64MiB", "--host-pool=64MiB"]), run]
}

/// A place whose runtime folder others can enter, which is refused.
fn with_open_folder() -> (Prepared, PathBuf) {
    let prepared = Serving::small("64MiB").prepare();
    let folder = prepared.place.folder().join("runtime/baton");
    std::fs::create_dir(&folder).expect("a new folder");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("ours");
    for mut command in commands(&prepared) {
        is_refused(&mut command, &["runtime/baton", "777", "chmod 700"]);
    }
    (prepared, folder)
}

#[test]
fn a_runtime_folder_that_others_can_enter_is_refused_and_so_is_a_link_to_one() {
    let (prepared, folder) = with_open_folder();
    std::fs::remove_dir(&folder).expect("empty");
    symlink(prepared.place.folder(), &folder).expect("planted");
    for mut command in commands(&prepared) {
        is_refused(&mut command, &["runtime/baton", "link"]);
    }
}

#[test]
fn links_beside_a_socket_lead_nobody_to_a_victims_files() {
    let prepared = Serving::small("64MiB").prepare();
    let victim = prepared.place.folder().join("victim");
    std::fs::write(&victim, "precious").expect("a file");
    let socket = prepared.place.socket();
    for extension in ["start", "log"] {
        let planted = socket.with_extension(extension);
        symlink(&victim, &planted).expect("planted");
        let mut command = prepared.place.baton(&["run", "--driver", "sim", "--arena=64MiB", "--socket"]);
        is_refused(command.arg(&socket).args(["--", "/bin/true"]), &[extension, "symbolic link", "remove it"]);
        std::fs::remove_file(planted).expect("ours");
    }
    symlink(&victim, &socket).expect("planted");
    is_refused(&mut prepared.serve(), &["baton.sock", "no socket"]);
    assert_eq!(std::fs::read_to_string(victim).expect("there"), "precious");
}

/// Ends a program when the test is over.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_gpu_has_one_coordinator_wherever_its_socket_is() {
    let coordinator = Serving::small("64MiB").start();
    let other = coordinator.place.folder().join("other.sock");
    // Also for a user whose runtime folder is another one.
    for runtime in ["runtime", "elsewhere"] {
        let mut second = coordinator.place.baton(&["serve", "--driver", "sim", "--arena=64MiB", "--socket"]);
        second.arg(&other).env("XDG_RUNTIME_DIR", coordinator.place.folder().join(runtime));
        let process = format!("process {}", coordinator.pid());
        is_refused(&mut second, &[&process, "baton.sock", "baton status"]);
    }
    assert!(!other.exists());
}

#[test]
fn a_coordinator_that_cannot_have_its_arena_says_who_holds_the_gpus_memory() {
    let prepared = Serving::small("400MiB").prepare();
    let mut command = prepared.place.joining("greedy", &program("hold"), &["--megabytes", "300"]);
    let mut greedy = Running::start(command.env("BATON_DISABLE", "1"), true, None);
    assert!(greedy.line(LIMIT).starts_with("ready "));
    let served = Running::start(&mut prepared.serve(), false, None);
    while !served.err().contains("serving GPU") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = served.err();
    assert!(said.contains("WARN") && said.contains(&format!("hold (process {}) 3", greedy.pid())), "{said}");
}

#[track_caller]
fn connected(coordinator: &Coordinator) -> OwnedFd {
    link::connect(&coordinator.place.socket(), Chosen::ByUser, LIMIT).expect("it listens")
}

/// The first message on a connection.
#[track_caller]
fn answer(socket: &OwnedFd) -> Admission {
    let received = link::receive(socket.as_fd(), false).expect("an answer").expect("an answer");
    match FromCoordinator::decode(&received.message) {
        Ok((_, FromCoordinator::Admission(answer))) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn whoever_comes_when_there_is_no_room_is_told_so_and_tenants_do_not_notice() {
    let script = "ulimit -n 200; exec \"$@\"";
    let prepared = Serving::small("64MiB").prepare();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]);
    let served = Running::start(&mut around(shell, &prepared.serve()), false, None);
    while !served.err().contains("serving GPU") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut running = Running::start(
        &mut prepared.place.joining("tenant", &program("hold"), &["--megabytes", "24"]),
        true,
        Some(prepared.place.clone()),
    );
    assert!(running.line(LIMIT).starts_with("ready "));
    // Programs that are expected: they stay for as long as they like.
    let connect = || link::connect(&prepared.place.socket(), Chosen::ByUser, LIMIT).expect("it listens");
    let mut held = Vec::new();
    let text = loop {
        assert!(held.len() < 200, "there is a limit");
        let socket = connect();
        let _ = link::send(socket.as_fd(), &Opening::Expect.encode(GpuNumber::ANY), &[], false);
        match answer(&socket) {
            Admission::Offer { .. } => held.push(socket),
            Admission::Refused { reason: Refusal::Busy, text } => break text,
            other => panic!("{other:?}"),
        }
    };
    println!("after {} connections: {text}", held.len());
    assert!(held.len() >= 16 && text.contains("ulimit -n"), "{} {text}", held.len());
    assert!(running.ask("touch", LIMIT).starts_with("touched "));
    let mut asked = prepared.place.baton(&["status", "--socket"]);
    let told = run(asked.arg(prepared.place.socket()));
    assert!(told.err.contains("ulimit -n"), "a tool gets the answer too: {told:?}");
    let mut command = prepared.place.baton(&["run", "--driver", "sim", "--socket"]);
    let mut waits = Running::start(command.arg(prepared.place.socket()).args(["--", "/bin/true"]), false, None);
    while !waits.err().contains("waiting: ") {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(held);
    assert_eq!(waits.end(LIMIT).code(), Some(0), "{}", waits.err());
    assert!(served.err().matches("ulimit -n").count() <= 3, "it is not said each time: {}", served.err());
}

/// Descriptors run out below the limit on connections: the obstacle is another one then.
#[test]
fn a_coordinator_without_descriptors_neither_spins_nor_stops_serving() {
    let coordinator = Serving::small("64MiB").start();
    // A slab of the pool that comes later would take what is left of the descriptors.
    coordinator.until_ready();
    let mut running = coordinator.join("tenant", &program("hold"), &["--megabytes", "24"]);
    assert!(running.line(LIMIT).starts_with("ready "));
    let open = coordinator.status()["descriptors"].as_u64().expect("a number");
    let limit = libc::rlimit { rlim_cur: open + 3, rlim_max: open + 3 };
    // SAFETY: a structure that lives over the call.
    let set = unsafe { libc::prlimit(coordinator.pid(), libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let silent: Vec<OwnedFd> = (0..20).map(|_| connected(&coordinator)).collect();
    let is_told = |socket: &OwnedFd| match link::receive(socket.as_fd(), true) {
        Ok(Some(received)) => matches!(
            FromCoordinator::decode(&received.message),
            Ok((_, FromCoordinator::Admission(Admission::Refused { reason: Refusal::Busy, .. })))
        ),
        _ => false,
    };
    while !silent.iter().any(is_told) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(running.ask("touch", LIMIT).starts_with("touched "));
    let before = cpu_time(coordinator.pid());
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu_time(coordinator.pid()) - before;
    assert!(used < Duration::from_millis(300), "it is busy: {used:?} in a second");
    drop(silent);
    coordinator.until("it answers again", |status| tenant(status, "tenant")["class"] == "normal");
}

#[test]
fn requests_that_wait_are_limited_and_the_next_is_told_so() {
    let coordinator = Serving::small("64MiB").flag("--no-preempt").start();
    let mut running = coordinator.join("busy", &program("hold"), &["--megabytes", "24"]);
    assert!(running.line(LIMIT).starts_with("ready "));
    // Stopped, it cannot be evicted, and a command that wants that waits.
    running.signal(libc::SIGSTOP);
    let evict = Opening::Evict { name: "busy".to_owned() }.encode(GpuNumber::ANY);
    let mut waiting = Vec::new();
    let refused = loop {
        assert!(waiting.len() < 1000, "there is a limit");
        let socket = connected(&coordinator);
        link::send(socket.as_fd(), &evict, &[], false).expect("it listens");
        // Those before have been heard when this one is.
        coordinator.status();
        match link::receive(socket.as_fd(), true) {
            Ok(Some(received)) => break String::from_utf8_lossy(&received.message).into_owned(),
            _ => waiting.push(socket),
        }
        if waiting.len() % 64 == 0 {
            println!("{} wait", waiting.len());
        }
    };
    running.signal(libc::SIGCONT);
    assert!(refused.contains("evictions wait already") || refused.contains("does not answer"), "{refused}");
    assert!(waiting.len() >= 200 || refused.contains("does not answer"), "{} waited: {refused}", waiting.len());
}

#[test]
fn a_path_in_the_way_of_a_socket_is_left_as_it_is() {
    let prepared = Serving::small("64MiB").prepare();
    std::fs::write(prepared.place.socket(), "precious").expect("a file");
    is_refused(&mut prepared.serve(), &["baton.sock", "no socket"]);
    assert_eq!(std::fs::read_to_string(Path::new(&prepared.place.socket())).expect("there"), "precious");
}

#[test]
fn a_name_turns_nothing_round_and_controls_no_terminal_wherever_it_is_shown() {
    let coordinator = Serving::small("64MiB").option("--max-programs", "1").start();
    let hello = |name: &str| greeting(&coordinator, name).encode(GpuNumber::ANY);
    let _inside = BareTenant::greet(&coordinator, &hello("in \u{202e}gpj\u{1b}[2J"));
    let waiting = connected(&coordinator);
    // SAFETY: plain integers; the new descriptor has no other owner.
    let own = unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as i32) };
    link::send(waiting.as_fd(), &hello("waits \u{2066}\n\u{9b}"), &[own.as_fd()], false).expect("a message");
    assert!(matches!(answer(&waiting), Admission::Queued { .. }));
    let status = coordinator.status();
    assert_eq!(status["tenants"][0]["name"], "in ?gpj?[2J");
    assert_eq!(status["newcomers"][0]["name"], "waits ???");
    assert!(!coordinator.log().contains(['\u{202e}', '\u{1b}']), "{}", coordinator.log());
}

/// A place with a file of settings and one with a token.
fn with_files() -> (Prepared, [PathBuf; 2]) {
    let prepared = Serving::small("64MiB").prepare();
    let [config, token] = ["serve.toml", "token"].map(|name| prepared.place.folder().join(name));
    std::fs::write(&config, "max-programs = 7\n").expect("a file");
    std::fs::write(&token, "a-token-of-some-length\n").expect("a file");
    (prepared, [config, token])
}

fn with_config(prepared: &Prepared, config: &Path) -> Command {
    let mut serve = prepared.serve();
    serve.arg("--config").arg(config);
    serve
}

#[test]
fn settings_that_others_may_write_are_refused_and_those_that_a_group_may_write_are_not() {
    let (prepared, [config, _]) = with_files();
    let permit = |mode: u32| std::fs::set_permissions(&config, PermissionsExt::from_mode(mode)).expect("ours");
    permit(0o666);
    is_refused(&mut with_config(&prepared, &config), &["serve.toml", "666", "chmod o-w"]);
    permit(0o664);
    let printed = run(with_config(&prepared, &config).arg("--print-config")).succeeded().out;
    assert!(printed.contains("max-programs = 7"), "a group may: {printed}");
}

#[test]
fn a_coordinator_whose_socket_was_removed_is_found_again() {
    let coordinator = Serving::small("64MiB").start();
    let mut running = coordinator.join("tenant", &program("hold"), &["--megabytes", "24"]);
    assert!(running.line(LIMIT).starts_with("ready "));
    std::fs::remove_file(coordinator.place.socket()).expect("it listens there");
    while coordinator.place.try_status().is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!tenant(&coordinator.status(), "tenant").is_null(), "the same coordinator");
    let mut late = coordinator.join("late", &program("hold"), &["--megabytes", "24"]);
    assert!(late.line(LIMIT).starts_with("ready "));
    assert!(coordinator.log().contains("socket was removed"), "{}", coordinator.log());
    assert!(late.ask("quit", LIMIT).ends_with(" ok") && running.ask("quit", LIMIT).ends_with(" ok"));
}

#[test]
fn a_stop_that_is_interrupted_keeps_nobody_out_any_more_and_fills_no_log() {
    let coordinator = Serving::small("64MiB").start();
    let mut running = coordinator.join("tenant", &program("hold"), &["--megabytes", "24"]);
    assert!(running.line(LIMIT).starts_with("ready "));
    let mut stop = coordinator.place.baton(&["stop", "--timeout", "5m", "--socket"]);
    let mut stop = Running::start(stop.arg(coordinator.place.socket()), false, None);
    while !coordinator.log().contains("as was asked for") {
        std::thread::sleep(Duration::from_millis(5));
    }
    // One that waits until this coordinator has ended, or takes it after all.
    let mut waits = coordinator.run("late", "normal", &program("hold"), &["--megabytes", "24"]);
    while !waits.err().contains("waiting: ") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let lines = coordinator.log().lines().count();
    std::thread::sleep(Duration::from_secs(2));
    assert!(coordinator.log().lines().count() <= lines + 1, "{}", coordinator.log());
    stop.signal(libc::SIGINT);
    stop.end(LIMIT);
    let is_late = |one: &serde_json::Value| one["name"] == "late";
    coordinator.until("the other is in", |status| {
        let left = status["departed"].as_array().is_some_and(|left| left.iter().any(is_late));
        left || !tenant(status, "late").is_null()
    });
    assert!(running.ask("quit", LIMIT).ends_with(" ok"));
    waits.signal(libc::SIGKILL);
    waits.end(LIMIT);
    coordinator.until_empty();
}

mod root {
    use super::*;

    #[test]
    #[ignore = "root: there are several users"]
    fn a_socket_of_another_user_is_not_believed() {
        let prepared = Serving::small("64MiB").prepare();
        let folder = prepared.place.folder().join("theirs");
        std::fs::create_dir(&folder).expect("a new folder");
        for path in [&folder, prepared.place.folder()] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("ours");
        }
        let socket = folder.join("false.sock");
        // Answers whatever comes, as a coordinator that names a driver would.
        let script = "import socket, sys, struct\n\
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]); s.listen(8)\n\
        print('listening', flush=True)\n\
        while True:\n    c, _ = s.accept(); print('asked', c.recv(65536), flush=True); c.close()\n";
        let log = std::fs::File::create(prepared.place.folder().join("false.log")).expect("a file");
        let mut listening = Command::new("python3");
        listening.args(["-c", script]).arg(&socket).uid(65534).stdin(Stdio::null()).stdout(log);
        let _listening = Ends(listening.spawn().expect("python3"));
        let heard = || std::fs::read_to_string(prepared.place.folder().join("false.log")).expect("a file");
        while !heard().contains("listening") {
            std::thread::sleep(Duration::from_millis(10));
        }
        for words in [&["status"][..], &["evict", "x"], &["set", "x", "weight=2"], &["suspend", "x"]] {
            is_refused(prepared.place.baton(words).arg("--socket").arg(&socket), &["65534", "neither you nor root"]);
        }
        let mut run = prepared.place.baton(&["run", "--driver", "sim", "--socket"]);
        is_refused(run.arg(&socket).args(["--", "/bin/true"]), &["65534", "neither you nor root"]);
        let mut joining = prepared.place.joining("believes", &built().programs.join("joining"), &["init", "context"]);
        joining.env("BATON_SOCKET", &socket).env("BATON_REQUIRE", "1");
        is_refused(&mut joining, &["65534", "neither you nor root"]);
        let asked = heard();
        assert!(asked.lines().skip(1).all(|line| line == "asked b''"), "nothing was said to it: {asked}");
    }

    #[test]
    #[ignore = "root: a folder is another user's"]
    fn a_runtime_folder_of_somebody_elses_is_refused_and_so_is_one_that_others_can_enter() {
        let (prepared, folder) = with_open_folder();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("ours");
        std::os::unix::fs::chown(&folder, Some(65534), None).expect("root may");
        for mut command in commands(&prepared) {
            is_refused(&mut command, &["runtime/baton", "65534", "XDG_RUNTIME_DIR"]);
        }
    }

    #[test]
    #[ignore = "root: files are another user's"]
    fn settings_and_tokens_that_somebody_else_may_have_written_are_refused() {
        let (prepared, [config, token]) = with_files();
        std::fs::set_permissions(&config, PermissionsExt::from_mode(0o664)).expect("ours");
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).expect("ours");
        for path in [&config, &token] {
            std::os::unix::fs::chown(path, Some(65534), None).expect("root may");
        }
        is_refused(&mut with_config(&prepared, &config), &["serve.toml", "user 65534", "yours or root's"]);
        let ended = run(prepared.serve().args(["--http", "127.0.0.1:0", "--http-token-file"]).arg(&token));
        let last = ended.err.lines().last().unwrap_or_default();
        assert!(ended.status == "exit status: 1" && last.contains("token") && last.contains("user 65534"), "{ended:?}");
    }
}
