//! The keeper's process: it starts coordinators, one after the other, and holds what they say.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use baton_contract::link;
use baton_contract::wire::GpuNumber;

use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_dumpable_behavior,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::client::{NOTHING, Start};
use super::ends::{AGAIN, Deaths, Orphans, await_end, has_ended};
use super::held::{Held, Item, Key, Note, line, receive, send_done, set_limits};

/// The status with which a coordinator has died; none if another process has started it.
pub type Death = Option<ExitStatus>;

/// The last coordinator's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has ended by itself, with this exit code.
    ByItself(u8),
    /// It has died too often, the last time by this status.
    TooOften(Death),
    /// It has died by this status when it was to end.
    WhenItWasToEnd(Death),
}

/// The ways in which coordinators are started again.
#[derive(Clone, Copy, Debug)]
pub struct Again {
    /// How often within a minute without a pause.
    pub most: usize,
    /// The time for which programs are kept when none serves.
    pub orphan_wait: Duration,
    /// The time after which one that has shown that it works, and no longer does, is killed.
    pub hangs: Duration,
}

/// The coordinator to which signals are passed on.
#[derive(Default)]
struct Serving {
    process: Option<Arc<OwnedFd>>,
    /// The signal by which it is to end.
    ends: Option<Signal>,
}

/// The same for two threads: one hears of signals, and the other one waits for them when none serves.
#[derive(Default)]
struct Signals {
    serving: Mutex<Serving>,
    came: Condvar,
}

