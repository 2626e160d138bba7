//! `baton trace`: the GPU's owners and the reasons for each change, as a file.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_client as client;
use baton_harness::stop::Stop;
use baton_report::record::Record;
use baton_views::format::duration;
use baton_views::page::{self, page};
use baton_views::perfetto;
use baton_views::ribbon::{ribbon, svg};
use baton_views::summary::Summary;
use baton_views::timeline::Timeline;
use baton_workbench::output::{print_with, say, write_file};
use clap::Args;

use super::CliError;
use super::named::read;
use super::records::{Source, Told, moment};
use super::units::Period;

/// Delay between two requests for events while recording.
const LOOK: Duration = Duration::from_millis(100);

/// The time that is looked back for a running coordinator.
const USUAL: Duration = Duration::from_secs(30);

/// `baton trace`.
#[derive(Clone, Debug, Args)]
pub struct Trace {
    #[command(flatten)]
    source: Source,
    /// Events of this time until now, as far as the coordinator still has them. [default: 30s, or all of a record]
    #[arg(long, value_name = "TIME", conflicts_with = "for")]
    last: Option<Period>,
    /// Record from now on, for this long. Ctrl-C ends it sooner.
    #[arg(long, value_name = "TIME", conflicts_with = "record")]
    r#for: Option<Period>,
    /// Write a page for a browser instead: a picture and a table. It loads nothing.
    #[arg(long, conflicts_with = "svg")]
    html: bool,
    /// Write only the picture, as an SVG file for documents.
    #[arg(long)]
    svg: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The events of a stretch of time.
struct Recording {
    timeline: Timeline,
    time: Range<u64>,
    gpu: String,
    started_unix_ms: u64,
}

/// Writes the file.
///
/// # Errors
///
/// When no coordinator answers and there is no record, or the file cannot be written.
pub fn run(arguments: Trace) -> Result<(), CliError> {
    let Trace { source, last, r#for: period, html, svg, output } = arguments;
    let last = last.map(|last| last.0);
    let recording = match period {
        Some(period) => record(&source.place.find()?, period.0)?,
        None => match source.find("trace")? {
            Told::Coordinator(path) => look_back(&path, last.unwrap_or(USUAL))?,
            Told::Record(record) => Recording::of(&record, last.unwrap_or(Duration::MAX)),
        },
    };
    let file = output.filter(|file| file.as_os_str() != "-");
    let write = |out: &mut dyn Write| match (html, svg) {
        (true, _) => out.write_all(recording.page().as_bytes()),
        (_, true) => out.write_all(recording.picture().as_bytes()),
        _ => recording.write_trace(out),
    };
    match &file {
        Some(file) => write_file(file, write)?,
        None => print_with(write)?,
    }
    Ok(())
}

/// Reads all events since the last call. Returns the GPU, and the start of its coordinator in milliseconds since 1970.
fn hear(path: &Path, timeline: &mut Timeline) -> Result<(String, u64), client::NoAnswer> {
    loop {
        let history = client::events(path, timeline.next())?;
        timeline.see(&history);
        if !history.more {
            return Ok((history.gpu, history.started_unix_ms));
        }
    }
}

fn nanos(period: Duration) -> u64 {
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

fn look_back(path: &Path, period: Duration) -> Result<Recording, CliError> {
    let mut timeline = Timeline::default();
    let (gpu, started_unix_ms) = hear(path, &mut timeline)?;
    let end = timeline.now;
    let wanted = end.saturating_sub(nanos(period));
    let start = wanted.max(timeline.since);
    if start > wanted {
        let known = duration(end - start);
        let since = wall_clock(started_unix_ms, start);
        say("trace", baton_messages::knows_only_the_last(known, since));
    }
    timeline.lost = 0;
    timeline.forget_before(start);
    timeline.know(&read(&client::status(path)?)?);
    Ok(Recording { timeline, time: start..end, gpu, started_unix_ms })
}

fn record(path: &Path, period: Duration) -> Result<Recording, CliError> {
    let stop = Stop::on_signals()?;
    let mut timeline = Timeline::default();
    let (gpu, started_unix_ms) = hear(path, &mut timeline)?;
    let start = timeline.now;
    timeline.lost = 0;
    timeline.forget_before(start);
    timeline.know(&read(&client::status(path)?)?);
    say("trace", baton_messages::is_recording());
    let began = Instant::now();
    while !stop.is_raised() && began.elapsed() < period {
        std::thread::sleep(LOOK.min(period.saturating_sub(began.elapsed())));
        if let Err(error) = hear(path, &mut timeline) {
            say("trace", baton_messages::recording_ends(error));
            break;
        }
    }
    if timeline.lost > 0 {
        say("trace", baton_messages::events_are_missing(timeline.lost));
    }
    let end = timeline.now;
    Ok(Recording { timeline, time: start..end, gpu, started_unix_ms })
}

/// A moment as date and time of day.
fn wall_clock(started_unix_ms: u64, ns: u64) -> String {
    moment(started_unix_ms.saturating_add(ns / 1_000_000))
}

impl Recording {
    /// Takes the last part of a record.
    fn of(record: &Record, last: Duration) -> Self {
        let mut timeline = Timeline::of(record);
        let time = timeline.now.saturating_sub(nanos(last)).max(timeline.since)..timeline.now;
        timeline.lost = 0;
        timeline.forget_before(time.start);
        let (gpu, started_unix_ms) = (record.head.gpu.clone(), record.head.started_unix_ms);
        Self { timeline, time, gpu, started_unix_ms }
    }

    fn title(&self) -> &'static str {
        "Who had the GPU"
    }

    fn line(&self) -> String {
        let (length, end) =
            (duration(self.time.end - self.time.start), wall_clock(self.started_unix_ms, self.time.end));
        format!("{}, {length} until {end}", self.gpu)
    }

    fn write_trace(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let trace = perfetto::trace(&self.timeline, &self.time, &self.gpu, self.started_unix_ms);
        serde_json::to_writer(&mut *out, &trace)?;
        writeln!(out)
    }

    fn page(&self) -> String {
        let summary = Summary::within(&self.timeline, self.time.clone());
        let ribbon = ribbon(&self.timeline, &summary, &self.time, page::MOST);
        page(&ribbon, &summary, &page::Caption { title: self.title(), line: &self.line() })
    }

    fn picture(&self) -> String {
        let summary = Summary::within(&self.timeline, self.time.clone());
        let ribbon = ribbon(&self.timeline, &summary, &self.time, svg::MOST);
        svg::file(&ribbon, &svg::Caption { title: self.title(), line: &self.line() })
    }
}
