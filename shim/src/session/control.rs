//! The control loop: the thread that opens and closes the gate, maps and unmaps, on the coordinator's word.
//!
//! It shares no lock with the program's threads across a driver call. While somebody waits for the GPU it also
//! watches whether this program still needs it: a program that has made no call for a while and has
//! nothing queued yields by itself.

use core::time::Duration;
use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_DEINITIALIZED, CUresult};
use baton_contract::link;
use baton_contract::messages::{
    CorunCommand, ExtentId, FromCoordinator, MAX_LISTED, MAX_RANGES, MemoryCommand, MemoryReport, Message as _,
    PreemptionCommand, PreemptionReport, TurnCommand, TurnReport,
};
use baton_contract::page::{ACTIVITY_SLOTS, TAKEN};

use super::connect::take_page;
use super::consolidation;
use super::corun::Corun;
use super::idle::Watch;
use super::probe::Probe;
use super::requests::Requests;
use super::rest::Rest;
use super::tenant::{DEMANDED, Session};
use crate::driver::api;
use crate::gate::activity;
use crate::memory::space::{GivenUp, Space};
use crate::memory::unmanaged;
use crate::sys::{reserve, thread, user};
use crate::work::drain::{IdleWatch, drain};
use crate::work::{capture, frees, limit, pools};
use crate::{arrival, channels, gate};

/// How often an idle program is looked for at most.
const SHORTEST_WATCH: Duration = Duration::from_micros(250);
/// How long calls may take to leave when the gate closes and work is about to be paused, and what is queued to end. Work that
/// has ended is worth some waiting for: after a pause nothing runs before all memory is back. It is learned whether it is.
const SHORTEST_HOLD: Duration = Duration::from_micros(100);
const LONGEST_HOLD: Duration = Duration::from_millis(1);
const LONGEST_HOLD_OF_CAPTURE: Duration = Duration::from_millis(5);
/// Who needed longer than this to unmap memory while its work was paused waited for that work.
const PROBE_LIMIT_MS: u32 = 20;
/// How long it then drains before it is paused again.
const LONGEST_DRAIN: Duration = Duration::from_millis(100);
/// How long threads that waited at the gate may take to wake up and pass it, before it is closed again.
const LONGEST_WAKE: Duration = Duration::from_millis(20);
/// How long a try to yield by itself may take.
const LONGEST_TRY: Duration = Duration::from_millis(2);

/// How late the system may wake it: its watches are short.
const TIMER_SLACK: Duration = Duration::from_micros(5);

/// Starts the thread, with the gate closed.
pub(super) fn start(session: &'static Session) -> bool {
    // Nobody may be on the GPU who was not granted it: from here on calls wait for this thread.
    gate::close(None, || ());
    let started = thread::start("baton", move || Control::new(session).run());
    if !started {
        gate::open(false);
    }
    started
}

/// What makes the pager end.
enum End {
    /// The coordinator is gone, or talks nonsense.
    CoordinatorGone,
    /// The program is exiting and the driver has shut down: there is nothing left to page.
    DriverGone,
}

/// Whose turn it is, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The gate is closed, and memory may be away.
    Away,
    /// The gate was closed with work still queued, which may be paused by now.
    Held {
        grant: u64,
        /// Whether the coordinator knows: not while a call that is inside changes what memory there is.
        is_told: bool,
        /// Whether memory was still on its way.
        arriving: bool,
    },
    /// The gate is open.
    Here {
        grant: u64,
        /// Calls wait for memory that is still on its way.
        arriving: bool,
    },
}

impl Turn {
    /// The grant that holds, if the gate is open.
    fn grant(self) -> Option<u64> {
        match self {
            Self::Here { grant, .. } => Some(grant),
            _ => None,
        }
    }

    fn is_arriving(self) -> bool {
        matches!(self, Self::Here { arriving: true, .. })
    }
}

/// How soon after a look, or a try to yield, the next one comes.
fn between_tries(patience: Duration) -> Duration {
    (patience / 2).max(SHORTEST_WATCH)
}

