//! Commands about one program, which they name.

use std::time::Duration;

use baton_contract::messages::{MAX_NAME, Opening};
use baton_harness::client::ask;
use clap::Args;
use serde_json::Value;

use super::CliError;
use super::place::Place;

/// Which program is meant.
#[derive(Clone, Debug, Args)]
pub struct Named {
    #[command(flatten)]
    place: Place,
    /// What the program is called, as `baton status` shows it.
    name: String,
}

/// Asks for something to be done about a program, and waits until it is: with a patience, not for longer than that in
/// silence. `request`: of its name.
///
/// # Errors
///
/// When no coordinator answers, there is no such program, or it cannot be done.
pub fn have_done(
    Named { place, name }: Named,
    patience: Option<Duration>,
    request: impl FnOnce(String) -> Opening,
) -> Result<(), CliError> {
    let socket = place.find()?;
    if name.len() > MAX_NAME {
        return Err(CliError::Told(format!("no program has a name of more than {MAX_NAME} bytes")));
    }
    let text = ask(&socket, &request(name), patience)?;
    let answer: Value = serde_json::from_slice(&text)
        .map_err(|error| CliError::Told(format!("the coordinator's answer cannot be read: {error}")))?;
    match answer["error"].as_str() {
        Some(error) => Err(CliError::Told(error.to_owned())),
        None => Ok(()),
    }
}
