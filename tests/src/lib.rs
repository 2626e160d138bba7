//! Support for the end-to-end tests: builds what they run, and runs programs bare and under Baton.
//!
//! A plain `cargo test` builds all of the workspace's libraries and programs before the first test starts, because
//! packages depend on them for their tests (see `building`).

pub mod bare_tenant;
mod building;
pub mod coordinator;
pub mod driver;
pub mod form;
pub mod generated;
pub mod guests;
pub mod held;
pub mod hold;
pub mod http;
pub mod liar;
pub mod machine;
pub mod openmetrics;
pub mod running;
pub mod sanitizer;
pub mod strikes;
pub mod terminal;
pub mod trace_file;
pub mod watch;
pub mod web;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub use baton_faults as faults;
pub use building::{Built, built, root};
use running::Running;

/// A program, or one of its answers, that takes longer than this hangs, also on a machine with much else to do.
pub const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;

/// A CUDA driver to run programs on.
#[derive(Clone, Debug)]
pub struct Driver {
    library: PathBuf,
    /// A folder in which this driver has the names that programs look for.
    folder: PathBuf,
}

impl Driver {
    /// The simulated driver.
    pub fn simulated() -> Self {
        Self::at(&built().bin.join("libsimcuda.so"), "simulated")
    }

    /// NVIDIA's driver library, whose exports work without a GPU.
    #[track_caller]
    pub fn nvidias() -> Self {
        let path = std::env::var_os("BATON_TEST_LIBCUDA").expect("BATON_TEST_LIBCUDA, which names the file");
        Self::at(Path::new(&path), "nvidias")
    }

    /// One of the tests' own, by its file.
    pub fn of_tests(file: &str) -> Self {
        Self::at(&built().programs.join(file), file)
    }

    fn at(library: &Path, name: &str) -> Self {
        let folder = built().bin.join("drivers").join(name);
        std::fs::create_dir_all(&folder).expect("the target folder is writable");
        baton_client::driver::link(library, &folder).expect("the target folder is writable");
        Self { library: library.to_path_buf(), folder }
    }

    /// The folder with `libcuda.so.1` and `libcuda.so`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The library file itself.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// A command that reaches this driver as programs usually do.
    pub fn bare(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = clean(program);
        command.env("LD_LIBRARY_PATH", &self.folder);
        command
    }

    /// A command that reaches this driver through Baton. Where there is no coordinator, Baton says so somewhere else.
    pub fn under_baton(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = clean(program);
        command.env("BATON_LOG", "/dev/null");
        command.env("LD_PRELOAD", built().shim()).env("BATON_DRIVER", &self.library);
        command
    }
}

/// A command without settings of ours or of the test runner's in its environment.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("BATON_") || name.starts_with("SIMCUDA_") || name.starts_with("LD_") {
            command.env_remove(name.as_ref());
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A command that runs another one, in that one's environment: its words come behind those that `outer` has.
pub fn around(mut outer: Command, inner: &Command) -> Command {
    outer.arg(inner.get_program()).args(inner.get_args());
    with_environment_of(outer, inner)
}

/// A command in the environment of another one.
pub fn with_environment_of(mut command: Command, other: &Command) -> Command {
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// The result of a program. Two that differ only in having had to wait for the coordinator are equal: on a loaded machine a program
/// says so.
#[derive(Clone)]
pub struct Outcome {
    /// The exit code, or what stood in its way.
    pub status: String,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        self.status == other.status && self.out == other.out && self.said() == other.said()
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- standard output\n{}\n--- standard error\n{}", self.status, self.out, self.err)
    }
}

/// Standard error of a program without the lines that say that it had to wait, as it does on a loaded machine.
pub fn without_waiting(err: &str) -> String {
    let waits = |line: &&str| line.starts_with("baton: waiting: ") || line.starts_with("baton run: waiting: ");
    err.lines().filter(|line| !waits(line)).map(|line| format!("{line}\n")).collect()
}

impl Outcome {
    /// Standard error, without that it had to wait.
    pub fn said(&self) -> String {
        without_waiting(&self.err)
    }

    /// This outcome, of a program that must have succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.status, "exit status: 0", "{self:?}");
        self
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    Running::start(command, false, None).finish(LIMIT)
}

/// Runs a program bare and under Baton and demands the same exit code, output and error output.
#[track_caller]
pub fn same_both_ways(driver: &Driver, program: &Path, arguments: &[&str]) -> Outcome {
    let bare = run(driver.bare(program).args(arguments));
    let baton = run(driver.under_baton(program).args(arguments));
    assert_eq!(bare, baton, "{} {arguments:?}: bare (left) and under Baton (right) differ", program.display());
    bare
}
