//! `baton bench`: measures, with example programs that know nothing of Baton.
//!
//! - [`switch`](mod@switch): what a server pays whose memory was moved to the host.
//! - [`corun`]: what requests and batch work pay that run at the same time.
//! - `asked`: a server that answers lines. `working`: a program that works without end.

mod asked;
pub mod corun;
pub mod switch;
mod working;

pub use baton_harness::Error;

#[cfg(test)]
fn shell(what: &str, script: &str) -> std::process::Command {
    let mut command = std::process::Command::new("/bin/sh");
    // The name is the script's `$0`.
    command.args(["-c", script, what]);
    command
}
