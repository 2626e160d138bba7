//! A program that answers lines: the example `serve_mlp`. Its end comes with this value.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::scene::stop::Stop;
use crate::scene::{Error, LIMIT};

/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// An answer, as the program gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) took: Duration,
    pub(super) digest: String,
}

pub(super) struct Asked {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Of one that has ended already both know that it has.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Asked {
    pub(super) fn start(mut command: Command) -> Result<Self, Error> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (say, lines) = channel();
        let input = process.stdin.take();
        if let Some(output) = process.stdout.take() {
            // Ends with the program, or with who listens.
            std::thread::spawn(move || {
                BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| say.send(line))
            });
        }
        Ok(Self { process, input, lines, said: Vec::new() })
    }

    /// Waits until it serves.
    pub(super) fn ready(&mut self, stop: &Stop) -> Result<(), Error> {
        let line = self.line(stop)?;
        if line.starts_with("serving ") { Ok(()) } else { Err(self.failed("not ready")) }
    }

    /// One request.
    pub(super) fn ask(&mut self, stop: &Stop) -> Result<Answer, Error> {
        // If it has ended, its last words tell more than this.
        let _ = self.input.as_mut().map(|input| writeln!(input, "request"));
        let line = self.line(stop)?;
        read(&line).ok_or_else(|| self.failed("no answer"))
    }

    /// Ends its input, and waits for its end, which must be a good one.
    pub(super) fn end(mut self, stop: &Stop) -> Result<(), Error> {
        drop(self.input.take());
        let line = self.line(stop)?;
        if line.starts_with("result ") && line.ends_with(" ok") { Ok(()) } else { Err(self.failed("no good end")) }
    }

    fn line(&mut self, stop: &Stop) -> Result<String, Error> {
        let end = Instant::now() + LIMIT;
        loop {
            stop.check()?;
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => {
                    self.said.push(line.clone());
                    return Ok(line);
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

    fn failed(&self, status: &str) -> Error {
        let output = self.said.iter().map(|line| format!("{line}\n")).collect();
        Error::Failed { program: super::SERVER.to_owned(), status: status.to_owned(), output }
    }
}

/// `answer MICROSECONDS DIGEST`.
fn read(line: &str) -> Option<Answer> {
    let mut words = line.strip_prefix("answer ")?.split(' ');
    let (took, digest) = (words.next()?.parse().ok()?, words.next()?);
    words.next().is_none().then(|| Answer { took: Duration::from_micros(took), digest: digest.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Asked {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Asked::start(command).expect("a shell")
    }

    #[test]
    fn every_request_is_a_line_and_has_an_answer() {
        let stop = Stop::on_signals().expect("signals");
        let mut server = shell("echo serving; read a; echo answer 1500 $a; cat >/dev/null; echo result x 0 ok");
        assert!(matches!(server.ready(&stop), Err(Error::Failed { .. })), "one word is not enough");
        let answer = server.ask(&stop).expect("an answer");
        assert_eq!(answer, Answer { took: Duration::from_micros(1500), digest: "request".to_owned() });
        server.end(&stop).expect("a good end");
    }

    #[test]
    fn a_server_that_ends_is_told_with_all_it_said() {
        let stop = Stop::on_signals().expect("signals");
        let mut server = shell("echo serving now; read a; exit 3");
        server.ready(&stop).expect("it serves");
        let error = server.ask(&stop).expect_err("it ends").to_string();
        assert_eq!(error, "server failed (exit status: 3):\nserving now\n");
    }

    #[test]
    fn what_is_no_answer_is_not_read_as_one() {
        for line in ["", "answer", "answer 5", "answer x y", "answer 5 y z", "result 5 y"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
