//! A program in the background: tests can wait for its output, and it never outlives its limit.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use baton_harness::program::{Heard, Program};
use baton_harness::stop::Stop;

use crate::coordinator::Place;
use crate::{Outcome, without_waiting};

/// A program that a test has started.
pub struct Running {
    what: String,
    program: Program,
    /// The coordinator whose state is told when something takes too long.
    place: Option<Place>,
}

impl Running {
    /// Starts a command; its standard input is ours to write if `lines`.
    #[track_caller]
    pub fn start(command: &mut Command, lines: bool, place: Option<Place>) -> Self {
        let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let what = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        command.stdin(if lines { Stdio::piped() } else { Stdio::null() });
        let program = Program::start(what.as_str(), command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { what, program, place }
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.program.pid() as i32
    }

    /// Its standard output so far.
    pub fn out(&self) -> String {
        self.program.output()
    }

    /// Its standard error so far.
    pub fn err(&self) -> String {
        self.program.errors().expect("a file of our own")
    }

    /// The same, without that it had to wait.
    pub fn said(&self) -> String {
        without_waiting(&self.err())
    }

    /// Writes a line to its standard input.
    #[track_caller]
    pub fn say(&mut self, line: &str) {
        self.program.say(line).unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    /// Waits for its next whole line.
    #[track_caller]
    pub fn line(&mut self, limit: Duration) -> String {
        match self.line_if_any(limit) {
            Ok(line) => line,
            Err(status) => panic!("{} ended with {status} instead of saying something{}", self.what, self.story()),
        }
    }

    /// Waits for its next whole line, or for its end.
    #[track_caller]
    pub fn line_if_any(&mut self, limit: Duration) -> Result<String, ExitStatus> {
        match self.program.hear(limit, &Stop::never()).expect("our own child") {
            Heard::Line(line) => Ok(line.text),
            Heard::End(status) => Err(status),
            Heard::Nothing => self.too_long("says nothing"),
        }
    }

    /// Says a line and waits for the answer.
    #[track_caller]
    pub fn ask(&mut self, line: &str, limit: Duration) -> String {
        self.say(line);
        self.line(limit)
    }

    /// True if it has said a line that was not waited for yet, or has ended.
    pub fn has_answered(&mut self) -> bool {
        self.program.has_line() || self.ended().is_some()
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        signal(self.pid(), number);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.program.ended().expect("our own child")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(&mut self, limit: Duration) -> ExitStatus {
        self.program.say_no_more();
        let ended = self.program.wait(limit, &Stop::never()).expect("our own child");
        ended.unwrap_or_else(|| self.too_long("does not end"))
    }

    /// Waits for its end. Returns its outcome.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Outcome {
        let status = self.end(limit);
        Outcome { status: status.to_string(), out: self.out(), err: self.err() }
    }

    /// Waits for its end; the line with its result.
    #[track_caller]
    pub fn result(mut self, limit: Duration) -> String {
        self.end(limit);
        let story = self.story();
        let last = self.out().lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("result ") && last.ends_with(" ok"), "{} failed{story}", self.what);
        last
    }

    #[track_caller]
    fn too_long(&mut self, what: &str) -> ! {
        let story = self.story();
        panic!("{} {what}{story}", self.what);
    }

    /// All that may help to understand what went wrong.
    fn story(&self) -> String {
        let mut story = String::new();
        let _ = write!(story, "\n--- its output\n{}\n--- its error output\n{}", tail(&self.out()), tail(&self.err()));
        let _ = write!(story, "\n--- its threads\n{}", threads(self.pid()));
        if let Some(place) = &self.place {
            let _ = write!(story, "{}", place.story());
        }
        story
    }
}

/// The exit code that a shell would see.
pub fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Sends a signal to a process that a test has started.
pub fn signal(pid: i32, number: i32) {
    assert!(pid > 1, "a process");
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid, number) };
}

/// A process that was stopped goes on.
pub fn goes_on(pid: i32) {
    // The simulated driver lets one go on for a moment, and stops it again.
    for _ in 0..3 {
        signal(pid, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The end of a text that may be long.
fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(6000);
    &text[(from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())..]
}

/// The state of each thread of a process, as far as the system tells.
pub fn threads(pid: i32) -> String {
    let mut lines = String::new();
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return lines };
    for entry in entries.flatten() {
        let read = |file: &str| read_or_nothing(&entry.path().join(file));
        let status = read("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default();
        let _ = writeln!(
            lines,
            "{} {} {} waits in {} at {}",
            entry.file_name().to_string_lossy(),
            read("comm").trim(),
            state.trim(),
            read("wchan"),
            read("syscall").trim()
        );
    }
    lines
}

/// The processes that have a path in their environment.
pub fn processes_that_know_of(path: &Path) -> Vec<i32> {
    let path = path.as_os_str().as_encoded_bytes();
    let knows = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(path.len()).any(|part| part == path)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(knows).collect()
}

fn read_or_nothing(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The time that a process has had on processors, by itself and in the system.
#[track_caller]
pub fn cpu_time(pid: i32) -> Duration {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both are written to, and live over the calls.
    let failed = unsafe {
        let error = libc::clock_getcpuclockid(pid, &raw mut clock);
        error != 0 || libc::clock_gettime(clock, &raw mut time) != 0
    };
    assert!(!failed, "process {pid} does not live");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