impl Signals {
    fn serving(&self) -> MutexGuard<'_, Serving> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this time, or until the next coordinator is to end. True if it is to end.
    fn wait(&self, pause: Duration) -> bool {
        let waited = self.came.wait_timeout_while(self.serving(), pause, |serving| serving.ends.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.ends.is_some()
    }
}

impl Serving {
    fn pass_on(&mut self, signal: Signal) {
        if signal != Signal::HUP {
            self.ends = Some(signal);
        }
        if let Some(process) = &self.process {
            // This fails without harm if it has ended.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Passes signals on to this one from now on; also one that has come before.
    fn is(&mut self, process: Arc<OwnedFd>) {
        self.process = Some(process);
        if let Some(signal) = self.ends {
            self.pass_on(signal);
        }
    }
}

/// A coordinator that serves.
struct Coordinator {
    /// The keeper's end of the socket.
    socket: OwnedFd,
    process: Arc<OwnedFd>,
    /// The same, if this keeper has started it.
    child: Option<Child>,
}

/// Holds what a coordinator says, and starts another one whenever one dies. The first one is started too, or is
/// that at the other end of `first`, which has started this keeper. Signals for the coordinator that come to this process are passed on.
/// `on_another` is called if one that was started has found another in its place, which is kept from then on.
///
/// # Errors
///
/// When no coordinator can be started.
pub fn keep(
    first: Option<OwnedFd>,
    start: &Start,
    again: Again,
    on_death: impl Fn(Death, Duration),
    on_another: impl Fn(),
) -> io::Result<End> {
    // Its descriptors lead to programs' memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    baton_faults::begin_as(baton_faults::Role::Keeper);
    let first = first.map(Coordinator::that_serves).transpose()?;
    let signals = Signals::default();
    std::thread::scope(|scope| {
        let mut heard = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = heard.handle();
        let signals = &signals;
        scope.spawn(move || {
            for signal in heard.forever() {
                let signal = match signal {
                    SIGHUP => Signal::HUP,
                    SIGINT => Signal::INT,
                    _ => Signal::TERM,
                };
                signals.serving().pass_on(signal);
                signals.came.notify_all();
            }
        });
        let end = serve(first, start, again, (&on_death, &on_another), signals);
        handle.close();
        end
    })
}

fn serve(
    mut first: Option<Coordinator>,
    start: &Start,
    again: Again,
    (on_death, on_another): (&impl Fn(Death, Duration), &impl Fn()),
    signals: &Signals,
) -> io::Result<End> {
    let mut held = Held::default();
    let (mut deaths, mut orphans) = (Deaths::default(), Orphans::new(again.orphan_wait));
    let is_coordinators = first.is_some();
    // The file of the last upgrade, and a coordinator of it that is to follow.
    let (mut file, mut successor) = (None, None);
    let mut next = |successor: &mut Option<Successor>, held: &mut Held, orphans: &Orphans| {
        held.retain(lives);
        let prepared = successor.take().and_then(|one| one.if_alive(&mut file));
        let coordinator = prepared.map_or_else(|| Coordinator::start(start, file.as_ref()), Ok)?;
        baton_faults::reach("keeper hands over", &"all");
        // It may hang before it reads: orphans are not kept for longer than they are to be. An error here means that they are.
        let _ = set_limits(&coordinator.socket, orphans.left());
        // It may die before it has read all.
        let _ = held.send_all(coordinator.socket.as_fd(), is_coordinators);
        io::Result::Ok(coordinator)
    };
    loop {
        let mut coordinator = match first.take().map_or_else(|| next(&mut successor, &mut held, &orphans), Ok) {
            Ok(coordinator) => coordinator,
            Err(error) if !held.has_tenants() => return Err(error),
            Err(error) => {
                baton_messages::error!(coordinator_cannot_be_started(error));
                let pause = deaths.until_next(again.most, Instant::now()).max(AGAIN);
                match await_next(None, pause, &mut orphans, signals, || ()) {
                    Some(end) => return Ok(end),
                    None => continue,
                }
            }
        };
        let code = loop {
            signals.serving().is(Arc::clone(&coordinator.process));
            match hold(&mut held, &mut orphans, (&coordinator.socket, again.hangs)) {
                Heard::End(code) => break code,
                Heard::Nothing => {
                    coordinator.kill();
                    break None;
                }
                Heard::Another(process, line) => {
                    coordinator.gives_way_to(process, line);
                    on_another();
                }
                Heard::Successor(with) => {
                    // The one before it is not wanted any more. If this one cannot be started, its line ends.
                    successor.take().into_iter().for_each(Successor::end);
                    successor = Successor::start(start, with, &held).ok();
                }
                Heard::HandsOver => match next(&mut successor, &mut held, &orphans) {
                    Ok(next) => std::mem::replace(&mut coordinator, next).ends_by_itself(),
                    // It goes on if it hears nothing.
                    Err(error) => baton_messages::error!(coordinator_cannot_be_started(error)),
                },
            }
        };
        // Nothing that it had the GPU copy is under way when it is gone.
        let status = coordinator.end();
        // One that cannot take over may be followed by one that can.
        held.retain(lives);
        let exited = status.and_then(|status| status.code()).filter(|_| !held.has_tenants());
        if let Some(code) = code.or(exited.map(|code| u8::try_from(code).unwrap_or(1))) {
            return Ok(End::ByItself(code));
        }
        let pause = deaths.until_next(again.most, Instant::now());
        if let Some(end) = await_next(status, pause, &mut orphans, signals, || on_death(status, pause)) {
            return Ok(end);
        }
    }
}

/// Waits until the next coordinator is to be started. Returns the end if there is to be none.
fn await_next(
    status: Death,
    pause: Duration,
    orphans: &mut Orphans,
    signals: &Signals,
    on_wait: impl FnOnce(),
) -> Option<End> {
    if !orphans.can_wait(pause, Instant::now()) {
        return Some(End::TooOften(status));
    }
    on_wait();
    signals.wait(pause).then_some(End::WhenItWasToEnd(status))
}

/// A coordinator that prepares itself while another one serves.
struct Successor {
    coordinator: Coordinator,
    /// Its program.
    file: OwnedFd,
}

impl Successor {
    /// Starts one of the first of these descriptors, and gives it the other one, and what it can prepare with.
    fn start(start: &Start, with: Vec<OwnedFd>, held: &Held) -> io::Result<Self> {
        let [file, line] = <[OwnedFd; 2]>::try_from(with).map_err(|_| io::ErrorKind::InvalidData)?;
        let coordinator = Coordinator::start(start, Some(&file))?;
        held.send_first(coordinator.socket.as_fd(), &line)?;
        Ok(Self { coordinator, file })
    }

    /// The coordinator, if it has not ended. Others are started of its file then too.
    fn if_alive(mut self, file: &mut Option<OwnedFd>) -> Option<Coordinator> {
        let ended = self.coordinator.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
        if ended {
            return None;
        }
        *file = Some(self.file);
        Some(self.coordinator)
    }

    fn end(self) {
        self.coordinator.kill();
        let _ = self.coordinator.end();
    }
}

impl Coordinator {
    fn start(start: &Start, file: Option<&OwnedFd>) -> io::Result<Self> {
        let (socket, theirs) = line()?;
        let mut child = start(&theirs, file)?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill().and_then(|()| child.wait());
        })?;
        Ok(Self { socket, process: process.into(), child: Some(child) })
    }

