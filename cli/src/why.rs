//! `baton why`: the reason why a program waits or waited, since when, and the change that would help.

use baton_client as client;
use baton_report::status::Status;
use baton_views::timeline::Timeline;
use baton_views::{past, why};
use baton_workbench::output::print;
use clap::Args;

use super::CliError;
use super::named::{called, having, read};
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
    let place = source.place.clone();
    let (said, name, list) = match source.find("why")? {
        Told::Coordinator(first) => {
            let sockets = place.all().unwrap_or_else(|_| vec![first]);
            let sockets = having(&sockets, &name);
            let mut said = Vec::new();
            for socket in &sockets {
                let name = called(socket, name.clone())?;
                let status: Status = read(&client::status(socket)?)?;
                let on = if sockets.len() > 1 { format!("GPU {}: ", status.gpu.number) } else { String::new() };
                said.extend(why::sentences(&status, &name).map(|text| on + &text));
            }
            ((!said.is_empty()).then(|| said.join("\n")), name, baton_messages::PS_LISTS_THEM)
        }
        Told::Record(record) => {
            (past::sentences(&Timeline::of(&record), &name), name, baton_messages::STATS_LISTS_THEM)
        }
    };
    let none = || CliError::Told(baton_messages::no_program_to_explain(name.escape_default(), list));
    Ok(print(&format!("{}\n", said.ok_or_else(none)?))?)
}
