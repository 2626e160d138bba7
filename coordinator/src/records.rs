//! Records: the events, as files in the user's state folder. They remain when the coordinator has ended.
//!
//! | file | content |
//! |---|---|
//! | `records/NAME/events.jsonl`, `before.jsonl` | a record: the last text and the one before, each no larger than [`TEXT`] |
//! | `programs.json` | the most memory that each program was seen to use |
//!
//! Only their user can read them. A coordinator holds a lock on the folder of its record (`flock`) while it lives. A full disk, or one
//! that hangs, costs lines of the record and nothing else: a thread of its own writes them ([`crate::server::Server::keep`]), and
//! nothing waits for it.

use std::fs::{DirBuilder, File, OpenOptions, remove_dir, remove_file, rename};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use baton_report::event::Event;
use baton_report::record::{Head, Record, Seen};
use rustix::fs::{FlockOperation, flock};

use crate::endpoint::{Folder, Unfit, unfit};

/// Maximum size of a text, in bytes.
pub const TEXT: u64 = 4 << 20;
/// Maximum number of records that are kept, including the one that is being written.
pub const RECORDS: usize = 24;
/// Maximum size of all records together, in bytes.
pub const ALL: u64 = 64 << 20;

/// Attempts to lock a new record, which hardly any other process locks, and the delay between them.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

const LAST: &str = "events.jsonl";
const BEFORE: &str = "before.jsonl";
const PROGRAMS: &str = "programs.json";

/// Returns the folder for lasting data of this user's programs: a unit's own (`StateDirectory=`), or the user's.
pub fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let unit = set("STATE_DIRECTORY").filter(|path| path.is_absolute());
    let own = || set("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("baton"));
    unit.or_else(own).or_else(|| set("HOME").map(|home| home.join(".local/state/baton")))
}

/// Returns the folders of all records in a state folder, oldest first.
pub fn list(state: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(state.join("records")).map(|all| all.filter_map(Result::ok).map(|one| one.path()));
    let mut all: Vec<PathBuf> = found.map(Iterator::collect).unwrap_or_default();
    all.sort();
    all
}

