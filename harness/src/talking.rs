//! A program that says lines, and may be told some. Its end comes with this value.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::Error;
use crate::stop::Stop;

/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How many of its last lines are shown if it fails.
const KEPT: usize = 20;

/// A line, and when it came.
type Said = (Instant, String);

pub struct Talking {
    what: String,
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Said>,
    last: Vec<String>,
    limit: Duration,
}

impl Drop for Talking {
    fn drop(&mut self) {
        // Of one that has ended already both know that it has.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Talking {
    /// Starts it. `what`: its name for the user; `limit`: how long it may say nothing when it should.
    pub fn start(what: &str, mut command: Command, limit: Duration) -> Result<Self, Error> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (say, lines) = channel();
        let input = process.stdin.take();
        if let Some(output) = process.stdout.take() {
            // Ends with the program, or with who listens.
            std::thread::spawn(move || {
                let mut lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.try_for_each(|line| say.send((Instant::now(), line)))
            });
        }
        Ok(Self { what: what.to_owned(), process, input, lines, last: Vec::new(), limit })
    }

    /// Says a line to it. If it has ended, its last words tell more than an error here.
    pub fn say(&mut self, line: &str) {
        let _ = self.input.as_mut().map(|input| writeln!(input, "{line}"));
    }

    /// Ends its input.
    pub fn say_no_more(&mut self) {
        drop(self.input.take());
    }

    /// Its next line.
    pub fn line(&mut self, stop: &Stop) -> Result<Said, Error> {
        let end = Instant::now() + self.limit;
        loop {
            stop.check()?;
            match self.lines.recv_timeout(LOOK) {
                Ok(said) => {
                    self.last.push(said.1.clone());
                    self.last.drain(..self.last.len().saturating_sub(KEPT));
                    return Ok(said);
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > end => return Err(self.failed("it says nothing")),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait()?.to_string();
                    return Err(self.failed(&status));
                }
            }
        }
    }

    /// An error that tells what it said last.
    pub fn failed(&self, status: &str) -> Error {
        let output = self.last.iter().map(|line| format!("{line}\n")).collect();
        Error::Failed { program: self.what.clone(), status: status.to_owned(), output }
    }
}

#[cfg(test)]
pub(crate) fn shell(what: &str, script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    // The name is the script's `$0`.
    command.args(["-c", script, what]);
    command
}
