//! `baton demo` and `baton bench`: example programs that share a GPU, and what comes of it.
//!
//! - [`demo`]: shows in half a minute what sharing a GPU gives.
//! - [`bench`](mod@bench): measures what it costs programs to share a GPU.
//! - [`table`]: how both, and other commands, show rows; [`output`]: how all print, and write files.
//! - `asked`: a server that answers lines. `working`: a program that works without end. `known`: what they computed before.

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

/// Does something until the user ends it, and prints what it found: as one JSON object, or as a table after what it
/// says meanwhile.
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
    // What a signal ends is a consequence.
    let report = does(&say, &stop).map_err(|error| if stop.is_raised() { Error::Interrupted } else { error })?;
    said.went()?;
    if json {
        print(&(serde_json::to_string(&report).map_err(std::io::Error::from)? + "\n"))?;
    } else {
        print(&table(&report))?;
    }
    Ok(report)
}
