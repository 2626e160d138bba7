//! `baton stop`: ends a coordinator.

use baton_harness::client;
use baton_workbench::output::Meanwhile;
use clap::Args;
use serde_json::Value;

use super::CliError;
use super::place::Place;
use super::progress::of_waiting;

/// `baton stop`.
#[derive(Clone, Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    place: Place,
    /// End at once. It is said first which programs fail by that: those with memory on the host.
    #[arg(long)]
    now: bool,
}

/// Waits until the coordinator has ended.
///
/// # Errors
///
/// When no coordinator answers.
pub fn run(Stop { place, now }: Stop) -> Result<(), CliError> {
    let socket = place.find()?;
    let mut shown = of_waiting("waiting for the last program to leave; `baton stop --now` ends at once");
    let printed = Meanwhile::default();
    let told = |text: &[u8]| {
        let answer: Value = serde_json::from_slice(text).unwrap_or_default();
        let said = if now { said_now(&answer) } else { said(&answer) };
        if let Some(said) = said {
            printed.print(&(said + "\n"));
        }
    };
    client::stop(&socket, now, told, &mut shown)?;
    Ok(printed.went()?)
}

fn names(answer: &Value, lists: &[&str]) -> String {
    let all = lists.iter().flat_map(|list| answer[list].as_array().into_iter().flatten());
    all.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

/// Whom the end is waited for.
fn said(answer: &Value) -> Option<String> {
    let all = names(answer, &["fails", "goes_on"]);
    (!all.is_empty()).then(|| format!("no new programs share the GPU; the coordinator ends after {all}"))
}

/// Whom it fails.
fn said_now(answer: &Value) -> Option<String> {
    let (fails, goes_on) = (names(answer, &["fails"]), names(answer, &["goes_on"]));
    let fails = (!fails.is_empty()).then(|| format!("these fail, because memory of theirs is on the host: {fails}"));
    let goes_on = (!goes_on.is_empty()).then(|| format!("these go on by themselves: {goes_on}"));
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
            Some("these fail, because memory of theirs is on the host: a, b\nthese go on by themselves: c")
        );
        assert!(said(&answer).is_some_and(|said| said.ends_with("ends after a, b, c")));
        let nobody = json!({ "fails": [], "goes_on": [] });
        assert_eq!((said(&nobody), said_now(&nobody)), (None, None));
    }
}
