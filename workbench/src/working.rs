//! A program that works without end and reports its progress: the examples `large_table` and `train_mlp`.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use baton_harness::output::Line;
use baton_harness::program::Program;
use baton_harness::stop::Stop;
use baton_harness::{Error, LIMIT};

/// Its results by the number of finished pieces of work.
pub(crate) type Computed = BTreeMap<u64, String>;

pub(crate) struct Working {
    program: Program,
    at: Point,
    computed: Computed,
}

/// Its progress at a time.
#[derive(Clone, Copy)]
struct Point {
    when: Instant,
    number: u64,
}

impl Working {
    /// Starts it, and waits until it has done some work.
    pub(crate) fn start(what: &str, command: &mut Command, stop: &Stop) -> Result<Self, Error> {
        let program = Program::start(what, command)?;
        let at = Point { when: Instant::now(), number: 0 };
        let mut working = Self { program, at, computed: Computed::new() };
        while working.at.number == 0 {
            working.next(stop)?;
        }
        Ok(working)
    }

    /// Measures pieces of work a second from now until `meanwhile` returns: from the last line before its start to the first line after
    /// its end.
    pub(crate) fn rate<T>(
        &mut self,
        stop: &Stop,
        meanwhile: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(f64, T), Error> {
        let start = self.until(Instant::now(), stop)?;
        let gave = meanwhile()?;
        self.until(Instant::now(), stop)?;
        let time = self.at.when.duration_since(start.when).max(Duration::from_nanos(1));
        Ok(((self.at.number - start.number) as f64 / time.as_secs_f64(), gave))
    }

    /// Returns its results so far.
    pub(crate) fn computed(self) -> Computed {
        self.computed
    }

    /// Reads its lines up to the first after that time, and returns the point before.
    fn until(&mut self, time: Instant, stop: &Stop) -> Result<Point, Error> {
        let mut before = self.at;
        while self.at.when < time {
            before = self.at;
            self.next(stop)?;
        }
        Ok(before)
    }

    /// Reads its next line.
    fn next(&mut self, stop: &Stop) -> Result<(), Error> {
        let Line { when, text } = self.program.line(LIMIT, stop)?;
        if let Some((number, computed)) = read(&text) {
            self.at = Point { when, number };
            self.computed.insert(number, computed);
        }
        Ok(())
    }
}

/// Parses `round 5: 0123456789abcdef`, or `step 5: loss 0.1`.
fn read(line: &str) -> Option<(u64, String)> {
    let (counted, computed) = line.split_once(": ")?;
    let (_, number) = counted.split_once(' ')?;
    Some((number.parse().ok()?, computed.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::shell;

    #[test]
    fn work_is_counted_while_something_else_happens() {
        let stop = Stop::never();
        let script = "echo hello; n=0; while :; do echo step $n: loss $((n * 7)); n=$((n + 10)); sleep 0.01; done";
        let mut working = Working::start("a script", &mut shell("a script", script), &stop).expect("it works");
        let pause = Duration::from_millis(200);
        let nap = || {
            std::thread::sleep(pause);
            Ok("slept")
        };
        let (rate, gave) = working.rate(&stop, nap).expect("it works on");
        assert!(rate > 10.0 && rate <= 1000.0, "{rate} in a second");
        assert_eq!(gave, "slept");
        let computed = working.computed();
        assert!(computed.iter().all(|(number, loss)| *loss == format!("loss {}", number * 7)), "{computed:?}");
        assert!(computed.len() > 1, "{computed:?}");
    }

    #[test]
    fn what_tells_of_no_work_is_not_read_as_such() {
        assert_eq!(read("round 5: x"), Some((5, "x".to_owned())));
        for line in ["", "1 pieces of 8 MiB, 40 rounds", "round x: y", "round 5"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