/// Reads a record; none if the folder has none.
pub fn read(folder: &Path) -> Option<Record> {
    let texts = [BEFORE, LAST].map(|name| std::fs::read(folder.join(name)).unwrap_or_default());
    Record::of(&texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns a record's size.
pub fn size(folder: &Path) -> u64 {
    [BEFORE, LAST].iter().filter_map(|name| folder.join(name).metadata().ok()).map(|found| found.len()).sum()
}

/// Returns the time of the last write to a record.
pub fn written(folder: &Path) -> Option<SystemTime> {
    folder.join(LAST).metadata().and_then(|found| found.modified()).ok()
}

/// True if the record's coordinator still writes it.
pub fn is_written(folder: &Path) -> bool {
    File::open(folder).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Returns the memory that programs were seen to use; nothing if it cannot be read.
pub fn seen(state: &Path) -> Seen {
    let text = std::fs::read(state.join(PROGRAMS)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// The record that is being written.
#[derive(Debug)]
pub struct Book {
    state: PathBuf,
    folder: PathBuf,
    /// Held for the lock.
    _lock: File,
    file: File,
    bytes: u64,
    head: Head,
    /// True if a failure to write was logged.
    is_missed: bool,
}

impl Book {
    /// Begins a record of this name in a state folder, which is made if it is not there. Old records make room for it.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made, or others could enter it.
    pub fn begin(state: &Path, name: &str, head: Head) -> Result<Self, Unfit> {
        if let Some(parent) = state.parent() {
            // If this fails, the next line reports it.
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        }
        Folder::private(state)?;
        Folder::private(&state.join("records"))?;
        prune(state);
        let begun = || {
            let folder = new_folder(&state.join("records"), name)?;
            let lock = File::open(&folder)?;
            // A process that asks whether the record is written has the lock for a moment.
            let is_locked = |_: &u32| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err();
            (0..TRIES).take_while(is_locked).for_each(|_| sleep(PAUSE));
            let file = new_file(&folder.join(LAST))?;
            Ok((folder, lock, file))
        };
        let (folder, lock, file) = begun().map_err(|error: io::Error| unfit(&state.join("records"), error))?;
        let mut book = Self { state: state.to_owned(), folder, _lock: lock, file, bytes: 0, head, is_missed: false };
        let line = book.line();
        book.append(&line);
        Ok(book)
    }

    /// Returns the record's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(&self.head).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Writes events.
    pub fn write(&mut self, events: impl Iterator<Item = Event>) {
        let (mut text, mut left) = (Vec::new(), Vec::new());
        for event in events {
            if serde_json::to_writer(&mut text, &event).is_ok() {
                text.push(b'\n');
            }
            self.head.see(&event);
            left.extend(event.tenant.zip(event.peak_bytes).map(|(name, bytes)| (name, bytes, event.ns)));
        }
        if self.bytes + text.len() as u64 <= TEXT || self.turn_over() {
            self.append(&text);
        }
        if !left.is_empty() {
            self.remember(&left);
        }
    }

    /// Moves the text to the place of the one before, and begins another. True on success.
    fn turn_over(&mut self) -> bool {
        let turned = || match rename(self.folder.join(LAST), self.folder.join(BEFORE)) {
            // The text was moved before, but then there was no room for another.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => new_file(&self.folder.join(LAST)),
        };
        match turned() {
            Ok(file) => {
                (self.file, self.bytes) = (file, 0);
                let line = self.line();
                self.append(&line);
                true
            }
            Err(error) => {
                self.miss(&error);
                false
            }
        }
    }

    /// Writes all of a text or nothing.
    fn append(&mut self, text: &[u8]) {
        match self.file.write_all(text) {
            Ok(()) => {
                self.bytes += text.len() as u64;
                self.is_missed = false;
            }
            Err(error) => {
                // A cut line would spoil the next one.
                let _ = self.file.set_len(self.bytes);
                self.miss(&error);
            }
        }
    }

    fn miss(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.is_missed, true) {
            baton_messages::warn!(is_not_recorded_in(self.folder.display(), error));
        }
    }

    /// Writes down the memory that departed programs had.
    fn remember(&mut self, left: &[(String, u64, u64)]) {
        let remembered = || {
            // Coordinators of other GPUs write it too.
            let lock = File::open(&self.state)?;
            flock(&lock, FlockOperation::LockExclusive)?;
            let mut seen = seen(&self.state);
            for (name, peak_bytes, ns) in left {
                seen.add(name, *peak_bytes, self.head.started_unix_ms.saturating_add(ns / 1_000_000));
            }
            let new = self.state.join(format!("{PROGRAMS}.{}", self.head.pid));
            let _ = remove_file(&new);
            let written = new_file(&new).and_then(|mut file| file.write_all(&serde_json::to_vec(&seen)?));
            written.and_then(|()| rename(&new, self.state.join(PROGRAMS))).inspect_err(|_| drop(remove_file(&new)))
        };
        if let Err(error) = remembered() {
            self.miss(&error);
        }
    }
}

/// Removes the oldest records until there is room for one more. Records that are being written stay.
fn prune(state: &Path) {
    let mut all = list(state);
    let mut bytes: u64 = all.iter().map(|folder| size(folder)).sum();
    all.retain(|folder| !is_written(folder));
    let mut count = list(state).len();
    for folder in all {
        if count < RECORDS && bytes + 2 * TEXT <= ALL {
            return;
        }
        bytes = bytes.saturating_sub(size(&folder));
        [BEFORE, LAST].iter().for_each(|name| drop(remove_file(folder.join(name))));
        // Files that another program has put there stay.
        let _ = remove_dir(&folder);
        count -= 1;
    }
}

/// Makes a new folder of that name, or of a similar one.
fn new_folder(records: &Path, name: &str) -> io::Result<PathBuf> {
    let mut tried = 1;
    loop {
        let name = if tried == 1 { name.to_owned() } else { format!("{name}-{tried}") };
        let folder = records.join(name);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < RECORDS => tried += 1,
            made => return made.map(|()| folder),
        }
    }
}

/// Makes a new file that only this user can read.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn event(n: u64, what: &str) -> Event {
        Event { n, ns: n, id: Some(1), tenant: Some("a".to_owned()), what: what.into(), ..Event::default() }
    }

    fn numbers(record: &Record) -> Vec<u64> {
        record.histories.iter().flat_map(|history| history.events.iter().map(|event| event.n)).collect()
    }

    #[test]
    fn a_record_is_its_users_alone_and_is_there_as_it_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("new").join("baton");
        let mut book = Book::begin(&state, "one", Head::default()).expect("begun");
        book.write((0..3).map(|n| event(n, "asked")));
        let all = list(&state);
        assert_eq!((all.len(), numbers(&read(&all[0]).expect("a record"))), (1, vec![0, 1, 2]));
        let mode = |path: &Path| path.metadata().expect("it is there").mode() & 0o777;
        assert_eq!((mode(&state), mode(book.folder()), mode(&book.folder().join(LAST))), (0o700, 0o700, 0o600));
        assert!(is_written(&all[0]));
        drop(book);
        assert!(!is_written(&all[0]));
    }

    #[test]
    fn texts_and_records_are_bounded_and_what_is_being_written_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("baton");
        let mut first = Book::begin(&state, "0", Head::default()).expect("begun");
        for at in 0..100 {
            first.write(
                (at * 2000..(at + 1) * 2000).map(|n| event(n, "a kind of event with a name that takes some room")),
            );
        }
        assert!(size(first.folder()) <= 2 * TEXT);
        let record = read(first.folder()).expect("a record");
        let kept = numbers(&record);
        assert_eq!((record.histories.len(), *kept.last().expect("some")), (1, 199_999), "the last are kept");
        assert!(kept.len() > 20_000 && kept[0] > 0);
        for number in 1..2 * RECORDS {
            Book::begin(&state, &format!("{number:03}"), Head::default())
                .expect("begun")
                .write([event(0, "asked")].into_iter());
        }
        let all = list(&state);
        assert!(all.len() == RECORDS && all.contains(&first.folder().to_owned()), "{all:?}");
    }

    #[test]
    fn a_disk_without_room_costs_lines_and_what_is_written_later_can_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut book = Book::begin(&folder.path().join("baton"), "one", Head::default()).expect("begun");
        book.write([event(0, "asked")].into_iter());
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let file = std::mem::replace(&mut book.file, full);
        book.write([event(1, "asked")].into_iter());
        book.file = file;
        book.write([event(2, "asked")].into_iter());
        assert_eq!(numbers(&read(book.folder()).expect("a record")), [0, 2]);
    }

    #[test]
    fn what_programs_had_is_remembered_when_they_leave() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("baton");
        let mut book = Book::begin(&state, "one", Head::default()).expect("begun");
        book.write([Event { peak_bytes: Some(7 << 20), ..event(0, "departed") }].into_iter());
        assert_eq!(seen(&state).peak("a"), Some(7 << 20));
        let left: Vec<_> =
            std::fs::read_dir(&state).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
