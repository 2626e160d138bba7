//! When a program joins: where it first takes a shared GPU, and not before. One that has to and cannot ends.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use baton_contract::wire::GpuNumber;
use baton_tests::coordinator::{Place, Serving, program, tenant};
use baton_tests::faults::Strike;
use baton_tests::hold;
use baton_tests::running::{Running, code};
use baton_tests::strikes::with_board;
use baton_tests::{Driver, LIMIT, Outcome, built, run};

/// The exit code of a program that has to share the GPU and cannot.
const REFUSED: &str = "exit status: 125";

/// The program of these steps, as one that joins by its environment.
fn joining(place: &Place, steps: &str) -> Command {
    let words: Vec<&str> = steps.split(' ').collect();
    let mut command = place.joining("joining", &built().programs.join("joining"), &words);
    command.env("JOINING_DRIVER", Driver::simulated().library());
    command
}

/// As `baton run` would start it.
fn required(place: &Place, steps: &str) -> Command {
    let mut command = joining(place, steps);
    command.env("BATON_REQUIRE", "1");
    command
}

#[track_caller]
fn is_refused(outcome: &Outcome, words: &[&str]) {
    assert_eq!(outcome.status, REFUSED, "{outcome:?}");
    assert_eq!(outcome.said().lines().count(), 1, "one line: {outcome:?}");
    assert!(outcome.err.starts_with("baton: ") && words.iter().all(|word| outcome.err.contains(word)), "{outcome:?}");
}

#[test]
fn a_program_that_only_looks_whether_there_is_a_gpu_is_left_alone() {
    let prepared = Serving::small("64MiB").prepare();
    let looked = run(&mut required(&prepared.place, "init count total")).succeeded();
    assert_eq!((looked.out.as_str(), looked.err.as_str()), ("init 0\n1 GPUs count 0\n536870912 bytes total 0\n", ""));
}

#[test]
fn a_program_that_has_to_share_and_cannot_ends_where_it_takes_the_gpu() {
    let prepared = Serving::small("64MiB").prepare();
    for (take, before) in [
        ("context", "init 0\n"),
        ("retain", "init 0\n"),
        ("create", "init 0\n"),
        ("pool", "init 0\n"),
        // At the latest at the first hooked call that finds a context.
        ("behind alloc", "init 0\nbehind 0\n"),
    ] {
        let ended = run(&mut required(&prepared.place, &format!("init {take} total")));
        is_refused(&ended, &["joining", "no coordinator answers", "baton serve", "--optional"]);
        assert_eq!(ended.out, before, "what was printed before is not lost: {take}");
    }
}

#[test]
fn without_a_coordinator_a_program_that_need_not_share_goes_on_and_says_so_once() {
    let prepared = Serving::small("64MiB").prepare();
    let steps = "init context alloc retain alloc";
    let bare = run(joining(&prepared.place, steps).env("BATON_DISABLE", "1")).succeeded();
    assert_eq!(bare.err, "");
    let alone = run(&mut joining(&prepared.place, steps)).succeeded();
    assert_eq!(alone.out, bare.out);
    assert!(alone.said().lines().count() == 1 && alone.err.contains("running without Baton"), "{alone:?}");
}

#[test]
fn where_cuda_itself_fails_the_call_says_so_and_the_program_goes_on() {
    let prepared = Serving::small("64MiB").prepare();
    // A driver that does not start.
    let broken = prepared.place.folder().join("broken");
    std::fs::write(&broken, "no GPU").expect("a file");
    let ran = run(required(&prepared.place, "init context").env("SIMCUDA_GPU_FILE", &broken)).succeeded();
    assert!(ran.out.starts_with("init ") && !ran.out.starts_with("init 0") && !ran.err.contains("baton"), "{ran:?}");
    // A forked child of a program that has used CUDA.
    let coordinator = Serving::small("64MiB").start();
    for parent in ["init fork", "init context fork"] {
        let steps = format!("{parent} context retain alloc");
        let bare = run(joining(&coordinator.place, &steps).env("BATON_DISABLE", "1")).succeeded();
        let under = run(&mut required(&coordinator.place, &steps)).succeeded();
        assert_eq!(under, bare, "{steps}");
        assert!(under.out.ends_with("child 0\n"), "{under:?}");
    }
}

#[test]
fn a_child_that_is_forked_before_cuda_is_used_joins_by_itself() {
    let coordinator = Serving::small("64MiB").start();
    let ran = run(&mut required(&coordinator.place, "fork init context alloc")).succeeded();
    assert_eq!(ran.out, "init 0\ncontext 0\nalloc 0\nchild 0\n");
    let departed = coordinator.until_empty()["departed"].clone();
    assert_eq!(departed.as_array().map(Vec::len), Some(1), "{departed:#}");
}

#[test]
fn a_gpu_that_is_not_to_be_shared_is_used_as_if_baton_were_not_there() {
    let prepared = Serving::small("64MiB").prepare();
    let other = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10";
    let ran = run(required(&prepared.place, "init context alloc").env("BATON_GPU", other)).succeeded();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("init 0\ncontext 0\nalloc 0\n", ""));
}

