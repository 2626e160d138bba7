//! A coordinator that ends when its value is dropped.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use baton_report::status::Status;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde::de::DeserializeOwned;

use crate::stop::Stop;
use crate::{Error, LIMIT};
use baton_client::{self as client, NoAnswer};

/// Longest time until it notices a program's end.
const SOON: Duration = Duration::from_secs(10);
/// Longest time until it ends by itself: it gives up memory and files in order.
const ENDING: Duration = Duration::from_secs(60);
/// Delay between two checks for an event.
const LOOK: Duration = Duration::from_millis(5);

/// A coordinator's socket and log.
#[derive(Clone, Debug)]
pub struct Address {
    /// The socket where programs find it.
    pub socket: PathBuf,
    /// The file of its log.
    pub log: PathBuf,
}

impl Address {
    /// Makes an address in a folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self { socket: folder.join("baton.sock"), log: folder.join("serve.log") }
    }

    /// Returns the whole log so far.
    pub fn said(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns its status.
    ///
    /// # Errors
    ///
    /// When no coordinator answers, or its answer is malformed.
    pub fn status<T: DeserializeOwned>(&self) -> Result<T, NoAnswer> {
        let text = client::status(&self.socket)?;
        serde_json::from_slice(&text).map_err(|error| client::no_answer(&self.socket, error))
    }
}

/// A running coordinator.
pub struct Coordinator {
    process: Child,
    /// Its address.
    pub address: Address,
    /// Its connection: with `--until-idle` it ends when the last connection does, so also when this process is killed.
    connection: Option<OwnedFd>,
    /// True if the process is another command, which runs the coordinator and passes no signals on.
    is_wrapped: bool,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.connection = None;
        if !self.is_wrapped && matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.end(Signal::TERM, ENDING);
        }
        // These fail without harm if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Coordinator {
    /// Starts it with `command`, which names the socket, and waits until it serves.
    ///
    /// # Errors
    ///
    /// When it ends instead; the error has its own words.
    pub fn start(command: &mut Command, address: Address, stop: &Stop) -> Result<Self, Error> {
        let log = File::create(&address.log)?;
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut started = Self { process, address, connection: None, is_wrapped: false };
        let end = Instant::now() + LIMIT;
        loop {
            stop.check()?;
            // In this order: another coordinator may answer there once this one has ended.
            let ended = started.process.try_wait()?;
            if ended.is_some() {
                let said = started.address.said();
                let last = said.lines().last().unwrap_or(baton_messages::ENDED_WITHOUT_A_WORD);
                return Err(Error::Coordinator(last.trim_start_matches("baton serve: ").to_owned()));
            }
            if client::status(&started.address.socket).is_ok() {
                return Ok(started);
            }
            if Instant::now() > end {
                return Err(Error::Coordinator(baton_messages::NOT_READY_IN_TIME.to_owned()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Starts it through another command, which runs it, and ends it when that command is killed.
    ///
    /// # Errors
    ///
    /// Errors of [`Coordinator::start`].
    pub fn start_wrapped(command: &mut Command, address: Address, stop: &Stop) -> Result<Self, Error> {
        let mut started = Self::start(command, address, stop)?;
        started.is_wrapped = true;
        Ok(started)
    }

    /// Binds its life to this process, if it was started with `--until-idle`.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn bind(&mut self) -> Result<(), Error> {
        let reached = client::announce(&self.address.socket)?;
        self.connection = reached.map(|(connection, _)| connection);
        Ok(())
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns its status.
    ///
    /// # Errors
    ///
    /// When it does not answer, or its answer is malformed.
    pub fn status(&self) -> Result<Status, Error> {
        Ok(self.address.status()?)
    }

    /// Waits until its host pool is ready.
    ///
    /// # Errors
    ///
    /// When the pool is not ready in time.
    pub fn until_ready(&self, stop: &Stop) -> Result<(), Error> {
        let end = Instant::now() + LIMIT;
        loop {
            stop.check()?;
            let pool = self.status()?.host_pool;
            if pool.ready_bytes == pool.bytes {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Error::Coordinator(baton_messages::NOT_READY_IN_TIME.to_owned()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns its status once it has noticed the end of all these programs.
    ///
    /// # Errors
    ///
    /// When it does not notice in time.
    pub fn settled(&self, names: &[&str], stop: &Stop) -> Result<Status, Error> {
        let end = Instant::now() + SOON;
        loop {
            stop.check()?;
            let status = self.status()?;
            let missing = names.iter().find(|name| status.departed_peak(name).is_none());
            match missing {
                None => return Ok(status),
                Some(name) if Instant::now() > end => {
                    let still = status.tenants.iter().any(|tenant| tenant.name == **name);
                    let why =
                        if still { baton_messages::end_is_not_noticed(name) } else { baton_messages::never_seen(name) };
                    return Err(Error::Coordinator(why));
                }
                Some(_) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Returns how it has ended, if it has.
    ///
    /// # Errors
    ///
    /// When it is not our own child.
    pub fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Ends it with a signal. Returns its exit status, if it ends in this time.
    ///
    /// # Errors
    ///
    /// When the system does not tell.
    pub fn end(&mut self, signal: Signal, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
        // The number of a child is not reused before its end has been read.
        if let Some(status) = self.process.try_wait()? {
            return Ok(Some(status));
        }
        kill_process(Pid::from_child(&self.process), signal)?;
        let end = Instant::now() + limit;
        loop {
            let ended = self.process.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                return Ok(ended);
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_that_cannot_start_is_told_in_its_own_words() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo 'baton serve: there is no GPU' >&2; exit 1"]);
        let started = Coordinator::start(&mut command, Address::in_folder(folder.path()), &Stop::never());
        let Err(error) = started else { panic!("it has ended") };
        assert_eq!(error.to_string(), "the coordinator: there is no GPU [B1412]");
    }
}
