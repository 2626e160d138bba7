//! `baton bench`: measures, with example programs that know nothing of Baton.
//!
//! - [`switch`](mod@switch): what a server pays whose memory was moved to the host.
//! - [`corun`]: what requests and batch work pay that run at the same time.

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
