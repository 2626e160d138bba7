//! Commands about programs, which they name.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_client as client;
use baton_contract::messages::{MAX_NAME, Opening};
use baton_report::status::Status;
use baton_report::tenant::State;
use baton_workbench::output::{Meanwhile, say};
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::CliError;
use super::place::Place;
use super::units::Period;

/// Which program is meant.
#[derive(Clone, Debug, Args)]
pub struct Named {
    #[command(flatten)]
    place: Place,
    /// The name of the program, as `baton status` shows it, or its process id.
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
        let name = called(&socket, self.name)?;
        Ok((socket, name))
    }
}

/// Which programs are meant.
#[derive(Clone, Debug, Args)]
pub struct Several {
    #[command(flatten)]
    place: Place,
    /// What the programs are called, as `baton status` shows them, or their process ids.
    #[arg(required = true, value_name = "NAME|PID")]
    names: Vec<String>,
}

/// Which programs are meant, and for how long it is waited until it is done.
#[derive(Clone, Debug, Args)]
pub struct Waited {
    /// The programs.
    #[command(flatten)]
    pub programs: Several,
    /// The time.
    #[command(flatten)]
    pub patience: Patience,
}

impl Several {
    /// Does something about each, by socket and name, and prints what was done. One that it cannot be done about is told and keeps
    /// the others from nothing: then this is false.
    ///
    /// # Errors
    ///
    /// When there is no coordinator, or no room for what is printed.
    pub fn each(
        self,
        verb: &str,
        mut does: impl FnMut(&Path, &str) -> Result<String, CliError>,
    ) -> Result<bool, CliError> {
        let socket = self.place.find()?;
        let (printed, mut is_all) = (Meanwhile::default(), true);
        for word in self.names {
            match called(&socket, word).and_then(|name| does(&socket, &name)) {
                Ok(said) => printed.print(&(said + "\n")),
                Err(error) => {
                    say(verb, error);
                    is_all = false;
                }
            }
        }
        printed.went()?;
        Ok(is_all)
    }
}

/// For how long a command waits.
#[derive(Clone, Copy, Debug, Args)]
pub struct Timeout {
    /// How long to wait, for each, until it is done. Then the command says why it is not, with exit code 1.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: Period,
}

impl Timeout {
    /// Until when, from now on.
    pub fn end(&self) -> Instant {
        // A time that clocks do not reach is for ever: about as long as they go.
        let far = || Instant::now() + Duration::from_secs(u64::from(u32::MAX));
        Instant::now().checked_add(self.timeout.0).unwrap_or_else(far)
    }
}

/// For how long a command waits, if it does.
#[derive(Clone, Copy, Debug, Args)]
pub struct Patience {
    /// For how long.
    #[command(flatten)]
    pub time: Timeout,
    /// Ask for it and do not wait.
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
}

impl Patience {
    /// Until when, from now on; none: it is not waited.
    pub fn end(&self) -> Option<Instant> {
        (!self.no_wait).then(|| self.time.end())
    }

    /// How long, in words.
    pub fn words(&self) -> String {
        self.time.timeout.to_string()
    }
}

/// How a program stands. None if the coordinator does not tell this user how programs stand.
///
/// # Errors
///
/// When it is not there any more.
pub fn state(socket: &Path, name: &str) -> Result<Option<State>, CliError> {
    let Ok(text) = client::status(socket) else { return Ok(None) };
    let status: Status = read(&text)?;
    match status.tenants.into_iter().find(|tenant| tenant.name == name) {
        Some(tenant) => Ok(Some(tenant.state)),
        None => Err(baton_messages::has_left(name).into()),
    }
}

/// The name of the program that a user's word is about: its name, or its process id.
///
/// # Errors
///
/// When no program can have such a name.
pub fn called(socket: &Path, word: String) -> Result<String, CliError> {
    if word.len() > MAX_NAME {
        return Err(baton_messages::name_is_too_long(MAX_NAME).into());
    }
    let Ok(number) = word.parse::<i32>() else { return Ok(word) };
    // Guests are not told how others stand.
    let Ok(text) = client::status(socket) else { return Ok(word) };
    let status: Status = read(&text)?;
    let is_named = status.tenants.iter().any(|tenant| tenant.name == word);
    let its = status.tenants.into_iter().find(|tenant| !is_named && tenant.pid == Some(number));
    // Where there is none, the coordinator says so.
    Ok(its.map_or(word, |tenant| tenant.name))
}

/// A coordinator's answer, as JSON.
///
/// # Errors
///
/// When it is none.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, CliError> {
    Ok(serde_json::from_slice(text).map_err(baton_messages::coordinators_answer_is_unreadable)?)
}

/// The same, of something that was to be done: what came of it, or why it was not.
fn done(text: &[u8]) -> Result<Value, CliError> {
    let answer: Value = read(text)?;
    match answer["error"].as_str() {
        Some(error) => Err(baton_messages::answered(error).into()),
        None => Ok(answer),
    }
}

/// Asks for something to be done, which is done at once, and gives what came of it.
///
/// # Errors
///
/// When no coordinator answers, there is no such program, or it cannot be done.
pub fn have_done(socket: &Path, request: &Opening) -> Result<Value, CliError> {
    done(&client::ask(socket, request)?)
}

/// The same where it may take long, and something else is done again and again meanwhile; none if it is not done at `end`, and then it is
/// given up.
///
/// # Errors
///
/// As for [`have_done`].
pub fn have_done_patiently(
    socket: &Path,
    request: &Opening,
    end: Option<Instant>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Option<Value>, CliError> {
    client::ask_patiently(socket, request, end, meanwhile)?.map(|text| done(&text)).transpose()
}