    /// The one that has made this socket: it says first which process it is.
    fn that_serves(socket: OwnedFd) -> io::Result<Self> {
        let told = match receive(socket.as_fd())? {
            Some(Note::Hold(_, Key::Coordinator, item)) => item.descriptors.into_iter().next(),
            _ => None,
        };
        let process = told.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { socket, process: process.into(), child: None })
    }

    /// It has found another one in its place.
    fn gives_way_to(&mut self, process: OwnedFd, line: OwnedFd) {
        std::mem::replace(self, Self { process: process.into(), socket: line, child: None }).ends_by_itself();
    }

    /// It ends by itself, for which the keeper need not wait.
    fn ends_by_itself(self) {
        // Without a thread, the system knows its status until this process ends; nothing else comes of that.
        let _ = std::thread::Builder::new().spawn(move || self.end());
    }

    fn kill(&self) {
        // This fails without harm if it has ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Waits until its process has ended.
    fn end(self) -> Death {
        let Self { socket, process, child } = self;
        // One that lives is to have another keeper: this one hears nothing of it any more.
        drop(socket);
        await_end(&process);
        child.and_then(|mut child| child.wait().ok())
    }
}

/// The reason why no more is heard of a coordinator.
enum Heard {
    /// It is gone. Perhaps it has said that it ends by itself, with this exit code.
    End(Option<u8>),
    /// It does not serve although it has had the time for that, or no longer shows that it works.
    Nothing,
    /// It has found this one in its place: its process, and the line to it.
    Another(OwnedFd, OwnedFd),
    /// It wants a successor: the program's file, and the successor's line to it. Without these, it wants none any more.
    Successor(Vec<OwnedFd>),
    /// Its successor goes on.
    HandsOver,
}

/// Holds what the coordinator says, until it is gone, or another one is there in its place, or it has not shown for this time that it works.
fn hold(held: &mut Held, orphans: &mut Orphans, (line, hangs): (&OwnedFd, Duration)) -> Heard {
    let (mut ends, socket) = (None, line.as_fd());
    let mut shown = Shown::new();
    // With orphans it is not waited for without a limit; an error here means that it is.
    let _ = set_limits(line, orphans.left());
    loop {
        let note = match receive(socket) {
            Ok(Some(note)) => Some(note),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match orphans.left() {
                    Some(Duration::ZERO) => return Heard::Nothing,
                    Some(left) => drop(set_limits(line, Some(left))),
                    None => {}
                }
                None
            }
            Err(error) if link::is_want_of_room(&error) => {
                std::thread::sleep(AGAIN);
                continue;
            }
            _ => return Heard::End(ends),
        };
        if orphans.left().is_none() && shown.is_any_late(held, note.as_ref(), hangs) {
            baton_messages::error!(hanging_coordinator_is_killed(hangs.as_secs()));
            return Heard::Nothing;
        }
        match note {
            Some(Note::Hold(_, Key::Coordinator, item)) => {
                if let Ok([process, line]) = <[OwnedFd; 2]>::try_from(item.descriptors) {
                    return Heard::Another(process, line);
                }
            }
            Some(Note::Hold(_, Key::Successor, item)) => return Heard::Successor(item.descriptors),
            Some(Note::Forget(_, Key::Successor)) => return Heard::Successor(Vec::new()),
            Some(Note::HandsOver) => return Heard::HandsOver,
            Some(Note::Hold(gpu, key, item)) => {
                baton_faults::reach("keeper holds", &key);
                held.hold(gpu, key, item);
                baton_faults::reach("keeper held", &key);
            }
            Some(Note::Drop(gpu, NOTHING)) => {
                let _ = send_done(socket);
                if shown.shows(gpu) && orphans.left().is_none() {
                    let _ = set_limits(line, Some(hangs));
                }
            }
            Some(Note::Drop(gpu, key)) => {
                baton_faults::reach("keeper drops", &key);
                held.let_go(gpu, key);
                let _ = send_done(socket);
                baton_faults::reach("keeper dropped", &key);
            }
            Some(Note::Forget(gpu, key)) => {
                baton_faults::reach("keeper forgets", &key);
                held.let_go(gpu, key);
            }
            Some(Note::ForgetAll(gpu)) => held.retain(|of, _, _| of != gpu),
            Some(Note::Serves) => {
                orphans.are_served();
                let _ = set_limits(line, shown.is_any().then_some(hangs));
            }
            Some(Note::Ends(code)) => ends = Some(code),
            Some(Note::Done | Note::All { .. } | Note::RestLater | Note::Unknown) | None => {}
        }
    }
}