#[test]
fn a_gpu_is_as_large_before_a_program_has_joined_as_afterwards() {
    let coordinator = Serving::small("64MiB").start();
    let ran = run(&mut required(&coordinator.place, "init total context total alloc total")).succeeded();
    let totals: Vec<&str> = ran.out.lines().filter(|line| line.ends_with("total 0")).collect();
    assert_eq!(totals, ["67108864 bytes total 0"; 3], "{ran:?}");
}

/// The next one is asked again.
#[test]
fn a_gpu_is_as_large_when_its_coordinator_dies_before_it_says_how_large() {
    let (serving, board) = with_board(Serving::small("64MiB").keeper());
    let coordinator = serving.start();
    board.prepare(&Strike { signal: libc::SIGKILL, ..Strike::at("coordinator tells Offer") });
    let ran = run(&mut required(&coordinator.place, "init total context total")).succeeded();
    assert!(board.struck().is_some());
    let totals: Vec<&str> = ran.out.lines().filter(|line| line.ends_with("total 0")).collect();
    assert_eq!(totals, ["67108864 bytes total 0"; 2], "{ran:?}");
}

#[test]
fn a_context_that_was_made_behind_our_back_is_known_from_then_on() {
    let coordinator = Serving::small("64MiB").start();
    let mut command = required(&coordinator.place, "init behind alloc wait");
    let mut running = Running::start(&mut command, true, Some(coordinator.place.clone()));
    while running.line(LIMIT) != "waiting" {}
    assert!(tenant(&coordinator.status(), "joining")["bytes"].as_u64() >= Some(4 << 20));
    assert!(coordinator.evict("joining"), "it is idle");
    coordinator.until_tenant_is("joining", "evicted");
    running.say("");
    assert_eq!(running.end(LIMIT).code(), Some(0));
    coordinator.until_empty();
}

#[test]
fn a_value_that_cannot_be_ends_a_program_that_has_to_share() {
    let coordinator = Serving::small("64MiB").start();
    for (name, value) in [("BATON_CLASS", "urgent"), ("BATON_WEIGHT", "0"), ("BATON_SLO_MICROS", "20ms")] {
        let ended = run(required(&coordinator.place, "init context").env(name, value));
        is_refused(&ended, &[if name == "BATON_WEIGHT" { "weight" } else { value }]);
        // `baton run` says so before anything is started.
        let mut command = coordinator.place.baton(&["run", "--socket"]);
        command.arg(coordinator.place.socket()).args(["--", "/bin/echo", "started"]).env(name, value);
        let ended = run(&mut command);
        assert_eq!((ended.status.as_str(), ended.out.as_str()), (REFUSED, ""), "{ended:?}");
        assert!(ended.err.starts_with("baton run: "), "{ended:?}");
    }
}

#[test]
fn a_program_whose_coordinator_has_gone_since_baton_run_ends() {
    let mut coordinator = Serving::small("64MiB").start();
    let script = format!("echo started; read line; exec {} init context", built().programs.join("joining").display());
    let mut command = coordinator.place.baton(&["run", "--driver", "sim", "--socket"]);
    command.arg(coordinator.place.socket()).args(["--", "/bin/sh", "-c", &script]);
    let mut running = Running::start(&mut command, true, None);
    assert_eq!(running.line(LIMIT), "started");
    coordinator.end(libc::SIGTERM);
    running.say("");
    assert_eq!(code(running.end(LIMIT)), 125, "{}", running.err());
    assert!(running.err().contains("no coordinator answers"), "{}", running.err());
}

#[test]
fn an_optional_program_runs_without_a_coordinator_that_cannot_be_started() {
    let prepared = Serving::small("64MiB").prepare();
    for (optional, want) in [(true, "exit status: 7"), (false, REFUSED)] {
        let mut command = prepared.place.baton(&["run", "--driver", "sim", "--arena", "4GiB", "--socket"]);
        command.arg(prepared.place.socket()).args(optional.then_some("--optional"));
        let ended = run(command.args(["--", "/bin/sh", "-c", "exit 7"]));
        assert_eq!(ended.status, want, "{ended:?}");
        assert!(ended.err.contains("4 GiB is more than"), "why: {ended:?}");
        assert_eq!(ended.err.contains("running without Baton"), optional, "{ended:?}");
    }
}

