//! A program while it runs: its result when it ends, and its end with this value.

use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::stop::Stop;
use crate::{Error, LIMIT};

/// A program that ended well.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its last line.
    pub result: String,
    /// How long it ran.
    pub seconds: f64,
}

/// A program that runs or has run.
#[derive(Debug)]
pub struct Running {
    what: String,
    process: Child,
    start: Instant,
    done: Option<Done>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of one that has ended already both know that it has.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Running {
    /// Starts it. `what`: its name for the user, and how it runs.
    pub fn spawn(what: String, mut command: Command) -> Result<Self, Error> {
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { what, process, start: Instant::now(), done: None })
    }

    /// Its result, if it has ended; an error if it failed, or runs for ever.
    pub fn poll(&mut self) -> Result<Option<&Done>, Error> {
        if self.done.is_none() {
            // Its few lines fit the pipes, so it never waits for us to read them.
            match self.process.try_wait()? {
                Some(status) => self.done = Some(self.outcome(status)?),
                None if self.start.elapsed() > LIMIT => {
                    let status = "no end in sight".to_owned();
                    return Err(Error::Failed { program: self.what.clone(), status, output: String::new() });
                }
                None => {}
            }
        }
        Ok(self.done.as_ref())
    }

    /// Waits for its end.
    pub fn finish(mut self, stop: &Stop) -> Result<Done, Error> {
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done.clone());
            }
            stop.check()?;
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn outcome(&mut self, status: ExitStatus) -> Result<Done, Error> {
        let seconds = self.start.elapsed().as_secs_f64();
        let mut output = String::new();
        if let Some(mut stdout) = self.process.stdout.take() {
            stdout.read_to_string(&mut output)?;
        }
        if !status.success() {
            if let Some(mut stderr) = self.process.stderr.take() {
                stderr.read_to_string(&mut output)?;
            }
            return Err(Error::Failed { program: self.what.clone(), status: status.to_string(), output });
        }
        Ok(Done { result: output.lines().last().unwrap_or_default().to_owned(), seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        let command = crate::talking::shell("a script", script);
        Running::spawn("a script".to_owned(), command).expect("a shell")
    }

    #[test]
    fn the_last_line_is_the_result() {
        let stop = Stop::on_signals().expect("signals");
        assert_eq!(shell("echo one; echo two").finish(&stop).expect("it ends well").result, "two");
    }

    #[test]
    fn a_program_that_fails_is_told_with_all_it_printed() {
        let stop = Stop::on_signals().expect("signals");
        let error = shell("echo before; echo why >&2; exit 3").finish(&stop).expect_err("it fails").to_string();
        assert_eq!(error, "a script failed (exit status: 3):\nbefore\nwhy\n");
    }
}
