//! The server: one thread that owns all of the coordinator's state, and the loop that drives it.
//!
//! | file | what it does |
//! |---|---|
//! | `event_loop` | what is waited for |
//! | `lobby/` | who comes, and what each wants |
//! | `join` | how a newcomer becomes a tenant |
//! | `tenants/` | a tenant, its process, sockets and shared pages |
//! | `dispatch` | who is told what: messages, decisions, events |
//! | `receive` | what tenants say, one message after the other |
//! | `parts` | each owner of state, with what it needs of others |
//! | `tuning` | settings that users change meanwhile |
//! | `turns` | turns begin and end |
//! | `memory/` | memory: allocations, frames, eviction, swapping in, what is done ahead |
//! | `corun` | tenants that fit together run together |
//! | `outsiders` | who is on the GPU and is no tenant |
//! | `preemption/` | taking tenants off the GPU in the middle; time slices |
//! | `depart` | tenants that end, in whatever state |
//! | `admin/` | what users ask for: how things stand, other settings, memory that is to leave |
//! | `recorder/` | what happened, for whoever asks |
//! | `cost_model` | what moving memory costs |
//!
//! Everything slow happens elsewhere: copies in the mover's lanes, preparing slabs in their thread,
//! mapping in the tenants. They all report by waking the loop. After every round of events the loop calls
//! `Server::pump`, which starts whatever has become possible.

mod admin;
mod corun;
mod cost_model;
mod depart;
mod dispatch;
mod event_loop;
#[cfg(test)]
mod floors;
mod join;
mod lobby;
mod memory;
mod outsiders;
mod parts;
mod preemption;
mod receive;
mod recorder;
mod tenants;
mod tuning;
mod turns;
mod unresponsive;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::messages::DriverKind;
use baton_contract::socket_path;
use baton_report::record::Head;

use crate::device::gpu::{Gpu, GpuError};
use crate::device::wake::Waker;
use crate::endpoint::Endpoint;
use crate::records::Book;
use baton_policy::arbiter::{Arbiter, Event, Micros, TenantId};
use baton_policy::scheduler::Scheduler;

use admin::evict::Evictions;
use admin::prefetch::Prefetches;
use corun::Corun;
use cost_model::CostModel;
use event_loop::{EventLoop, Interest, Source};
use lobby::Lobby;
use memory::Memory;
use outsiders::Outsiders;
use preemption::Preemptions;
use receive::Socket;
use recorder::Recorder;
use tenants::table::Tenants;
use tenants::tenant::Tenant;
use turns::Turns;

pub use recorder::keeper::Kept;
pub use tenants::guests::Quotas;
pub use tuning::{Tuner, Tuning};
pub use unresponsive::{OnStuck, Stuck};

/// How the server is to work.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the arena may take, in bytes.
    pub arena: u64,
    /// How large the host pool is to be, in bytes.
    pub host_pool: u64,
    /// What can change while it serves.
    pub tuning: Tuning,
    /// Which driver tenants have to use too.
    pub driver: DriverKind,
    /// How much of the arena is kept free, so that a switch can begin to copy at once, in bytes.
    pub headroom: u64,
    /// Whether, and how, tenants run while their memory comes in.
    pub pipeline: Pipeline,
    /// Whether to find out by hashing what has not changed and need not be copied out.
    pub hash: bool,
    /// Whether memory that was evicted goes back to its frames as they are, if nobody has needed them since.
    pub keep: bool,
    /// Whether to take work off the GPU in the middle, where that is possible, instead of waiting for its end.
    pub pause: bool,
    /// Whether tenants that fit together run together, where they can be paused.
    pub corun: bool,
    /// A file that gets a line for every switch.
    pub trace: Option<PathBuf>,
    /// For tests: freed and evicted frames are filled with this instead of zeros, before they are lent again.
    pub poison: Option<u8>,
    /// Other users whose programs may be tenants, by their numbers. They can steer nothing.
    pub guests: Vec<RangeInclusive<u32>>,
    /// Between whom physical memory never changes hands.
    pub isolation: Isolation,
    /// What becomes of tenants that do not answer, and hold up others all the same.
    pub on_stuck: OnStuck,
    /// What each of them may have.
    pub quotas: Quotas,
    /// Whether to end when the last tenant has left.
    pub until_idle: bool,
}