/// The times at which the coordinator has last shown that it works, for each GPU: each has a thread. A coordinator of a version that never
/// shows it has no times.
struct Shown {
    of: BTreeMap<GpuNumber, Instant>,
    /// When the keeper has last looked.
    looked: Instant,
}

impl Shown {
    fn new() -> Self {
        Self { of: BTreeMap::new(), looked: Instant::now() }
    }

    /// It shows that it works for this GPU from now on. True if that is new.
    fn shows(&mut self, gpu: GpuNumber) -> bool {
        self.of.insert(gpu, Instant::now()).is_none()
    }

    fn is_any(&self) -> bool {
        !self.of.is_empty()
    }

    /// True if it does not show for some GPU that it works. Every note of a GPU shows that; without programs it has nothing to show.
    /// `note`: what has been read, or nothing if there was nothing to be read.
    fn is_any_late(&mut self, held: &Held, note: Option<&Note>, hangs: Duration) -> bool {
        let now = Instant::now();
        let before = std::mem::replace(&mut self.looked, now);
        if note.is_some() && now - before >= hangs / 2 {
            // This process may have been stopped, and there may be more to be read.
            self.of.values_mut().for_each(|at| *at = now);
        }
        let of = match note {
            Some(Note::Hold(gpu, ..) | Note::Drop(gpu, _) | Note::Forget(gpu, _)) => Some(*gpu),
            _ => None,
        };
        if let Some(at) = of.and_then(|gpu| self.of.get_mut(&gpu)) {
            *at = now;
        }
        self.of.iter().any(|(gpu, at)| now - *at >= hangs && held.has_tenants_of(*gpu))
    }
}

/// False for a tenant whose process has ended.
fn lives(_: GpuNumber, key: Key, item: &Item) -> bool {
    let (Key::Tenant(_), Some(process)) = (key, item.descriptors.get(super::client::PROCESS)) else { return true };
    !has_ended(process, Some(Duration::ZERO)).unwrap_or(false)
}

