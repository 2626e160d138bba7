//! `baton why`: the reason why a program waits or waited, since when, and the change that would help.

use baton_client as client;
use baton_report::status::Status;
use baton_views::timeline::Timeline;
use baton_views::{past, why};
use baton_workbench::output::print;
use clap::Args;

use super::CliError;
use super::named::{called, read};
use super::records::{Source, Told};

/// `baton why`.
#[derive(Clone, Debug, Args)]
pub struct Why {
    #[command(flatten)]
    source: Source,
    /// The name of the program, as `baton status` shows it (in a record, the name alone), or its process id.
    name: String,
}

/// Prints it.
///
/// # Errors
///
/// When no coordinator answers and there is no record, or there is no such program.
pub fn run(Why { source, name }: Why) -> Result<(), CliError> {
    let (said, name, list) = match source.find("why")? {
        Told::Coordinator(socket) => {
            let name = called(&socket, name)?;
            let status: Status = read(&client::status(&socket)?)?;
            (why::sentences(&status, &name), name, baton_messages::PS_LISTS_THEM)
        }
        Told::Record(record) => {
            (past::sentences(&Timeline::of(&record), &name), name, baton_messages::STATS_LISTS_THEM)
        }
    };
    let none = || CliError::Told(baton_messages::no_program_to_explain(name.escape_default(), list));
    Ok(print(&format!("{}\n", said.ok_or_else(none)?))?)
}
