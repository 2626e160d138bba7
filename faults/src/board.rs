//! The board that the processes of a test share.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::Role;
use crate::point::{LONGEST, Name};

/// The most points that are counted.
const POINTS: usize = 1024;
/// The longest name of a process that strikes, in bytes.
const LONGEST_NAME: usize = 48;

/// A point, and how often it was reached.
struct Counted {
    /// The hash of its name; 0 if there is none.
    hash: AtomicU64,
    times: AtomicU64,
    /// The number of the strike that comes here, or of an earlier one.
    strike: AtomicU32,
    /// Its name, which is there soon after the hash.
    name: [AtomicU64; LONGEST / 8],
}

/// The file's contents. Zeros are a board without a strike.
struct Shared {
    /// The number of the strike that is to come; 0 if there is none.
    strike: AtomicU32,
    /// The number of the last strike that was prepared.
    last: AtomicU32,
    /// Times that its points are yet to be reached before.
    skip: AtomicU32,
    /// The process that is hit: 0 for the one that reaches it, less for one that has a [`Role`] ([`Victim::number`]).
    victim: AtomicI32,
    signal: AtomicI32,
    /// The error that a call is to answer; 0 for none.
    error: AtomicU32,
    /// Times that the strike is yet to come after the first.
    again: AtomicU32,
    /// The time for which the process at the point then waits.
    wait_micros: AtomicU32,
    /// The process that has reached a point of it.
    by: AtomicI32,
    /// The place of that point among all.
    at: AtomicU32,
    /// Its name, as programs of a test have one.
    name: [AtomicU64; LONGEST_NAME / 8],
    /// The processes that have each [`Role`] now.
    roles: [AtomicI32; 3],
    points: [Counted; POINTS],
}

/// The board of a test.
pub struct Board(&'static Shared);

/// The fate of the process that reaches one of these points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strike {
    /// The points' names.
    pub points: Vec<String>,
    /// Times that they are reached before without harm.
    pub skip: u32,
    /// The process that is hit.
    pub victim: Victim,
    /// The signal that it gets; 0 for none.
    pub signal: i32,
    /// The error that the call which reaches a point answers; 0 for none.
    pub error: u32,
    /// Times that the strike comes after the first.
    pub again: u32,
    /// The time for which the process at the point then waits.
    pub wait: Duration,
}

/// The process that a strike hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The one that reaches the point.
    #[default]
    This,
    /// The one that has this role by then.
    Of(Role),
    /// The one of this number.
    Process(i32),
}

impl Victim {
    fn number(self) -> i32 {
        match self {
            Self::This => 0,
            Self::Of(role) => !(role as i32),
            Self::Process(number) => number,
        }
    }
}

/// The process that has reached the point of a strike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Its number.
    pub process: i32,
    /// The name that it has as a tenant; empty for a coordinator or keeper.
    pub name: String,
    /// The point's name.
    pub point: String,
}

impl Strike {
    /// A strike at one point.
    pub fn at(point: impl Into<String>) -> Self {
        Self { points: vec![point.into()], ..Self::default() }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    // FNV-1a; never 0.
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)) | 1
}

fn write_text(words: &[AtomicU64], text: &[u8]) {
    for (word, part) in words.iter().zip(text.chunks(8).chain(core::iter::repeat(&[][..]))) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        word.store(u64::from_le_bytes(bytes), SeqCst);
    }
}

fn read_text(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(SeqCst).to_le_bytes()).collect();
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// The board that the environment names, if it names one.
pub(crate) fn of_this_process() -> Option<&'static Board> {
    static BOARD: OnceLock<Option<Board>> = OnceLock::new();
    BOARD.get_or_init(|| Board::open(Path::new(&std::env::var_os(crate::BOARD)?)).ok()).as_ref()
}

