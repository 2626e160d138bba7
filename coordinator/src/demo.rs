//! `baton demo`: the example programs, bare and then under Baton, and whether they compute the same.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use baton_contract::settings;
use serde::{Deserialize, Serialize};

use crate::driver::{self, Choice, Driver, name};
use crate::install::{Install, Missing};

/// The examples that the demo runs, with what they show.
const PROGRAMS: [(&str, &str); 4] = [
    ("train_mlp", "trains a small network"),
    ("infer_mlp", "answers batches of requests"),
    ("pointer_graph", "follows pointers in device memory"),
    ("many_streams", "uses threads and streams"),
];

/// What the demo found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether every program computed the same under Baton as bare.
    pub outputs_match: bool,
    /// The device that the programs ran on.
    pub driver: String,
    /// The programs, in the order they ran.
    pub programs: Vec<Program>,
}

/// One program of the demo.
#[derive(Debug, Serialize)]
pub struct Program {
    /// The example's name.
    pub name: String,
    /// What it computed on the bare driver: the last line it printed.
    pub bare_result: String,
    /// What it computed under Baton.
    pub baton_result: String,
    /// Wall time on the bare driver.
    pub bare_seconds: f64,
    /// Wall time under Baton, traced.
    pub baton_seconds: f64,
    /// How many driver calls came through Baton.
    pub driver_calls: u64,
}

impl Program {
    /// Whether the program computed something, passed its own check, and came to the same both ways.
    pub fn matches(&self) -> bool {
        self.bare_result == self.baton_result && self.bare_result.ends_with(" ok") && self.driver_calls > 0
    }
}

/// Why the demo could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no driver to run on.
    #[error(transparent)]
    Driver(#[from] driver::Error),
    /// A part of Baton is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// An example failed.
    #[error("{program} failed ({status}):\n{output}")]
    Failed {
        /// The example's name, and how it ran.
        program: String,
        /// Its exit status.
        status: String,
        /// All it printed.
        output: String,
    },
    /// The system refused something ordinary.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The trace cannot be read: our fault.
    #[error("the trace of {0} cannot be read: {1}")]
    Trace(String, serde_json::Error),
}

/// Runs the demo and prints its table, or one JSON object.
///
/// # Errors
///
/// When a program or a part of Baton is missing, or a program fails. Differing results are no error
/// here: the report says so.
pub fn run(choice: &Choice, json: bool) -> Result<Report, Error> {
    let install = Install::of_this_program()?;
    let shim = install.shim()?;
    let driver = Driver::choose(choice, &install)?;
    let scratch = tempfile::tempdir()?;

    let mut programs = Vec::new();
    for (program, what) in PROGRAMS {
        if !json {
            print!("{program:<14} {what} …");
            std::io::stdout().flush()?;
        }
        let path = install.example(program)?;
        let (bare_result, bare_seconds) = result(program, driver.bare(&path, scratch.path())?)?;
        let trace = scratch.path().join(format!("{program}.json"));
        let mut command = driver.under_baton(&path, &shim);
        command.env(name(settings::TRACE), "counts").env(name(settings::TRACE_FILE), &trace);
        let (baton_result, baton_seconds) = result(&format!("{program} under Baton"), command)?;
        let driver_calls = calls(program, &trace)?;
        let done =
            Program { name: program.to_owned(), bare_result, baton_result, bare_seconds, baton_seconds, driver_calls };
        if !json {
            println!(" {}", if done.matches() { "same result" } else { "DIFFERENT" });
        }
        programs.push(done);
    }
    let report = Report { outputs_match: programs.iter().all(Program::matches), driver: driver.device, programs };
    if json {
        println!("{}", serde_json::to_string(&report).map_err(std::io::Error::from)?);
    } else {
        print!("{}", table(&report));
    }
    Ok(report)
}

/// The last line that a program printed, and how long it ran.
fn result(program: &str, mut command: Command) -> Result<(String, f64), Error> {
    let start = Instant::now();
    let output = command.output()?;
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(Error::Failed {
            program: program.to_owned(),
            status: output.status.to_string(),
            output: text + &String::from_utf8_lossy(&output.stderr),
        });
    }
    Ok((text.lines().last().unwrap_or_default().to_owned(), seconds))
}

/// How many driver calls a trace counted.
fn calls(program: &str, trace: &Path) -> Result<u64, Error> {
    #[derive(Deserialize)]
    struct Trace {
        calls: Vec<Sum>,
    }
    #[derive(Deserialize)]
    struct Sum {
        calls: u64,
    }
    // Absent when no call came through: then the count is the finding.
    let Ok(text) = std::fs::read_to_string(trace) else { return Ok(0) };
    let trace: Trace = serde_json::from_str(&text).map_err(|error| Error::Trace(program.to_owned(), error))?;
    Ok(trace.calls.iter().map(|sum| sum.calls).sum())
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "\non {}", report.driver);
    let _ = writeln!(text, "{:<14} {:>9} {:>9} {:>13}  result", "program", "bare s", "Baton s", "driver calls");
    for program in &report.programs {
        let _ = writeln!(
            text,
            "{:<14} {:>9.3} {:>9.3} {:>13}  {}{}",
            program.name,
            program.bare_seconds,
            program.baton_seconds,
            program.driver_calls,
            program.baton_result.trim_start_matches("result "),
            if program.matches() { "" } else { "  DIFFERS FROM BARE" }
        );
    }
    let verdict = if report.outputs_match { "every result is the same" } else { "results differ: this is a bug" };
    let _ = writeln!(text, "{verdict}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(bare: &str, baton: &str, driver_calls: u64) -> Program {
        let (bare_result, baton_result) = (bare.to_owned(), baton.to_owned());
        Program { name: "p".to_owned(), bare_result, baton_result, bare_seconds: 1.0, baton_seconds: 1.0, driver_calls }
    }

    #[test]
    fn only_equal_checked_results_that_came_through_baton_match() {
        assert!(program("result p 1 ok", "result p 1 ok", 5).matches());
        assert!(!program("result p 1 ok", "result p 2 ok", 5).matches());
        assert!(!program("", "", 5).matches());
        assert!(!program("result p 1 ok", "result p 1 ok", 0).matches());
    }
}
