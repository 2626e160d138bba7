//! The pager: the thread that opens and closes the gate, maps and unmaps, on the coordinator's word.
//!
//! It shares no lock with the program's threads across a driver call. While somebody waits for the GPU it also
//! watches whether this program still needs it: a program that has made no call for a while and has
//! nothing queued gives way by itself.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_DEINITIALIZED, CUresult};
use baton_contract::link;
use baton_contract::messages::{ExtentId, FromCoordinator, FromTenant, MAX_EXTENTS, MAX_LISTED};
use baton_contract::page::BOARD_PLACES;

use super::connect::take_board;
use super::probe::Probe;
use super::{DEMANDED, Session, start_thread};
use crate::memory::space::Space;
use crate::{arrival, channels, driver::api, gate, gate::activity, sys::user, work};

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
/// How long a try to give way by itself may take.
const LONGEST_TRY: Duration = Duration::from_millis(2);

/// How long a program that runs beside others has to be quiet before the others go on. Between these it is learned: the gaps
/// inside of its requests are not for others.
const SHORTEST_REST: Duration = Duration::from_micros(80);
const LONGEST_REST: Duration = Duration::from_millis(1);
/// Who takes the board again so soon was not at rest.
const NO_REST: Duration = Duration::from_micros(200);
/// How late the system may wake the pager: its watches are short.
const TIMER_SLACK: Duration = Duration::from_micros(5);

