//! A coordinator of our own, which ends with this value.

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

/// How long it may take to notice that a program has ended.
const SOON: Duration = Duration::from_secs(10);
/// How long it may take to end by itself: its memory and files go in order.
const ENDING: Duration = Duration::from_secs(60);
/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(5);

/// Where a coordinator can be reached, and what it writes.
#[derive(Clone, Debug)]
pub struct Address {
    /// Where programs find it.
    pub socket: PathBuf,
    /// What it says goes to this file.
    pub log: PathBuf,
}

impl Address {
    /// In a folder of its own.
    pub fn in_folder(folder: &Path) -> Self {
        Self { socket: folder.join("baton.sock"), log: folder.join("serve.log") }
    }

    /// All it has said so far.
    pub fn said(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How things stand.
    ///
    /// # Errors
    ///
    /// When no coordinator answers, or not as it should.
    pub fn status<T: DeserializeOwned>(&self) -> Result<T, NoAnswer> {
        let text = client::status(&self.socket)?;
        serde_json::from_slice(&text).map_err(|error| client::no_answer(&self.socket, error))
    }
}

/// A coordinator that runs.
pub struct Coordinator {
    process: Child,
    /// Where it is.
    pub address: Address,
    /// With `--until-idle` it ends when nobody is connected any more: so also when this process is killed.
    connection: Option<OwnedFd>,
    /// Whether the process is that of another command, which runs it and takes no signals for it.
    is_wrapped: bool,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.connection = None;
        if !self.is_wrapped && matches!(self.process.try_wait(), Ok(None)) {
            let _ = self.end(Signal::TERM, ENDING);
        }
        // Of one that has ended already both know that it has.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Coordinator {
    /// Starts it with `command`, which names the socket, and waits until it serves.
    ///
    /// # Errors
    ///
    /// When it ends instead: with its own words.
    pub fn start(command: &mut Command, address: Address, stop: &Stop) -> Result<Self, Error> {
        let log = File::create(&address.log)?;
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut started = Self { process, address, connection: None, is_wrapped: false };
        let end = Instant::now() + LIMIT;
        loop {
            stop.check()?;
            // In this order: another one may answer there when ours has ended.
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

    /// The same, by another command that runs this one, and ends it when it is killed itself.
    ///
    /// # Errors
    ///
    /// As for [`Coordinator::start`].
    pub fn start_wrapped(command: &mut Command, address: Address, stop: &Stop) -> Result<Self, Error> {
        let mut started = Self::start(command, address, stop)?;
        started.is_wrapped = true;
        Ok(started)
    }

    /// From now on it ends with this process, if it was started with `--until-idle`.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub fn bind(&mut self) -> Result<(), Error> {
        let reached = client::announce(&self.address.socket)?;
        self.connection = reached.map(|(connection, _)| connection);
        Ok(())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How things stand.
    ///
    /// # Errors
    ///
    /// When it does not answer, or not as it should.
    pub fn status(&self) -> Result<Status, Error> {
        Ok(self.address.status()?)
    }

    /// Waits until its host pool is ready.
    ///
    /// # Errors
    ///
    /// When that takes for ever.
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

    /// How things stand when it has noticed that all these have ended.
    ///
    /// # Errors
    ///
    /// When it does not notice.
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

    /// Ends it with a signal; how it ended, if it did so in this time.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn end(&mut self, signal: Signal, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
        // Our own child, whose number is nobody else's before its end was heard.
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
