//! Time limits for tenants.

use std::time::Duration;

/// A tenant that has not carried out a command in this time is not waited for: its process was stopped, say.
pub(in crate::server) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The time others wait for the memory of a tenant that is paused and has not closed its gate, for example because it was stopped.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