/// Starts the thread, with the gate closed.
pub(super) fn start(session: &'static Session) -> bool {
    // Nobody may be on the GPU who was not granted it: from here on calls wait for the pager.
    gate::close(None);
    session.own().open.store(0, Ordering::Relaxed);
    let started = start_thread("baton", move || Pager::new(session).run());
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

struct Pager {
    session: &'static Session,
    /// The grant that holds, if the gate is open.
    grant: Option<u64>,
    /// The grant that held when the gate was closed with work still queued, which may be paused by now.
    held: Option<u64>,
    /// Of that the coordinator is yet to be told: a call that is inside changes what memory there is.
    holding: bool,
    /// How long the program has to be quiet before it gives way, while somebody waits.
    patience: Option<Duration>,
    watch: Watch,
    /// Pointers between extents, for the next grant with memory on its way.
    edges: Vec<(ExtentId, u64)>,
    /// Calls wait for memory that is still on its way.
    arriving: bool,
    /// Somebody more urgent may come at any time: the queue is kept short.
    short: bool,
    /// How long work may take to end before it is paused.
    hold_limit: Duration,
    /// Others may run too while the gate is open.
    beside: bool,
    /// It says on the board that we are at work.
    at_work: bool,
    /// Made when we are first about to be paused; none if that could not be done.
    probe: Option<Probe>,
    probe_made: bool,
    /// How long the program has to be quiet before it leaves the board, and when it did.
    rest_after: Duration,
    rested: Instant,
}

/// What the program did lately.
struct Watch {
    activity: u32,
    since: Instant,
}

impl Watch {
    fn new() -> Self {
        Self { activity: gate::activity(), since: Instant::now() }
    }

    /// How long the program has made no call.
    fn quiet(&mut self) -> Duration {
        let activity = gate::activity();
        if activity != self.activity || gate::inside() != 0 || gate::is_waited_at() || arrival::is_waited_for() {
            *self = Self { activity, since: Instant::now() };
        }
        self.since.elapsed()
    }
}

impl Pager {
    fn new(session: &'static Session) -> Self {
        Self {
            session,
            grant: None,
            held: None,
            holding: false,
            patience: None,
            watch: Watch::new(),
            edges: Vec::new(),
            arriving: false,
            short: false,
            hold_limit: LONGEST_HOLD / 2,
            beside: false,
            at_work: false,
            probe: None,
            probe_made: false,
            rest_after: SHORTEST_REST * 2,
            rested: Instant::now(),
        }
    }

    fn run(mut self) {
        // For good: nothing this thread does disturbs a capture.
        core::mem::forget(api::Relaxed::enter());
        // SAFETY: a number for this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK.as_nanos() as libc::c_ulong) };
        let (channels, descriptor) = self.session.channels.told();
        self.session.tell_with(&FromTenant::Channels { channels }, descriptor);
        let end = loop {
            if let Err(end) = self.step() {
                break end;
            }
        };
        match end {
            End::CoordinatorGone => self.coordinator_is_gone(),
            End::DriverGone => {
                // Exit handlers may still make calls; the driver answers them. The coordinator takes the memory
                // back when the process has ended.
                let _ = arrival::end();
                gate::open(false);
                arrival::wake();
                // SAFETY: shuts down a socket of ours.
                unsafe { libc::shutdown(self.session.control.as_raw_fd(), libc::SHUT_RDWR) };
            }
        }
    }

    fn step(&mut self) -> Result<(), End> {
        let watching = self.grant.and(self.patience);
        let timeout = watching.map(|patience| (patience / 2).max(SHORTEST_WATCH));
        let timeout = if self.holding { Some(SHORTEST_WATCH) } else { timeout };
        let timeout = if self.at_work { Some(self.rest_after / 2) } else { timeout };
        if self.is_message_there(timeout) {
            let received =
                link::receive(self.session.control.as_fd(), false).ok().flatten().ok_or(End::CoordinatorGone)?;
            let message = FromCoordinator::decode(&received.message).map_err(|_| End::CoordinatorGone)?;
            if message.descriptors() != received.descriptors.len() {
                return Err(End::CoordinatorGone);
            }
            self.obey(message, received.descriptors)?;
        }
        if let Some(grant) = self.held.filter(|_| self.holding)
            && gate::finish_holding() != gate::Held::NotYet
        {
            self.holding = false;
            self.tell_held(grant);
        }
        if self.at_work {
            self.try_to_rest();
        }
        if let (Some(grant), Some(patience)) = (self.grant, self.patience)
            && self.watch.quiet() >= patience
        {
            self.try_to_give_way(grant);
        }
        Ok(())
    }

    fn is_message_there(&mut self, timeout: Option<Duration>) -> bool {
        let watch = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut watched = [watch(&self.session.control), watch(&self.session.news.0)];
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
            if self.beside && self.grant.is_some() && !self.at_work && !gate::is_resting() {
                self.say_at_work(true);
                let rest = self.rested.elapsed();
                let next = if rest < NO_REST { self.rest_after * 3 / 2 } else { self.rest_after * 4 / 5 };
                self.rest_after = next.clamp(SHORTEST_REST, LONGEST_REST);
            }
            if !self.at_work {
                // A call may have taken the board just when that ended.
                self.leave_the_board();
            }
        }
        control
    }

    fn obey(&mut self, message: FromCoordinator, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        match message {
            FromCoordinator::Grant { grant, arriving } => {
                self.grant = Some(grant);
                (self.held, self.holding) = (None, false);
                self.patience = None;
                self.keep_short(None);
                if arriving && !self.session.space.extents.all_mapped() {
                    self.open_while_memory_arrives();
                } else {
                    self.open();
                }
                self.session.tell(&FromTenant::Opened { grant });
                // For the next time, when the program goes on already.
                self.make_probe_ready();
            }
            FromCoordinator::Beside { on } => {
                self.beside = on;
                if !on {
                    self.leave_the_board();
                    gate::work_on();
                    self.show_contended();
                } else if self.grant.is_some() {
                    // Nobody waits for it any more: a gate that is contended never comes to rest.
                    self.patience = None;
                    self.keep_short(None);
                    self.take_the_board();
                }
            }
            FromCoordinator::Board { place } => {
                self.leave_the_board();
                if place == BOARD_PLACES {
                    activity::give_up_place();
                } else if let [board] = &descriptors[..]
                    && !take_board(board, place)
                {
                    return Err(End::CoordinatorGone);
                }
                if self.beside && self.grant.is_some() {
                    self.take_the_board();
                }
            }
            FromCoordinator::Pointers { edges, continues } => {
                if !continues {
                    self.edges.clear();
                }
                self.edges.extend(edges);
            }
            FromCoordinator::KeepShort { launches } => {
                self.keep_short(Some(launches));
            }
            FromCoordinator::Contend { patience_micros } => {
                self.patience = Some(Duration::from_micros(patience_micros));
                self.watch = Watch::new();
                self.show_contended();
            }
            FromCoordinator::Alone => {
                self.patience = None;
                self.show_contended();
            }
            FromCoordinator::Revoke { grant, limit_micros } => {
                if self.held == Some(grant) {
                    // It could not be paused after all.
                    self.grant = self.held.take();
                    self.holding = false;
                }
                if self.grant == Some(grant) {
                    self.give_way(grant, Duration::from_micros(limit_micros));
                }
            }
            FromCoordinator::Hold { grant } => {
                if self.grant == Some(grant) {
                    self.hold(grant);
                }
            }
            FromCoordinator::End { text } => {
                user::warn(format_args!("this program could only go on with wrong results, and is killed: {text}"));
                // As the coordinator would, were this process not of another PID namespace.
                // SAFETY: our own process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            FromCoordinator::Probe { number } => self.carry_out_probe(number)?,
            FromCoordinator::Prepare { batch, extents } => {
                self.carry_out(batch, |session| session.space.extents.place(&extents, descriptors))?;
            }
            FromCoordinator::Map { batch, extents } => {
                self.carry_out(batch, |session| session.space.map_arrived(&extents))?;
                if self.arriving {
                    arrival::mapped(&extents);
                    if arrival::is_complete() {
                        gate::all_here(self.is_contended());
                        self.arrival_ends();
                    }
                }
            }
            FromCoordinator::Unmap { batch, extents } => {
                self.carry_out(batch, |session| session.space.extents.unmap(&extents))?;
            }
            // Answers belong on the other socket.
            _ => return Err(End::CoordinatorGone),
        }
        Ok(())
    }

    fn carry_out(&self, batch: u32, command: impl FnOnce(&Session) -> Result<(), CUresult>) -> Result<(), End> {
        let start = Instant::now();
        let message = match command(self.session) {
            Ok(()) => FromTenant::Done { batch, micros: start.elapsed().as_micros() as u64 },
            Err(CUDA_ERROR_DEINITIALIZED) => return Err(End::DriverGone),
            Err(code) => FromTenant::Failed { batch, code },
        };
        self.session.tell(&message);
        Ok(())
    }

    fn keep_short(&mut self, launches: Option<u32>) {
        self.short = launches.is_some();
        work::queue::set_stride(launches);
        self.show_contended();
    }

    fn is_contended(&self) -> bool {
        self.patience.is_some() || self.short
    }

    fn show_contended(&self) {
        gate::set_contended(self.is_contended());
    }

    fn open(&mut self) {
        channels::resume_what_came();
        if self.beside {
            self.take_the_board();
        }
        self.watch = Watch::new();
        self.session.own().open.store(1, Ordering::Relaxed);
        if self.arriving {
            gate::arriving();
        } else {
            gate::open(self.is_contended());
        }
        arrival::wake();
    }

    fn take_the_board(&mut self) {
        activity::take();
        self.say_at_work(true);
    }

    fn leave_the_board(&mut self) {
        activity::leave();
        self.say_at_work(false);
    }

    fn say_at_work(&mut self, on: bool) {
        if self.at_work != on {
            self.at_work = on;
            self.session.tell(&FromTenant::AtWork);
        }
    }

    /// Lets others go on if the program has been quiet and nothing of it is queued.
    fn try_to_rest(&mut self) {
        self.session.own().heartbeat.fetch_add(1, Ordering::Relaxed);
        // Again: while we were stopped, the coordinator has taken it from us.
        activity::take();
        let activity = gate::activity();
        if self.watch.quiet() < self.rest_after || !work::looks_idle(self.session.device) || !gate::rest() {
            return;
        }
        // Calls that came in before that did not look at the board.
        if gate::activity() != activity || gate::inside() != 0 {
            return gate::work_on();
        }
        self.rested = Instant::now();
        self.leave_the_board();
        if !gate::is_resting() {
            // One has come in since, and has taken the board before we left it.
            self.take_the_board();
        }
    }

    /// Opens the gate for calls whose memory is here, or will be.
    fn open_while_memory_arrives(&mut self) {
        let mut roots = arrival::roots::read();
        // Memory that is not ours may hold pointers to what is.
        roots.unreadable |= self.session.whole || self.session.pinned.is_any();
        arrival::begin(self.session.space.places(), &self.edges, roots);
        self.arriving = true;
        self.open();
    }

    /// All is here, or the gate is closed: says how it went.
    fn arrival_ends(&mut self) {
        self.arriving = false;
        let (Some(grant), Some((used, story))) = (self.grant, arrival::end()) else { return };
        for extents in used.chunks(MAX_LISTED) {
            self.session.tell(&FromTenant::Used { grant, extents: extents.to_vec() });
        }
        self.session.tell(&FromTenant::Arrived { grant, story });
    }

    /// Closes the gate; false if somebody is still inside at the deadline.
    fn close(&self, deadline: Instant) -> bool {
        self.announce_closing();
        gate::close(Some(deadline))
    }

    fn announce_closing(&self) {
        // Before the gate: whoever finds it closed from here on asks anew.
        DEMANDED.store(false, Ordering::Release);
        self.session.own().open.store(0, Ordering::Relaxed);
        let (start, end) = Space::window();
        self.session.own().window_start.store(start, Ordering::Relaxed);
        self.session.own().window_end.store(end, Ordering::Relaxed);
    }

    /// The coordinator wants the GPU back.
    fn give_way(&mut self, grant: u64, limit: Duration) {
        let start = Instant::now();
        let deadline = start + limit;
        if self.close(deadline) && work::drain(Some(deadline)) {
            self.closed(grant, start);
        } else {
            // Work that waits for something the program has yet to do, or very long work: let it go on.
            self.open();
            self.session.tell(&FromTenant::Busy { grant });
        }
    }

    /// The coordinator is about to take our work off the GPU.
    fn hold(&mut self, grant: u64) {
        if !std::mem::replace(&mut self.probe_made, true) {
            self.probe = Probe::new(self.session.device);
        }
        self.make_probe_ready();
        let start = Instant::now();
        // In this order: whatever is made from here on is told, or paused as soon as it is made.
        channels::pause_what_comes();
        self.session.tell_channels();
        // A refused call would end a capture.
        let limit = if work::is_capturing() { LONGEST_HOLD_OF_CAPTURE } else { self.hold_limit };
        self.announce_closing();
        let held = gate::hold(start + limit);
        let ended = held == gate::Held::Empty && work::drain(Some(start + limit));
        let next = if ended { self.hold_limit * 2 } else { self.hold_limit / 2 };
        self.hold_limit = next.clamp(SHORTEST_HOLD, LONGEST_HOLD);
        if ended {
            return self.closed(grant, start);
        }
        self.gate_closed();
        self.held = Some(grant);
        self.holding = held == gate::Held::NotYet;
        if !self.holding {
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
            Some(probe) => probe.carry_out(self.session.control.as_fd(), &self.session.own().probing),
            None => Some(0),
        };
        if took.ok_or(End::CoordinatorGone)? > PROBE_LIMIT_MS {
            // It had to wait, and we were let go on for that. What it waited for ends first.
            let end = Instant::now() + LONGEST_DRAIN;
            while !work::looks_idle(self.session.device) && Instant::now() < end {
                std::thread::sleep(SHORTEST_WATCH);
            }
        }
        self.session.tell(&FromTenant::Probed { number });
        Ok(())
    }

    /// Calls that are still inside find, when they go on, all that was there when they came.
    fn tell_held(&self, grant: u64) {
        self.release_cached();
        self.session.tell(&FromTenant::Held { grant });
    }

    /// The program has been quiet while somebody waits: if nothing of it is queued, it gives way.
    fn try_to_give_way(&mut self, grant: u64) {
        let start = Instant::now();
        if self.close(start + LONGEST_TRY) && work::drain(None) {
            self.closed(grant, start);
        } else {
            self.open();
        }
    }

    fn gate_closed(&mut self) {
        if self.arriving {
            self.arrival_ends();
            // Those who wait for memory, outside of the gate, now wait for the gate.
            arrival::wake();
        }
        self.leave_the_board();
        self.grant = None;
    }

    fn closed(&mut self, grant: u64, start: Instant) {
        self.gate_closed();
        let drain_micros = start.elapsed().as_micros() as u64;
        self.release_cached();
        self.session.tell(&FromTenant::Closed { grant, drain_micros });
        self.demand_again();
    }

    /// What the program has freed is worth no copy.
    fn release_cached(&self) {
        self.session.space.release_cached(|extents| {
            for extents in extents.chunks(MAX_EXTENTS) {
                let extents: Vec<ExtentId> = extents.to_vec();
                self.session.tell(&FromTenant::Free { extents });
            }
        });
    }

    /// A call that came while the gate closed has asked before the coordinator knew that it is closed.
    fn demand_again(&self) {
        if DEMANDED.load(Ordering::Acquire) {
            self.session.tell(&FromTenant::Demand);
        }
    }

    /// Whatever happened to it, this program goes on if all its memory is here.
    fn coordinator_is_gone(mut self) {
        self.leave_the_board();
        // With the gate open, nothing is away; a thread may just be mapping what it was lent.
        if (self.grant.is_some() && !self.arriving) || self.session.space.extents.all_mapped() {
            // Also if it was about to pause us, or to resume us.
            self.session.channels.resume();
            channels::resume_what_came();
            user::warn(format_args!("the coordinator is gone; this program goes on with what it has"));
            gate::open(false);
        } else {
            user::warn(format_args!(
                "the coordinator is gone and had memory of this program; its GPU calls fail from here on \
                 (CUDA_ERROR_DEVICE_UNAVAILABLE), and those that wait for work which was interrupted never return"
            ));
            gate::set_broken();
            arrival::wake();
        }
    }
}