#[test]
fn those_beyond_the_limit_wait_in_order_and_status_shows_them() {
    let coordinator = Serving::small("64MiB").option("--max-programs", "1").start();
    let start = |name: &str| coordinator.join(name, &program("hold"), &["--megabytes", "24"]);
    let mut first = start("first");
    assert!(first.line(LIMIT).starts_with("ready "));
    let mut waiting = Vec::new();
    for name in ["second", "third"] {
        waiting.push(start(name));
        let count = waiting.len();
        coordinator.until(&format!("{name} waits"), |status| {
            status["newcomers"].as_array().is_some_and(|all| all.len() == count && all[count - 1]["name"] == name)
        });
    }
    let mut asked = coordinator.place.baton(&["status", "--socket"]);
    let shown = run(asked.arg(coordinator.place.socket())).succeeded().out;
    assert!(
        shown.contains("waiting to join") && shown.contains("third") && shown.contains("--max-programs"),
        "{shown}"
    );
    for running in &waiting {
        while !running.err().contains("--max-programs") {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // A program that gives up keeps no other from coming in.
    let mut third = waiting.pop().expect("two wait");
    let mut fourth = start("fourth");
    coordinator.until("three wait", |status| status["newcomers"].as_array().map(Vec::len) == Some(3));
    third.signal(libc::SIGKILL);
    third.end(LIMIT);
    let mut second = waiting.pop().expect("one waits");
    assert!(first.ask("quit", LIMIT).ends_with(" ok"));
    assert!(second.line(LIMIT).starts_with("ready "));
    assert!(second.ask("quit", LIMIT).ends_with(" ok"));
    assert!(fourth.line(LIMIT).starts_with("ready "));
    let departed = coordinator.status()["departed"].clone();
    assert_eq!((&departed[0]["name"], &departed[1]["name"]), (&"first".into(), &"second".into()), "{departed:#}");
}

/// In another PID namespace it cannot be sent a signal, and is asked to end itself.
#[test]
fn a_program_that_is_told_to_end_ends() {
    use baton_contract::link;
    use baton_contract::messages::{Admission, FromTenant, Message as _, Opening, TurnCommand};
    use baton_contract::wire::VERSION;

    let prepared = Serving::small("64MiB").prepare();
    let listener = listener(&prepared.place.socket());
    let mut running = Running::start(&mut required(&prepared.place, "init context"), false, None);
    let socket = accepted(&listener);
    let hello = link::receive(socket.as_fd(), false).expect("a greeting").expect("a greeting");
    assert!(matches!(FromTenant::decode(&hello.message), Ok((_, FromTenant::Opening(Opening::Hello { .. })))));
    assert_eq!(hello.descriptors.len(), 1, "its process");
    let page = |version: u32| {
        let path = prepared.place.folder().join(format!("page-{version}"));
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(&version.to_le_bytes());
        std::fs::write(&path, bytes).expect("a file");
        OwnedFd::from(std::fs::File::options().read(true).write(true).open(path).expect("a file"))
    };
    let (requests, _theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let files = [page(VERSION), page(0), requests.into(), page(1), page(2)];
    let welcome = Admission::Welcome { tenant: 1, slot: u32::MAX };
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    link::send(socket.as_fd(), &welcome.encode(GpuNumber::FIRST), &files, false).expect("it listens");
    let end = TurnCommand::End { text: "its memory is lost".to_owned() };
    link::send(socket.as_fd(), &end.encode(GpuNumber::FIRST), &[], false).expect("it listens");
    assert_eq!(code(running.end(LIMIT)), 128 + 9, "{}", running.err());
    assert!(running.err().contains("its memory is lost"), "{}", running.err());
}

/// A coordinator's socket, to be served by a test.
fn listener(path: &std::path::Path) -> OwnedFd {
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: plain system calls; the address is a local of the right type and length; a descriptor that was just
    // made has no other owner.
    unsafe {
        let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0));
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = *from as libc::c_char;
        }
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(socket.as_raw_fd(), 8), 0);
        socket
    }
}

fn accepted(listener: &OwnedFd) -> OwnedFd {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: a listening socket; the new one has no other owner.
    unsafe {
        let socket = libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut());
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(socket)
    }
}

mod tool {
    use super::*;

    #[test]
    #[ignore = "tool: python3"]
    fn what_python_has_printed_is_not_lost_either() {
        let prepared = Serving::small("64MiB").prepare();
        for library in ["CDLL", "PyDLL"] {
            // One calls without the interpreter's lock, the other with it.
            let script = format!(
                "import ctypes; d = ctypes.{library}('libcuda.so.1'); d.cuInit(0); print('before'); \
             d.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0); print('after')"
            );
            let mut command = prepared.place.joining("python", "python3".as_ref(), &["-c", &script]);
            let ended = run(command.env("BATON_REQUIRE", "1"));
            is_refused(&ended, &["no coordinator answers"]);
            assert_eq!(ended.out, "before\n");
        }
    }
}

/// The program may have another number for that GPU.
#[test]
fn a_program_that_sees_one_gpu_of_two_joins_that_ones_coordinator() {
    let want = hold::alone("8", &["touch"]);
    let coordinator = Serving::small("64MiB").setting("SIMCUDA_GPUS", "2").option("--gpu", "1").start();
    for (sees, joins) in [("1", true), ("0", false), ("1,0", true)] {
        let mut command = coordinator.place.joining("one", &program("hold"), &["--megabytes", "8"]);
        let mut one = hold::ready(command.env("CUDA_VISIBLE_DEVICES", sees), Some(coordinator.place.clone()));
        assert_eq!(!tenant(&coordinator.status(), "one").is_null(), joins, "it sees {sees}");
        assert_eq!(one.ask("touch", LIMIT), want[0]);
        assert_eq!(one.ask("quit", LIMIT), want[1]);
        coordinator.until_empty();
    }
}
