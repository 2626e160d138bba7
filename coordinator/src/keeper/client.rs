//! The coordinator's end of its keeper.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use baton_books::table::Table;
use baton_contract::link;
use baton_contract::memory::GRANULE;
use baton_contract::wire::GpuNumber;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};

use crate::device::wake::Waker;
use crate::device::words::Words;

use super::ends::{Deaths, has_ended, is_any_readable, kill};
use super::held::{
    Item, Key, Note, line, receive, receive_if, send_drop, send_end, send_forget, send_forget_all, send_hand_over,
    send_item, send_serves, set_limits,
};

/// A keeper that does not take or answer anything for so long is replaced.
const PATIENCE: Duration = Duration::from_secs(1);

/// The interval at which a keeper shows that it answers, and a coordinator that it works; and the time for an answer that nothing waits for.
const PING: Duration = Duration::from_secs(1);
const PING_PATIENCE: Duration = Duration::from_secs(5);

/// An item that no keeper holds: asked to let go of it, one of any version only answers.
pub(super) const NOTHING: Key = Key::Fact(u16::MAX, u64::MAX);

/// A fact of a GPU: how often a coordinator could not take it over, in a byte.
const FAILURES: Key = Key::Fact(u16::MAX, 0);

/// The time in which a successor has all that the keeper holds.
const HAND_OVER: Duration = Duration::from_secs(10);

/// The time in which a process whose sockets are closed has ended.
const SHORTLY: Duration = Duration::from_millis(100);

/// The messages of a successor to the coordinator before: with its process, and when that may not go on any more.
const IS_READY: u8 = 0;
const HAS_ALL: u8 = 1;

/// The place of a tenant's process among its descriptors: after its two sockets, and before its page.
pub(super) const PROCESS: usize = 2;

/// Starts a process that is given this end of a socket: of this file, if one is given, or of this process's own.
pub type Start = Box<dyn Fn(&OwnedFd, Option<&OwnedFd>) -> io::Result<Child> + Send + Sync>;

/// The keeper, if there is one, for one of the GPUs.
#[derive(Clone, Default)]
pub struct Keeper {
    line: Option<Arc<Line>>,
    gpu: GpuNumber,
}

struct Line {
    /// Starts another keeper.
    start: Start,
    /// How often in a minute it is replaced.
    replaced: usize,
    end: Mutex<LineEnd>,
}

/// The coordinator's end of the line to its keeper.
struct LineEnd {
    /// The socket, or the reason why there is none.
    socket: Result<OwnedFd, String>,
    /// The keeper's process; none if that has ended already.
    process: Option<OwnedFd>,
    drops: Drops,
    /// When it was last asked to answer, for each GPU.
    pinged: BTreeMap<GpuNumber, Instant>,
    /// The GPUs' threads.
    wakers: BTreeMap<GpuNumber, Waker>,
    /// Changes with each other keeper.
    generation: u64,
    /// Listeners of other threads, which another keeper is to hold too.
    listeners: BTreeMap<u16, OwnedFd>,
    /// Its number.
    pid: Option<u32>,
    /// The same, if this process has started it.
    child: Option<Child>,
    /// True if a coordinator has started it.
    is_coordinators: bool,
    deaths: Deaths,
    /// The time from which another one may be started, if that has failed.
    next_try: Option<Instant>,
}

/// The items that the keeper is to let go of. It answers in the order in which it is asked.
#[derive(Default)]
struct Drops {
    asked: u64,
    done: u64,
    /// When it was asked, or answered last.
    since: Option<Instant>,
    /// True if it was last asked only to answer: nothing waits for that.
    is_ping: bool,
}

impl Drops {
    fn ask(&mut self, is_ping: bool) -> LetGo {
        if self.asked == self.done || self.is_ping {
            self.since = Some(Instant::now());
        }
        self.asked += 1;
        self.is_ping = is_ping;
        LetGo(self.asked)
    }

    fn is_done(&mut self) {
        self.done = self.asked.min(self.done + 1);
        self.since = Some(Instant::now());
    }

    fn all_are_done(&mut self) {
        self.done = self.asked;
    }

