//! How long tenants may take.

use std::time::Duration;

/// A tenant that has not carried out a command in this time is not waited for: its process was stopped, say.
pub(in crate::server) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long others wait for the memory of one that is paused and has not closed its gate: it was stopped, say.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