impl End {
    /// The exit code of a keeper whose last coordinator has ended so.
    pub fn code(self) -> u8 {
        match self {
            Self::ByItself(code) => code,
            Self::TooOften(status) | Self::WhenItWasToEnd(status) => {
                let signal = status.and_then(|status| status.signal());
                signal.and_then(|signal| u8::try_from(128 + signal).ok()).unwrap_or(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::getpid;

    use super::super::held::send_item;
    use super::*;

    fn pidfd(pid: Pid) -> OwnedFd {
        pidfd_open(pid, PidfdFlags::empty()).expect("it is not waited for yet")
    }

    /// A coordinator of which nothing is known but its process: its end of the line, and the keeper's.
    fn begun(coordinator: &Child) -> (OwnedFd, OwnedFd) {
        let (ours, keepers) = line().expect("sockets");
        send_item(
            ours.as_fd(),
            (GpuNumber::FIRST, Key::Coordinator),
            &[],
            &[pidfd(Pid::from_child(coordinator)).as_fd()],
        )
        .expect("it is read later");
        (ours, keepers)
    }

    /// Has the keeper hold a tenant, whose process is this one.
    fn hold_tenant(ours: &OwnedFd) {
        let (program, file) = (pidfd(getpid()), std::fs::File::open("/dev/null").expect("there"));
        let has = [file.as_fd(), file.as_fd(), program.as_fd(), file.as_fd()];
        send_item(ours.as_fd(), (GpuNumber::FIRST, Key::Tenant(1)), &[], &has).expect("it is read later");
    }

    /// The GPU's copies for a process go on until that has ended, which may be later than its line's end.
    #[test]
    fn the_next_coordinator_is_started_when_the_process_of_the_last_one_has_ended() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ended = folder.path().join("ended");
        let script = format!("sleep 0.3; : > {}", ended.display());
        let mut last = Command::new("sh").args(["-c", &script]).spawn().expect("there is a shell");
        let (ours, line) = begun(&last);
        hold_tenant(&ours);
        drop(ours);
        let had_ended = Arc::new(Mutex::new(Vec::new()));
        let start: Start = Box::new({
            let had_ended = Arc::clone(&had_ended);
            move |_, _| {
                had_ended.lock().expect("of one thread").push(ended.exists());
                Command::new("true").spawn()
            }
        });
        let first = Coordinator::that_serves(line).expect("it says who it is");
        let again = Again { most: 1, orphan_wait: Duration::ZERO, hangs: Duration::MAX };
        let end = serve(Some(first), &start, again, (&|_, _| {}, &|| {}), &Signals::default()).expect("it starts");
        last.wait().expect("it has ended");
        assert_eq!(*had_ended.lock().expect("of one thread"), [true]);
        assert!(matches!(end, End::TooOften(Some(_))), "{end:?}");
    }

    /// It is killed when orphans are kept no longer, also if not all that it is told has room in the line.
    #[test]
    fn a_coordinator_that_reads_nothing_is_not_waited_for_without_a_limit() {
        let mut last = Command::new("true").spawn().expect("there is such a program");
        let (ours, line) = begun(&last);
        let tells = std::thread::spawn(move || {
            hold_tenant(&ours);
            for number in 0..4000 {
                send_item(ours.as_fd(), (GpuNumber::FIRST, Key::Fact(1, number)), &[7; 100], &[]).expect("it reads");
            }
        });
        let lines = Arc::new(Mutex::new(Vec::new()));
        let start: Start = Box::new({
            let lines = Arc::clone(&lines);
            move |line, _| {
                lines.lock().expect("of one thread").push(line.try_clone()?);
                Command::new("sleep").arg("1000").spawn()
            }
        });
        let first = Coordinator::that_serves(line).expect("it says who it is");
        let again = Again { most: 1, orphan_wait: Duration::from_millis(300), hangs: Duration::MAX };
        let end = serve(Some(first), &start, again, (&|_, _| {}, &|| {}), &Signals::default()).expect("it starts");
        tells.join().expect("it has told all");
        last.wait().expect("it has ended");
        assert!(matches!(end, End::TooOften(Some(_))), "{end:?}");
    }
}
