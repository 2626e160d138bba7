//! `baton evict` and `baton prefetch`: move programs' memory to the host, or back.

use baton_contract::memory::size;
use baton_contract::messages::Opening;
use clap::Args;

use super::CliError;
use super::named::{Several, Timeout, Waited, have_done, have_done_patiently, state};
use super::progress::{Way, of_memory};

/// Moves all memory of the programs to the host, one program after the other. Each is waited for until its work in flight has ended and
/// its memory is on the host.
///
/// # Errors
///
/// As [`Several::each`]. A program fails if the host has no room, or if it is in use again.
pub fn run(Waited { programs, patience }: Waited) -> Result<bool, CliError> {
    programs.each("evict", |socket, name| {
        let name = name.to_owned();
        let Some(end) = patience.end() else {
            have_done(socket, &Opening::SendAway { name: name.clone() })?;
            return Ok(format!("evicting {name}"));
        };
        let waits = "waiting until the program's work has ended; `baton suspend` takes it off the GPU before";
        let mut shown = of_memory(socket, &name, Way::Out, waits);
        let done = have_done_patiently(socket, &Opening::Evict { name: name.clone() }, Some(end), &mut shown)?;
        drop(shown);
        if done.is_none() {
            let state = state(socket, &name)?.map_or("at work".to_owned(), |state| state.to_string());
            return Err(CliError::Told(format!(
                "{name} is still {state} after {}; its memory leaves only when its work has ended: wait longer (--timeout), or \
                 `baton suspend` it first",
                patience.words()
            )));
        }
        Ok(format!("evicted {name}"))
    })
}

/// `baton prefetch`. A command that stops waiting withdraws its request.
#[derive(Clone, Debug, Args)]
pub struct Prefetch {
    #[command(flatten)]
    programs: Several,
    #[command(flatten)]
    time: Timeout,
}

/// Waits until the programs' memory is on the GPU, one after the other. No other memory makes way for it.
///
/// # Errors
///
/// As [`Several::each`]. A program fails if the GPU has no room for all of its memory.
pub fn prefetch(Prefetch { programs, time }: Prefetch) -> Result<bool, CliError> {
    programs.each("prefetch", |socket, name| {
        let request = Opening::Prefetch { name: name.to_owned() };
        let waits = "waiting until those have their memory who are at work";
        let mut shown = of_memory(socket, name, Way::In, waits);
        let done = have_done_patiently(socket, &request, Some(time.end()), &mut shown)?;
        drop(shown);
        match done.map(|done| done["bytes"].as_u64().unwrap_or(0)) {
            None => Err(CliError::Told(format!(
                "memory of {name} is still on its way after {}; `baton why {name}` says what it waits for",
                time.timeout
            ))),
            Some(0) => Ok(format!("all memory of {name} is on the GPU already")),
            Some(bytes) => Ok(format!("{} of {name} came to the GPU", size(bytes))),
        }
    })
}
