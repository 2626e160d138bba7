//! Commands about one program, which they name.

use std::path::{Path, PathBuf};

use baton_contract::messages::{MAX_NAME, Opening};
use baton_harness::client;
use clap::Args;
use serde::de::DeserializeOwned;
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

impl Named {
    /// The coordinator's socket, and the program's name.
    ///
    /// # Errors
    ///
    /// When there is no coordinator, or no program can have such a name.
    pub fn find(self) -> Result<(PathBuf, String), CliError> {
        let socket = self.place.find()?;
        if self.name.len() > MAX_NAME {
            return Err(CliError::Told(format!("no program has a name of more than {MAX_NAME} bytes")));
        }
        Ok((socket, self.name))
    }
}

/// A coordinator's answer, as JSON.
///
/// # Errors
///
/// When it is none.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, CliError> {
    serde_json::from_slice(text)
        .map_err(|error| CliError::Told(format!("the coordinator's answer cannot be read: {error}")))
}

/// The same, of something that was to be done: what came of it, or why it was not.
fn done(text: &[u8]) -> Result<Value, CliError> {
    let answer: Value = read(text)?;
    match answer["error"].as_str() {
        Some(error) => Err(CliError::Told(error.to_owned())),
        None => Ok(answer),
    }
}

/// Asks for something to be done about a program, which is done at once. `request`: of its name.
///
/// # Errors
///
/// When no coordinator answers, there is no such program, or it cannot be done.
pub fn have_done(named: Named, request: impl FnOnce(String) -> Opening) -> Result<(), CliError> {
    let (socket, name) = named.find()?;
    done(&client::ask(&socket, &request(name))?).map(drop)
}

/// The same where it may take long, and something else is done again and again meanwhile.
///
/// # Errors
///
/// As for [`have_done`].
pub fn have_done_patiently(socket: &Path, request: &Opening, meanwhile: &mut dyn FnMut()) -> Result<Value, CliError> {
    done(&client::ask_patiently(socket, request, meanwhile)?)
}
