//! Programs of other users beside a coordinator that takes them in. Only root can start them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::coordinator::{Coordinator, Prepared, Serving};
use crate::{Outcome, built, run};

/// A user who is let in.
pub const GUEST: u32 = 65532;
/// Another one.
pub const OTHER: u32 = 65533;

/// Sets a file's mode.
#[track_caller]
pub fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

/// A file where every user can read it.
pub fn copied(prepared: &Prepared, file: &Path) -> PathBuf {
    let copy = prepared.place.folder().join(file.file_name().expect("a file's"));
    if !copy.exists() {
        // A copy may be busy: another test's child holds what was open for writing when it was forked.
        std::fs::hard_link(file, &copy).or_else(|_| std::fs::copy(file, &copy).map(drop)).expect("a file");
    }
    permit(&copy, 0o755);
    copy
}

/// A place that other users can come to.
pub fn shared_with(serving: Serving) -> Prepared {
    let prepared = serving.prepare();
    permit(prepared.place.folder(), 0o711);
    prepared
}

/// A coordinator there, of a simulated GPU that other users' programs can use.
pub fn serving(prepared: Prepared) -> Coordinator {
    let coordinator = Coordinator::of(prepared);
    permit(&coordinator.place.folder().join("gpu"), 0o666);
    coordinator
}

/// A program that another user starts.
pub fn joining(prepared: &Prepared, user: u32, name: &str, program: &Path, words: &[&str]) -> Command {
    let mut command = prepared.place.joining(name, &copied(prepared, program), words);
    command.env("LD_PRELOAD", copied(prepared, &built().shim()));
    command.env("BATON_DRIVER", copied(prepared, &built().bin.join("libsimcuda.so")));
    command.env("BATON_REQUIRE", "1").current_dir("/").uid(user).gid(user);
    command
}

/// The outcome of a `baton` command that another user runs here.
pub fn asked_as(prepared: &Prepared, user: u32, words: &[&str]) -> Outcome {
    let mut asked = prepared.place.baton(&[]);
    asked.arg0("baton").args(words).arg("--socket").arg(prepared.place.socket());
    let mut theirs = Command::new(copied(prepared, &built().bin.join("baton")));
    theirs.args(asked.get_args()).uid(user).gid(user).current_dir("/");
    run(&mut theirs)
}