    /// The time by which the next answer is to come, if there are any to come.
    fn until(&self) -> Option<Instant> {
        let patience = if self.is_ping { PING_PATIENCE } else { PATIENCE };
        self.since.filter(|_| self.asked > self.done).map(|since| since + patience)
    }

    /// True if no answer is to come.
    fn are_done(&self) -> bool {
        self.asked == self.done
    }
}

/// An item that the keeper is to let go of.
#[derive(Clone, Copy, Debug)]
pub struct LetGo(u64);

/// A frame that the coordinator before has left.
#[derive(Debug)]
pub struct KeptFrame {
    /// Its number.
    pub number: u32,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Its memory.
    pub descriptor: OwnedFd,
    /// Others than its tenants may have it mapped.
    pub reach: Reach,
}

/// Others that may have a frame mapped beside the tenants that have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// None.
    #[default]
    Tenants,
    /// Tenants that have had it before.
    Others,
    /// Others, at any time: it stays where it is.
    Always,
}

/// The keeper's knowledge of a frame, beside its memory.
pub struct FrameFacts {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Others that may have it mapped.
    pub reach: Reach,
}

impl FrameFacts {
    /// The bytes that the keeper holds.
    pub fn encode(&self) -> [u8; 9] {
        let mut all = [0; 9];
        all[..8].copy_from_slice(&self.bytes.to_le_bytes());
        all[8] = self.reach as u8;
        all
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk()?;
        let reach = match rest {
            [1] => Reach::Others,
            [2] => Reach::Always,
            _ => Reach::Tenants,
        };
        Some(Self { bytes: u64::from_le_bytes(*size), reach })
    }
}

/// A tenant that the coordinator before has left.
#[derive(Debug)]
pub struct KeptTenant {
    /// Its number.
    pub number: u32,
    /// The facts that this coordinator knew of it.
    pub facts: Vec<u8>,
    /// The socket for commands and reports.
    pub control: OwnedFd,
    /// The socket for requests.
    pub requests: OwnedFd,
    /// Its process.
    pub process: OwnedFd,
    /// The page that it writes.
    pub page: OwnedFd,
}

/// Everything that the coordinator before has left.
#[derive(Debug, Default)]
pub struct Left {
    /// The items of each GPU.
    pub gpus: BTreeMap<GpuNumber, Inherited>,
    /// The sockets on which it served the web, by their purposes.
    pub listeners: BTreeMap<u16, OwnedFd>,
    /// The line to it, if it is there: the rest comes when it has handed over.
    pub before: Option<OwnedFd>,
}

/// Items of one GPU that the coordinator before has left.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The socket that listens, and the GPU's lock.
    pub place: Option<[OwnedFd; 2]>,
    /// The driver's number of the GPU. A coordinator of the version before does not say it.
    pub number: Option<u32>,
    /// The table.
    pub table: Option<OwnedFd>,
    /// The host pool's slabs.
    pub slabs: BTreeMap<u64, OwnedFd>,
    /// The frames.
    pub frames: Vec<KeptFrame>,
    /// The tenants.
    pub tenants: Vec<KeptTenant>,
    /// Facts that were written down: kinds, numbers and bytes.
    pub facts: Vec<(u16, u64, Vec<u8>)>,
    /// How often coordinators could not take it over.
    pub failures: u8,
}

impl Inherited {
    /// The bytes of the arena and of the host pool, if there is a table that this version reads. `serves`: the coordinator before is there.
    ///
    /// # Errors
    ///
    /// When the system does not give it: no other sizes are right then. When this version does not read it, and the coordinator before is
    /// there: that one goes on.
    pub fn sizes(&self, serves: bool) -> io::Result<Option<(u64, u64)>> {
        let Some(words) = self.table.as_ref().map(Words::open).transpose()? else { return Ok(None) };
        match Table::open(words) {
            Ok(table) => {
                let size = table.size();
                Ok(Some((size.frames as u64 * GRANULE, size.pages as u64 * GRANULE)))
            }
            Err(_) if serves => Err(io::Error::other(baton_messages::OTHER_TABLE)),
            Err(_) => Ok(None),
        }
    }