struct Control {
    session: &'static Session,
    turn: Turn,
    /// How long the program has to be quiet before it yields, while somebody waits.
    patience: Option<Duration>,
    /// How much is kept in flight because somebody more urgent may come at any time.
    in_flight: limit::InFlight,
    watch: Watch,
    idle: IdleWatch,
    /// Pointers between extents, for the next grant with memory on its way.
    edges: Vec<(ExtentId, u64)>,
    /// How long work may take to end before it is paused.
    hold_limit: Duration,
    corun: Corun,
    rest: Rest,
    requests: Requests,
    /// When it was last tried to yield: that keeps calls off for a moment.
    tried: Option<Instant>,
    /// Extents whose frames did not come, because no more descriptors could be opened.
    undelivered: HashSet<ExtentId>,
    /// Made when we are first about to be paused; none if that could not be done.
    probe: Option<Probe>,
    probe_made: bool,
}

impl Control {
    fn new(session: &'static Session) -> Self {
        Self {
            session,
            turn: Turn::Away,
            patience: None,
            in_flight: limit::InFlight::Any,
            watch: Watch::new(),
            idle: IdleWatch::new(session.device),
            edges: Vec::new(),
            hold_limit: LONGEST_HOLD / 2,
            corun: Corun::new(session.link),
            rest: Rest::new(session.link),
            requests: Requests::default(),
            tried: None,
            undelivered: HashSet::new(),
            probe: None,
            probe_made: false,
        }
    }

    fn run(mut self) {
        // For good: nothing this thread does disturbs a capture.
        core::mem::forget(api::Relaxed::enter());
        // For good too: whoever waits in the driver may wait for what this thread is told to do.
        core::mem::forget(api::MustNotWait::begin());
        // SAFETY: a number for this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK.as_nanos() as libc::c_ulong) };
        self.session.tell_channels();
        let end = loop {
            if let Err(end) = self.step() {
                break end;
            }
        };
        consolidation::end();
        match end {
            End::CoordinatorGone => self.coordinator_is_gone(),
            End::DriverGone => {
                // Exit handlers may still make calls; the driver answers them. The coordinator takes the memory
                // back when the process has ended.
                arrival::end();
                gate::open(false);
                arrival::wake();
                // SAFETY: shuts down a socket of ours.
                unsafe { libc::shutdown(self.session.link.control.as_raw_fd(), libc::SHUT_RDWR) };
            }
        }
    }

    fn step(&mut self) -> Result<(), End> {
        let timeout = self.turn.grant().and(self.patience).map(between_tries);
        let timeout =
            if matches!(self.turn, Turn::Held { is_told: false, .. }) { Some(SHORTEST_WATCH) } else { timeout };
        let look_again = self.requests.look_again_after(self.turn.grant().is_some());
        let timeout = timeout.into_iter().chain(look_again).min();
        let timeout = self.corun.look_again_after().or(timeout);
        let timeout = timeout.or(self.turn_alone().and_then(|_| self.rest.look_again_after()));
        if self.is_message_there(timeout) {
            // What did not come is sent again.
            let _spare = (!self.undelivered.is_empty()).then(reserve::let_go);
            let received =
                link::receive(self.session.link.control.as_fd(), false).ok().flatten().ok_or(End::CoordinatorGone)?;
            let (gpu, message) = FromCoordinator::decode(&received.message).map_err(|_| End::CoordinatorGone)?;
            if gpu != self.session.link.gpu {
                return Err(End::CoordinatorGone);
            }
            match message.descriptors() {
                expected if expected == received.descriptors.len() => self.obey(message, received.descriptors)?,
                _ if received.truncated => self.lose(message)?,
                _ => return Err(End::CoordinatorGone),
            }
        }
        if let Turn::Held { grant, is_told: false, arriving } = self.turn
            && gate::finish_holding() != gate::Held::NotYet
        {
            self.turn = Turn::Held { grant, is_told: true, arriving };
            self.tell_held(grant);
        }
        // Others see by that that it was not stopped.
        let waits_for_calls = matches!(self.turn, Turn::Held { is_told: false, .. });
        if self.patience.is_some() || self.corun.is_busy() || waits_for_calls {
            self.beat();
        }
        if self.corun.is_busy() {
            self.corun.try_to_rest(&mut self.watch, &mut self.idle, &mut self.requests);
        }
        if let Some(grant) = self.turn_alone() {
            self.rest.look(grant, &mut self.watch, &mut self.idle);
        }
        match self.turn {
            Turn::Here { .. } => self.requests.look(&mut self.watch, &mut self.idle),
            Turn::Away => self.requests.look_behind_closed_gate(),
            // What is queued may be paused.
            Turn::Held { .. } => {}
        }
        if let (Some(grant), Some(patience)) = (self.turn.grant(), self.patience)
            && self.watch.quiet() >= patience
            && self.tried.is_none_or(|at| at.elapsed() >= between_tries(patience))
        {
            self.tried = Some(Instant::now());
            self.try_to_yield(grant);
        }
        Ok(())
    }

