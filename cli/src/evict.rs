//! `baton evict`: moves a program's memory to the host.

use baton_contract::messages::Opening;

use super::CliError;
use super::named::{Named, have_done};

/// Waits until what the program has in flight has ended and all its memory is on the host.
///
/// # Errors
///
/// When no coordinator answers, or there is no such program, or no room on the host, or the program is in use again.
pub fn run(named: Named) -> Result<(), CliError> {
    // For as long as it takes: the program may be working.
    have_done(named, None, |name| Opening::Evict { name })
}