/// Between whom a piece of physical memory never changes hands: for others it is given back to the driver, and another piece is made. A
/// program that has kept a handle to a piece sees nothing of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Between users.
    #[default]
    Users,
    /// Between all tenants; nothing is taken of one that does not answer.
    Strict,
}

/// How tenants run while their memory comes in. All but the first are there to be compared with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipeline {
    /// In groups, planned from the order of first use.
    #[default]
    Groups,
    /// Each extent by itself.
    Extents,
    /// All in one group.
    One,
    /// Not at all: they run when all is there.
    Off,
}

/// Why the server could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The GPU or its driver.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The system.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        error: std::io::Error,
    },
}

/// An urgent tenant has the GPU to itself at first for so long.
const HASTE: Duration = Duration::from_millis(50);

/// With `until_idle`: how long a server waits for its first tenant.
const FIRST_TENANT: Duration = Duration::from_secs(60);

/// How often one that has nothing to do tries to end, when somebody is on the way.
const CLOSE_AGAIN: Duration = Duration::from_millis(50);

/// A program that grows asks again and again: after a request, the next is listened for so long before the server sleeps.
const NEXT_REQUEST: Duration = Duration::from_micros(100);

/// Where a signal handler leaves its word.
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    /// Asks the server to end.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Makes the server look around again.
    fn wake(&self) {
        self.waker.wake();
    }
}

/// The coordinator of one GPU.
pub struct Server {
    options: Options,
    start: Instant,
    stop: Stop,
    tuner: Tuner,
    tunings: Receiver<Tuning>,
    events: Arc<EventLoop>,
    lobby: Lobby,
    tenants: Tenants,
    arbiter: Scheduler,
    turns: Turns,
    memory: Memory,
    /// Until then another request is likely.
    awake_until: Instant,
    looked_at_holders: Instant,
    /// What the arbiter has yet to hear.
    untold: VecDeque<(TenantId, Event)>,
    recorder: Recorder,
    costs: CostModel,
    evictions: Evictions,
    prefetches: Prefetches,
    corun: Corun,
    outsiders: Outsiders,
    preemptions: Preemptions,
    /// Given up last: who comes after us takes the GPU then.
    endpoint: Endpoint,
}

impl Server {
    /// Takes a GPU into service at a socket that is bound and listens.
    ///
    /// # Errors
    ///
    /// When the GPU or the system refuses what every coordinator needs.
    pub fn new(gpu: Gpu, endpoint: Endpoint, options: Options) -> Result<Self, ServeError> {
        let system = |what: &str, error: std::io::Error| ServeError::System { what: what.to_owned(), error };
        let waker = Waker::new().map_err(|error| system("eventfd", error))?;
        let watched = || {
            let events = EventLoop::new()?;
            events.add(&waker, Source::Waker, Interest::Read)?;
            events.add(&endpoint, Source::Listener, Interest::Read)?;
            events.add(endpoint.watch(), Source::Place, Interest::Read)?;
            Ok(Arc::new(events))
        };
        let events = watched().map_err(|error| system("epoll", error))?;
        let trace = match &options.trace {
            Some(path) => Some(File::create(path).map_err(|error| system(&path.display().to_string(), error))?),
            None => None,
        };
        let outsiders = Outsiders::new(&gpu, waker.clone()).map_err(|error| system("a thread", error))?;
        let preemptions = Preemptions::new(&gpu, options.pause, waker.clone())?;
        let recorder = Recorder::new(socket_path::gpu_name(gpu.uuid).into(), trace);
        let memory = Memory::new(gpu, &options, waker.clone())?;
        let tuning = &options.tuning;
        let arbiter = Arbiter::new(tuning.quantum()).with_max_wait(tuning.max_wait());
        let corun = Corun::new(options.pause && options.corun, tuning.bursts());
        let (tuner, tunings) = Tuner::new(waker.clone());
        Ok(Self {
            tuner,
            tunings,
            arbiter: Scheduler::new(arbiter),
            turns: Turns::default(),
            // One clock: what has happened and how long it runs are told by the same.
            start: recorder.start(),
            awake_until: Instant::now(),
            looked_at_holders: Instant::now(),
            stop: Stop { flag: Arc::new(AtomicBool::new(false)), waker },
            lobby: Lobby::new(Arc::clone(&events), options.guests.clone()),
            tenants: Tenants::new(Arc::clone(&events)),
            events,
            memory,
            untold: VecDeque::new(),
            recorder,
            costs: CostModel::default(),
            evictions: Evictions::default(),
            prefetches: Prefetches::default(),
            corun,
            outsiders,
            preemptions,
            endpoint,
            options,
        })
    }

