//! Scans for the processes on the GPU, again and again and on request. It has a thread of its own, because the management library takes
//! its time.

use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};

use super::gpu::Gpu;
use super::holders::{CensusError, Holder};
use super::wake::Waker;

/// Time between two scans without a request.
const USUALLY: Duration = Duration::from_secs(10);
/// Shortest time between two scans.
const AT_MOST: Duration = Duration::from_millis(300);
/// Age at which a process is not just ending.
const SETTLED: Duration = Duration::from_secs(1);
/// Maximum number of ancestors of a process.
const MOST_PARENTS: usize = 256;

/// A process, told apart from others that have had its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    /// The time when it began, in the system's ticks.
    start: u64,
}

impl Identity {
    /// Returns the process that has this number now; none if it cannot be seen.
    pub fn of(pid: i32) -> Option<Self> {
        Some(Stat::of(pid)?.identity)
    }
}

/// The origin of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kin {
    /// The process, its parent, and all further ancestors.
    pub line: Vec<Identity>,
    /// Its process group and its session, which have their first process's number and may outlive it.
    pub groups: [i32; 2],
}

impl Kin {
    fn of(pid: i32) -> Option<Self> {
        let own = Stat::of(pid)?;
        let mut line = vec![own.identity];
        let mut parent = own.parent;
        while parent > 0 && line.len() < MOST_PARENTS {
            let Some(stat) = Stat::of(parent) else { break };
            line.push(stat.identity);
            parent = stat.parent;
        }
        Some(Self { line, groups: own.groups })
    }
}

/// The system's line about a process.
struct Stat {
    identity: Identity,
    parent: i32,
    groups: [i32; 2],
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        // `PID (NAME) STATE PARENT GROUP SESSION …`; the name may contain any text.
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let words: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<i32>().ok();
        let start = words.get(19)?.parse().ok()?;
        Some(Self { identity: Identity { pid, start }, parent: number(1)?, groups: [number(2)?, number(3)?] })
    }
}

/// True if there is such a process, even if nothing else can be seen of it.
pub fn lives(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// A process on the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The process, and its memory.
    pub holder: Holder,
    /// Its program's name.
    pub name: Option<String>,
    /// Its origin; none if that cannot be seen.
    pub kin: Option<Kin>,
    /// True if it has been there for a while.
    pub is_settled: bool,
}

/// All processes on the GPU at a moment, except this one; or the reason why they are not known.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The time of the scan.
    pub at: Instant,
    /// The processes.
    pub all: Result<Vec<Sighting>, CensusError>,
}

/// The server's end of the thread.
#[derive(Debug)]
pub struct Lookout(Sender<()>);

impl Lookout {
    /// Starts the thread. Its scans go to `reports`, and `waker` is woken when they differ from the last.
    ///
    /// # Errors
    ///
    /// When the system has no thread left.
    pub fn start(gpu: &Gpu, reports: Sender<Seen>, waker: Waker) -> std::io::Result<Self> {
        let (sender, asked) = channel();
        let gpu = gpu.clone();
        let work = move || {
            // The simulated driver reports on the current context's GPU.
            let _ = gpu.enter();
            let mut since = HashMap::new();
            let mut before: Option<Seen> = None;
            loop {
                let seen = look(&gpu, &mut since);
                let is_news = before.as_ref().is_none_or(|before| before.all != seen.all);
                before = Some(seen.clone());
                if reports.send(seen).is_err() {
                    return;
                }
                if is_news {
                    waker.wake();
                }
                thread::sleep(AT_MOST);
                let is_settled = before.iter().flat_map(|seen| &seen.all).flatten().all(|sighting| sighting.is_settled);
                let pause = if is_settled { USUALLY } else { SETTLED };
                if let Err(RecvTimeoutError::Disconnected) = asked.recv_timeout(pause) {
                    return;
                }
                while asked.try_recv().is_ok() {}
            }
        };
        thread::Builder::new().name("lookout".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }

    /// Asks for a scan soon.
    pub fn look(&self) {
        // The thread ends only with the server.
        let _ = self.0.send(());
    }
}

fn look(gpu: &Gpu, since: &mut HashMap<Holder, Instant>) -> Seen {
    let at = Instant::now();
    let all = gpu.census.others(gpu.uuid).map(|holders| {
        let key = |holder: &Holder| Holder { bytes: None, ..*holder };
        since.retain(|known, _| holders.iter().any(|holder| key(holder) == *known));
        let there = |holder: &Holder| holder.pid == 0 || lives(holder.pid as i32);
        let sight = |holder: Holder| Sighting {
            name: holder.name(),
            kin: Kin::of(holder.pid as i32),
            is_settled: since.entry(key(&holder)).or_insert(at).elapsed() >= SETTLED,
            holder,
        };
        holders.into_iter().filter(there).map(sight).collect()
    });
    Seen { at, all }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_known_with_those_that_have_started_it() {
        let this = std::process::id() as i32;
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = child.id() as i32;
        let kin = Kin::of(pid).expect("it lives");
        assert_eq!((kin.line[0].pid, kin.line[1].pid), (pid, this));
        assert_eq!(Identity::of(this), Some(kin.line[1]));
        assert!(lives(pid));
        drop(child.stdin.take());
        child.wait().expect("our own child");
        assert!(!lives(pid) && Kin::of(pid).is_none());
    }
}
