//! Programs of other users, whom the coordinator was told to take in: they share the GPU as its own user's do, and steer nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use baton_tests::coordinator::{Coordinator, Prepared, Serving, alone, program, tenant};
use baton_tests::running::Running;
use baton_tests::{Outcome, around, built, is_root};

const LIMIT: Duration = Duration::from_secs(300);
/// The user who is let in.
const GUEST: u32 = 65534;
const WORDS: [&str; 8] = ["--megabytes", "48", "--rounds", "12", "--check", "4", "--gap-ms", "1"];

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

/// A file where everybody can read it.
fn copied(prepared: &Prepared, file: &Path) -> PathBuf {
    let copy = prepared.place.folder().join(file.file_name().expect("a file's"));
    if !copy.exists() {
        std::fs::copy(file, &copy).expect("a copy");
    }
    permit(&copy, 0o755);
    copy
}

/// A place that other users can come to.
fn shared() -> Prepared {
    let prepared = Serving::arena("64MiB").option("--allow-uid", &format!("7,{GUEST}")).prepare();
    permit(prepared.place.folder(), 0o711);
    prepared
}

/// A coordinator there, of a simulated GPU that other users' programs can use.
fn serving(prepared: Prepared) -> Coordinator {
    let coordinator = Coordinator::of(prepared);
    permit(&coordinator.place.folder().join("gpu"), 0o666);
    coordinator
}

/// A program that another user starts.
fn joining(prepared: &Prepared, user: u32, name: &str, program: &Path, words: &[&str]) -> Command {
    let mut command = prepared.place.joining(name, &copied(prepared, program), words);
    command.env("LD_PRELOAD", copied(prepared, &built().shim()));
    command.env("BATON_DRIVER", copied(prepared, &built().bin.join("libsimcuda.so")));
    command.env("BATON_REQUIRE", "1").current_dir("/").uid(user).gid(user);
    command
}

/// The same as root of a user namespace of its own, where the coordinator's user has no number.
fn as_root_of_its_own(command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    outer.args(["--user", "--map-root-user", "--"]).current_dir("/").uid(GUEST).gid(GUEST);
    around(outer, command)
}

fn outcome(command: &mut Command) -> Outcome {
    Running::start(command, false, None).finish(LIMIT)
}

#[test]
fn programs_of_users_who_are_allowed_share_the_gpu_and_steer_nothing() {
    if !is_root() {
        return;
    }
    let solo = alone("fill_and_check", &WORDS);
    let coordinator = serving(shared());
    let (prepared, fill) = (coordinator.prepared(), program("fill_and_check"));
    let start = |command: &mut Command| Running::start(command, true, Some(coordinator.place.clone()));
    let running = [
        start(&mut coordinator.place.joining("own", &fill, &WORDS)),
        start(&mut joining(prepared, GUEST, "guest", &fill, &WORDS)),
        start(&mut as_root_of_its_own(&joining(prepared, GUEST, "in a namespace", &fill, &WORDS))),
    ];
    for running in running {
        assert_eq!(running.result(LIMIT), solo, "shared (left) and alone (right)");
    }
    coordinator.until_empty();

    // What a guest had comes back when it is killed.
    let hold = program("hold");
    let mut victim = start(&mut joining(prepared, GUEST, "victim", &hold, &["--megabytes", "40"]));
    assert!(victim.line(LIMIT).starts_with("ready "));
    assert!(tenant(&coordinator.status(), "victim")["resident_bytes"].as_u64() > Some(0));
    victim.signal(libc::SIGKILL);
    victim.end(LIMIT);
    coordinator.until_empty();

    let baton = copied(prepared, &built().bin.join("baton"));
    for words in [&["status"][..], &["stop", "--now"], &["evict", "own"], &["set", "own", "class=batch"]] {
        let mut asked = prepared.place.baton(&[]);
        asked.arg0("baton").args(words).arg("--socket").arg(prepared.place.socket());
        let mut theirs = Command::new(&baton);
        theirs.args(asked.get_args()).uid(GUEST).gid(GUEST).current_dir("/");
        let ended = outcome(&mut theirs);
        assert!(ended.status == "exit status: 1" && ended.err.contains("only root and the user who runs"), "{ended:?}");
    }
    let ended = outcome(&mut joining(prepared, GUEST - 1, "uninvited", &hold, &["--megabytes", "4"]));
    assert!(ended.status == "exit status: 125" && ended.err.contains("--allow-uid"), "{ended:?}");
}

#[test]
fn whoever_could_have_put_a_socket_there_is_not_believed_to_be_somebody_else() {
    if !is_root() {
        return;
    }
    let coordinator = serving(shared());
    let prepared = coordinator.prepared();
    permit(prepared.place.folder(), 0o777);
    let init = joining(prepared, GUEST, "doubts", &built().programs.join("joining"), &["init", "context"]);
    let ended = outcome(&mut as_root_of_its_own(&init));
    assert!(ended.status == "exit status: 125" && ended.err.contains("neither you nor root"), "{ended:?}");
}

#[test]
fn a_folder_that_others_cannot_enter_is_no_place_for_guests() {
    for (mode, folder) in [(0o700, "closed"), (0o700, "runtime/baton")] {
        let prepared = Serving::arena("64MiB").prepare();
        let folder = prepared.place.folder().join(folder);
        std::fs::create_dir(&folder).expect("a new folder");
        permit(&folder, mode);
        let mut serve = prepared.place.baton(&["serve", "--driver", "sim", "--allow-uid", "65534", "--arena", "64MiB"]);
        let ended = outcome(serve.args(["--host-pool", "64MiB"]).env("BATON_FOLDER", &folder));
        assert!(ended.status == "exit status: 1" && ended.err.contains("BATON_FOLDER=/run/baton"), "{ended:?}");
    }
}
