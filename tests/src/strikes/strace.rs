//! A process's calls of the system, listed and made to fail by `strace`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::running::signal;

/// Calls that have no error, or do what they are to do all the same: a descriptor is closed whatever `close` says.
const WITHOUT_ERRORS: [&str; 5] = ["exit", "exit_group", "rt_sigreturn", "restart_syscall", "close"];

/// `strace` attached to all threads of a process, and to its children.
pub(super) struct Strace {
    child: Child,
    output: PathBuf,
    _folder: TempDir,
}

impl Strace {
    fn attach(process: i32, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = folder.path().join("calls");
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &process.to_string(), "-o"]).arg(&output).args(options);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace is installed");
        let strace = Self { child, output, _folder: folder };
        // It makes the file when it has attached.
        let end = Instant::now() + Duration::from_secs(1);
        while !strace.output.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        strace
    }

    /// Lists calls.
    pub(super) fn list(process: i32) -> Self {
        Self::attach(process, &[])
    }

    /// Has a call fail with an error, by its name in `errno.h`: each thread's n-th one.
    pub(super) fn fail(process: i32, call: &str, error: &str, number: usize) -> Self {
        let calls = format!("trace={call}");
        let fails = format!("inject={call}:error={error}:when={number}");
        Self::attach(process, &["-e", &calls, "-e", &fails])
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// True if a call has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.text().contains("(INJECTED)")
    }

    /// The names of the calls so far that can fail.
    pub(super) fn calls(&self) -> BTreeSet<String> {
        // A line is the thread's number, the call's name, and its arguments.
        let name = |line: &str| Some(line.split_whitespace().nth(1)?.split_once('(')?.0.to_owned());
        let text = self.text();
        let names = text.lines().filter_map(name);
        names.filter(|name| !WITHOUT_ERRORS.contains(&name.as_str())).collect()
    }
}

impl Drop for Strace {
    /// Lets go of the process.
    fn drop(&mut self) {
        signal(self.child.id() as i32, libc::SIGINT);
        let end = Instant::now() + Duration::from_secs(1);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It may wait for a thread that died meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
