//! The commands of `baton`, one file each, and the code that they share.
//!
//! A command's file has the command's name; `set` also has `suspend` and `resume`, and `shell` has `completions` and `man`.
//!
//! | file | what it does |
//! |---|---|
//! | `settings` | each setting of a coordinator, declared once |
//! | `place` | finds the coordinator that a command is for |
//! | `named` | commands that name programs |
//! | `program` | tells whether a program takes a preloaded library |
//! | `service` | `baton serve` under a service manager |
//! | `journal` | the coordinator's log |
//! | `web` | starts metrics and the page |
//! | `host_memory` | tells how much host memory is free |
//! | `progress` | shows progress of operations that take longer than a second |
//! | `units` | sizes, shares and times as users write them |
//! | `container/` | describes a container's needs |
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
pub mod one_of;
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
pub mod upgrade;
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

/// The reason why a command failed, in the user's words.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A part of Baton is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// No coordinator answers, or its answer is malformed.
    #[error(transparent)]
    NoAnswer(#[from] client::NoAnswer),
    /// There is no coordinator.
    #[error(transparent)]
    NoCoordinator(Message),
    /// The GPU or its driver failed.
    #[error("{}", hinted(.error))]
    Gpu {
        /// Its error.
        #[from]
        error: GpuError,
    },
    /// The server failed.
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
    /// The program cannot be run.
    #[error(transparent)]
    Unknown(Message),
    /// The program cannot be run.
    #[error("{text}")]
    NoProgram {
        /// The reason.
        text: Message,
        /// The exit code for this.
        code: u8,
    },
    /// The demo or a benchmark failed.
    #[error(transparent)]
    Examples(#[from] baton_harness::Error),
    /// An error explained by a sentence.
    #[error(transparent)]
    Told(#[from] Message),
    /// The system refused an ordinary operation.
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

/// The driver library to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverChoice {
    /// The library that programs find by themselves.
    System,
    /// The simulated driver.
    Simulated,
    /// This file.
    File(PathBuf),
}

impl CliError {
    /// The exit code for this error.
    pub fn code(&self) -> u8 {
        match self {
            Self::NoProgram { code, .. } => *code,
            // As if the signal had ended the command.
            Self::Unknown(_) => 2,
            // As if the signal had ended the command.
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
    /// Returns the library's file; none for the library that programs find by themselves.
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

    /// Returns the environment in which all processes of this user find the same GPU of this driver: a simulated GPU is a file.
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

    /// Sets that environment for this process, in which no other thread runs yet, and returns it.
    ///
    /// # Errors
    ///
    /// Errors of [`DriverChoice::settings()`].
    pub fn set(&self) -> Result<Vec<(&'static str, OsString)>, CliError> {
        let settings = self.settings()?;
        for (name, value) in &settings {
            // SAFETY: no other thread runs yet.
            unsafe { std::env::set_var(name, value) };
        }
        Ok(settings)
    }
}

/// Returns the UUIDs of all visible GPUs of a driver, in order.
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

/// Returns the UUID of a driver's GPU, and the number of visible GPUs. It takes none of them into use.
///
/// # Errors
///
/// When there is none.
pub fn gpu_uuid(library: Option<&Path>, number: usize) -> Result<([u8; 16], usize), GpuError> {
    Gpu::uuid_of(library.unwrap_or(Path::new("libcuda.so.1")), number)
}

/// The socket of a GPU's coordinator, if the user names no other.
pub fn usual_socket(uuid: [u8; 16]) -> PathBuf {
    folder().join(socket_path::socket_name(uuid))
}

/// The folder of the coordinators' sockets, if the user names no socket: the folder from the environment, or the user's own.
pub fn folder() -> PathBuf {
    set_path(variables::FOLDER).unwrap_or_else(socket_path::own_folder)
}

/// The socket from the user's environment.
pub fn named_socket() -> Option<PathBuf> {
    set_path(variables::SOCKET)
}

/// A path from the user's environment.
fn set_path(setting: &'static CStr) -> Option<PathBuf> {
    std::env::var_os(name(setting)).filter(|path| !path.is_empty()).map(PathBuf::from)
}
