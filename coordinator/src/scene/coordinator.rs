//! A coordinator of our own, which ends with this value.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::stop::Stop;
use super::{Error, LIMIT};
use crate::cli::client;

/// How long it may take to notice that a program has ended, and to end itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is read of the coordinator's status.
#[derive(Deserialize)]
pub(crate) struct Status {
    pub(crate) arena: Arena,
    host_pool: Pool,
    pub(crate) switches: u64,
    pub(crate) preemptions: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) switch_ms_p50: Option<f64>,
    pub(crate) switch_ms_max: Option<f64>,
    pub(crate) tenants: Vec<Present>,
    pub(crate) recent: Vec<Switch>,
    departed: Vec<Departed>,
}

#[derive(Deserialize)]
pub(crate) struct Arena {
    pub(crate) bytes: u64,
}

#[derive(Deserialize)]
struct Pool {
    bytes: u64,
    ready_bytes: u64,
}

#[derive(Deserialize)]
pub(crate) struct Present {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) preemptible: bool,
}

/// One change of the baton's holder.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Switch {
    /// Counts all switches since the start.
    pub(crate) n: u64,
    pub(crate) to: String,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) groups: u64,
    pub(crate) extents: u64,
    pub(crate) waits: u64,
    pub(crate) waited_ms: f64,
    pub(crate) phases: Phases,
}

/// What happened when, since the incoming program wanted the GPU; none: it did not happen.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Phases {
    pub(crate) decided_ms: Option<f64>,
    pub(crate) granted_ms: Option<f64>,
    pub(crate) first_extent_ms: Option<f64>,
    pub(crate) first_launch_ms: Option<f64>,
    pub(crate) all_resident_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Departed {
    name: String,
    peak_bytes: u64,
}

impl Status {
    /// A program that is there.
    pub(crate) fn tenant(&self, name: &str) -> Option<&Present> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// The most memory that a program had; none if it did not come, or has not left.
    pub(crate) fn peak_bytes(&self, name: &str) -> Option<u64> {
        self.departed.iter().find(|departed| departed.name == name).map(|departed| departed.peak_bytes)
    }
}

/// A coordinator that runs.
pub(crate) struct Coordinator {
    process: Child,
    /// Where programs find it.
    pub(crate) socket: PathBuf,
    /// It ends when nobody is connected any more: so also when this process is killed.
    connection: Option<OwnedFd>,
    log: PathBuf,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.connection = None;
        let process = rustix::process::Pid::from_child(&self.process);
        let end = Instant::now() + PATIENCE;
        let mut is_told = false;
        while let Ok(None) = self.process.try_wait() {
            if !is_told {
                is_told = true;
                let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
            } else if Instant::now() > end {
                let _ = self.process.kill();
                let _ = self.process.wait();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Coordinator {
    /// Starts it with `command`, to which the socket is added, and waits until it and its host pool are ready.
    /// `folder` is for socket and log.
    pub(crate) fn start(mut command: Command, folder: &Path, stop: &Stop) -> Result<Self, Error> {
        let (socket, log) = (folder.join("baton.sock"), folder.join("baton.log"));
        command.arg("--until-idle").arg("--socket").arg(&socket);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        let mut started = Self { process, socket, connection: None, log };
        let end = Instant::now() + LIMIT;
        loop {
            stop.check()?;
            if started.is_ready()? {
                return Ok(started);
            }
            if started.process.try_wait()?.is_some() {
                let said = started.said()?;
                let last = said.lines().last().unwrap_or("it ended without a word");
                return Err(Error::Coordinator(last.trim_start_matches("baton serve: ").to_owned()));
            }
            if Instant::now() > end {
                return Err(Error::Coordinator("it does not get ready".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        if self.connection.is_none() {
            let reached = client::announce(&self.socket).map_err(|error| Error::Coordinator(error.to_string()))?;
            self.connection = reached.map(|(connection, _)| connection);
        }
        if self.connection.is_none() {
            return Ok(false);
        }
        let pool = self.status()?.host_pool;
        Ok(pool.ready_bytes == pool.bytes)
    }

    /// All it has said so far.
    pub(crate) fn said(&self) -> std::io::Result<String> {
        std::fs::read_to_string(&self.log)
    }

    /// How things stand.
    pub(crate) fn status(&self) -> Result<Status, Error> {
        let text = client::status(&self.socket).map_err(|error| Error::Coordinator(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| Error::Coordinator(error.to_string()))
    }

    /// How things stand when it has noticed that all these have ended.
    pub(crate) fn settled(&self, names: &[&str], stop: &Stop) -> Result<Status, Error> {
        let end = Instant::now() + PATIENCE;
        loop {
            stop.check()?;
            let status = self.status()?;
            let missing = names.iter().find(|name| status.peak_bytes(name).is_none());
            match missing {
                None => return Ok(status),
                Some(name) if Instant::now() > end => {
                    let still = status.tenants.iter().any(|tenant| tenant.name == **name);
                    let why = if still { "does not notice that it has ended" } else { "has never seen it" };
                    return Err(Error::Coordinator(format!("{name} ran, but the coordinator {why}")));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(5)),
            }
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
        let stop = Stop::on_signals().expect("signals");
        let Err(error) = Coordinator::start(command, folder.path(), &stop) else { panic!("it has ended") };
        assert_eq!(error.to_string(), "the coordinator: there is no GPU");
    }
}
