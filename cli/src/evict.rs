//! `baton evict` and `baton prefetch`: a program's memory goes to the host, or comes back.

use baton_contract::memory::size;
use baton_contract::messages::Opening;
use baton_workbench::output::print;

use super::CliError;
use super::named::{Named, Several, have_done_patiently};
use super::progress::{Way, of_memory};

/// Waits until what the programs have in flight has ended and all their memory is on the host, for one after the other.
///
/// # Errors
///
/// As [`Several::each`]. It cannot be done where there is no room on the host, or the program is in use again.
pub fn run(programs: Several) -> Result<bool, CliError> {
    programs.each("evict", |socket, name| {
        let waits = "waiting until the program's work has ended; `baton suspend` takes it off the GPU before";
        // For as long as it takes: the program may be working.
        let mut shown = of_memory(socket, name, Way::Out, waits);
        have_done_patiently(socket, &Opening::Evict { name: name.to_owned() }, &mut shown)?;
        Ok(format!("evicted {name}"))
    })
}

/// Waits until the program's memory has come to the GPU, as far as nobody has to make way for it.
///
/// # Errors
///
/// When no coordinator answers, or there is no such program, or no room on the GPU for all of its memory.
pub fn prefetch(named: Named) -> Result<(), CliError> {
    let (socket, name) = named.find()?;
    let waits = "waiting until those have their memory who are at work";
    let mut shown = of_memory(&socket, &name, Way::In, waits);
    let request = Opening::Prefetch { name: name.clone() };
    let bytes = have_done_patiently(&socket, &request, &mut shown)?["bytes"].as_u64().unwrap_or(0);
    drop(shown);
    Ok(print(&match bytes {
        0 => format!("all memory of {name} is on the GPU already\n"),
        bytes => format!("{} of {name} came to the GPU\n", size(bytes)),
    })?)
}
