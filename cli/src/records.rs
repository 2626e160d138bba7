//! `baton records`, and the records that other commands read where no coordinator runs any more.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use baton_contract::memory::size;
use baton_coordinator::records::{is_written, list, read, size as size_of, state_folder, written};
use baton_report::record::Record;
use baton_views::format::duration;
use baton_views::timeline::Timeline;
use baton_workbench::output::{print, say};
use baton_workbench::table::{plain_table, trimmed};
use clap::Args;

use super::CliError;
use super::place::{Place, Wanted};

/// The folder of units' records (`StateDirectory=`): that of the unit for all users, and those of single users.
const UNITS: &str = "/var/lib/baton";
/// The folder of the unit for all users.
const NODE: &str = "node";

/// A coordinator, or the record of one that has ended.
#[derive(Clone, Debug, Args)]
pub struct Source {
    /// The coordinator.
    #[command(flatten)]
    pub place: Place,
    /// Read the record of a coordinator that has ended: by its number or name, as `baton records` lists them, or its folder. Where no
    /// coordinator runs, the last one's is read anyway.
    #[arg(long, value_name = "N|NAME|FOLDER", conflicts_with_all = ["gpu", "socket"])]
    pub record: Option<String>,
}

/// The source of events.
pub enum Told {
    /// A coordinator, at this socket.
    Coordinator(PathBuf),
    /// A record.
    Record(Box<Record>),
}

impl Source {
    /// Returns the coordinator's socket, or the record; it prints which record that is.
    ///
    /// # Errors
    ///
    /// When there is neither.
    pub fn find(self, verb: &str) -> Result<Told, CliError> {
        let Self { place, record } = self;
        if let Some(word) = record {
            return named(&word).map(|record| Told::Record(Box::new(record)));
        }
        let none = match place.running() {
            Ok(socket) => return Ok(Told::Coordinator(socket)),
            Err(CliError::NoCoordinator(none)) => none,
            Err(error) => return Err(error),
        };
        let wanted = place.wanted()?;
        let is_meant = |record: &Record| match &wanted {
            Wanted::Any => true,
            Wanted::Socket(socket) => Path::new(&record.head.socket) == socket,
            Wanted::Gpu(gpu) => record.head.gpu.to_lowercase().starts_with(&gpu.to_lowercase()),
        };
        let mut all = records().into_iter().filter_map(|folder| Some((read(&folder)?, folder)));
        let Some((record, folder)) = all.find(|(record, _)| is_meant(record)) else {
            return Err(CliError::NoCoordinator(none));
        };
        let reads = baton_messages::reads_a_record(name(&folder), moment(record.end_unix_ms()));
        say(verb, reads);
        Ok(Told::Record(Box::new(record)))
    }
}

/// Returns all records that this user can read, the last written first.
fn records() -> Vec<PathBuf> {
    let units = Path::new(UNITS);
    let user = std::env::var_os("USER").filter(|name| !name.is_empty()).map(|name| units.join(name));
    let states = state_folder().into_iter().chain([units.join(NODE)]).chain(user);
    let mut all: Vec<PathBuf> = states.flat_map(|state| list(&state)).collect();
    all.sort();
    all.dedup();
    all.sort_by_key(|folder| std::cmp::Reverse(written(folder)));
    all
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the record for a user's word.
fn named(word: &str) -> Result<Record, CliError> {
    let all = records();
    let folder = match word.parse::<usize>() {
        Ok(number) => number.checked_sub(1).and_then(|at| all.get(at)).cloned(),
        Err(_) if word.contains('/') => Some(PathBuf::from(word)),
        Err(_) => all.iter().find(|folder| name(folder) == word).cloned(),
    };
    let none = || CliError::Told(baton_messages::no_such_record(word.escape_default()));
    folder.and_then(|folder| read(&folder)).ok_or_else(none)
}

/// A time of day and date.
pub fn moment(unix_ms: u64) -> String {
    let moment = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    moment.map_or_else(String::new, |moment| humantime::format_rfc3339_seconds(moment).to_string())
}

/// Returns the name of the record of a coordinator that began at this time, on a GPU with this UUID. Names sort by time.
pub fn called(started_unix_ms: u64, gpu: &str) -> String {
    format!("{}-{}", moment(started_unix_ms).replace(':', ""), gpu.chars().take("GPU-".len() + 8).collect::<String>())
}

/// `baton records`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Records {}

/// Lists the records.
///
/// # Errors
///
/// When the output cannot be written.
pub fn run(_: Records) -> Result<(), CliError> {
    let mut table = plain_table(&[">no.", "record", "from", "until", ">lasted", ">programs", ">size", "GPU"]);
    let all = records();
    for (folder, number) in all.iter().zip(1..) {
        let Some(record) = read(folder) else { continue };
        let (from, until) = (record.head.started_unix_ms, record.end_unix_ms());
        let programs = Timeline::of(&record).programs.len();
        table.add_row([
            number.to_string(),
            name(folder),
            moment(from),
            if is_written(folder) { "now".to_owned() } else { moment(until) },
            duration(until.saturating_sub(from).saturating_mul(1_000_000)),
            programs.to_string(),
            size(size_of(folder)),
            record.head.gpu_name,
        ]);
    }
    let text = if all.is_empty() { baton_messages::NO_RECORDS.to_owned() } else { trimmed(&table) };
    Ok(print(&(text + "\n"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_records_are_in_the_order_of_time_and_fit_a_command_line() {
        let name = called(1_764_162_025_000, "GPU-1a2b3c4d-0000-0000-0000-000000000000");
        assert_eq!(name, "2025-11-26T130025Z-GPU-1a2b3c4d");
        assert!(called(1_764_162_026_000, "GPU-0") > name);
    }
}
