//! The coordinator that a command is for, and its GPUs.

use std::path::PathBuf;

use baton_client as client;
use baton_client::install::Install;
use baton_report::status::Status;
use clap::Args;

use super::{CliError, DriverChoice, folder, gpu_uuid, named_socket, usual_socket};

/// The options that name a coordinator.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// The GPU that is meant: its number as `baton serve --gpu` counts, or its UUID or the first part of that, as `nvidia-smi -L` prints
    /// it. Without it, a command that shows or steers programs is about all GPUs, and any other about the first one.
    #[arg(long, value_name = "N|GPU-…", conflicts_with = "socket")]
    gpu: Option<String>,
    /// The coordinator's socket, if it is not at the usual place.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Place {
    /// Returns the coordinator's socket.
    ///
    /// # Errors
    ///
    /// When there is none, or the options leave several.
    pub fn find(self) -> Result<PathBuf, CliError> {
        match self.gpu {
            Some(gpu) => of_gpu(&gpu),
            None => self.socket.or_else(named_socket).map_or_else(first, Ok),
        }
    }

    /// True if the user names one GPU or its socket.
    fn names_one(&self) -> bool {
        self.gpu.is_some() || self.socket.is_some() || named_socket().is_some()
    }

    /// Returns the sockets of all GPUs that are meant, in order; at least one.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn all(self) -> Result<Vec<PathBuf>, CliError> {
        if !self.names_one() {
            let served = served(sockets());
            if served.len() > 1 {
                return Ok(served.into_iter().map(|(socket, _)| socket).collect());
            }
        }
        Ok(vec![self.find()?])
    }

    /// Returns the sockets of all GPUs of the coordinator that is meant, in order; of one GPU alone, if that is named.
    ///
    /// # Errors
    ///
    /// Errors of [`Place::find`].
    pub fn of_coordinator(self) -> Result<Vec<PathBuf>, CliError> {
        let is_named = self.names_one();
        let socket = self.find()?;
        let mut served = if is_named { Vec::new() } else { served(sockets()) };
        let pid = served.iter().find(|(its, _)| *its == socket).map(|(_, status)| status.pid);
        served.retain(|(_, status)| Some(status.pid) == pid);
        let served: Vec<_> = served.into_iter().map(|(socket, _)| socket).collect();
        Ok(if served.is_empty() { vec![socket] } else { served })
    }
}

/// The coordinator's record that a command wants.
pub enum Wanted {
    /// The last coordinator's.
    Any,
    /// That of the coordinator at this socket.
    Socket(PathBuf),
    /// That of the GPU whose UUID begins with this text.
    Gpu(String),
}

impl Place {
    /// Returns the socket of a coordinator that listens.
    ///
    /// # Errors
    ///
    /// Errors of [`Place::find`]; [`CliError::NoCoordinator`] if no coordinator listens.
    pub fn running(&self) -> Result<PathBuf, CliError> {
        let socket = self.clone().find()?;
        match client::open(&socket)? {
            Some(_) => Ok(socket),
            None => Err(CliError::NoCoordinator(client::nobody(&socket))),
        }
    }

    /// Returns the record that is wanted where no coordinator runs.
    ///
    /// # Errors
    ///
    /// When there is no GPU of that number.
    pub fn wanted(self) -> Result<Wanted, CliError> {
        Ok(match (self.gpu, self.socket.or_else(named_socket)) {
            (Some(gpu), _) => match gpu.parse() {
                Ok(number) => Wanted::Socket(usual_of(number)?),
                Err(_) => Wanted::Gpu(gpu),
            },
            (None, Some(socket)) => Wanted::Socket(std::path::absolute(socket)?),
            (None, None) => Wanted::Any,
        })
    }
}

/// Returns all sockets in the user's folder.
fn sockets() -> Vec<PathBuf> {
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sock");
    let mut sockets: Vec<PathBuf> = std::fs::read_dir(folder())
        .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path()).filter(is_socket).collect())
        .unwrap_or_default();
    sockets.sort();
    sockets
}

/// Returns a GPU's socket.
fn of_gpu(gpu: &str) -> Result<PathBuf, CliError> {
    if let Ok(number) = gpu.parse() {
        return usual_of(number).map_err(|why| CliError::Told(baton_messages::no_gpu(number, why)));
    }
    let begins_so = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        gpu.len() > "GPU-".len() && name.to_lowercase().starts_with(&gpu.to_lowercase())
    };
    let found: Vec<PathBuf> = sockets().into_iter().filter(begins_so).collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(CliError::NoCoordinator(baton_messages::no_coordinator_of(gpu, folder().display()))),
        several => Err(said_which(several)),
    }
}

/// Returns the only socket in the user's folder; if there are several, that of the first GPU of the only coordinator, or of the system.
fn first() -> Result<PathBuf, CliError> {
    let mut sockets = sockets();
    match sockets.len() {
        0 => Err(CliError::NoCoordinator(baton_messages::no_socket(folder().display()))),
        1 => Ok(sockets.remove(0)),
        _ => {
            let answers = |path: &PathBuf| client::open(path).is_ok_and(|connection| connection.is_some());
            sockets.retain(answers);
            if let [one] = sockets.as_slice() {
                return Ok(one.clone());
            }
            let served = served(sockets.clone());
            if let Some((first, status)) = served.first()
                && served.len() == sockets.len()
                && served.iter().all(|(_, other)| other.pid == status.pid)
            {
                return Ok(first.clone());
            }
            let first = usual_of(0).ok();
            first.filter(|first| sockets.is_empty() || sockets.contains(first)).ok_or_else(|| said_which(&sockets))
        }
    }
}

/// Returns those of these sockets whose coordinator tells this user its status, in the order of their GPUs.
fn served(sockets: Vec<PathBuf>) -> Vec<(PathBuf, Status)> {
    let status = |socket: PathBuf| {
        let text = client::status(&socket).ok()?;
        serde_json::from_slice(&text).ok().map(|status| (socket, status))
    };
    let mut served: Vec<(PathBuf, Status)> = sockets.into_iter().filter_map(status).collect();
    served.sort_by_key(|(_, status)| (status.gpu.number, status.pid));
    served
}

fn said_which(sockets: &[PathBuf]) -> CliError {
    let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let lines: Vec<_> = sockets.iter().map(|path| format!("\n  --gpu {}", name(path))).collect();
    baton_messages::several_coordinators(lines.concat()).into()
}

/// Returns the usual socket of one of the system's GPUs.
fn usual_of(number: usize) -> Result<PathBuf, CliError> {
    let install = Install::of_this_program()?;
    let library = DriverChoice::System.library(&install)?;
    let (uuid, _) = gpu_uuid(library.as_deref(), number)?;
    Ok(usual_socket(uuid))
}
