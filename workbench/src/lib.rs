//! `baton demo` and `baton bench`: example programs that share a GPU, and their results.
//!
//! - [`demo`]: shows in half a minute the gain from sharing a GPU.
//! - [`bench`](mod@bench): measures the costs for programs that share a GPU.
//! - [`table`]: rows of text for both and for other commands; [`output`]: printing and writing files for all of them.
//! - `asked`: a server that answers lines. `working`: a program that works without end. `known`: their earlier results.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod asked;
pub mod bench;
pub mod demo;
mod known;
pub mod output;
pub mod table;
mod working;

use baton_harness::Error;
use baton_harness::stop::Stop;
use serde::Serialize;

use output::{Meanwhile, print};

/// Runs a measurement until it ends or the user ends it, and prints the result: as one JSON object, or as a table after its remarks.
fn told<R: Serialize>(
    json: bool,
    does: impl FnOnce(&dyn Fn(&str), &Stop) -> Result<R, Error>,
    table: impl FnOnce(&R) -> String,
) -> Result<R, Error> {
    let stop = Stop::on_signals()?;
    let said = Meanwhile::default();
    let say = |text: &str| {
        if !json {
            said.print(text);
        }
    };
    // Errors after a signal are only its consequences.
    let report = does(&say, &stop).map_err(|error| if stop.is_raised() { Error::Interrupted } else { error })?;
    said.went()?;
    if json {
        print(&(serde_json::to_string(&report).map_err(std::io::Error::from)? + "\n"))?;
    } else {
        print(&table(&report))?;
    }
    Ok(report)
}