    /// By what it can be ended.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// What the record of this coordinator begins with.
    pub fn head(&self) -> Head {
        let gpu = self.memory.gpu();
        Head {
            schema: baton_views::event::SCHEMA,
            gpu: self.recorder.gpu().to_string(),
            gpu_name: gpu.name.clone(),
            socket: self.endpoint.path().display().to_string(),
            pid: std::process::id(),
            started_unix_ms: self.recorder.started_unix_ms(),
            programs: BTreeMap::new(),
        }
    }

    /// Has what happens from now on written to a book. When this is gone, whoever wants to can wait until all is written.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn keep(&mut self, book: Book) -> std::io::Result<Kept> {
        self.recorder.keep(book)
    }

    /// By what its settings can be changed, as far as that is possible.
    pub fn tuner(&self) -> Tuner {
        self.tuner.clone()
    }

    /// Leaves its place to a successor, and lets its tenants know.
    pub fn leave(&self) {
        self.endpoint.leave();
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    ///
    /// When the system no longer lets it wait for anything.
    pub fn serve(&mut self) -> Result<(), ServeError> {
        while !self.stop.flag.load(Ordering::Acquire) {
            if self.has_no_more_to_do() && self.lobby.close_if_unwanted(&mut self.endpoint) {
                break;
            }
            let ready = self.wait().map_err(|error| ServeError::System { what: "epoll".to_owned(), error })?;
            self.stop.waker.lower();
            while let Ok(tuning) = self.tunings.try_recv() {
                self.tune(tuning);
            }
            self.memory().hear();
            self.outsiders.hear(&self.tenants);
            while let Some(report) = self.preemptions.next_report() {
                self.preemptions().carried_out(report);
                self.settle();
            }
            self.timers();
            for source in ready {
                self.serve_source(source);
            }
            if self.corun.take_cleared() {
                // Who was at work is no more, and cannot say so: those that made way for it go on.
                self.look_at_activity();
            }
            self.pump();
        }
        Ok(())
    }

    /// Who has its turn has it by the new settings.
    fn tune(&mut self, tuning: Tuning) {
        self.arbiter.tune(tuning.quantum(), tuning.max_wait());
        self.corun.set_rules(tuning.bursts());
        self.options.tuning = tuning;
        self.tick();
    }

    fn has_no_more_to_do(&self) -> bool {
        let came = self.tenants.has_been_any();
        self.options.until_idle
            && self.tenants.is_empty()
            && self.lobby.is_empty()
            && (came || self.start.elapsed() > FIRST_TENANT)
    }

    /// Waits for something to do, and says where.
    fn wait(&mut self) -> std::io::Result<Vec<Source>> {
        let timer = self.next_timer();
        self.tenants.watch_those_behind();
        let timeout = timer.map(|at| at.saturating_duration_since(Instant::now()));
        self.events.wait_awake(timeout, self.awake_until)
    }

    fn next_timer(&mut self) -> Option<Instant> {
        let at = |micros| self.start + Duration::from_micros(micros);
        let arbiter = self.arbiter.next_timer().map(at);
        let limit = self.turns.next_timer().map(at);
        let first = (self.options.until_idle && !self.tenants.has_been_any()).then(|| self.start + FIRST_TENANT);
        let haste = self.haste_ends().filter(|end| *end > Instant::now());
        let tenants = self.tenants.index().deadline();
        let corun = self.corun.next_timer(self.start);
        let held_up = self.lobby.next_held_up(self.options.tuning.max_wait);
        let lobby = self.lobby.next_timer().into_iter().chain(held_up).chain(self.endpoint.next_look()).min();
        let holders = self.next_look_at_holders();
        let unsent = self.tenants.next_try();
        let evictions = self.evictions.next_timer(&self.tenants);
        // Somebody was on the way, or is just looking for a coordinator.
        let end = self.has_no_more_to_do().then(|| Instant::now() + CLOSE_AGAIN);
        [end, lobby, unsent, evictions, holders, arbiter, self.memory.next_timer(), first, haste, tenants, corun, limit]
            .into_iter()
            .flatten()
            .min()
    }

    fn timers(&mut self) {
        let now = self.now();
        let changed = self.arbiter.is_together() != self.fit_together();
        if changed || self.arbiter.next_timer().is_some_and(|at| at <= now) {
            self.tick();
        }
        self.lobby.send_away(&self.endpoint);
        self.lobby.look(&mut self.endpoint);
        self.tenants.send_again();
        self.look_at_holders();
        for id in self.tenants.index().due(Instant::now()) {
            self.look_at(id);
        }
        for id in self.tenants.index().disconnected() {
            self.end_if_replaced(id);
        }
        self.corun.clear_stopped(&mut self.tenants);
        self.look_at_activity();
        self.memory().timers();
    }

    /// A tenant's time has come, for whatever it may be.
    fn look_at(&mut self, id: TenantId) {
        // Also when it is due next.
        self.tenants.touch(id);
        self.preemptions().look_at(id);
        self.settle();
        self.look_whether_it_answers(id);
        self.kill_if_stuck(id);
        self.settle();
        self.memory().deliver_again(id);
        if self.turns().give_up_if_silent(id) {
            self.tell_arbiter(id, Event::Closed);
        }
    }

    fn serve_source(&mut self, source: Source) {
        match source {
            Source::Waker => {}
            Source::Listener => self.lobby.accept(&self.endpoint),
            Source::Place => self.endpoint.heed_watch(),
            Source::Stranger(at) => self.hear_stranger(at),
            Source::Newcomer(at) => self.lobby.hear_newcomer(at),
            Source::Control(id) => self.hear(id, Socket::Control),
            Source::Requests(id) => {
                self.hear(id, Socket::Requests);
                self.awake_until = Instant::now() + NEXT_REQUEST;
            }
            Source::Process(id) => self.process_ended(id),
        }
    }

    /// Starts whatever has become possible.
    fn pump(&mut self) {
        loop {
            while let Some(lost) = self.tenants.take_lost() {
                self.connection_ended(lost);
            }
            self.settle();
            self.welcome_newcomers();
            self.settle();
            let before = self.memory.swapping_in();
            self.memory().serve();
            self.settle();
            // That may have found another tenant gone. When one has come in, the next may have been decided upon.
            if !self.tenants.has_lost() && self.memory.swapping_in() == before {
                break;
            }
        }
        self.serve_evictions();
        self.serve_prefetches();
        self.end_if_asked();
        let haste = self.is_in_haste();
        self.memory().work_ahead(haste);
        self.settle();
        self.memory().show_offers();
    }

    /// Whether somebody urgent has just got the GPU. Looking at memory and overwriting it are kernels, which take turns
    /// with the tenant's: a request of 8 ms took 22 that way.
    fn is_in_haste(&self) -> bool {
        self.corun.is_anybody_at_work() || self.haste_ends().is_some_and(|end| Instant::now() < end)
    }

    /// Until when nothing is done ahead.
    fn haste_ends(&self) -> Option<Instant> {
        let holder = self.tenants.get(self.arbiter.holder()?)?;
        (holder.class() == Class::Latency).then(|| holder.turn.ran() + HASTE)
    }
}

/// A time for the arbiter.
fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}
