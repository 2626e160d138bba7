//! A program in the background: what it says can be waited for, and it never outlives its limit.
//!
//! Its output goes to files, not pipes: a forked child that lives on keeps a pipe open for ever.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Outcome;
use crate::coordinator::Place;

/// A program that a test has started.
pub struct Running {
    what: String,
    child: Child,
    input: Option<ChildStdin>,
    files: TempDir,
    /// The coordinator whose state is told when something takes too long.
    place: Option<Place>,
    /// How much of its output was waited for already.
    seen: usize,
}

impl Running {
    /// Starts a command; its standard input is ours to write if `lines`.
    #[track_caller]
    pub fn start(command: &mut Command, lines: bool, place: Option<Place>) -> Self {
        let files = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str| File::create(files.path().join(name)).expect("a writable folder");
        command.stdout(file("out")).stderr(file("err"));
        command.stdin(if lines { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let what = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let input = child.stdin.take();
        Self { what, child, input, files, place, seen: 0 }
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// What it has written to standard output.
    pub fn out(&self) -> String {
        self.read("out")
    }

    /// What it has written to standard error.
    pub fn err(&self) -> String {
        self.read("err")
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.files.path().join(name)).expect("a file of our own");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes a line to its standard input.
    #[track_caller]
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("started with lines");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.what));
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
        let end = Instant::now() + limit;
        loop {
            // In this order: what it has said last is there when it has ended.
            let ended = self.ended();
            let out = self.out();
            if let Some((line, _)) = out[self.seen..].split_once('\n') {
                self.seen += line.len() + 1;
                return Ok(line.to_owned());
            }
            if let Some(status) = ended {
                return Err(status);
            }
            if Instant::now() > end {
                self.too_long("says nothing");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Says a line and waits for the answer.
    #[track_caller]
    pub fn ask(&mut self, line: &str, limit: Duration) -> String {
        self.say(line);
        self.line(limit)
    }

    /// Whether it has said a line that nobody waited for yet, or has ended.
    pub fn has_answered(&mut self) -> bool {
        self.out()[self.seen..].contains('\n') || self.child.try_wait().expect("our own child").is_some()
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        signal(self.pid(), number);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our own child")
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(&mut self, limit: Duration) -> ExitStatus {
        drop(self.input.take());
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            if Instant::now() > end {
                self.too_long("does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for its end; what it did.
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
        let _ = self.child.kill();
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

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // A stopped process is killed too, but nothing else wakes it up.
        let _ = self.child.wait();
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

/// The end of a text that may be long.
fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(6000);
    &text[(from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())..]
}

/// What each thread of a process is doing, as far as the system tells.
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

fn read_or_nothing(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