    fn add(&mut self, key: Key, Item { bytes, descriptors }: Item) {
        let mut with = descriptors.into_iter();
        match key {
            Key::Place => {
                self.place = with.next().zip(with.next()).map(|(listener, lock)| [listener, lock]);
                self.number = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            }
            Key::Table => self.table = with.next(),
            Key::Slab(number) => self.slabs.extend(with.next().map(|slab| (number, slab))),
            Key::Frame(number) => {
                if let (Some(descriptor), Some(FrameFacts { bytes, reach })) = (with.next(), FrameFacts::decode(&bytes))
                {
                    self.frames.push(KeptFrame { number, bytes, descriptor, reach });
                }
            }
            Key::Tenant(number) => {
                if let (Some(control), Some(requests), Some(process), Some(page)) =
                    (with.next(), with.next(), with.next(), with.next())
                {
                    self.tenants.push(KeptTenant { number, facts: bytes, control, requests, process, page });
                }
            }
            FAILURES => self.failures = bytes.first().copied().unwrap_or(0),
            Key::Fact(kind, number) => self.facts.push((kind, number, bytes)),
            // The process's own.
            Key::Listener(_) | Key::Successor | Key::Coordinator => {}
        }
    }
}

impl Left {
    fn add(&mut self, gpu: GpuNumber, key: Key, item: Item) {
        match key {
            Key::Listener(number) => {
                self.listeners.extend(item.descriptors.into_iter().next().map(|one| (number, one)))
            }
            Key::Successor => self.before = item.descriptors.into_iter().next(),
            key => self.gpus.entry(gpu).or_default().add(key, item),
        }
    }