    /// Its turn, if nobody waits for it and all its memory is here.
    fn turn_alone(&self) -> Option<u64> {
        match self.turn {
            Turn::Here { grant, arriving: false } if self.corun.is_off() && !self.is_contended() => Some(grant),
            _ => None,
        }
    }

    fn is_message_there(&mut self, timeout: Option<Duration>) -> bool {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut watched = [watch(self.session.link.control.as_raw_fd()), watch(self.session.news.as_raw_fd())];
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: two structures, and a time or null, that live over the call.
        unsafe { libc::ppoll(watched.as_mut_ptr(), 2, timeout, core::ptr::null()) };
        let [control, news] = watched.map(|watched| watched.revents != 0);
        if news {
            self.session.news.lower();
            self.session.tell_channels();
            self.rest.look_whether_awake();
            self.corun.look_whether_awake();
        }
        control
    }

    fn obey(&mut self, message: FromCoordinator, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        if !matches!(message, FromCoordinator::Memory(_)) {
            self.rest.end();
        }
        match message {
            FromCoordinator::Turn(TurnCommand::Grant { grant, arriving, preemptible }) => {
                self.turn = Turn::Here { grant, arriving: false };
                self.patience = None;
                self.limit(limit::InFlight::Any);
                if arriving && !self.session.space.extents.all_mapped() {
                    self.begin_arrival(grant, preemptible);
                }
                self.open();
                self.session.link.tell(&TurnReport::Opened { grant });
                // For the next time, when the program goes on already.
                self.make_probe_ready();
            }
            FromCoordinator::Corun(CorunCommand::Corun { on }) => {
                if on && self.turn.grant().is_some() {
                    // Nobody waits for it any more: a gate that is contended never comes to rest.
                    self.patience = None;
                    self.limit(limit::InFlight::Any);
                }
                self.corun.set(on, self.turn.grant().is_some());
                self.show_contended();
            }
            FromCoordinator::Corun(CorunCommand::Slot { slot }) => {
                activity::end();
                if slot == ACTIVITY_SLOTS {
                    activity::give_up_slot();
                } else if let [page] = &descriptors[..]
                    && !take_page(page, slot)
                {
                    return Err(End::CoordinatorGone);
                }
                self.corun.moved();
            }
            FromCoordinator::Turn(TurnCommand::Pointers { edges, continues }) => {
                if !continues {
                    self.edges.clear();
                }
                self.edges.extend(edges);
            }
            FromCoordinator::Turn(TurnCommand::LimitInFlight { launches }) => {
                self.limit(limit::InFlight::Launches(launches))
            }
            FromCoordinator::Turn(TurnCommand::LiftLimit { watch }) => {
                self.limit(if watch { limit::InFlight::Watching } else { limit::InFlight::Any });
            }
            FromCoordinator::Turn(TurnCommand::Contended { patience_micros }) => {
                // It may have been quiet for that long already.
                self.patience = Some(Duration::from_micros(patience_micros));
                self.show_contended();
            }
            FromCoordinator::Turn(TurnCommand::Uncontended) => {
                self.patience = None;
                self.show_contended();
            }
            FromCoordinator::Turn(TurnCommand::Revoke { grant, limit_micros }) => {
                if let Turn::Held { grant: held, arriving, .. } = self.turn
                    && held == grant
                {
                    // It could not be paused after all.
                    self.turn = Turn::Here { grant, arriving: false };
                    if arriving && !self.session.space.extents.all_mapped() {
                        // What was launched ahead before waits for this one to end: it has a later number.
                        self.begin_arrival(grant, false);
                    }
                }
                if self.turn.grant() == Some(grant) {
                    self.yield_gpu(grant, Duration::from_micros(limit_micros));
                }
            }
            FromCoordinator::Preemption(PreemptionCommand::Begin { grant }) => {
                if self.turn.grant() == Some(grant) {
                    self.hold(grant);
                }
            }
            FromCoordinator::Turn(TurnCommand::End { text }) => {
                user::warn(&baton_messages::results_would_be_wrong(text));
                // As the coordinator would, were this process not of another PID namespace.
                // SAFETY: our own process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            FromCoordinator::Preemption(PreemptionCommand::Probe { number }) => self.carry_out_probe(number)?,
            FromCoordinator::Memory(MemoryCommand::Prepare { batch, extents }) => {
                self.undelivered.retain(|extent| !extents.contains(extent));
                self.carry_out(batch, |session| session.space.extents.place(&extents, descriptors))?;
            }
            FromCoordinator::Memory(MemoryCommand::Map { batch, extents })
                if extents.iter().any(|extent| self.undelivered.contains(extent)) =>
            {
                self.session.link.tell(&MemoryReport::Undelivered { batch });
            }
            FromCoordinator::Memory(MemoryCommand::Map { batch, extents }) => {
                self.carry_out(batch, |session| session.space.map_arrived(&extents))?;
                if let Turn::Here { grant, arriving: true } = self.turn {
                    arrival::mapped(&extents);
                    if arrival::is_complete() {
                        arrival::all_is_here();
                        gate::all_here();
                        self.tell_arrival(grant);
                        arrival::end();
                        self.turn = Turn::Here { grant, arriving: false };
                    }
                }
            }
            FromCoordinator::Memory(MemoryCommand::Unmap { batch, mut extents }) => {
                // Where no memory came there is none to be unmapped.
                extents.retain(|extent| !self.undelivered.remove(extent));
                self.carry_out(batch, |session| session.space.extents.unmap(&extents))?;
            }
            FromCoordinator::Memory(MemoryCommand::Recut { gone, extents }) => {
                self.session.space.recut(&gone, &extents);
            }
            FromCoordinator::Memory(MemoryCommand::Consolidated { batch, at, copied }) => {
                self.carry_out(batch, |session| {
                    session.consolidated(at, copied, |given_up| self.tell_given_up(given_up));
                    Ok(())
                })?;
            }
            // Answers belong on the other socket.
            _ => return Err(End::CoordinatorGone),
        }
        Ok(())
    }

    /// A message came without its descriptors, because this process can open no more.
    fn lose(&mut self, message: FromCoordinator) -> Result<(), End> {
        match message {
            FromCoordinator::Memory(MemoryCommand::Prepare { batch, extents }) => {
                self.undelivered.extend(extents);
                self.session.link.tell(&MemoryReport::Undelivered { batch });
            }
            FromCoordinator::Corun(CorunCommand::Slot { .. }) => {
                // Others do not see when it is at work: that is worse for it than for them.
                activity::end();
                activity::give_up_slot();
                self.corun.moved();
            }
            _ => return Err(End::CoordinatorGone),
        }
        Ok(())
    }

    fn carry_out(&self, batch: u32, command: impl FnOnce(&Session) -> Result<(), CUresult>) -> Result<(), End> {
        let start = Instant::now();
        let message = match command(self.session) {
            Ok(()) => MemoryReport::Done { batch, micros: start.elapsed().as_micros() as u64 },
            Err(CUDA_ERROR_DEINITIALIZED) => return Err(End::DriverGone),
            Err(code) => MemoryReport::Failed { batch, code },
        };
        self.session.link.tell(&message);
        Ok(())
    }

    fn limit(&mut self, in_flight: limit::InFlight) {
        self.in_flight = in_flight;
        self.show_contended();
    }

    fn is_contended(&self) -> bool {
        self.patience.is_some() || self.in_flight != limit::InFlight::Any
    }

    fn show_contended(&self) {
        // Whoever waits has it short in any case.
        limit::set(match self.in_flight {
            limit::InFlight::Watching if self.patience.is_some() => limit::InFlight::Any,
            in_flight => in_flight,
        });
        gate::set_contended(self.is_contended());
    }

    fn open(&mut self) {
        channels::resume_what_came();
        self.corun.turn_begins();
        self.watch = Watch::new();
        self.requests.goes_on();
        if self.turn.is_arriving() {
            gate::arriving(self.is_contended());
        } else {
            // Calls over which the gate was closed may wait for what has come since, and so may work.
            arrival::end();
            arrival::all_is_here();
            gate::open(self.is_contended());
        }
        arrival::wake();
    }

    /// The gate is about to be opened for calls whose memory is here, or will be.
    fn begin_arrival(&mut self, grant: u64, preemptible: bool) {
        let mut roots = arrival::roots::read(self.session.device);
        // Memory that is not ours may hold pointers to what is.
        roots.unreadable |= self.session.whole || unmanaged::is_any();
        let mut layout = self.session.space.layout();
        // An allocation may come to lie there.
        layout.blocks.extend(pools::free_memory());
        arrival::begin(layout, &self.edges, roots, preemptible);
        self.turn = Turn::Here { grant, arriving: true };
    }

    /// All is here, or the gate is closed: says how it went.
    fn tell_arrival(&self, grant: u64) {
        let Some((used, story)) = arrival::story() else { return };
        for extents in used.chunks(MAX_LISTED) {
            self.session.link.tell(&TurnReport::Used { grant, extents: extents.to_vec() });
        }
        self.session.link.tell(&TurnReport::Arrived { grant, story });
    }

    /// Closes the gate; false if somebody is still inside at the deadline.
    fn close(&self, deadline: Instant) -> bool {
        self.announce_closing();
        gate::close(Some(deadline), || self.beat())
    }

    /// Shows that this thread was not stopped.
    fn beat(&self) {
        self.session.link.own().heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    fn announce_closing(&self) {
        // Before the gate: whoever finds it closed from here on asks anew.
        DEMANDED.store(false, Ordering::Release);
        let (start, end) = Space::window();
        self.session.link.own().window_start.store(start, Ordering::Relaxed);
        self.session.link.own().window_end.store(end, Ordering::Relaxed);
        let host = arrival::roots::host_range();
        self.session.link.own().host_start.store(host.start, Ordering::Relaxed);
        self.session.link.own().host_end.store(host.end, Ordering::Relaxed);
    }

    /// The coordinator wants the GPU back.
    fn yield_gpu(&mut self, grant: u64, limit: Duration) {
        let start = Instant::now();
        gate::let_through(start + LONGEST_WAKE, || self.beat());
        let deadline = Instant::now() + limit;
        let _kept_off = gate::KeptOff::begin();
        if self.close(deadline) && self.drain(deadline) {
            self.closed(grant, start);
        } else {
            // Work that waits for something the program has yet to do, or very long work: let it go on.
            self.open();
            self.session.link.tell(&TurnReport::DrainTimedOut { grant });
        }
    }

    /// The coordinator is about to take our work off the GPU.
    fn hold(&mut self, grant: u64) {
        if !std::mem::replace(&mut self.probe_made, true) {
            self.probe = Probe::new(self.session.device, &self.session.link.own().probing);
        }
        self.make_probe_ready();
        let start = Instant::now();
        // In this order: whatever is made from here on is told, or paused as soon as it is made.
        channels::pause_what_comes();
        self.session.tell_channels();
        // A refused call would end a capture.
        let limit = if capture::is_any() { LONGEST_HOLD_OF_CAPTURE } else { self.hold_limit };
        self.announce_closing();
        let kept_off = gate::KeptOff::begin();
        let held = gate::hold(start + limit);
        let ended = held == gate::Held::Empty && self.drain(start + limit);
        drop(kept_off);
        let next = if ended { self.hold_limit * 2 } else { self.hold_limit / 2 };
        self.hold_limit = next.clamp(SHORTEST_HOLD, LONGEST_HOLD);
        if ended {
            return self.closed(grant, start);
        }
        let arriving = self.turn.is_arriving();
        self.requests.goes_on();
        self.gate_closed();
        let is_told = held != gate::Held::NotYet;
        self.turn = Turn::Held { grant, is_told, arriving };
        if is_told {
            self.tell_held(grant);
        }
        self.demand_again();
    }

    fn make_probe_ready(&mut self) {
        if self.probe.as_ref().is_some_and(|probe| probe.make_ready().is_err()) {
            self.probe = None;
        }
    }

    /// Our work is paused: can mappings be changed?
    fn carry_out_probe(&mut self, number: u32) -> Result<(), End> {
        let took = match &self.probe {
            Some(probe) => probe.carry_out(self.session.link.control.as_fd()),
            None => Some(0),
        };
        if took.ok_or(End::CoordinatorGone)? > PROBE_LIMIT_MS {
            // It had to wait, and we were let go on for that. What it waited for ends first.
            let end = Instant::now() + LONGEST_DRAIN;
            while (arrival::is_waited_for_on_gpu() || !self.idle.is_idle(gate::activity())) && Instant::now() < end {
                std::thread::sleep(SHORTEST_WATCH);
            }
        }
        self.session.link.tell(&PreemptionReport::Probed { number });
        Ok(())
    }

    /// Calls that are still inside find, when they go on, all that was there when they came.
    fn tell_held(&self, grant: u64) {
        self.release_cached();
        self.session.link.tell(&PreemptionReport::GateClosed { grant });
    }

    /// The program has been quiet while somebody waits: if nothing of it is queued, it yields.
    fn try_to_yield(&mut self, grant: u64) {
        let start = Instant::now();
        let deadline = start + LONGEST_TRY;
        let _kept_off = gate::KeptOff::begin();
        if self.close(deadline) && self.drain(deadline) {
            self.closed(grant, start);
        } else {
            self.open();
        }
    }

    /// Whether all work ends by then, with the gate closed. What waits for memory does not: this thread maps it.
    fn drain(&self, deadline: Instant) -> bool {
        crate::work::idle::about_to_drain();
        !arrival::is_waited_for_on_gpu() && drain(self.session.device, deadline, || self.beat())
    }

    fn gate_closed(&mut self) {
        if let Turn::Here { grant, arriving: true } = self.turn {
            self.tell_arrival(grant);
            // Those who wait for memory, outside of the gate, now wait for the gate. Those inside go on waiting for memory: what
            // they would queue runs until we are paused.
            arrival::wake();
        }
        self.corun.turn_ends();
        self.turn = Turn::Away;
    }

    fn closed(&mut self, grant: u64, start: Instant) {
        self.gate_closed();
        self.requests.closed();
        let drain_micros = start.elapsed().as_micros() as u64;
        self.release_cached();
        self.session.link.tell(&TurnReport::Closed { grant, drain_micros });
        self.demand_again();
        // For the next time memory arrives. Now nobody waits for us, and we for nothing.
        arrival::prepare(self.session.device);
    }

    /// What the program has freed is worth no copy.
    fn release_cached(&self) {
        let space = self.session.space;
        frees::collect(space, |given_up| self.tell_given_up(given_up));
        space.release_cached(|given_up| self.tell_given_up(given_up));
    }

    /// Not by a request: whoever makes one just now may wait for us.
    fn tell_given_up(&self, given_up: GivenUp) {
        match given_up {
            GivenUp::Extents(extents) => {
                for extents in extents.chunks(MAX_LISTED) {
                    self.session.link.tell(&MemoryReport::Free { extents: extents.to_vec() });
                }
            }
            GivenUp::Parts(parts) => {
                for ranges in parts.chunks(MAX_RANGES) {
                    self.session.link.tell(&MemoryReport::Spare { ranges: ranges.to_vec() });
                }
            }
        }
    }

    /// A call that came while the gate closed has asked before the coordinator knew that it is closed.
    fn demand_again(&self) {
        if DEMANDED.load(Ordering::Acquire) || consolidation::is_under_way() {
            self.session.link.tell(&TurnReport::Demand);
        }
    }

    /// Whatever happened to it, this program goes on if all its memory is here.
    fn coordinator_is_gone(mut self) {
        self.corun.turn_ends();
        if self.session.link.coordinators().taken.load(Ordering::SeqCst) == TAKEN {
            user::warn(&baton_messages::memory_was_given_away());
            // SAFETY: our own process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        // With the gate open, nothing is away; a thread may just be mapping what it was lent.
        if matches!(self.turn, Turn::Here { arriving: false, .. }) || self.session.space.extents.all_mapped() {
            arrival::end();
            arrival::all_is_here();
            // Also if it was about to pause us, or to resume us.
            self.session.channels.resume();
            channels::resume_what_came();
            user::warn(&baton_messages::goes_on_alone());
            gate::open(false);
            arrival::wake();
        } else {
            user::warn(&baton_messages::calls_fail_from_here());
            gate::set_broken();
            arrival::wake();
        }
    }
}
