//! A scene for the demo and the benchmarks: a coordinator of their own and programs under it, which are gone when the
//! values here are.

pub(crate) mod coordinator;
pub(crate) mod place;
pub(crate) mod running;
pub(crate) mod stop;
pub(crate) mod talking;

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::driver;
use crate::install::Missing;
use stop::Stop;

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

/// Does something until the user ends it, and prints what it found: as one JSON object, or as a table after what it
/// says meanwhile.
pub(crate) fn told<R: Serialize>(
    json: bool,
    does: impl FnOnce(&dyn Fn(&str), &Stop) -> Result<R, Error>,
    table: impl FnOnce(&R) -> String,
) -> Result<R, Error> {
    let stop = Stop::on_signals()?;
    let say = |text: &str| {
        if !json {
            print!("{text}");
            let _ = std::io::stdout().flush();
        }
    };
    // What a signal ends is a consequence.
    let report = does(&say, &stop).map_err(|error| if stop.is_raised() { Error::Interrupted } else { error })?;
    if json {
        println!("{}", serde_json::to_string(&report).map_err(std::io::Error::from)?);
    } else {
        print!("{}", table(&report));
    }
    Ok(report)
}