impl Board {
    /// Makes a board in a new file.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn make(path: &Path) -> io::Result<Self> {
        File::create_new(path)?.set_len(size_of::<Shared>() as u64)?;
        Self::open(path)
    }

    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let (size, access) = (size_of::<Shared>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping wherever the system likes.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: mapped for ever, page-aligned, made of atomics; a test's file keeps its size.
        Ok(Self(unsafe { &*at.cast::<Shared>() }))
    }

    /// True if this process is one whose calls are to fail: a coordinator.
    pub(crate) fn is_of_coordinator(&self) -> bool {
        let own = std::process::id() as i32;
        [Role::Coordinator, Role::Starting].into_iter().any(|role| self.who_is(role) == own)
    }

    /// This process is at a point. Returns the error that a call there is to answer, or 0.
    pub(crate) fn reached(&self, name: &Name) -> u32 {
        let board = self.0;
        let strike = board.strike.load(SeqCst);
        let Some(at) = self.place(name.as_bytes()) else { return 0 };
        let point = &board.points[at];
        point.times.fetch_add(1, SeqCst);
        // SAFETY: no arguments.
        let own = unsafe { libc::getpid() };
        if strike == 0
            || point.strike.load(SeqCst) != strike
            || board.skip.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return 0;
        }
        let (victim, signal) = (board.victim.load(SeqCst), board.signal.load(SeqCst));
        let (wait, error) = (board.wait_micros.load(SeqCst), board.error.load(SeqCst));
        // Only one process strikes.
        let comes_again = board.again.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if !comes_again && board.strike.compare_exchange(strike, 0, SeqCst, SeqCst).is_err() {
            return 0;
        }
        write_text(&board.name, std::env::var_os("BATON_NAME").unwrap_or_default().as_bytes());
        board.at.store(at as u32, SeqCst);
        board.by.store(own, SeqCst);
        if signal != 0 {
            // SAFETY: plain numbers; a test names its own processes.
            unsafe { libc::kill(self.process(victim, own), signal) };
        }
        // SAFETY: a number.
        unsafe { libc::usleep(wait) };
        error
    }

    fn process(&self, victim: i32, own: i32) -> i32 {
        match victim {
            0 => own,
            ..0 => self.0.roles[!victim as usize].load(SeqCst),
            process => process,
        }
    }

    /// This process has a role from now on.
    pub(crate) fn is(&self, role: Role) {
        self.0.roles[role as usize].store(std::process::id() as i32, SeqCst);
    }

    /// The process that has a role now.
    pub fn who_is(&self, role: Role) -> i32 {
        self.0.roles[role as usize].load(SeqCst)
    }

    /// The place of a point among all, which it gets now if it has none. None if there are too many.
    fn place(&self, name: &[u8]) -> Option<usize> {
        let hash = hash(name);
        let first = (hash >> 1) as usize;
        for at in (0..POINTS).map(|next| (first + next) % POINTS) {
            let point = &self.0.points[at];
            match point.hash.compare_exchange(0, hash, SeqCst, SeqCst) {
                Ok(_) => write_text(&point.name, name),
                Err(there) if there == hash => {}
                Err(_) => continue,
            }
            return Some(at);
        }
        None
    }

    /// The points that were reached, and how often.
    pub fn points(&self) -> Vec<(String, u64)> {
        let counted = self.0.points.iter().filter(|counted| counted.times.load(SeqCst) > 0);
        let mut all: Vec<_> = counted.map(|counted| (read_text(&counted.name), counted.times.load(SeqCst))).collect();
        all.sort();
        all
    }

    /// Has this strike come, in place of one that has not come yet.
    pub fn prepare(&self, strike: &Strike) {
        let board = self.0;
        board.strike.store(0, SeqCst);
        board.by.store(0, SeqCst);
        board.skip.store(strike.skip, SeqCst);
        board.victim.store(strike.victim.number(), SeqCst);
        board.signal.store(strike.signal, SeqCst);
        board.error.store(strike.error, SeqCst);
        board.again.store(strike.again, SeqCst);
        board.wait_micros.store(strike.wait.as_micros() as u32, SeqCst);
        let number = board.last.fetch_add(1, SeqCst) + 1;
        for at in strike.points.iter().filter_map(|point| self.place(point.as_bytes())) {
            board.points[at].strike.store(number, SeqCst);
        }
        board.strike.store(number, SeqCst);
    }

    /// Has no strike come. False if it has come.
    pub fn take_back(&self) -> bool {
        self.0.strike.swap(0, SeqCst) != 0
    }

    /// The process that has reached the point, if one has.
    pub fn struck(&self) -> Option<By> {
        let process = self.0.by.load(SeqCst);
        let point = || read_text(&self.0.points[self.0.at.load(SeqCst) as usize].name);
        (process != 0).then(|| By { process, name: read_text(&self.0.name), point: point() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strike_comes_once_at_one_of_its_points_and_points_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let board = Board::make(&folder.path().join("board")).expect("a board");
        let point = |name: &'static str| Name::of("tells", &format_args!("{name}"));
        board.prepare(&Strike { skip: 1, ..Strike::at("tells Map") });
        for name in ["Map", "Unmap"] {
            board.reached(&point(name));
            assert_eq!(board.struck(), None);
        }
        board.reached(&point("Map"));
        let by = |point: &str| By { process: std::process::id() as i32, name: String::new(), point: point.to_owned() };
        assert_eq!(board.struck(), Some(by("tells Map")));
        assert!(!board.take_back());
        board.prepare(&Strike::at("tells Map"));
        assert_eq!(board.struck(), None);
        assert!(board.take_back());
        board.reached(&point("Map"));
        assert_eq!(board.struck(), None);
        board.prepare(&Strike { points: vec!["tells Gone".to_owned(), "tells Unmap".to_owned()], ..Strike::default() });
        board.reached(&point("Map"));
        assert_eq!(board.struck(), None, "it was a point of an earlier strike");
        board.reached(&point("Unmap"));
        board.reached(&point("Gone"));
        assert_eq!(board.struck(), Some(by("tells Unmap")));
        let reached = [("tells Gone", 1), ("tells Map", 4), ("tells Unmap", 2)];
        assert_eq!(board.points(), reached.map(|(name, times)| (name.to_owned(), times)));
    }
}
