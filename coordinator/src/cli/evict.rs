//! `baton evict`: moves an idle program's memory to the host.

use std::path::PathBuf;

use baton_contract::messages::{FromTenant, MAX_NAME};
use clap::Args;
use serde_json::Value;

use super::{CliError, client, named_socket, status};

/// `baton evict`.
#[derive(Clone, Debug, Args)]
pub struct Evict {
    /// The coordinator's socket, if it is not at the usual place.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// What the program is called, as `baton status` shows it.
    name: String,
}

/// Waits until the program is idle and all its memory is on the host.
///
/// # Errors
///
/// When no coordinator answers, or there is no such program, or no room on the host.
pub fn run(arguments: Evict) -> Result<(), CliError> {
    let socket = match arguments.socket.or_else(named_socket) {
        Some(socket) => socket,
        None => status::only_socket()?,
    };
    if arguments.name.len() > MAX_NAME {
        return Err(CliError::Told(format!("no program has a name of more than {MAX_NAME} bytes")));
    }
    // For as long as it takes: the program may be working.
    let text = client::ask(&socket, &FromTenant::Evict { name: arguments.name }, None)?;
    let answer: Value = serde_json::from_slice(&text)
        .map_err(|error| CliError::Told(format!("the coordinator's answer cannot be read: {error}")))?;
    match answer["error"].as_str() {
        Some(error) => Err(CliError::Told(error.to_owned())),
        None => Ok(()),
    }
}
