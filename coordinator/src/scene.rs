//! A scene for the demo and the benchmarks: a coordinator of their own and programs under it, which are gone when the
//! values here are.

pub(crate) mod coordinator;
pub(crate) mod running;
pub(crate) mod stop;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::driver;
use crate::install::Missing;

/// How long anything may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Why something could not be shown or measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no driver to run on.
    #[error(transparent)]
    Driver(#[from] driver::Error),
    /// A part of Baton is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A program failed.
    #[error("{program} failed ({status}):\n{output}")]
    Failed {
        /// The program's name, and how it ran.
        program: String,
        /// Its exit status.
        status: String,
        /// All it printed.
        output: String,
    },
    /// The coordinator does not answer, or not as it should.
    #[error("the coordinator: {0}")]
    Coordinator(String),
    /// The programs ran, but did not have to share.
    #[error("nothing was shown: {0} switches, {1} bytes moved; is something else using the GPU?")]
    NothingShown(u64, u64),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
    /// The system refused something ordinary.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// If its driver is the simulated one: not on the GPU of whoever started this.
pub(crate) fn on_a_gpu_of_its_own(command: &mut Command, file: &Path) {
    command.env("SIMCUDA_GPU_FILE", file).env("SIMCUDA_MEMORY", "512MiB");
}
