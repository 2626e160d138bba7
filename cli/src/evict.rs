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
        let waits = baton_messages::waits_for_the_work();
        let mut shown = of_memory(socket, &name, Way::Out, &waits);
        let done = have_done_patiently(socket, &Opening::Evict { name: name.clone() }, Some(end), &mut shown)?;
        drop(shown);
        if done.is_none() {
            let state = state(socket, &name)?.map_or(baton_messages::AT_WORK.to_owned(), |state| state.to_string());
            return Err(baton_messages::is_not_evicted_yet(&name, state, patience.words()).into());
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
        let waits = baton_messages::waits_for_those_at_work();
        let mut shown = of_memory(socket, name, Way::In, &waits);
        let done = have_done_patiently(socket, &request, Some(time.end()), &mut shown)?;
        drop(shown);
        match done.map(|done| done["bytes"].as_u64().unwrap_or(0)) {
            None => Err(baton_messages::memory_is_on_its_way(name, time.timeout).into()),
            Some(0) => Ok(baton_messages::is_here_already(name)),
            Some(bytes) => Ok(baton_messages::came_to_the_gpu(size(bytes), name)),
        }
    })
}
