//! The server: one thread that owns all of the coordinator's state, and the loop that drives it.
//!
//! | file | what it does |
//! |---|---|
//! | `machine` | the servers of this process, one for each GPU |
//! | `event_loop` | the events that the server waits for |
//! | `lobby/` | newcomers and their first messages |
//! | `join` | turns newcomers into tenants |
//! | `kept` | what the keeper holds for the next coordinator |
//! | `takeover`, `returning` | the tenants of a coordinator that has died |
//! | `tenants/` | a tenant, its process, sockets and shared pages |
//! | `dispatch` | the paths of messages, decisions and events |
//! | `receive` | tenants' messages, one after the other |
//! | `options` | the server's options |
//! | `state` | everything that its thread owns |
//! | `pending` | users' requests that take a while |
//! | `parts` | each owner of state, with its needs of others |
//! | `tuning` | settings that users change meanwhile |
//! | `gangs` | tenants that run on several GPUs at the same time |
//! | `meeting` | tenants that share memory and take turns |
//! | `turns` | turns begin and end |
//! | `memory/` | memory: allocations, frames, eviction, swapping in, work ahead of need |
//! | `corun` | tenants that fit together co-run |
//! | `outsiders` | programs on the GPU that are no tenants |
//! | `preemption/` | taking tenants off the GPU in the middle; time slices |
//! | `depart` | the end of a tenant, in any of its states |
//! | `admin/` | users' requests: status, other settings, memory that is to leave |
//! | `recorder/` | the record of events, for queries |
//! | `cost_model` | the cost of moving memory |
//!
//! Everything slow happens elsewhere: copies in the mover's lanes, preparing slabs in their thread, mapping in the tenants. They
//! all report by waking the loop. After every round of events the loop calls `Server::pump`, which starts all work that has become
//! possible.

mod admin;
mod corun;
mod cost_model;
mod depart;
mod dispatch;
mod event_loop;
#[cfg(test)]
mod floors;
mod gangs;
mod join;
mod kept;
mod lobby;
mod machine;
mod meeting;
mod memory;
mod options;
mod outsiders;
mod parts;
mod pending;
mod preemption;
mod receive;
mod recorder;
mod returning;
mod state;
mod takeover;
mod tenants;
mod tuning;
mod turns;
mod unresponsive;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::socket_path;
use baton_contract::wire::GpuNumber;
use baton_report::record::Head;

use crate::device::gpu::Gpu;
use crate::device::wake::Waker;
use crate::endpoint::Endpoint;
use crate::keeper::{Inherited, Keeper};
use crate::records::Book;
use baton_policy::arbiter::{Arbiter, Event, TenantId};
use baton_policy::scheduler::Scheduler;

use corun::Corun;
use cost_model::CostModel;
use event_loop::{EventLoop, Interest, Source};
use lobby::Lobby;
use memory::Memory;
use outsiders::Outsiders;
use pending::Pending;
use preemption::Preemptions;
use receive::Socket;
use recorder::Recorder;
use returning::Takeover;
use state::{Card, Clock, Front, Steering};
use tenants::seats::Seats;
use tenants::table::Tenants;
use tenants::tenant::Tenant;
use turns::Turns;

pub use baton_policy::arrival::Pipeline;
pub use machine::{Expected, Handle, Machine};
pub use options::{Isolation, OnStuck, Options, ServeError, Stuck};
pub use recorder::keeper::Kept;
pub use state::Server;
pub use tenants::guests::Quotas;
pub use tuning::Tuning;

/// The time for which an urgent tenant has the GPU to itself at first.
const HASTE: Duration = Duration::from_millis(50);

/// With `until_idle`: the time a server waits for its first tenant.
const FIRST_TENANT: Duration = Duration::from_secs(60);

/// Interval between attempts to end of an idle server, when a newcomer is on the way.
const CLOSE_AGAIN: Duration = Duration::from_millis(50);

/// A program that grows asks again and again: after a request, the server listens for the next one for this time before it sleeps.
const NEXT_REQUEST: Duration = Duration::from_micros(100);

impl Handle<Server> {
    /// Ends the server.
    pub fn stop(&self) {
        self.post(|server| server.steering.is_stopped = true);
    }

    /// From the server's next decision on, these hold.
    pub fn tune(&self, tuning: Tuning) {
        self.post(|server| server.tune(tuning));
    }
}

