//! `baton bench`: measures with example programs, which know nothing of Baton.
//!
//! - [`switch`](mod@switch): the cost for a server whose memory was moved to the host.
//! - [`corun`]: the cost for requests and batch work that run at the same time.

pub mod corun;
pub mod switch;

pub use baton_harness::Error;

#[cfg(test)]
pub(crate) fn shell(what: &str, script: &str) -> std::process::Command {
    let mut command = std::process::Command::new("/bin/sh");
    // The name is the script's `$0`.
    command.args(["-c", script, what]);
    command
}
