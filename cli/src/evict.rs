//! `baton evict` and `baton prefetch`: memory of programs goes to the host, or comes back.

use baton_contract::memory::size;
use baton_contract::messages::Opening;
use clap::Args;

use super::CliError;
use super::named::{Several, Timeout, Waited, have_done, have_done_patiently, state};
use super::progress::{Way, of_memory};

/// Waits until what the programs have in flight has ended and all their memory is on the host, for one after the other.
///
/// # Errors
///
/// As [`Several::each`]. It cannot be done where there is no room on the host, or the program is in use again.
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

/// `baton prefetch`. Whoever does not wait for it takes it back.
#[derive(Clone, Debug, Args)]
pub struct Prefetch {
    #[command(flatten)]
    programs: Several,
    #[command(flatten)]
    time: Timeout,
}

/// Waits until memory of the programs has come to the GPU, as far as nobody has to make way for it, for one after the other.
///
/// # Errors
///
/// As [`Several::each`]. It cannot be done where there is no room on the GPU for all of a program's memory.
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
