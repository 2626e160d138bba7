//! `baton why`: what a program waits for, since when, and what would help.

use baton_harness::client;
use baton_views::snapshot::Snapshot;
use baton_views::why::sentences;
use baton_workbench::output::print;

use super::CliError;
use super::named::{Named, read};

/// Says it.
///
/// # Errors
///
/// When no coordinator answers, or there is no such program.
pub fn run(named: Named) -> Result<(), CliError> {
    let (socket, name) = named.find()?;
    let snapshot: Snapshot = read(&client::status(&socket)?)?;
    let said = sentences(&snapshot, &name).ok_or_else(|| {
        CliError::Told(format!("there is no program called {}; `baton ps` lists them", name.escape_default()))
    })?;
    Ok(print(&format!("{said}\n"))?)
}
