//! The keeper's process: it starts coordinators, one after the other, and holds what they say.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{DumpableBehavior, Pid, Signal, kill_process, set_dumpable_behavior};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::held::{Held, Item, Key, Note, receive, send_done};

/// The time in which a coordinator is started again only so often: one that dies at once would die for ever.
const WHILE: Duration = Duration::from_secs(60);
/// The exit code of a Rust program that has panicked.
const PANICKED: i32 = 101;

/// The last coordinator's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has ended by itself, with this exit code.
    ByItself(i32),
    /// It has died too often, the last time by this status.
    TooOften(ExitStatus),
}

/// Starts a coordinator, which is given its end of a socket, and another one whenever it dies, at most `restarts` times a minute. Signals for the coordinator that come to this process are passed on.
///
/// # Errors
///
/// When no coordinator can be started.
pub fn keep(
    start: impl Fn(&OwnedFd) -> io::Result<Child>,
    restarts: usize,
    on_death: impl Fn(ExitStatus),
) -> io::Result<End> {
    // Its descriptors lead to programs' memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let child = Mutex::new(None);
    std::thread::scope(|scope| {
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let child = &child;
        scope.spawn(move || {
            for signal in signals.forever() {
                let signal = match signal {
                    SIGHUP => Signal::HUP,
                    SIGINT => Signal::INT,
                    _ => Signal::TERM,
                };
                if let Some(pid) = *child.lock().unwrap_or_else(PoisonError::into_inner) {
                    let _ = kill_process(pid, signal);
                }
            }
        });
        let end = serve(&start, restarts, &on_death, child);
        handle.close();
        end
    })
}

fn serve(
    start: &impl Fn(&OwnedFd) -> io::Result<Child>,
    restarts: usize,
    on_death: &impl Fn(ExitStatus),
    pid: &Mutex<Option<Pid>>,
) -> io::Result<End> {
    let mut held = Held::default();
    let mut deaths: Vec<Instant> = Vec::new();
    loop {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut child = start(&theirs)?;
        drop(theirs);
        *pid.lock().unwrap_or_else(PoisonError::into_inner) = Some(Pid::from_child(&child));
        // It may die before it has read all.
        if held.send_all(ours.as_fd()).is_ok() {
            hold(&mut held, ours.as_fd());
        }
        *pid.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // Nothing that it had the GPU copy is under way when it is gone.
        let status = child.wait()?;
        if let Some(code) = status.code().filter(|code| *code != PANICKED) {
            return Ok(End::ByItself(code));
        }
        deaths.retain(|at| at.elapsed() < WHILE);
        deaths.push(Instant::now());
        if deaths.len() > restarts {
            return Ok(End::TooOften(status));
        }
        on_death(status);
        held.retain(lives);
    }
}

/// Holds what the coordinator says, until it is gone.
fn hold(held: &mut Held, socket: BorrowedFd<'_>) {
    while let Ok(Some(note)) = receive(socket) {
        match note {
            Note::Hold(key, item) => held.hold(key, item),
            Note::Drop(key) => {
                held.let_go(key);
                let _ = send_done(socket);
            }
            Note::Done => {}
        }
    }
}

/// False for a tenant whose process has ended.
fn lives(key: &Key, item: &Item) -> bool {
    let (Key::Tenant(_), Some(process)) = (key, item.descriptors.get(super::client::PROCESS)) else { return true };
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let ended = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    ended.is_err() || !watched[0].revents().contains(PollFlags::IN)
}

impl End {
    /// The exit code of a keeper whose last coordinator has ended so.
    pub fn code(self) -> u8 {
        match self {
            Self::ByItself(code) => u8::try_from(code).unwrap_or(1),
            Self::TooOften(status) => u8::try_from(128 + status.signal().unwrap_or(0)).unwrap_or(1),
        }
    }
}
