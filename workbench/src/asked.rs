//! A program that answers lines: the example `serve_mlp`.

use std::process::Command;
use std::time::Duration;

use baton_harness::program::Program;
use baton_harness::stop::Stop;
use baton_harness::{Error, LIMIT};

/// An answer of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) took: Duration,
    pub(crate) digest: String,
}

pub(crate) struct Asked(Program);

impl Asked {
    /// Starts the program, and waits until it serves.
    pub(crate) fn start(what: &str, command: &mut Command, stop: &Stop) -> Result<Self, Error> {
        let mut server = Program::start_told(what, command)?;
        let line = server.line(LIMIT, stop)?.text;
        if line.starts_with("serving ") { Ok(Self(server)) } else { Err(server.failed(baton_messages::NOT_READY)) }
    }

    /// Makes one request.
    pub(crate) fn ask(&mut self, stop: &Stop) -> Result<Answer, Error> {
        self.say("request");
        self.answer(stop)
    }

    /// Makes requests at random times, `mean` apart on average. Calls `each` after each answer.
    pub(crate) fn ask_many(
        &mut self,
        count: u32,
        mean: Duration,
        seed: u32,
        stop: &Stop,
        mut each: impl FnMut(),
    ) -> Result<Vec<Answer>, Error> {
        self.say(&format!("requests {count} {} {seed}", mean.as_micros()));
        (0..count).map(|_| self.answer(stop).inspect(|_| each())).collect()
    }

    /// Closes its input, and waits for its end, which has to be successful.
    pub(crate) fn end(mut self, stop: &Stop) -> Result<(), Error> {
        self.0.say_no_more();
        let line = self.0.line(LIMIT, stop)?.text;
        if line.starts_with("result ") && line.ends_with(" ok") {
            Ok(())
        } else {
            Err(self.0.failed(baton_messages::NO_GOOD_END))
        }
    }

    /// Sends a line. If the program has ended, its last words explain more than an error here.
    fn say(&mut self, line: &str) {
        let _ = self.0.say(line);
    }

    fn answer(&mut self, stop: &Stop) -> Result<Answer, Error> {
        let line = self.0.line(LIMIT, stop)?.text;
        read(&line).ok_or_else(|| self.0.failed(baton_messages::NO_ANSWER))
    }
}

/// Parses `answer MICROSECONDS DIGEST`.
fn read(line: &str) -> Option<Answer> {
    let mut words = line.strip_prefix("answer ")?.split(' ');
    let (took, digest) = (words.next()?.parse().ok()?, words.next()?);
    words.next().is_none().then(|| Answer { took: Duration::from_micros(took), digest: digest.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::shell;

    fn server(script: &str, stop: &Stop) -> Result<Asked, Error> {
        Asked::start("server", &mut shell("server", script), stop)
    }

    #[test]
    fn every_request_is_a_line_and_has_an_answer() {
        let stop = Stop::never();
        assert!(matches!(server("echo serving", &stop), Err(Error::Failed { .. })), "one word is not enough");
        let script = "echo serving now; read a; echo answer 1500 $a; read a n t s; echo answer $n $a-$t-$s; \
                      echo answer 1 x; cat >/dev/null; echo result x 0 ok";
        let mut server = server(script, &stop).expect("it serves");
        let answer = |micros, digest: &str| Answer { took: Duration::from_micros(micros), digest: digest.to_owned() };
        assert_eq!(server.ask(&stop).expect("an answer"), answer(1500, "request"));
        let many = server.ask_many(2, Duration::from_millis(3), 7, &stop, || ()).expect("answers");
        assert_eq!(many, [answer(2, "requests-3000-7"), answer(1, "x")]);
        server.end(&stop).expect("a good end");
    }

    #[test]
    fn a_server_that_ends_is_told_with_all_it_said() {
        let stop = Stop::never();
        let mut server = server("echo serving now; read a; exit 3", &stop).expect("it serves");
        let error = server.ask(&stop).expect_err("it ends").to_string();
        assert_eq!(error, "server failed (exit status: 3): [B1406]\nserving now\n");
    }

    #[test]
    fn what_is_no_answer_is_not_read_as_one() {
        for line in ["", "answer", "answer 5", "answer x y", "answer 5 y z", "result 5 y"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
