//! A running program: its output, its input, and its end. Dropping the value ends the program.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::output::{Line, Output};
use crate::stop::Stop;
use crate::{Error, LIMIT};

/// Delay between two checks for the program's end and the user's request to end.
const LOOK: Duration = Duration::from_millis(2);
/// Last lines that are shown of a failed program.
const KEPT: usize = 20;

/// A program that ended successfully.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its last line.
    pub result: String,
    /// Its run time.
    pub seconds: f64,
}

/// The first event of a program.
#[derive(Clone, Debug)]
pub enum Heard {
    /// A line.
    Line(Line),
    /// The program's end, without a further line.
    End(ExitStatus),
    /// Neither within the time limit.
    Nothing,
}

/// A program that runs or has run.
pub struct Program {
    what: String,
    process: Child,
    input: Option<ChildStdin>,
    output: Arc<Output>,
    /// Its standard error, in a file without a name.
    errors: File,
    /// The number of lines read.
    heard: usize,
    start: Instant,
    done: Option<Done>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // These fail without harm if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Program {
    /// Starts it. `what`: its name for the user, and the way in which it runs.
    ///
    /// # Errors
    ///
    /// When the system does not start it.
    pub fn start(what: impl Into<String>, command: &mut Command) -> Result<Self, Error> {
        let errors = tempfile::tempfile()?;
        let mut process = command.stdout(Stdio::piped()).stderr(errors.try_clone()?).spawn()?;
        let input = process.stdin.take();
        let output = process.stdout.take().map(Output::of);
        let output = output.unwrap_or_else(|| Err(std::io::ErrorKind::BrokenPipe.into()));
        let output = output.inspect_err(|_| {
            let _ = process.kill().and_then(|()| process.wait());
        })?;
        Ok(Self { what: what.into(), process, input, output, errors, heard: 0, start: Instant::now(), done: None })
    }

    /// Starts a program that reads lines.
    ///
    /// # Errors
    ///
    /// Errors of [`Program::start`].
    pub fn start_told(what: impl Into<String>, command: &mut Command) -> Result<Self, Error> {
        Self::start(what, command.stdin(Stdio::piped()))
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns its standard output so far.
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// Returns its standard error so far.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn errors(&self) -> std::io::Result<String> {
        // The file's offset is shared with the program, and stays where the program writes.
        let mut bytes = vec![0; usize::try_from(self.errors.metadata()?.len()).unwrap_or(usize::MAX)];
        self.errors.read_exact_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends it a line.
    ///
    /// # Errors
    ///
    /// When it does not read: mostly it has ended, and its last words explain more.
    pub fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.input.as_mut().map_or(Ok(()), |input| writeln!(input, "{line}"))
    }

    /// Closes its input.
    pub fn say_no_more(&mut self) {
        drop(self.input.take());
    }

    /// True if it has written a line that was not read yet.
    pub fn has_line(&self) -> bool {
        self.output.line(self.heard).is_some()
    }

    /// Waits for its next line, or its end, for at most this time.
    ///
    /// # Errors
    ///
    /// When the user asks to end.
    pub fn hear(&mut self, limit: Duration, stop: &Stop) -> Result<Heard, Error> {
        let end = Instant::now() + limit;
        loop {
            stop.check()?;
            // In this order: the last line is there once the program has ended.
            let ended = self.process.try_wait()?;
            if let Some(line) = self.output.line(self.heard) {
                self.heard += 1;
                return Ok(Heard::Line(line));
            }
            match ended {
                Some(status) => return Ok(Heard::End(status)),
                None if Instant::now() > end => return Ok(Heard::Nothing),
                None => self.output.wait(self.heard, LOOK),
            }
        }
    }

    /// Waits for its next line, which has to come.
    ///
    /// # Errors
    ///
    /// When it ends before, or writes nothing for so long.
    pub fn line(&mut self, limit: Duration, stop: &Stop) -> Result<Line, Error> {
        match self.hear(limit, stop)? {
            Heard::Line(line) => Ok(line),
            Heard::End(status) => Err(self.failed(&status.to_string())),
            Heard::Nothing => Err(self.failed(baton_messages::SAYS_NOTHING)),
        }
    }

