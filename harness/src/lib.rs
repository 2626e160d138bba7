//! A coordinator of our own and programs under it, which are gone when the values are: for the demo, the benchmarks, the tests and
//! `baton doctor`.
//!
//! - [`coordinator`]: a coordinator.
//! - [`program`]: a program. [`output`]: what it says.
//! - [`place`]: the surroundings of both for the demo, the benchmarks and `baton doctor`.
//! - [`stop`]: the user may end all of it.

pub mod coordinator;
pub mod output;
pub mod place;
pub mod program;
pub mod stop;

use std::time::Duration;

use baton_client::install::Missing;
use baton_client::{NoAnswer, driver};

/// How long anything may take: what takes longer hangs, also on a machine with much else to do.
pub const LIMIT: Duration = Duration::from_secs(300);

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
    #[error("{}", baton_messages::example_failed(program, status, output))]
    Failed {
        /// The program's name, and how it ran.
        program: String,
        /// Its exit status.
        status: String,
        /// All it printed.
        output: String,
    },
    /// The coordinator does not answer, or not as it should.
    #[error("{}", baton_messages::example_coordinator_failed(.0))]
    NoAnswer(#[from] NoAnswer),
    /// The coordinator does not do what it should.
    #[error("{}", baton_messages::example_coordinator_failed(.0))]
    Coordinator(String),
    /// The programs ran, but did not have to share.
    #[error("{}", baton_messages::nothing_was_shown(.0, .1))]
    NothingShown(u64, u64),
    /// The user ended it.
    #[error("{}", baton_messages::interrupted())]
    Interrupted,
    /// The system refused something ordinary.
    #[error("{}", baton_messages::of_system(.0))]
    Io(#[from] std::io::Error),
}
