//! `baton upgrade`: this version's coordinator follows the one that serves, while its programs go on.

use std::time::{Duration, Instant};

use baton_contract::messages::Opening;
use baton_contract::wire::{OLDEST, VERSION};
use baton_workbench::output::print;
use clap::Args;
use serde_json::Value;

use super::CliError;
use super::named::{Timeout, have_done, have_done_patiently};
use super::place::Place;
use super::progress::of_waiting;

/// `baton upgrade`.
#[derive(Clone, Debug, Args)]
pub struct Upgrade {
    #[command(flatten)]
    place: Place,
    /// Only say what would happen.
    #[arg(long)]
    check: bool,
    /// Kill programs whose version of Baton's library this version does not know. Without this, they are in the way.
    #[arg(long)]
    leave_behind: bool,
    #[command(flatten)]
    time: Timeout,
}

/// The interval at which the new coordinator is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// Has this version follow the coordinator that serves.
///
/// # Errors
///
/// When no coordinator answers, or it goes on because this version is not ready in time, or cannot follow.
pub fn run(Upgrade { place, check, leave_behind, time }: Upgrade) -> Result<(), CliError> {
    let socket = place.find()?;
    let file = std::env::current_exe()?;
    let file = file.to_str().ok_or_else(|| baton_messages::path_is_not_unicode(file.display()))?.to_owned();
    let end = time.end();
    let within_ms = u32::try_from(time.timeout.0.as_millis()).unwrap_or(u32::MAX);
    let question = Opening::Upgrade { file, check, within_ms, oldest: OLDEST, leave_behind };
    if check {
        return Ok(print(&plan(&have_done(&socket, &question)?))?);
    }
    let mut shown = of_waiting(&baton_messages::waits_for_the_other_version());
    // The coordinator itself gives up at the end.
    let patient = Some(end + Duration::from_secs(5));
    let answer = have_done_patiently(&socket, &question, patient, &mut shown)?;
    drop(shown);
    let Some(answer) = answer else { return Err(baton_messages::no_answer_about_the_upgrade().into()) };
    // One of the version before says this before it hands over.
    let ago = Duration::from_millis(answer["ago_ms"].as_u64().unwrap_or(0));
    let handed_over = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
    let serves = || -> Option<Value> { serde_json::from_slice(&baton_client::status(&socket).ok()?).ok() };
    let after = loop {
        match serves() {
            Some(status) if status["pid"] != answer["pid"] => break status,
            _ if Instant::now() >= end.max(handed_over + Duration::from_secs(5)) => {
                return Err(baton_messages::other_version_does_not_answer().into());
            }
            _ => std::thread::sleep(LOOK),
        }
    };
    let (version, pid) = (after["version"].as_str().unwrap_or_default(), after["pid"].as_u64().unwrap_or(0));
    let millis = handed_over.elapsed().as_millis();
    let programs = answer["programs"].as_u64().unwrap_or(0);
    Ok(print(&format!("{}\n", baton_messages::other_version_serves(version, pid, programs, millis)))?)
}

/// Says what would happen.
fn plan(answer: &Value) -> String {
    let names = |which: &str| -> Vec<&str> {
        answer[which].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let serves = answer["version"].as_str().unwrap_or_default();
    let (known, behind) = (names("programs"), names("left_behind"));
    let programs = if known.is_empty() { baton_messages::NO_PROGRAMS.to_owned() } else { known.join(", ") };
    let mut said =
        format!("{}\n", baton_messages::would_follow(serves, env!("CARGO_PKG_VERSION"), OLDEST, VERSION, programs));
    if !behind.is_empty() {
        said += &format!("{}\n", baton_messages::would_be_ended(behind.join(", ")));
    }
    // A coordinator before this did not say it.
    let reads_table = answer["table"].as_u64().is_none_or(|format| format == baton_coordinator::TABLE_FORMAT);
    if let Some(obstacle) = answer["obstacle"].as_str().or((!reads_table).then_some(baton_messages::OTHER_TABLE)) {
        said += &format!("{}\n", baton_messages::would_not_follow(obstacle));
    }
    said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_names_the_programs_and_what_is_in_the_way() {
        let mut answer = json!({ "version": "0.0.9", "programs": ["a", "b"], "obstacle": null });
        let said = plan(&answer);
        assert!(said.contains("0.0.9") && said.contains("a, b") && said.lines().count() == 1, "{said}");
        answer["obstacle"] = "it ends".into();
        assert!(plan(&answer).contains("not now: it ends"));
        answer["obstacle"] = Value::Null;
        answer["table"] = baton_coordinator::TABLE_FORMAT.into();
        assert!(!plan(&answer).contains("not now"));
        answer["table"] = (baton_coordinator::TABLE_FORMAT + 1).into();
        assert!(plan(&answer).contains("not now: this version does not read the table"));
        answer["left_behind"] = json!(["c", "d"]);
        assert!(plan(&answer).contains("--leave-behind these are killed: c, d"));
    }
}
