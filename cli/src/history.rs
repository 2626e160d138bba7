//! What has happened, asked for until there is no more.

use std::path::Path;

use baton_harness::client;
use baton_views::event::History;
use baton_views::timeline::Timeline;

use super::CliError;

/// Hears all that has happened from the event of this number on. Says what to ask for next.
///
/// # Errors
///
/// When no coordinator answers.
pub fn all(socket: &Path, mut next: u64, mut hear: impl FnMut(&History)) -> Result<u64, CliError> {
    loop {
        let history = client::events(socket, next)?;
        hear(&history);
        next = history.next;
        if !history.more {
            return Ok(next);
        }
    }
}

/// Has a timeline see all that has happened since it was last told.
///
/// # Errors
///
/// When no coordinator answers.
pub fn see(socket: &Path, timeline: &mut Timeline) -> Result<(), CliError> {
    all(socket, timeline.next(), |history| timeline.see(history)).map(drop)
}
