//! Commands that name programs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_client as client;
use baton_contract::messages::{MAX_NAME, Opening};
use baton_report::status::Status;
use baton_report::tenant::{State, Tenant};
use baton_workbench::output::{Meanwhile, say};
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::CliError;
use super::place::Place;
use super::units::Period;

/// The program of a command.
#[derive(Clone, Debug, Args)]
pub struct Named {
    #[command(flatten)]
    place: Place,
    /// The name of the program, as `baton status` shows it, or its process id.
    name: String,
}

impl Named {
    /// Returns the coordinator's socket, and the program's name.
    ///
    /// # Errors
    ///
    /// When there is no coordinator, or no program can have such a name.
    pub fn find(self) -> Result<(PathBuf, String), CliError> {
        let sockets = self.place.all()?;
        let socket = having(&sockets, &self.name)[0];
        let name = called(socket, self.name)?;
        Ok((socket.clone(), name))
    }
}

/// The programs of a command.
#[derive(Clone, Debug, Args)]
pub struct Several {
    #[command(flatten)]
    place: Place,
    /// The names of the programs, as `baton status` shows them, or their process ids.
    #[arg(required = true, value_name = "NAME|PID")]
    names: Vec<String>,
}

/// The programs of a command, and the time to wait for it.
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
    /// Acts on each program, by socket and name, and prints the outcome. A failure is reported and does not stop the others; then this
    /// returns false.
    ///
    /// # Errors
    ///
    /// When there is no coordinator, or the output cannot be written.
    pub fn each(
        self,
        verb: &str,
        mut does: impl FnMut(&Path, &str) -> Result<String, CliError>,
    ) -> Result<bool, CliError> {
        let sockets = self.place.all()?;
        let (printed, mut is_all) = (Meanwhile::default(), true);
        for word in self.names {
            for socket in having(&sockets, &word) {
                match called(socket, word.clone()).and_then(|name| does(socket, &name)) {
                    Ok(said) => printed.print(&(said + "\n")),
                    Err(error) => {
                        say(verb, error);
                        is_all = false;
                    }
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
    /// Time to wait for each program. After that the command says why it is not done, with exit code 1.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: Period,
}

impl Timeout {
    /// Returns the end of the wait that begins now.
    pub fn end(&self) -> Instant {
        // A time beyond the clock's range counts as for ever: about as long as clocks go.
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
    /// Send the request and do not wait.
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
}

impl Patience {
    /// Returns the end of the wait that begins now; none if the command does not wait.
    pub fn end(&self) -> Option<Instant> {
        (!self.no_wait).then(|| self.time.end())
    }

    /// The timeout in words.
    pub fn words(&self) -> String {
        self.time.timeout.to_string()
    }
}

/// Returns a program's state. None if the coordinator does not tell this user about states.
///
/// # Errors
///
/// When the program has left.
pub fn state(socket: &Path, name: &str) -> Result<Option<State>, CliError> {
    Ok(tenant(socket, name)?.map(|tenant| tenant.state))
}

/// Returns a program as its coordinator shows it; none if this user is not told.
///
/// # Errors
///
/// When the program has left.
pub fn tenant(socket: &Path, name: &str) -> Result<Option<Tenant>, CliError> {
    let Ok(text) = client::status(socket) else { return Ok(None) };
    let status: Status = read(&text)?;
    match status.tenants.into_iter().find(|tenant| tenant.name == name) {
        Some(tenant) => Ok(Some(tenant)),
        None => Err(baton_messages::has_left(name).into()),
    }
}

/// Returns those of these GPUs that a program of this name or process id shares; the first one if it shares none, which says so. At
/// least one, of at least one.
pub fn having<'a>(sockets: &'a [PathBuf], word: &str) -> Vec<&'a PathBuf> {
    let is_there = |socket: &&PathBuf| {
        let status: Option<Status> = client::status(socket).ok().and_then(|text| read(&text).ok());
        let is_it = |tenant: &Tenant| tenant.name == word || tenant.pid.is_some_and(|pid| pid.to_string() == word);
        status.is_some_and(|status| status.tenants.iter().any(is_it))
    };
    match sockets {
        [_] => sockets.iter().collect(),
        _ => {
            let mut found: Vec<_> = sockets.iter().filter(is_there).collect();
            if found.is_empty() {
                found.extend(sockets.first());
            }
            found
        }
    }
}

/// Returns the program's name for a user's word: a name or a process id.
///
/// # Errors
///
/// When no program can have such a name.
pub fn called(socket: &Path, word: String) -> Result<String, CliError> {
    if word.len() > MAX_NAME {
        return Err(baton_messages::name_is_too_long(MAX_NAME).into());
    }
    let Ok(number) = word.parse::<i32>() else { return Ok(word) };
    // A guest may not read the status of others, so it can use names only.
    let Ok(text) = client::status(socket) else { return Ok(word) };
    let status: Status = read(&text)?;
    let is_named = status.tenants.iter().any(|tenant| tenant.name == word);
    let its = status.tenants.into_iter().find(|tenant| !is_named && tenant.pid == Some(number));
    // An unknown name goes on to the coordinator, whose answer says that there is no such program.
    Ok(its.map_or(word, |tenant| tenant.name))
}

/// Parses a coordinator's answer as JSON.
///
/// # Errors
///
/// When it is not JSON.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, CliError> {
    Ok(serde_json::from_slice(text).map_err(baton_messages::coordinators_answer_is_unreadable)?)
}

/// Parses the answer to an action: its outcome, or the reason why it failed.
fn done(text: &[u8]) -> Result<Value, CliError> {
    let answer: Value = read(text)?;
    match answer["error"].as_str() {
        Some(error) => Err(baton_messages::answered(error).into()),
        None => Ok(answer),
    }
}

/// Asks for an action that is done at once, and returns its outcome.
///
/// # Errors
///
/// When no coordinator answers, there is no such program, or the action fails.
pub fn have_done(socket: &Path, request: &Opening) -> Result<Value, CliError> {
    done(&client::ask(socket, request)?)
}

/// Asks for an action that may take long, and calls `meanwhile` again and again. None if it is not done at `end`; then it is given up.
///
/// # Errors
///
/// Errors of [`have_done`].
pub fn have_done_patiently(
    socket: &Path,
    request: &Opening,
    end: Option<Instant>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Option<Value>, CliError> {
    client::ask_patiently(socket, request, end, meanwhile)?.map(|text| done(&text)).transpose()
}
