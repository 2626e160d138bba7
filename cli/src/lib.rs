//! The commands of `baton`, one file each, and what they share.
//!
//! A command's file has the command's name; `set` also has `suspend` and `resume`, and `shell` has `completions` and `man`.
//!
//! | file | what it does |
//! |---|---|
//! | `settings` | each setting of a coordinator, declared once |
//! | `place` | finds the coordinator that a command is for |
//! | `named` | commands about programs, which they name |
//! | `program` | tells whether a program takes a preloaded library |
//! | `service` | `baton serve` under a service manager |
//! | `journal` | the coordinator's log |
//! | `web` | starts metrics and the page |
//! | `host_memory` | tells how much host memory is free |
//! | `progress` | shows progress of what takes longer than a second |
//! | `units` | sizes, shares and times as users write them |
//! | `container/` | describes what a container gets |
//! | `doctor/` | the parts of `baton doctor` |
//! | `top/` | the live picture of `baton top` |

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod container;
pub mod doctor;
pub mod evict;
pub mod explain;
pub mod fit;
mod host_memory;
mod journal;
pub mod logs;
pub mod named;
pub mod place;
pub mod program;
pub mod progress;
pub mod ps;
pub mod records;
pub mod run;
pub mod serve;
pub mod service;
pub mod set;
pub mod settings;
pub mod shell;
pub mod stats;
pub mod status;
pub mod stop;
pub mod top;
pub mod trace;
pub mod units;
mod web;
pub mod why;

use std::ffi::{CStr, OsString};
use std::path::{Path, PathBuf};

use baton_client as client;
use baton_client::driver::name;
use baton_client::install::{Install, Missing};
use baton_contract::{settings as variables, socket_path};
use baton_coordinator::device::gpu::{Gpu, GpuError};
use baton_coordinator::endpoint::{Folder, Unfit};
use baton_messages::Message;
use baton_web::NoToken;

/// Why a command could not do its work, in the user's words.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A part of Baton is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// No coordinator answers, or not as it should.
    #[error(transparent)]
    NoAnswer(#[from] client::NoAnswer),
    /// No coordinator is there.
    #[error(transparent)]
    NoCoordinator(Message),
    /// The GPU or its driver.
    #[error("{}", hinted(.error))]
    Gpu {
        /// What it said.
        #[from]
        error: GpuError,
    },
    /// The server.
    #[error(transparent)]
    Serve(#[from] baton_coordinator::server::ServeError),
    /// A folder or file that cannot be used.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// A token that cannot be used.
    #[error(transparent)]
    NoToken(#[from] NoToken),
    /// Nothing can be offered to Kubernetes.
    #[error(transparent)]
    Kubernetes(#[from] baton_kubernetes::Failed),
    /// No message has this identifier.
    #[error(transparent)]
    Unknown(Message),
    /// The program to be run cannot be.
    #[error("{text}")]
    NoProgram {
        /// Why.
        text: Message,
        /// The exit code that says so.
        code: u8,
    },
    /// The demo, or a benchmark.
    #[error(transparent)]
    Examples(#[from] baton_harness::Error),
    /// Anything that a sentence explains.
    #[error(transparent)]
    Told(#[from] Message),
    /// The system refused something ordinary.
    #[error("{}", baton_messages::of_system(.0))]
    Io(#[from] std::io::Error),
}

impl From<CliError> for Message {
    fn from(error: CliError) -> Self {
        baton_messages::of_system(error)
    }
}

fn hinted(error: &GpuError) -> Message {
    error.advice().map_or_else(|| baton_messages::of_system(error), |advice| baton_messages::with_advice(error, advice))
}

/// Which driver library to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverChoice {
    /// The one that programs find by themselves.
    System,
    /// The simulated one.
    Simulated,
    /// This file.
    File(PathBuf),
}

impl CliError {
    /// The exit code that says so.
    pub fn code(&self) -> u8 {
        match self {
            Self::NoProgram { code, .. } => *code,
            Self::Unknown(_) => 2,
            // As if the signal had ended it.
            Self::Examples(baton_harness::Error::Interrupted) => 128 + signal_hook::consts::SIGINT as u8,
            _ => 1,
        }
    }
}

impl std::str::FromStr for DriverChoice {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "gpu" | "auto" => Self::System,
            "sim" => Self::Simulated,
            path => Self::File(path.into()),
        })
    }
}

impl DriverChoice {
    /// The library's file; none for the one that programs find by themselves.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn library(&self, install: &Install) -> Result<Option<PathBuf>, CliError> {
        match self {
            Self::System => Ok(None),
            Self::Simulated => Ok(Some(install.simulated_driver()?)),
            Self::File(path) => match path.canonicalize() {
                Ok(path) => Ok(Some(path)),
                Err(error) => Err(baton_messages::of_path(path.display(), error).into()),
            },
        }
    }

    /// The environment in which this driver's GPU is the same one for all processes of this user: a simulated
    /// GPU is a file.
    ///
    /// # Errors
    ///
    /// When the user's folder cannot be made.
    pub fn settings(&self) -> Result<Vec<(&'static str, OsString)>, CliError> {
        if *self != Self::Simulated || std::env::var_os("SIMCUDA_GPU_FILE").is_some() {
            return Ok(Vec::new());
        }
        let folder = socket_path::own_folder();
        Folder::private(&folder)?;
        Ok(vec![("SIMCUDA_GPU_FILE", folder.join("simulated-gpu").into())])
    }

    /// Sets that environment for this process, in which no other thread runs yet, and says what was set.
    ///
    /// # Errors
    ///
    /// As for [`DriverChoice::settings()`].
    pub fn set(&self) -> Result<Vec<(&'static str, OsString)>, CliError> {
        let settings = self.settings()?;
        for (name, value) in &settings {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var(name, value) };
        }
        Ok(settings)
    }
}

/// The UUIDs of all GPUs of a driver that can be seen, in order.
///
/// # Errors
///
/// When there is none.
pub fn gpu_uuids(library: Option<&Path>) -> Result<Vec<[u8; 16]>, GpuError> {
    let (_, count) = gpu_uuid(library, 0)?;
    (0..count).map(|number| gpu_uuid(library, number).map(|(uuid, _)| uuid)).collect()
}

/// Opens a GPU of a driver.
///
/// # Errors
///
/// When there is none.
pub fn open_gpu(library: Option<&Path>, number: usize) -> Result<Gpu, GpuError> {
    Gpu::open(library.unwrap_or(Path::new("libcuda.so.1")), number)
}

/// The UUID of a GPU of a driver, and how many GPUs can be seen. None is taken into use for that.
///
/// # Errors
///
/// When there is none.
pub fn gpu_uuid(library: Option<&Path>, number: usize) -> Result<([u8; 16], usize), GpuError> {
    Gpu::uuid_of(library.unwrap_or(Path::new("libcuda.so.1")), number)
}

/// Where a GPU's coordinator is, if the user names no place.
pub fn usual_socket(uuid: [u8; 16]) -> PathBuf {
    folder().join(socket_path::socket_name(uuid))
}

/// The folder in which coordinators' sockets are, if the user names none of those: the one that their environment names, or
/// their own.
pub fn folder() -> PathBuf {
    set_path(variables::FOLDER).unwrap_or_else(socket_path::own_folder)
}

/// The socket that the user's environment names.
pub fn named_socket() -> Option<PathBuf> {
    set_path(variables::SOCKET)
}

/// A path that is in the user's environment.
fn set_path(setting: &'static CStr) -> Option<PathBuf> {
    std::env::var_os(name(setting)).filter(|path| !path.is_empty()).map(PathBuf::from)
}
