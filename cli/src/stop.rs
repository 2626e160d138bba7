//! `baton stop`: ends a coordinator.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use baton_client::{self as client, Awaited, NoAnswer};
use baton_contract::messages::Opening;
use baton_messages::Message;
use baton_workbench::output::{Meanwhile, print};
use clap::Args;
use serde_json::Value;

use super::CliError;
use super::named::{Patience, have_done, read};
use super::place::Place;
use super::progress::of_waiting;

/// How often this command shows that it waits.
const LOOK: Duration = Duration::from_millis(100);

/// `baton stop`.
#[derive(Clone, Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    place: Place,
    /// End at once. The command first names the programs that fail by that: those with memory on the host.
    #[arg(long, conflicts_with = "no_wait")]
    now: bool,
    /// Let programs join again, even if another user asked for the end.
    #[arg(long, conflicts_with_all = ["now", "no_wait", "timeout"])]
    cancel: bool,
    #[command(flatten)]
    patience: Patience,
}

/// Waits until the coordinator has ended. The request holds even if that takes longer.
///
/// # Errors
///
/// When no coordinator answers, or it has not ended in time.
pub fn run(Stop { place, now, cancel, patience }: Stop) -> Result<(), CliError> {
    let sockets = place.of_coordinator()?;
    if cancel {
        let mut was_closed = false;
        for socket in &sockets {
            was_closed |= have_done(socket, &Opening::Close { closed: false })?["was_closed"] == true;
        }
        let said = if was_closed { baton_messages::PROGRAMS_MAY_JOIN } else { baton_messages::NO_END_WAS_ASKED_FOR };
        return Ok(print(&format!("{said}\n"))?);
    }
    let printed = Meanwhile::default();
    let Some(end) = patience.end() else {
        let mut ends = Vec::new();
        for socket in &sockets {
            ends.extend(said(&have_done(socket, &Opening::Close { closed: true })?));
        }
        let said = if ends.is_empty() { baton_messages::ENDS_NOW.to_owned() } else { ends.join("\n") };
        return Ok(print(&(said + "\n"))?);
    };
    let mut shown = of_waiting(&baton_messages::waits_for_the_last_program());
    let mut came = Vec::new();
    std::thread::scope(|scope| {
        // All at once: none takes new programs any more while another one ends.
        let (says, heard) = channel();
        for socket in &sockets {
            let says = says.clone();
            scope.spawn(move || {
                // Nothing is heard here any more after an error.
                let told = |text: &[u8]| drop(says.send(Said::Told(text.to_vec())));
                let ended = client::stop(socket, now, Some(end), told, &mut || ());
                let _ = says.send(Said::Ended(socket, ended));
            });
        }
        drop(says);
        loop {
            match heard.recv_timeout(LOOK) {
                Ok(Said::Told(text)) => {
                    let answer = read(&text).unwrap_or_default();
                    let said = if now { said_now(&answer) } else { said(&answer) };
                    said.iter().for_each(|said| printed.print(&format!("{said}\n")));
                }
                Ok(Said::Ended(socket, ended)) => came.push((socket, ended)),
                Err(RecvTimeoutError::Timeout) => shown(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    drop(shown);
    for (socket, ended) in came {
        match ended? {
            Awaited::Ended => {}
            Awaited::Cancelled => return Err(baton_messages::end_was_cancelled().into()),
            Awaited::Late => return Err(CliError::Told(late(socket, now, &patience)?)),
        }
    }
    printed.print(&format!("{}\n", baton_messages::HAS_ENDED));
    Ok(printed.went()?)
}

/// News of a GPU's server that is to end.
enum Said<'a> {
    /// Its answer.
    Told(Vec<u8>),
    /// It has ended, or this command does not wait any more.
    Ended(&'a Path, Result<Awaited, NoAnswer>),
}

/// Returns the sentence for a coordinator that has not ended in time. It still ends, even if no command waits for it.
fn late(socket: &Path, now: bool, patience: &Patience) -> Result<Message, CliError> {
    let after = patience.words();
    if now {
        return Ok(baton_messages::still_ends(after));
    }
    let here = names(&have_done(socket, &Opening::Close { closed: true })?, &["fails", "goes_on"]);
    Ok(baton_messages::still_has_programs(after, here))
}

fn names(answer: &Value, lists: &[&str]) -> String {
    let all = lists.iter().flat_map(|list| answer[list].as_array().into_iter().flatten());
    all.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// Names the programs after which the coordinator ends.
fn said(answer: &Value) -> Option<String> {
    let all = names(answer, &["fails", "goes_on"]);
    (!all.is_empty()).then(|| baton_messages::ends_after(all))
}

/// Names the programs that fail.
fn said_now(answer: &Value) -> Option<String> {
    let (fails, goes_on) = (names(answer, &["fails"]), names(answer, &["goes_on"]));
    let fails = (!fails.is_empty()).then(|| baton_messages::these_fail(fails));
    let goes_on = (!goes_on.is_empty()).then(|| baton_messages::these_go_on(goes_on));
    let lines: Vec<String> = [fails, goes_on].into_iter().flatten().collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_said_whom_the_end_fails() {
        let answer = json!({ "fails": ["a", "b"], "goes_on": ["c"] });
        assert_eq!(
            said_now(&answer).as_deref(),
            Some("these fail, because some of their memory is on the host: a, b\nthese go on by themselves: c")
        );
        assert!(said(&answer).is_some_and(|said| said.ends_with("ends after a, b, c")));
        let nobody = json!({ "fails": [], "goes_on": [] });
        assert_eq!((said(&nobody), said_now(&nobody)), (None, None));
    }
}
