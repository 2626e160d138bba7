//! `baton stats`: totals of the last seconds.

use std::fmt::Write as _;
use std::time::Duration;

use baton_client as client;
use baton_views::format::{bytes, duration};
use baton_views::summary::{Part, Summary, Took};
use baton_views::timeline::Timeline;
use clap::Args;

use super::CliError;
use super::records::{Source, Told};
use baton_workbench::output::print;
use baton_workbench::table::{plain_table, trimmed};

/// The time that is summed up for a running coordinator.
const USUAL: Duration = Duration::from_secs(30);

/// `baton stats`.
#[derive(Clone, Debug, Args)]
pub struct Stats {
    #[command(flatten)]
    source: Source,
    /// Length of the time, until now, or until a record's end. [default: 30s, or all of a record]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    last: Option<Duration>,
}

/// Prints the totals.
///
/// # Errors
///
/// When no coordinator answers, and there is no record.
pub fn run(Stats { source, last }: Stats) -> Result<(), CliError> {
    let (timeline, usual) = match source.find("stats")? {
        Told::Coordinator(socket) => {
            let mut timeline = Timeline::default();
            client::see(&socket, &mut timeline)?;
            (timeline, USUAL)
        }
        Told::Record(record) => (Timeline::of(&record), Duration::MAX),
    };
    let last = u64::try_from(last.unwrap_or(usual).as_nanos()).unwrap_or(u64::MAX);
    Ok(print(&text(&Summary::of(&timeline, last)))?)
}

fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let Part { share, switches, bytes_in, bytes_out, .. } = &summary.gpu;
    let _ = writeln!(
        out,
        "over {}: GPU given {:.0} %, {switches} switches, {} in, {} out\n",
        duration(summary.time.end - summary.time.start),
        share * 100.0,
        bytes(*bytes_in),
        bytes(*bytes_out)
    );
    let mut table = plain_table(&[
        "program",
        ">GPU",
        ">switches",
        ">in",
        ">out",
        ">waits",
        ">p50",
        ">p99",
        ">requests",
        ">p50",
        ">p99",
    ]);
    let took = |took: &Took, percent| took.percentile(percent).map_or("-".to_owned(), duration);
    let row = |name: &str, part: &Part| {
        [
            name.to_owned(),
            format!("{:.1} %", part.share * 100.0),
            part.switches.to_string(),
            bytes(part.bytes_in),
            bytes(part.bytes_out),
            part.waits.count().to_string(),
            took(&part.waits, 50),
            took(&part.waits, 99),
            part.requests.count().to_string(),
            took(&part.requests, 50),
            took(&part.requests, 99),
        ]
    };
    for part in summary.programs.values() {
        table.add_row(row(&part.name, part));
    }
    table.add_row(row("all", &summary.gpu));
    let _ = writeln!(out, "{}", trimmed(&table));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_line_for_each_program_and_one_for_all() {
        let part = Part { name: "a".to_owned(), share: 0.25, switches: 3, bytes_in: 5 << 20, ..Part::default() };
        let summary = Summary {
            time: 0..30_000_000_000,
            programs: [(1, part.clone())].into(),
            gpu: Part { name: String::new(), ..part },
        };
        let text = text(&summary);
        assert!(text.starts_with("over 30.0 s: GPU given 25 %, 3 switches, 5 MiB in, 0 B out\n"), "{text}");
        assert!(text.contains("\na ") && text.contains("\nall ") && text.contains("25.0 %"), "{text}");
    }
}
