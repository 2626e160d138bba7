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
    /// Its name, which is there soon after the hash.
    name: [AtomicU64; LONGEST / 8],
}

/// The file's contents. Zeros are a board without a strike.
struct Shared {
    /// The point of the strike; 0 if there is none.
    point: AtomicU64,
    /// Times that it is yet to be reached before.
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
    /// The process that has reached the point.
    by: AtomicI32,
    /// Its name, as programs of a test have one.
    name: [AtomicU64; LONGEST_NAME / 8],
    /// The processes that have each [`Role`] now.
    roles: [AtomicI32; 3],
    points: [Counted; POINTS],
}

/// The board of a test.
pub struct Board(&'static Shared);

/// The fate of a process at a point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strike {
    /// The point's name.
    pub point: String,
    /// Times that it is reached before without harm.
    pub skip: u32,
    /// The process that is hit.
    pub victim: Victim,
    /// The signal that it gets; 0 for none.
    pub signal: i32,
    /// The error that the call which reaches the point answers; 0 for none.
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
        let hash = hash(name.as_bytes());
        self.count(hash, name);
        let board = self.0;
        // SAFETY: no arguments.
        let own = unsafe { libc::getpid() };
        if board.point.load(SeqCst) != hash
            || board.skip.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return 0;
        }
        let (victim, signal) = (board.victim.load(SeqCst), board.signal.load(SeqCst));
        let (wait, error) = (board.wait_micros.load(SeqCst), board.error.load(SeqCst));
        // Only one process strikes.
        let comes_again = board.again.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if !comes_again && board.point.compare_exchange(hash, 0, SeqCst, SeqCst).is_err() {
            return 0;
        }
        write_text(&board.name, std::env::var_os("BATON_NAME").unwrap_or_default().as_bytes());
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

    fn count(&self, hash: u64, name: &Name) {
        let points = &self.0.points;
        let place = (hash >> 1) as usize;
        for counted in (0..POINTS).map(|next| &points[(place + next) % POINTS]) {
            match counted.hash.compare_exchange(0, hash, SeqCst, SeqCst) {
                Ok(_) => write_text(&counted.name, name.as_bytes()),
                Err(there) if there == hash => {}
                Err(_) => continue,
            }
            counted.times.fetch_add(1, SeqCst);
            return;
        }
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
        board.point.store(0, SeqCst);
        board.by.store(0, SeqCst);
        board.skip.store(strike.skip, SeqCst);
        board.victim.store(strike.victim.number(), SeqCst);
        board.signal.store(strike.signal, SeqCst);
        board.error.store(strike.error, SeqCst);
        board.again.store(strike.again, SeqCst);
        board.wait_micros.store(strike.wait.as_micros() as u32, SeqCst);
        board.point.store(hash(strike.point.as_bytes()), SeqCst);
    }

    /// Has no strike come. False if it has come.
    pub fn take_back(&self) -> bool {
        self.0.point.swap(0, SeqCst) != 0
    }

    /// The process that has reached the point, if one has.
    pub fn struck(&self) -> Option<By> {
        let process = self.0.by.load(SeqCst);
        (process != 0).then(|| By { process, name: read_text(&self.0.name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strike_comes_once_at_its_point_and_points_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let board = Board::make(&folder.path().join("board")).expect("a board");
        let point = |name: &'static str| Name::of("tells", &format_args!("{name}"));
        board.prepare(&Strike { point: "tells Map".to_owned(), skip: 1, ..Strike::default() });
        for name in ["Map", "Unmap"] {
            board.reached(&point(name));
            assert_eq!(board.struck(), None);
        }
        board.reached(&point("Map"));
        assert_eq!(board.struck().map(|by| by.process), Some(std::process::id() as i32));
        assert!(!board.take_back());
        board.prepare(&Strike { point: "tells Map".to_owned(), ..Strike::default() });
        assert_eq!(board.struck(), None);
        assert!(board.take_back());
        board.reached(&point("Map"));
        assert_eq!(board.struck(), None);
        assert_eq!(board.points(), [("tells Map".to_owned(), 3), ("tells Unmap".to_owned(), 1)]);
    }
}
