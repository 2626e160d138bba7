//! The coordinator's log: few lines however often an event happens, in a file that stays small.
//!
//! The log shows events that strangers cause, and they may cause them without end. So each **kind** of line, which is a place in the
//! source, comes once a second in the long run, with the number of lines that were left out. A few may come at once.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use baton_coordinator::endpoint;
use log::{Level, LevelFilter, Metadata, Record};

/// Lines of a kind that may come at once.
const AT_ONCE: u32 = 10;
/// Time after which one more line may come.
const PAUSE: Duration = Duration::from_secs(1);
/// A larger file is set aside and replaces the one before, so there are at most two.
const LARGE: u64 = 4 << 20;

/// Writes the log to standard error.
pub(super) fn start() -> std::io::Result<()> {
    let mut lines = env_logger::Builder::new();
    lines.filter_level(LevelFilter::max()).format_target(false).format_timestamp_millis();
    if LOG.set(Log { lines: lines.build(), kinds: Mutex::default(), left_out: Condvar::new() }).is_err() {
        return Ok(());
    }
    let Some(log) = LOG.get() else { return Ok(()) };
    std::thread::Builder::new().name("log".to_owned()).spawn(|| log.sum_up_for_ever())?;
    log::set_logger(log).map_err(std::io::Error::other)
}

/// Keeps the file of standard error small if it is the log of a coordinator at this socket.
pub(super) fn keep_small(socket: &Path) {
    let _ = SOCKET.set(socket.to_path_buf());
}

static LOG: OnceLock<Log> = OnceLock::new();
static SOCKET: OnceLock<PathBuf> = OnceLock::new();

struct Log {
    lines: env_logger::Logger,
    kinds: Mutex<HashMap<Place, Kind>>,
    /// Signals that a line was left out.
    left_out: Condvar,
}

thread_local! {
    /// The GPU that this thread's lines are about, if there are several.
    static GPU: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Has this thread's lines name a GPU.
pub(super) fn name_gpu(number: usize) {
    GPU.set(Some(number));
}

fn text(record: &Record<'_>) -> String {
    match GPU.try_with(Cell::get).ok().flatten() {
        Some(number) => format!("GPU {number}: {}", record.args()),
        None => record.args().to_string(),
    }
}

/// A line's place in the source.
type Place = (&'static str, u32);

/// Lines of a kind.
struct Kind {
    /// Lines that may come now.
    may: u32,
    /// The time of the last change of `may`.
    since: Instant,
    left_out: u64,
    /// The last line that came.
    last: (Level, String),
}

impl Kind {
    fn new(now: Instant) -> Self {
        Self { may: AT_ONCE, since: now, left_out: 0, last: (Level::Info, String::new()) }
    }

    /// If one more line may come, returns the number of lines left out before.
    fn admits(&mut self, now: Instant) -> Option<u64> {
        let pauses = now.saturating_duration_since(self.since).as_secs() / PAUSE.as_secs();
        if pauses > 0 {
            self.may = AT_ONCE.min(self.may.saturating_add(u32::try_from(pauses).unwrap_or(AT_ONCE)));
            self.since = now;
        }
        if self.may == 0 {
            self.left_out += 1;
            return None;
        }
        self.may -= 1;
        Some(std::mem::take(&mut self.left_out))
    }

    /// Returns the line about lines that were left out, if it is due.
    fn sum(&mut self, now: Instant) -> Option<(Level, String)> {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 && self.admits(now).is_some() {
            return Some((self.last.0, baton_messages::more_like_this(left_out, &self.last.1)));
        }
        self.left_out = left_out;
        None
    }

    /// Returns that line at the end, when every such line is due.
    fn last_sum(&mut self) -> Option<(Level, String)> {
        self.may = 1;
        self.sum(self.since)
    }
}

impl Log {
    fn kinds(&self) -> MutexGuard<'_, HashMap<Place, Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, (level, line): (Level, String)) {
        if let Some(socket) = SOCKET.get() {
            endpoint::put_large_log_aside(socket, LARGE);
        }
        log::Log::log(&self.lines, &Record::builder().level(level).args(format_args!("{line}")).build());
    }

    /// Reports lines that were left out when no line of their kind has come since.
    fn sum_up_for_ever(&self) {
        let mut kinds = self.kinds();
        loop {
            let is_any = kinds.values().any(|kind| kind.left_out > 0);
            kinds = match is_any {
                true => self.left_out.wait_timeout(kinds, PAUSE).unwrap_or_else(PoisonError::into_inner).0,
                false => self.left_out.wait(kinds).unwrap_or_else(PoisonError::into_inner),
            };
            let now = Instant::now();
            let sums: Vec<_> = kinds.values_mut().filter_map(|kind| kind.sum(now)).collect();
            sums.into_iter().for_each(|sum| self.write(sum));
        }
    }
}

impl log::Log for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.lines.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        // A user who asks for everything gets everything.
        if record.level() > Level::Info {
            return self.write((record.level(), text(record)));
        }
        let place = (record.module_path_static().unwrap_or_default(), record.line().unwrap_or_default());
        let mut kinds = self.kinds();
        let now = Instant::now();
        let kind = kinds.entry(place).or_insert_with(|| Kind::new(now));
        match kind.admits(now) {
            Some(left_out) => {
                let line = text(record);
                let whole = if left_out == 0 { line.clone() } else { baton_messages::more_before(&line, left_out) };
                kind.last = (record.level(), line);
                // Written under the lock, so lines stay in order.
                self.write((record.level(), whole));
            }
            // Only the first line left out wakes the thread.
            None if kind.left_out == 1 => self.left_out.notify_one(),
            None => {}
        }
    }

    fn flush(&self) {
        let sums: Vec<_> = self.kinds().values_mut().filter_map(Kind::last_sum).collect();
        sums.into_iter().for_each(|sum| self.write(sum));
        log::Log::flush(&self.lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_line_comes_once_a_second_with_the_number_of_those_that_were_left_out() {
        let start = Instant::now();
        let mut kind = Kind::new(start);
        let at = |millis: u64| start + Duration::from_millis(millis);
        for _ in 0..AT_ONCE {
            assert_eq!(kind.admits(start), Some(0));
        }
        for millis in 0..900 {
            assert_eq!(kind.admits(at(millis)), None);
        }
        assert_eq!(kind.sum(at(950)), None);
        assert_eq!(kind.admits(at(1000)), Some(900), "one more, with what was left out");
        assert_eq!((kind.admits(at(1100)), kind.admits(at(1999))), (None, None));
        kind.last = (Level::Warn, "refused".to_owned());
        assert_eq!(kind.sum(at(2100)), Some((Level::Warn, "2 more like this: refused".to_owned())));
        assert_eq!(kind.sum(at(9000)), None, "nothing was left out since");
        // After a rest, a few lines may come at once again, and no more than at first.
        let many = (0..100).filter(|_| kind.admits(at(100_000)).is_some()).count();
        assert_eq!(many, AT_ONCE as usize);
        let all = u64::from(100 - AT_ONCE);
        let told = Some((Level::Warn, format!("{all} more like this: refused")));
        assert_eq!(kind.last_sum(), told, "at the end it is told at once");
        assert_eq!(kind.last_sum(), None);
    }
}
