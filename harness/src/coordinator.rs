//! A coordinator of our own, which ends with this value.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::client;
use crate::stop::Stop;
use crate::{Error, LIMIT};

/// How long it may take to notice that a program has ended, and to end itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is read of the coordinator's status.
#[derive(Deserialize)]
pub struct Status {
    pub arena: Arena,
    host_pool: Pool,
    pub switches: u64,
    pub preemptions: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub switch_ms_p50: Option<f64>,
    pub switch_ms_max: Option<f64>,
    pub tenants: Vec<Present>,
    pub recent: Vec<Switch>,
    departed: Vec<Departed>,
}

#[derive(Deserialize)]
pub struct Arena {
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Pool {
    bytes: u64,
    ready_bytes: u64,
}

#[derive(Deserialize)]
pub struct Present {
    pub name: String,
    pub state: String,
    pub bytes: u64,
    pub evicted_bytes: u64,
    pub preemptible: bool,
}

/// One change of the baton's holder.
#[derive(Clone, Debug, Deserialize)]
pub struct Switch {
    /// Counts all switches since the start.
    pub n: u64,
    pub to: String,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub groups: u64,
    pub extents: u64,
    pub waits: u64,
    pub waited_ms: f64,
    pub phases: Phases,
}

/// What happened when, since the incoming program wanted the GPU; none: it did not happen.
#[derive(Clone, Debug, Deserialize)]
pub struct Phases {
    pub decided_ms: Option<f64>,
    pub granted_ms: Option<f64>,
    pub first_extent_ms: Option<f64>,
    pub first_launch_ms: Option<f64>,
    pub all_resident_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Departed {
    name: String,
    peak_bytes: u64,
}

impl Status {
    /// A program that is there.
    pub fn tenant(&self, name: &str) -> Option<&Present> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// The most memory that a program had; none if it did not come, or has not left.
    pub fn peak_bytes(&self, name: &str) -> Option<u64> {
        self.departed.iter().find(|departed| departed.name == name).map(|departed| departed.peak_bytes)
    }
}

/// A coordinator that runs.
pub struct Coordinator {
    process: Child,
    /// Where programs find it.
    pub socket: PathBuf,
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
    pub fn start(mut command: Command, folder: &Path, stop: &Stop) -> Result<Self, Error> {
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
    pub fn said(&self) -> std::io::Result<String> {
        std::fs::read_to_string(&self.log)
    }

    /// How things stand.
    pub fn status(&self) -> Result<Status, Error> {
        let text = client::status(&self.socket).map_err(|error| Error::Coordinator(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| Error::Coordinator(error.to_string()))
    }

    /// How things stand when it has noticed that all these have ended.
    pub fn settled(&self, names: &[&str], stop: &Stop) -> Result<Status, Error> {
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
