//! `baton set`, `baton suspend` and `baton resume`: change a program's scheduling while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use baton_contract::messages::Opening;
use baton_contract::scheduling::Change;
use baton_messages::Message;
use baton_report::tenant::State;
use baton_workbench::output::{print, say};
use clap::Args;

use super::CliError;
use super::named::{Named, Patience, Waited, have_done, state, tenant};

/// Delay between two requests for a program's state.
const LOOK: Duration = Duration::from_millis(20);

/// `baton set`.
#[derive(Clone, Debug, Args)]
pub struct Set {
    #[command(flatten)]
    named: Named,
    /// The changes: `class=latency|normal|batch`, `weight=3`, `slo=20ms` (or `slo=none`).
    #[arg(required = true, value_name = "WHAT=VALUE", value_parser = change)]
    changes: Vec<Change>,
}

/// Parses `WHAT=VALUE`.
fn change(word: &str) -> Result<Change, Message> {
    let usual = Change::default();
    match word.split_once('=') {
        Some(("class", class)) => class
            .parse()
            .map(|class| Change { class: Some(class), ..usual })
            .map_err(|_| baton_messages::no_such_class()),
        Some(("weight", weight)) => weight
            .parse()
            .map(|weight| Change { weight: Some(weight), ..usual })
            .map_err(|_| baton_messages::no_such_weight()),
        Some(("slo", "none")) => Ok(Change { slo_micros: Some(0), ..usual }),
        Some(("slo", target)) => Ok(Change { slo_micros: Some(micros(target)?), ..usual }),
        _ => Err(baton_messages::no_such_change()),
    }
}

/// Parses a time as users write it, in microseconds.
///
/// # Errors
///
/// When it is not a time, or is too short to have an effect.
pub fn micros(word: &str) -> Result<u64, Message> {
    let time = humantime::parse_duration(word).map_err(baton_messages::no_such_target)?;
    match u64::try_from(time.as_micros()) {
        Ok(0) => Err(baton_messages::target_is_too_short()),
        Ok(micros) => Ok(micros),
        Err(_) => Err(baton_messages::target_is_too_long()),
    }
}

/// Applies the changes, from the next decision on.
///
/// # Errors
///
/// When no coordinator answers, there is no such program, or the changes make no sense for it.
pub fn set(arguments: Set) -> Result<(), CliError> {
    let both = |all: Change, one: Change| Change {
        class: one.class.or(all.class),
        weight: one.weight.or(all.weight),
        slo_micros: one.slo_micros.or(all.slo_micros),
        suspended: one.suspended.or(all.suspended),
    };
    let change = arguments.changes.into_iter().fold(Change::default(), both);
    let (socket, name) = arguments.named.find()?;
    have_done(&socket, &Opening::Set { name: name.clone(), change })?;
    Ok(print(&format!("changed {name}\n"))?)
}

/// Keeps programs off the GPU until they are resumed, and waits until their work is off it.
///
/// # Errors
///
/// As [`super::named::Several::each`].
pub fn suspend(Waited { programs, patience }: Waited) -> Result<bool, CliError> {
    programs.each("suspend", |socket, name| {
        ask(socket, name, true)?;
        let still = |state: &State| baton_messages::is_not_suspended_yet(name, state, patience.words());
        let is_off = until(socket, name, &patience, |state| *state == State::Suspended, still)?;
        if tenant(socket, name).is_ok_and(|shown| shown.is_some_and(|tenant| tenant.gang.is_some())) {
            say("suspend", baton_messages::time_outs_go_on(name));
        }
        Ok(format!("{} {name}", if is_off { "suspended" } else { "suspending" }))
    })
}

/// Lets suspended programs go on, and waits until they do.
///
/// # Errors
///
/// As [`super::named::Several::each`].
pub fn resume(Waited { programs, patience }: Waited) -> Result<bool, CliError> {
    programs.each("resume", |socket, name| {
        ask(socket, name, false)?;
        let still = |state: &State| baton_messages::does_not_go_on_yet(name, state, patience.words());
        let goes_on = until(socket, name, &patience, |state| *state != State::Suspended, still)?;
        Ok(format!("{} {name}", if goes_on { "resumed" } else { "resuming" }))
    })
}

/// Waits until a program is in the wanted state. False if the command does not wait, or the coordinator does not tell this user about
/// states. `still`: the message if it never gets there.
fn until(
    socket: &Path,
    name: &str,
    patience: &Patience,
    wanted: impl Fn(&State) -> bool,
    still: impl Fn(&State) -> Message,
) -> Result<bool, CliError> {
    let Some(end) = patience.end() else { return Ok(false) };
    loop {
        match state(socket, name)? {
            None => return Ok(false),
            Some(state) if wanted(&state) => return Ok(true),
            Some(state) if Instant::now() >= end => return Err(CliError::Told(still(&state))),
            Some(_) => std::thread::sleep(LOOK),
        }
    }
}

fn ask(socket: &Path, name: &str, suspended: bool) -> Result<(), CliError> {
    let change = Change { suspended: Some(suspended), ..Change::default() };
    have_done(socket, &Opening::Set { name: name.to_owned(), change }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_contract::class::Class;

    #[test]
    fn changes_are_read_as_users_write_them() {
        let usual = Change::default();
        assert_eq!(change("class=batch"), Ok(Change { class: Some(Class::Batch), ..usual }));
        assert_eq!(change("weight=3"), Ok(Change { weight: Some(3), ..usual }));
        assert_eq!(change("slo=20ms"), Ok(Change { slo_micros: Some(20_000), ..usual }));
        assert_eq!(change("slo=none"), Ok(Change { slo_micros: Some(0), ..usual }));
        for wrong in ["class=urgent", "weight=-1", "slo=20", "slo=0ms", "colour=red", "weight"] {
            assert!(change(wrong).is_err(), "{wrong}");
        }
    }
}
