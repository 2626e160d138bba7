//! A coordinator and programs that end when their values are dropped: for the demo, the benchmarks, the tests and `baton doctor`.
//!
//! - [`coordinator`]: a coordinator.
//! - [`program`]: a program. [`output`]: its output.
//! - [`place`]: the surroundings of both for the demo, the benchmarks and `baton doctor`.
//! - [`stop`]: the user's request to end.

pub mod coordinator;
pub mod output;
pub mod place;
pub mod program;
pub mod stop;

use std::time::Duration;

use baton_client::install::Missing;
use baton_client::{NoAnswer, driver};

/// Longest time for any step, even on a machine with other work: a step that takes longer hangs.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The reason why a demonstration or a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no driver to run on.
    #[error(transparent)]
    Driver(#[from] driver::Error),
    /// A part of Baton is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A program failed.
    #[error("{}", baton_messages::example_failed(program, status, output))]
    Failed {
        /// The program's name, and the way in which it ran.
        program: String,
        /// Its exit status.
        status: String,
        /// Its whole output.
        output: String,
    },
    /// The coordinator does not answer, or its answer is malformed.
    #[error("{}", baton_messages::example_coordinator_failed(.0))]
    NoAnswer(#[from] NoAnswer),
    /// The coordinator misbehaves.
    #[error("{}", baton_messages::example_coordinator_failed(.0))]
    Coordinator(String),
    /// The programs ran, but did not have to share.
    #[error("{}", baton_messages::nothing_was_shown(.0, .1))]
    NothingShown(u64, u64),
    /// The user ended it.
    #[error("{}", baton_messages::interrupted())]
    Interrupted,
    /// The system refused an ordinary operation.
    #[error("{}", baton_messages::of_system(.0))]
    Io(#[from] std::io::Error),
}