    /// Receives what the keeper has, up to this part of it or a later one.
    fn receive(&mut self, socket: BorrowedFd<'_>, first: bool) -> io::Result<bool> {
        loop {
            match receive(socket)? {
                Some(Note::Hold(gpu, key, item)) => self.add(gpu, key, item),
                Some(Note::All { is_coordinators }) => return Ok(is_coordinators),
                Some(Note::RestLater) if first => return Ok(false),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

impl Keeper {
    /// The keeper at this socket, which has started this process, and what it has of the coordinator before. `start` starts another one if
    /// it is gone, at most `replaced` times a minute.
    ///
    /// # Errors
    ///
    /// When it does not say what it has.
    pub fn at(socket: OwnedFd, start: Start, replaced: usize) -> io::Result<(Self, Left)> {
        let mut left = Left::default();
        set_limits(&socket, Some(PATIENCE))?;
        let is_coordinators = left.receive(socket.as_fd(), true)?;
        let (process, pid) = parent(&socket)?.unzip();
        let end = LineEnd {
            socket: Ok(socket),
            process,
            drops: Drops::default(),
            pinged: BTreeMap::new(),
            wakers: BTreeMap::new(),
            generation: 0,
            listeners: BTreeMap::new(),
            pid,
            child: None,
            is_coordinators,
            deaths: Deaths::default(),
            next_try: None,
        };
        let line = Some(Arc::new(Line { start, replaced, end: Mutex::new(end) }));
        Ok((Self { line, gpu: GpuNumber::FIRST }, left))
    }

    /// The same keeper for another GPU.
    #[must_use]
    pub fn of(&self, gpu: GpuNumber) -> Self {
        Self { line: self.line.clone(), gpu }
    }

    /// Wakes this GPU's thread from now on when another one has heard an answer, or has another keeper.
    pub(crate) fn wake_by(&self, waker: Waker) {
        if let Some(mut end) = self.end() {
            end.wakers.insert(self.gpu, waker);
        }
    }

    /// Has the keeper let go of all that belongs to this GPU, which is served no more.
    pub fn leave(&self) {
        self.tell(|socket| send_forget_all(socket, self.gpu));
        if let Some(mut end) = self.end() {
            end.wakers.remove(&self.gpu);
        }
    }

    /// Notes that this GPU could not be taken over, after so many failures before. The next coordinator tries again.
    pub fn note_failure(&self, before: u8) {
        self.tell(|socket| send_item(socket, (self.gpu, FAILURES), &[before.saturating_add(1)], &[]));
    }

    /// Notes that this GPU is served.
    pub fn note_success(&self) {
        self.tell(|socket| send_forget(socket, self.gpu, FAILURES));
    }

    /// The number of the keeper: another one holds nothing yet.
    pub(crate) fn generation(&self) -> u64 {
        self.end().map_or(0, |end| end.generation)
    }

    /// Tells the coordinator before that this one is ready, and waits until that has handed over: then the rest is there.
    ///
    /// # Errors
    ///
    /// When it does not hand over, or the keeper is gone.
    pub fn await_rest(&self, left: &mut Left) -> io::Result<()> {
        let (Some(before), Some(mut end)) = (left.before.take(), self.end()) else { return Ok(()) };
        baton_faults::reach("successor is ready", &"now");
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        link::send(before.as_fd(), &[IS_READY], &[this.as_fd()], false)?;
        let socket = end.socket.as_ref().map_err(|why| io::Error::other(why.clone()))?;
        link::set_patience(socket, None)?;
        let is_coordinators = left.receive(socket.as_fd(), false)?;
        set_limits(socket, Some(PATIENCE))?;
        end.is_coordinators = is_coordinators;
        if link::send(before.as_fd(), &[HAS_ALL], &[], false).is_err() {
            // The one before has ended, or goes on and ends this process.
            while let Ok(Some(_)) = link::receive(before.as_fd(), false) {}
        }
        baton_faults::reach("successor goes on", &"now");
        Ok(())
    }

    /// Has the keeper start a coordinator of this file, which is to follow this one. Returns the line to it: it says when it is ready, and
    /// ends with it.
    ///
    /// # Errors
    ///
    /// When the system gives no sockets.
    pub fn start_successor(&self, file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (ours, theirs) = line()?;
        self.of(GpuNumber::FIRST).hold(Key::Successor, &[], &[file, theirs.as_fd()]);
        Ok(ours)
    }

    /// Has the successor end: it is not wanted any more.
    pub fn end_successor(&self) {
        self.tell(|socket| send_forget(socket, GpuNumber::FIRST, Key::Successor));
    }

    /// Has the successor at the other end of this line go on. If it does, this process touches nothing from then on, and ends. False if
    /// the keeper has died, or does not answer: then both are gone, and this process goes on. `successor` is its process; none if its
    /// version does not say that it has all.
    pub fn hand_over(&self, line: &OwnedFd, successor: Option<&OwnedFd>) -> bool {
        baton_faults::reach("coordinator hands over", &"all");
        self.tell(send_hand_over);
        let Some(mut end) = self.end() else { return true };
        let Some(successor) = successor else { return end.socket.is_ok() };
        if end.process.as_ref().is_some_and(|keeper| has_all(line, keeper)) {
            return true;
        }
        // A successor that has just got all says so before this, or cannot any more.
        let _ = rustix::net::shutdown(line, rustix::net::Shutdown::Read);
        if matches!(link::receive(line.as_fd(), true), Ok(Some(_))) {
            return true;
        }
        // In this order: a keeper whose successor has ended starts another one.
        // One that takes longer to end does nothing any more either.
        let _ = end.kill();
        let _ = kill(successor, PATIENCE);
        end.socket = Err(baton_messages::CONNECTION_ENDED.to_owned());
        false
    }

    /// True if there is to be a keeper, which may have died just now.
    pub fn is_wanted(&self) -> bool {
        self.line.is_some()
    }

    /// True if there is a keeper, so that another coordinator can take over.
    pub fn is_any(&self) -> bool {
        self.end().is_some_and(|end| end.socket.is_ok())
    }

    /// The number of its process, if it is known.
    pub fn pid(&self) -> Option<u32> {
        self.end().filter(|end| end.socket.is_ok())?.pid
    }

    /// The reason why there is no keeper any more, if another one can take its place now.
    pub fn lost(&self) -> Option<String> {
        let mut end = self.end()?;
        end.lose_if_late();
        let is_time = end.next_try.is_none_or(|at| at <= Instant::now());
        end.socket.as_ref().err().filter(|_| is_time).cloned()
    }

    /// The time by which it is to answer, or is to be asked to; if it is gone, the time from which another one may take its place.
    pub fn next_timer(&self, is_pinged: bool) -> Option<Instant> {
        let end = self.end()?;
        match end.socket {
            Ok(_) => end.drops.until().or_else(|| is_pinged.then(|| end.next_ping(self.gpu))),
            Err(_) => end.next_try.or_else(|| Some(Instant::now())),
        }
    }

    /// Has the keeper answer, if it is time: it may be stopped, and the programs would hang if this coordinator died then. It learns from
    /// that, too, that this coordinator works.
    pub fn ping_if_due(&self) {
        let Some(mut end) = self.end() else { return };
        if end.socket.is_ok() && end.drops.are_done() && end.next_ping(self.gpu) <= Instant::now() {
            end.drops.ask(true);
            end.pinged.insert(self.gpu, Instant::now());
            end.tell(|socket| send_drop(socket, self.gpu, NOTHING));
        }
    }

    fn end(&self) -> Option<MutexGuard<'_, LineEnd>> {
        self.line.as_ref().map(|line| line.end.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, tell: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) {
        if let Some(mut end) = self.end() {
            end.tell(tell);
        }
    }

    /// Has something done with this end of the line to it, if there is one.
    ///
    /// # Errors
    ///
    /// When that fails.
    pub fn with_line(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        self.end().and_then(|end| end.socket.as_ref().ok().map(|socket| use_it(socket.as_fd()))).unwrap_or(Ok(()))
    }

    /// Has another one, which is this process, take its place. It holds nothing yet. Returns what it needs: its end of the line, and this
    /// process.
    ///
    /// # Errors
    ///
    /// When there is one that no coordinator has started, or there was to be none.
    pub fn change(&self, process: OwnedFd) -> io::Result<[OwnedFd; 2]> {
        let Some(mut end) = self.end() else { return Err(io::Error::other(baton_messages::WITHOUT_KEEPER)) };
        let changed = end.change(process);
        end.wake_others(self.gpu);
        changed
    }

    /// Passes the keeper on to a coordinator that serves already: `ask` tells it the keeper's process, and returns what
    /// [`Keeper::change`] does there.
    ///
    /// # Errors
    ///
    /// When there is no keeper, or it is not wanted.
    pub fn pass_on(&self, ask: impl FnOnce(BorrowedFd<'_>) -> io::Result<[OwnedFd; 2]>) -> io::Result<()> {
        let end = self.end();
        let process = end.as_ref().and_then(|end| end.process.as_ref()).ok_or(io::ErrorKind::NotFound)?;
        let [line, serving] = ask(process.as_fd())?;
        let with = [serving.as_fd(), line.as_fd()];
        let socket = end.as_ref().and_then(|end| end.socket.as_ref().ok());
        socket.map_or(Ok(()), |socket| send_item(socket.as_fd(), (GpuNumber::FIRST, Key::Coordinator), &[], &with))
    }

    /// Hears of what it has let go of, or that it is gone. The other GPUs' threads find out.
    pub fn hear(&self) {
        let Some(mut end) = self.end() else { return };
        if end.hear() {
            end.wake_others(self.gpu);
        }
    }

    /// Starts another keeper, which holds nothing yet, when the last one is gone for certain: a killed one lets go of what it has.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or the last one does not end, or died too often. It can be tried again later.
    pub fn replace(&self) -> io::Result<()> {
        let (Some(line), Some(mut end)) = (&self.line, self.end()) else { return Ok(()) };
        if end.socket.is_ok() {
            // Another thread has.
            return Ok(());
        }
        end.next_try = Some(Instant::now() + PATIENCE);
        let replaced = end.replace(&line.start, line.replaced);
        if replaced.is_ok() {
            end.next_try = None;
            end.wake_others(self.gpu);
        }
        replaced
    }

    /// Has the keeper hold this, in place of what has this key. Without descriptors, only the bytes change.
    pub fn hold(&self, key: Key, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        baton_faults::reach("coordinator keeps", &key);
        self.tell(|socket| send_item(socket, (self.gpu, key), bytes, descriptors));
        baton_faults::reach("coordinator kept", &key);
    }

    /// Has the keeper hold a socket on which the web is served.
    pub fn hold_listener(&self, number: u16, listener: BorrowedFd<'_>) {
        self.of(GpuNumber::FIRST).hold(Key::Listener(number), &[], &[listener]);
        if let (Some(mut end), Ok(own)) = (self.end(), listener.try_clone_to_owned()) {
            end.listeners.insert(number, own);
        }
    }

    /// Has a keeper that holds nothing yet hold these sockets.
    pub(crate) fn hold_listeners(&self) {
        let listeners = self.end().map(|mut end| std::mem::take(&mut end.listeners)).unwrap_or_default();
        listeners.into_iter().for_each(|(number, listener)| self.hold_listener(number, listener.as_fd()));
    }

    /// Has the keeper let go of this. Memory is free only when it has: [`Keeper::has_let_go`]. A keeper that does not answer is noticed
    /// so, and replaced.
    pub fn let_go(&self, key: Key) -> LetGo {
        baton_faults::reach("coordinator lets go of", &key);
        // With one lock: another thread may hear the answer at once.
        let number = self.end().map_or(LetGo(0), |mut end| {
            end.tell(|socket| send_drop(socket, self.gpu, key));
            end.drops.ask(false)
        });
        baton_faults::reach("coordinator has let go of", &key);
        number
    }

    /// True if the keeper has let go of this, or has ended since.
    pub fn has_let_go(&self, LetGo(number): LetGo) -> bool {
        self.end().is_none_or(|end| number <= end.drops.done || end.socket.is_err() && end.process.is_none())
    }

    /// Has the keeper let go of this, without an answer.
    pub fn forget(&self, key: Key) {
        baton_faults::reach("coordinator forgets", &key);
        self.tell(|socket| send_forget(socket, self.gpu, key));
    }

    /// Tells the keeper that this process serves.
    pub fn serves(&self) {
        self.tell(send_serves);
    }

    /// Tells the keeper that this process ends by itself, with this exit code: it starts no other coordinator.
    pub fn end_with(&self, code: u8) {
        self.tell(|socket| send_end(socket, code));
    }
}

impl LineEnd {
    /// The time at which this GPU is to have it answer again.
    fn next_ping(&self, gpu: GpuNumber) -> Instant {
        self.pinged.get(&gpu).map_or_else(Instant::now, |at| *at + PING)
    }

    fn tell(&mut self, tell: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) {
        if let Some(error) = self.socket.as_ref().ok().and_then(|socket| tell(socket.as_fd()).err()) {
            self.socket = Err(error.to_string());
        }
    }

    fn wake_others(&self, than: GpuNumber) {
        self.wakers.iter().filter(|(gpu, _)| **gpu != than).for_each(|(_, waker)| waker.wake());
    }

    fn change(&mut self, process: OwnedFd) -> io::Result<[OwnedFd; 2]> {
        if self.socket.is_ok() && !self.is_coordinators {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        let (ours, theirs) = line()?;
        set_limits(&ours, Some(PATIENCE))?;
        self.kill()?;
        self.pid = number(&process);
        self.process = Some(process);
        self.is_coordinators = false;
        self.socket = Ok(ours);
        self.generation += 1;
        Ok([theirs, this])
    }

    /// Kills the last one, and waits until it is gone for certain: it lets go of what it has then.
    fn kill(&mut self) -> io::Result<()> {
        if let Some(process) = &self.process {
            kill(process, PATIENCE)?;
            if let Some(mut child) = self.child.take() {
                child.wait()?;
            }
            self.process = None;
        }
        self.drops.all_are_done();
        Ok(())
    }

    /// Hears of what it has let go of, or that it is gone. True if there was anything to hear.
    fn hear(&mut self) -> bool {
        let mut heard = false;
        while let Ok(socket) = &self.socket {
            match receive_if(socket.as_fd(), true) {
                Ok(Some(Note::Done)) => self.drops.is_done(),
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => self.socket = Err(baton_messages::CONNECTION_ENDED.to_owned()),
            }
            heard = true;
        }
        heard
    }

    /// One that is to answer and has not done so for too long is gone.
    fn lose_if_late(&mut self) {
        let is_late = |drops: &Drops| drops.until().is_some_and(|until| until <= Instant::now());
        if is_late(&self.drops) {
            self.hear();
            if self.socket.is_ok() && is_late(&self.drops) {
                self.socket = Err(baton_messages::KEEPER_DOES_NOT_ANSWER.to_owned());
            }
        }
    }

    fn replace(&mut self, start: &Start, most: usize) -> io::Result<()> {
        // Its memory is free from now on, also if no other one may be started yet.
        self.kill()?;
        let pause = self.deaths.until_next(most, Instant::now());
        if !pause.is_zero() {
            self.next_try = Some(Instant::now() + pause);
            return Err(io::Error::other(baton_messages::STARTED_TOO_OFTEN));
        }
        let (ours, theirs) = line()?;
        let child = start(&theirs, None)?;
        self.process = Some(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?);
        self.pid = Some(child.id());
        self.child = Some(child);
        self.is_coordinators = true;
        set_limits(&ours, Some(PATIENCE))?;
        let this = pidfd_open(getpid(), PidfdFlags::empty())?;
        send_item(ours.as_fd(), (GpuNumber::FIRST, Key::Coordinator), &[], &[this.as_fd()])?;
        self.socket = Ok(ours);
        self.generation += 1;
        Ok(())
    }
}

/// Waits until a successor says that it has all. True too if it has ended while the keeper lives, which starts another one then.
fn has_all(line: &OwnedFd, keeper: &OwnedFd) -> bool {
    let end = Instant::now() + HAND_OVER;
    loop {
        match link::receive(line.as_fd(), true) {
            Ok(Some(_)) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => return !has_ended(keeper, Some(SHORTLY)).unwrap_or(false),
        }
        let is_keeper_gone = has_ended(keeper, Some(Duration::ZERO)).unwrap_or(true);
        let left = end.saturating_duration_since(Instant::now());
        if is_keeper_gone || !is_any_readable(&[line, keeper], Some(left)).unwrap_or(false) {
            return false;
        }
    }
}

/// The number of the process that a pidfd is of.
fn number(process: &OwnedFd) -> Option<u32> {
    let known = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    known.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

/// The process that has made a socket, which has started this one, and its number; none if it has ended.
fn parent(socket: &OwnedFd) -> io::Result<Option<(OwnedFd, u32)>> {
    let maker = socket_peercred(socket)?.pid;
    let process = match pidfd_open(maker, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        process => process?,
    };
    // This process has another parent when the first has ended, and another process may have got the number.
    Ok((getppid() == Some(maker)).then_some((process, maker.as_raw_pid().unsigned_abs())))
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keeper").field(&self.is_any()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::held::{Held, send_done};
    use super::*;

    /// The keeper's end of a line, and a coordinator's.
    fn begun() -> (OwnedFd, Keeper) {
        let (ours, theirs) = line().expect("sockets");
        Held::default().send_all(theirs.as_fd(), false).expect("there is room");
        let start: Start = Box::new(|_, _| Err(io::ErrorKind::Unsupported.into()));
        (theirs, Keeper::at(ours, start, 1).expect("it says what it has").0)
    }

    /// A frame that the keeper holds takes its memory, and is mapped wherever a coordinator finds it.
    #[test]
    fn a_frame_is_let_go_of_when_the_keeper_has_said_so() {
        let (theirs, keeper) = begun();
        let [first, second] = [7, 8].map(|number| keeper.let_go(Key::Frame(number)));
        for (number, later) in [(first, Some(second)), (second, None)] {
            keeper.hear();
            assert!(!keeper.has_let_go(number) && keeper.next_timer(false).is_some());
            assert!(matches!(receive(theirs.as_fd()), Ok(Some(Note::Drop(_, Key::Frame(_))))));
            send_done(theirs.as_fd()).expect("there is room");
            keeper.hear();
            assert!(keeper.has_let_go(number) && later.is_none_or(|later| !keeper.has_let_go(later)));
        }
        assert!(keeper.is_any() && keeper.next_timer(false).is_none());
    }

    /// The coordinator does not wait for it: it looks when it has the time.
    #[test]
    fn a_keeper_that_does_not_answer_is_killed_and_has_nothing_any_more() {
        let (_theirs, keeper) = begun();
        let number = keeper.let_go(Key::Frame(7));
        assert_eq!((keeper.lost(), keeper.has_let_go(number)), (None, false));
        let until = keeper.next_timer(false).expect("it is to answer");
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        assert_eq!(keeper.lost().as_deref(), Some(baton_messages::KEEPER_DOES_NOT_ANSWER));
        keeper.replace().expect_err("none can be started");
        assert!(keeper.has_let_go(number));
        // The next one owes nothing for what it never had.
        keeper.let_go(Key::Tenant(8));
        let mut next = std::process::Command::new("true").spawn().expect("there is such a program");
        let process = pidfd_open(Pid::from_child(&next), PidfdFlags::empty()).expect("it is not waited for yet");
        keeper.change(process).expect("there is none");
        assert!(keeper.is_any() && keeper.next_timer(false).is_none());
        next.wait().expect("our own child");
    }

    /// A stopped one would be noticed only when it is needed.
    #[test]
    fn a_keeper_that_is_asked_for_nothing_shows_that_it_answers() {
        let (theirs, keeper) = begun();
        for _ in 0..2 {
            assert!(keeper.next_timer(false).is_none());
            let due = keeper.next_timer(true).expect("it is to be asked");
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            keeper.ping_if_due();
            assert!(matches!(receive(theirs.as_fd()), Ok(Some(Note::Drop(_, NOTHING)))));
            // It is not asked again before it has answered, and has more time than one that others wait for.
            let until = keeper.next_timer(true).expect("it is to answer");
            assert!(until > due + PATIENCE && keeper.lost().is_none());
            send_done(theirs.as_fd()).expect("there is room");
            keeper.hear();
        }
        keeper.ping_if_due();
        let number = keeper.let_go(Key::Frame(7));
        send_done(theirs.as_fd()).expect("there is room");
        keeper.hear();
        assert!(keeper.has_let_go(number), "it was not due");
    }

    #[test]
    fn a_successor_that_does_not_read_the_table_does_not_begin() {
        let size = baton_books::table::Size { frames: 2, pages: 3, slab: 2 << 20 };
        let (words, file) = Words::make(size.words()).expect("memory");
        Table::make(words, size).expect("it is large enough");
        let inherited = Inherited { table: Some(file), ..Inherited::default() };
        assert_eq!(inherited.sizes(false).ok(), Some(Some((2 * GRANULE, 3 * GRANULE))));
        let table = inherited.table.as_ref().expect("there");
        rustix::io::pwrite(table, &(baton_books::table::VERSION + 1).to_ne_bytes(), 8).expect("it is open to us");
        assert_eq!(inherited.sizes(false).ok(), Some(None), "another one has died: this one begins anew");
        let refused = inherited.sizes(true).expect_err("the one that serves goes on");
        assert_eq!(refused.to_string(), baton_messages::OTHER_TABLE);
    }

    #[test]
    fn another_keeper_holds_the_listeners_too() {
        let (_theirs, keeper) = begun();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        keeper.hold_listener(1, listener.as_fd());
        let mut next = std::process::Command::new("true").spawn().expect("there is such a program");
        let process = pidfd_open(Pid::from_child(&next), PidfdFlags::empty()).expect("it is not waited for yet");
        keeper.tell(|_| Err(io::ErrorKind::BrokenPipe.into()));
        for _ in 0..2 {
            let [line, _] = keeper.change(process.try_clone().expect("a descriptor")).expect("there is none");
            keeper.hold_listeners();
            assert!(
                matches!(receive(line.as_fd()), Ok(Some(Note::Hold(_, Key::Listener(1), item))) if item.descriptors.len() == 1)
            );
            keeper.tell(|_| Err(io::ErrorKind::BrokenPipe.into()));
        }
        next.wait().expect("our own child");
    }

    #[test]
    fn a_keeper_that_had_ended_when_its_coordinator_began_is_replaced() {
        // The parent of this process is not the one that has made the socket, as when that has ended.
        let (theirs, keeper) = begun();
        drop(theirs);
        keeper.serves();
        assert!(!keeper.is_any() && keeper.lost().is_some());
        assert_eq!(keeper.replace().map_err(|error| error.kind()), Err(io::ErrorKind::Unsupported), "one is started");
    }
}