impl Server {
    /// Prepares to serve a GPU at a socket that is bound and listens, with what another coordinator has left so far. `number`: its number
    /// among the GPUs of this process. `serves`: that coordinator still serves.
    ///
    /// # Errors
    ///
    /// When the GPU or the system refuses a resource that every coordinator needs.
    pub fn new(
        (number, machine): (GpuNumber, Machine<Self>),
        gpu: Gpu,
        endpoint: Endpoint,
        options: Options,
        (keeper, inherited, serves): (Keeper, &mut Inherited, bool),
    ) -> Result<Self, ServeError> {
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
        let preemptions = Preemptions::new((&gpu, number), machine.pauses().clone(), options.pause, waker.clone())?;
        let recorder = Recorder::new(socket_path::gpu_name(gpu.uuid).into(), trace);
        let left = inherited.frames.iter().map(|frame| frame.bytes).sum();
        let slabs = (left, std::mem::take(&mut inherited.slabs));
        let memory = Memory::new(gpu, &options, (keeper.clone(), waker.clone()), slabs)?;
        let tuning = &options.tuning;
        let arbiter = Arbiter::new(tuning.quantum()).with_max_wait(tuning.max_wait());
        let corun = Corun::new(options.pause && options.corun, tuning.bursts());
        keeper.wake_by(waker.clone());
        let clock = Clock {
            // One clock serves for both events and running time.
            start: recorder.start(),
            awake_until: Instant::now(),
            looked_at_holders: Instant::now(),
        };
        let lobby = Lobby::new(Arc::clone(&events), options.guests.clone());
        let card = Card {
            tenants: Tenants::new(Arc::clone(&events)),
            arbiter: Scheduler::new(arbiter),
            untold: VecDeque::new(),
            seats: Seats::default(),
            turns: Turns::default(),
            memory,
            costs: CostModel::default(),
            preemptions,
            corun,
            outsiders,
            recorder,
            takeover: None,
        };
        let (handle, posts) = Handle::new(waker, options.number);
        machine.add(number, handle.clone());
        let steering = Steering { handle, posts, machine, is_stopped: false };
        let kept = keeper.generation();
        let front = Front { events, lobby, keeper, kept, table: None, endpoint };
        let pending = Pending::default();
        let mut server = Self {
            gpu: number,
            options,
            clock,
            steering,
            pending,
            card,
            front,
            upgrade: None,
            hands_over: false,
            fails: None,
        };
        server.watch_keeper().map_err(|error| system("epoll", error))?;
        server.keep_place();
        if serves {
            server.card.memory.await_pool()?;
        }
        Ok(server)
    }

    /// Goes on with all that another coordinator has left.
    ///
    /// # Errors
    ///
    /// When the system refuses what that needs.
    pub fn begin(&mut self, inherited: Inherited) -> Result<(), ServeError> {
        let system = |what: &str, error: std::io::Error| ServeError::System { what: what.to_owned(), error };
        self.inherit(inherited).map_err(|error| system("the table", error))?;
        self.front.endpoint.serves().map_err(|error| system("the lock", error))
    }

    /// True if a successor goes on: this process touches nothing any more.
    pub fn hands_over(&self) -> bool {
        self.hands_over
    }

    /// The handle by which other threads steer it.
    pub fn handle(&self) -> Handle<Self> {
        self.steering.handle.clone()
    }

    /// The head of this coordinator's record.
    pub fn head(&self) -> Head {
        let gpu = self.card.memory.gpu();
        Head {
            schema: baton_report::event::SCHEMA,
            gpu: self.card.recorder.gpu().to_string(),
            gpu_name: gpu.name.clone(),
            socket: self.front.endpoint.path().display().to_string(),
            pid: std::process::id(),
            started_unix_ms: self.card.recorder.started_unix_ms(),
            programs: BTreeMap::new(),
        }
    }