    /// Returns its exit status, if it has ended.
    ///
    /// # Errors
    ///
    /// When the system does not tell.
    pub fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits for its end, for at most this time.
    ///
    /// # Errors
    ///
    /// When the user asks to end.
    pub fn wait(&mut self, limit: Duration, stop: &Stop) -> Result<Option<ExitStatus>, Error> {
        let end = Instant::now() + limit;
        loop {
            stop.check()?;
            let ended = self.process.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                return Ok(ended);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns its result, if it has ended.
    ///
    /// # Errors
    ///
    /// When it failed, or runs for too long.
    pub fn poll(&mut self) -> Result<Option<&Done>, Error> {
        if self.done.is_none() {
            match self.process.try_wait()? {
                Some(status) if status.success() => {
                    let seconds = self.start.elapsed().as_secs_f64();
                    let result = self.output().lines().last().unwrap_or_default().to_owned();
                    self.done = Some(Done { result, seconds });
                }
                Some(status) => return Err(self.failed(&status.to_string())),
                None if self.start.elapsed() > LIMIT => return Err(self.failed(baton_messages::NO_END)),
                None => {}
            }
        }
        Ok(self.done.as_ref())
    }

    /// Waits for its successful end.
    ///
    /// # Errors
    ///
    /// Errors of [`Program::poll`].
    pub fn finish(mut self, stop: &Stop) -> Result<Done, Error> {
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done.clone());
            }
            stop.check()?;
            std::thread::sleep(LOOK);
        }
    }

    /// Makes an error with its last output.
    pub fn failed(&self, status: &str) -> Error {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let mut output: String =
            lines[lines.len().saturating_sub(KEPT)..].iter().map(|line| format!("{line}\n")).collect();
        output += &self.errors().unwrap_or_default();
        Error::Failed { program: self.what.clone(), status: status.to_owned(), output }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("/bin/sh");
        Program::start_told("a script", command.args(["-c", script])).expect("a shell")
    }

    #[test]
    fn the_last_line_is_the_result() {
        assert_eq!(shell("echo one; echo two").finish(&Stop::never()).expect("it ends well").result, "two");
    }

    #[test]
    fn a_program_that_fails_is_told_with_what_it_printed() {
        let error = shell("echo before; echo why >&2; exit 3").finish(&Stop::never()).expect_err("it fails");
        assert_eq!(error.to_string(), "a script failed (exit status: 3): [B1406]\nbefore\nwhy\n");
    }

    #[test]
    fn lines_are_heard_in_order_and_then_the_end() {
        let stop = Stop::never();
        let mut program = shell("echo ready; read word; echo \"$word, said\"; printf rest; exit 3");
        assert_eq!(program.line(LIMIT, &stop).expect("a line").text, "ready");
        program.say("a word").expect("it listens");
        let line = program.line(LIMIT, &stop).expect("a line");
        assert!(line.text == "a word, said" && line.when <= Instant::now(), "{line:?}");
        let heard = program.hear(LIMIT, &stop).expect("nobody ends it");
        assert!(matches!(heard, Heard::End(status) if status.code() == Some(3)), "{heard:?}");
        assert_eq!(program.output(), "ready\na word, said\nrest");
    }

    #[test]
    fn a_child_that_lives_on_does_not_keep_the_end_from_being_heard() {
        let mut program = shell("sleep 1000 & echo $!");
        let child = program.line(LIMIT, &Stop::never()).expect("a line").text;
        let heard = program.hear(LIMIT, &Stop::never()).expect("nobody ends it");
        assert!(matches!(heard, Heard::End(status) if status.success()), "{heard:?}");
        let child = child.parse().ok().and_then(Pid::from_raw).expect("a number");
        kill_process(child, Signal::KILL).expect("it lives on");
    }

    #[test]
    fn nobody_waits_for_a_program_when_the_user_ends_it_all() {
        let stop = Stop::never();
        stop.raise();
        assert!(matches!(shell("sleep 1000").line(LIMIT, &stop), Err(Error::Interrupted)));
        assert!(matches!(shell("sleep 1000").finish(&stop), Err(Error::Interrupted)));
    }
}
