//! `baton demo`: the gain from sharing a GPU, measured on this machine within a minute.
//!
//! - [`gaps`]: two programs that rest now and then and do not fit the GPU together: one after the other, and at the same time.
//! - [`beside`]: a server beside a training: with Baton, and without.
//! - `screen`: shows progress in place.
//! - `picture`: the owners of the GPU over time, as lines of text.

pub mod beside;
pub mod gaps;
mod picture;
mod screen;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use baton_client::driver::Choice;
pub use baton_harness::Error;
use baton_harness::place::{Ground, Setting};
use baton_harness::stop::Stop;
use serde::Serialize;

use crate::output::quoted;
use crate::told;
use beside::Beside;
use gaps::Gaps;
use screen::Screen;

/// The simulated driver, where the user has set nothing else: so slow that this machine computes everything well within the modelled
/// times. The slice is NVIDIA's.
const MODEL: [Setting; 4] = [
    ("SIMCUDA_H2D_GBPS", "2"),
    ("SIMCUDA_D2H_GBPS", "2"),
    ("SIMCUDA_KERNEL_GFLOPS", "0.25"),
    ("SIMCUDA_TIMESLICE_MS", "2"),
];

/// The demo's results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// True if every program computed the same sharing the GPU as alone.
    pub outputs_match: bool,
    /// The name of its device, as the driver gives it.
    pub driver: String,
    /// True if that is a simulated one.
    pub simulated: bool,
    /// The demo's duration.
    pub seconds: f64,
    /// Programs that rest now and then.
    pub gaps: Gaps,
    /// A server beside a training.
    pub beside: Beside,
    /// A command to try next.
    pub next: String,
}

/// Runs the demo and prints its results, or one JSON object.
///
/// # Errors
///
/// When a program or a part of Baton is missing, a program fails, or the GPU was not shared. Differing results are not an error: the
/// report has them.
pub fn run(choice: &Choice, json: bool) -> Result<Report, Error> {
    told(json, |say, stop| show(choice, say, stop), last)
}

fn show(choice: &Choice, say: &dyn Fn(&str), stop: &Stop) -> Result<Report, Error> {
    let start = Instant::now();
    let ground = Ground::new(choice, &MODEL, stop)?;
    let screen = Screen::new(say, &[gaps::PLAN.as_slice(), &beside::PLAN].concat());
    screen.line(&format!("Baton on {}, about {:.0} s", ground.driver.device, screen.left()));
    let gaps = gaps::run(&ground, &screen)?;
    let beside = beside::run(&ground, &screen)?;
    Ok(Report {
        outputs_match: gaps.outputs_match && beside.outputs_match,
        driver: ground.driver.device.clone(),
        simulated: ground.simulated,
        seconds: start.elapsed().as_secs_f64(),
        next: next(&ground)?,
        gaps,
        beside,
    })
}

/// Returns a command that works here.
fn next(ground: &Ground<'_>) -> Result<String, Error> {
    let baton = from_here(&std::env::args_os().next().map_or_else(|| "baton".into(), PathBuf::from));
    if !ground.simulated {
        return Ok(format!("{baton} run -- python3 train.py"));
    }
    Ok(format!("{baton} run --driver sim -- {}", from_here(&ground.example("train_mlp")?)))
}

/// Returns a program's path as a shell in this folder reads it.
fn from_here(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    // A shell would search for a bare name in other folders.
    let short = path.strip_prefix(here).ok().filter(|short| short.components().count() > 1);
    quoted(short.unwrap_or(path).as_os_str())
}

/// Returns the text at the end.
fn last(report: &Report) -> String {
    let mut text = String::from("\n");
    let _ = writeln!(text, "{}\n{}", report.gaps.sentence(), report.beside.sentence());
    if report.simulated {
        text += "(Without Baton, programs on the simulated GPU take turns of 2 ms.)\n";
    }
    let verdict = if report.outputs_match {
        "Each program computed what it computes alone."
    } else {
        baton_messages::RESULTS_DIFFER
    };
    let whose = if report.simulated { "an example; your own needs a GPU" } else { "your own program" };
    let _ = writeln!(text, "{verdict}\n\nNext ({whose}):\n  {}", report.next);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outputs_match: bool) -> Report {
        Report {
            outputs_match,
            driver: "a GPU".to_owned(),
            simulated: true,
            seconds: 20.0,
            gaps: Gaps { one_after_the_other_seconds: 5.04, together_seconds: 2.96, ..Gaps::default() },
            beside: Beside::default(),
            next: "baton run".to_owned(),
        }
    }

    #[test]
    fn the_end_has_what_was_measured_in_two_sentences_and_a_command() {
        let text = last(&report(true));
        assert!(text.contains("together took 3.0 s, against 5.0 s one after the other."), "{text}");
        assert!(text.contains("P99") && text.ends_with("\n  baton run\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    }

    #[test]
    fn results_that_differ_are_a_bug() {
        assert!(last(&report(false)).contains("this is a bug"));
    }
}
