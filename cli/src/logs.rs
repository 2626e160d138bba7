//! `baton logs`: the events, a line each.

use std::time::{Duration, UNIX_EPOCH};

use baton_client as client;
use baton_report::event::{Event, History};
use baton_views::line::{is_of_interest, words};
use baton_workbench::output::Meanwhile;
use clap::Args;

use super::CliError;
use super::records::{Source, Told};

/// Delay between two requests for more.
const PAUSE: Duration = Duration::from_millis(200);

/// `baton logs`.
#[derive(Clone, Debug, Args)]
pub struct Logs {
    #[command(flatten)]
    source: Source,
    /// Go on with new events.
    #[arg(short, long, conflicts_with = "record")]
    follow: bool,
    /// Begin this long ago, or before a record's end. Otherwise with the oldest known event.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    last: Option<Duration>,
    /// Also print internal events: copies, mappings, requests.
    #[arg(long)]
    all: bool,
}

/// Prints the events.
///
/// # Errors
///
/// When no coordinator answers, and there is no record.
pub fn run(Logs { source, follow, last, all: everything }: Logs) -> Result<(), CliError> {
    let told = if follow { Told::Coordinator(source.place.find()?) } else { source.find("logs")? };
    let printed = Meanwhile::default();
    let mut from = None;
    let mut print = |history: &History| {
        let from = *from.get_or_insert_with(|| {
            let last = last.map_or(u64::MAX, |last| u64::try_from(last.as_nanos()).unwrap_or(u64::MAX));
            history.now_ns.saturating_sub(last)
        });
        let is_shown = |event: &&Event| event.ns >= from && (everything || is_of_interest(event));
        let lines = history.events.iter().filter(is_shown).map(|event| line(history.started_unix_ms, event) + "\n");
        printed.print(&lines.collect::<String>());
    };
    let socket = match told {
        Told::Coordinator(socket) => socket,
        Told::Record(record) => {
            // Times are counted back from the record's end.
            let now_ns = record.histories.last().map_or(0, |history| history.now_ns);
            record.histories.into_iter().for_each(|history| print(&History { now_ns, ..history }));
            return Ok(printed.went()?);
        }
    };
    let mut next = 0;
    loop {
        next = client::history(&socket, next, &mut print)?;
        printed.went()?;
        if !follow {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns an event's line: time, program and words.
fn line(started_unix_ms: u64, event: &Event) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(started_unix_ms) + Duration::from_nanos(event.ns);
    let who = event.tenant.as_deref().unwrap_or("the GPU");
    format!("{} {who} {}", humantime::format_rfc3339_millis(at), words(event))
}

#[cfg(test)]
mod tests {
    use baton_report::event::Kind;

    use super::*;

    #[test]
    fn a_line_says_when_who_and_what() {
        let event =
            Event { ns: 1_500_000_000, tenant: Some("train".to_owned()), what: Kind::Departed, ..Event::default() };
        assert_eq!(line(1_000, &event), "1970-01-01T00:00:02.500Z train has left");
    }
}