    /// Writes all events from now on to a book. When the server is gone, its caller can wait until all events are written.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn keep(&mut self, book: Book) -> std::io::Result<Kept> {
        self.card.recorder.keep(book)
    }

    /// Ends the record of events, also if this server is never dropped.
    pub fn end_record(&mut self) {
        self.card.recorder.end();
    }

    /// Leaves its place to a successor, and lets its tenants know. The GPU is served no more by this process.
    pub fn leave(&mut self) {
        self.front.endpoint.leave();
        self.steering.machine.remove(self.gpu);
        self.leave_gangs();
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    ///
    /// When the system no longer lets it wait for anything, or the driver does not do what another coordinator may have it do.
    pub fn serve(&mut self) -> Result<(), ServeError> {
        while !self.steering.is_stopped {
            if self.is_to_end() && self.front.lobby.close_if_unwanted(&mut self.front.endpoint) {
                break;
            }
            let ready = self.wait().map_err(|error| ServeError::System { what: "epoll".to_owned(), error })?;
            self.steering.handle.lower();
            while let Ok(post) = self.steering.posts.try_recv() {
                post(self);
            }
            if self.hands_over {
                return Ok(());
            }
            self.memory().hear()?;
            self.card.outsiders.hear(&self.card.tenants);
            while let Some(report) = self.card.preemptions.next_report() {
                self.preemptions().on_carried_out(report);
                self.settle();
            }
            self.timers();
            for source in ready {
                self.serve_source(source);
                if self.hands_over {
                    return Ok(());
                }
            }
            // Another GPU's thread may have heard it.
            self.memory().heed_keeper();
            if self.card.corun.take_cleared() {
                // A tenant at work may be gone without a report: those that made way for it go on.
                self.look_at_activity();
            }
            self.pump();
            self.look_at_upgrade();
            if self.replace_keeper() {
                self.memory().heed_keeper();
                self.pump();
            }
            if let Some(why) = self.fails.take() {
                return Err(why.into());
            }
        }
        Ok(())
    }

    /// A tenant in its turn has it by the new settings.
    fn tune(&mut self, tuning: Tuning) {
        self.card.arbiter.tune(tuning.quantum(), tuning.max_wait());
        self.card.corun.set_rules(tuning.bursts());
        self.options.tuning = tuning;
        self.tick();
    }

    /// True if neither this server nor another one of this process has anything more to do.
    fn is_to_end(&self) -> bool {
        if !self.options.until_idle {
            return false;
        }
        let machine = &self.steering.machine;
        if self.card.tenants.has_been_any() {
            machine.has_come();
        }
        let is_idle = self.card.tenants.is_empty()
            && self.card.takeover.is_none()
            && self.front.lobby.is_empty()
            && (machine.has_been_any() || self.clock.start.elapsed() > FIRST_TENANT);
        machine.is_idle(self.gpu, is_idle)
    }

    /// Waits for work, and returns its sources.
    fn wait(&mut self) -> std::io::Result<Vec<Source>> {
        let timer = self.next_timer();
        self.card.tenants.watch_those_behind();
        let timeout = timer.map(|at| at.saturating_duration_since(Instant::now()));
        self.front.events.wait_awake(timeout, self.clock.awake_until)
    }

    fn next_timer(&mut self) -> Option<Instant> {
        let at = |micros| self.clock.at(micros);
        let arbiter = self.card.arbiter.next_timer().map(at);
        let limit = self.card.turns.next_timer().map(at);
        let first =
            (self.options.until_idle && !self.steering.machine.has_been_any()).then(|| self.clock.start + FIRST_TENANT);
        let haste = self.haste_ends().filter(|end| *end > Instant::now());
        let tenants = self.card.tenants.index().deadline();
        let corun = self.card.corun.next_timer(at);
        let held_up = self.front.lobby.next_held_up(self.options.tuning.max_wait);
        let lobby =
            self.front.lobby.next_timer().into_iter().chain(held_up).chain(self.front.endpoint.next_look()).min();
        let holders = self.next_look_at_holders();
        let unsent = self.card.tenants.next_try();
        let evictions = self.pending.next_timer(&self.card.tenants);
        let returning = self.card.takeover.as_ref().and_then(Takeover::next_timer);
        // A newcomer was on the way, or is just looking for a coordinator.
        let end = self.is_to_end().then(|| Instant::now() + CLOSE_AGAIN);
        [
            end,
            self.upgrade_ends(),
            self.front.keeper.next_timer(!self.card.tenants.is_empty()),
            returning,
            lobby,
            unsent,
            evictions,
            holders,
            arbiter,
            self.card.memory.next_timer(),
            first,
            haste,
            tenants,
            corun,
            limit,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn timers(&mut self) {
        let now = self.now();
        let changed = self.card.arbiter.is_together() != self.fit_together();
        if changed || self.card.arbiter.next_timer().is_some_and(|at| at <= now) {
            self.tick();
        }
        self.front.lobby.send_away(&self.front.endpoint);
        self.front.lobby.look(&mut self.front.endpoint);
        self.keep_place();
        if !self.card.tenants.is_empty() {
            self.front.keeper.ping_if_due();
        }
        self.card.tenants.send_again();
        self.ask_again();
        self.check_holders();
        for id in self.card.tenants.index().due(Instant::now()) {
            self.check(id);
        }
        for id in self.card.tenants.index().disconnected() {
            self.end_if_replaced(id);
        }
        self.card.corun.clear_stopped(&mut self.card.tenants);
        self.look_at_activity();
        self.memory().timers();
    }

    /// Handles a tenant whose time has come.
    fn check(&mut self, id: TenantId) {
        // This also updates the time at which it is due next.
        self.card.tenants.touch(id);
        self.preemptions().check(id);
        self.settle();
        self.meet(id);
        self.check_answer(id);
        self.kill_if_stuck(id);
        self.settle();
        self.memory().deliver_again(id);
        if self.turns().give_up_if_silent(id) {
            self.tell_arbiter(id, Event::Closed);
        }
    }

    fn serve_source(&mut self, source: Source) {
        if self.hear_returning(source) {
            return;
        }
        match source {
            Source::Waker => {}
            Source::Listener => self.front.lobby.accept(&self.front.endpoint),
            Source::Place => self.front.endpoint.heed_watch(),
            Source::Keeper => self.front.keeper.hear(),
            Source::Successor => self.hear_successor(),
            Source::Stranger(at) => self.hear_stranger(at),
            Source::Newcomer(at) => self.front.lobby.hear_newcomer(at),
            Source::Control(id) => self.hear(id, Socket::Control),
            Source::Requests(id) => {
                self.hear(id, Socket::Requests);
                self.clock.awake_until = Instant::now() + NEXT_REQUEST;
            }
            Source::Process(id) => self.on_process_ended(id),
        }
    }

    /// Starts all work that has become possible.
    fn pump(&mut self) {
        loop {
            while let Some(lost) = self.card.tenants.take_lost() {
                self.on_connection_ended(lost);
            }
            self.settle();
            self.welcome_returning();
            self.settle();
            self.welcome_newcomers();
            self.settle();
            let before = self.card.memory.swapping_in();
            self.memory().serve();
            self.settle();
            // That may have found another tenant gone. When one has come in, the next may have been decided upon.
            if !self.card.tenants.has_lost() && self.card.memory.swapping_in() == before {
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

    /// Makes tenants again of another coordinator's that have told what they have.
    fn welcome_returning(&mut self) {
        let Some(welcomed) = self.begin_to_welcome() else { return };
        for id in &welcomed.ready {
            let is_first = self.card.tenants.is_empty();
            let Some((is_open, later)) = self.come_back(*id, &welcomed.found) else { continue };
            self.go_on_with(*id, is_first, is_open);
            for (message, descriptor) in later {
                if let Err(why) = self.report(*id, message, descriptor) {
                    self.cut_off(*id, why);
                }
            }
        }
        self.end_welcome(welcomed);
    }

    /// The first tenant that comes back with an open gate goes on with the baton; others are asked to close theirs.
    fn go_on_with(&mut self, id: TenantId, is_first: bool, is_open: bool) {
        let may_hold = |tenant: &Tenant| {
            let goes_alone = tenant.unit.is_none() && tenant.gang.is_none();
            tenant.unsettled.is_none() && tenant.scheduling.suspended.is_none() && goes_alone
        };
        let may_hold = is_first && self.card.tenants.get(id).is_some_and(may_hold);
        if is_open && !(may_hold && self.goes_on_holding(id)) {
            self.have_close(id);
        }
    }

    /// True if an urgent tenant has just got the GPU. Scanning memory and overwriting it are kernels, which take turns with the
    /// tenant's: a request of 8 ms took 22 that way.
    fn is_in_haste(&self) -> bool {
        self.card.corun.is_anybody_at_work() || self.haste_ends().is_some_and(|end| Instant::now() < end)
    }

    /// The time until which no work ahead of need is done.
    fn haste_ends(&self) -> Option<Instant> {
        let holder = self.card.tenants.get(self.card.arbiter.holder()?)?;
        (holder.class() == Class::Latency).then(|| holder.turn.ran() + HASTE)
    }
}
