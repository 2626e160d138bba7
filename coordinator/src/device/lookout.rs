//! Looks who is on the GPU, again and again and when asked, in a thread of its own: the management library takes its time.

use std::collections::HashMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};

use super::gpu::Gpu;
use super::holders::Holder;
use super::wake::Waker;

/// How often it is looked unasked.
const USUALLY: Duration = Duration::from_secs(10);
/// How often at most.
const AT_MOST: Duration = Duration::from_millis(300);
/// A process that has been there for so long is not just ending.
const SETTLED: Duration = Duration::from_secs(1);
/// No process has so many ancestors.
const MOST_PARENTS: usize = 256;

/// A process, told from others that have had its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    /// When it began, in the system's ticks.
    start: u64,
}

impl Identity {
    /// The process that has this number now; none if it cannot be seen.
    pub fn of(pid: i32) -> Option<Self> {
        Some(Stat::of(pid)?.identity)
    }
}

/// Where a process comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kin {
    /// Itself, and then who has started whom.
    pub line: Vec<Identity>,
    /// Its process group and its session, which are named by who began them and may live longer.
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

/// What the system says of a process in one line.
struct Stat {
    identity: Identity,
    parent: i32,
    groups: [i32; 2],
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        // `PID (NAME) STATE PARENT GROUP SESSION …`, and a name may hold anything.
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let words: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<i32>().ok();
        let start = words.get(19)?.parse().ok()?;
        Some(Self { identity: Identity { pid, start }, parent: number(1)?, groups: [number(2)?, number(3)?] })
    }
}

/// Whether there is such a process, also if nothing else can be seen of it.
pub fn lives(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// A process on the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Which, and how much it holds.
    pub holder: Holder,
    /// What its program is called.
    pub name: Option<String>,
    /// Where it comes from; none if that cannot be seen.
    pub kin: Option<Kin>,
    /// Whether it has been there for a while.
    pub is_settled: bool,
}

/// Everybody on the GPU at a moment, but for this process; or why that is not known.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was looked.
    pub at: Instant,
    /// Who was there.
    pub all: Result<Vec<Sighting>, String>,
}

/// The end that the server holds.
#[derive(Debug)]
pub struct Lookout(Sender<()>);

impl Lookout {
    /// Starts the thread. What it sees goes to `reports`, and `waker` is woken when it has changed.
    ///
    /// # Errors
    ///
    /// When the system has no thread left.
    pub fn start(gpu: &Gpu, reports: Sender<Seen>, waker: Waker) -> std::io::Result<Self> {
        let (sender, asked) = channel();
        let gpu = gpu.clone();
        let work = move || {
            // The simulated driver tells of the current context's GPU.
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

    /// Has it look soon.
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
