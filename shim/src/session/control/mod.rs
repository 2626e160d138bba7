//! The control loop: the thread that opens and closes the gate, maps and unmaps, on the coordinator's word.
//!
//! It shares no lock with the program's threads across a driver call. While another program waits for the GPU it also
//! watches whether this one still needs it: a program that has made no call for a while and has nothing queued yields.
//!
//! The files beside this one carry out the commands, a family each; [`state`] has what they share.

mod corun;
mod memory;
mod preemption;
mod state;
mod takeover;
mod turns;

use core::time::Duration;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

use baton_contract::messages::{CorunCommand, FromCoordinator, MemoryCommand, Message as _};
use baton_contract::page::TAKEN;
use baton_contract::{link, settings};

use self::state::{Control, End, Turn};
use super::probe::{Probe, TICK};
use super::tenant::Session;
use super::{consolidation, refuse};
use crate::driver::api;
use crate::sys::{reserve, thread, user};
use crate::{arrival, channels, gate};

/// The least time between two looks at whether the program is idle.
const SHORTEST_WATCH: Duration = Duration::from_micros(250);
/// How late the system may wake the loop: its watches are short.
const TIMER_SLACK: Duration = Duration::from_micros(5);

/// Starts the thread, with the gate closed.
pub(super) fn start(session: &'static Session) -> bool {
    // No program may be on the GPU without a grant: from here on calls wait for this thread.
    gate::close(None, || ());
    let started = thread::start("baton", move || Control::new(session).run());
    if !started {
        gate::open(false);
    }
    started
}

/// The coordinator talks nonsense.
const SAYS_OTHERWISE: End = End::CoordinatorGone(baton_messages::SAYS_OTHERWISE);

/// More than a message has of a coordinator that takes over.
const TAKEOVER_BYTES: usize = 64;

/// How soon after a look, or a try to yield, the next one comes.
fn between_tries(patience: Duration) -> Duration {
    (patience / 2).max(SHORTEST_WATCH)
}

/// Why the loop woke up.
struct Came {
    message: bool,
    news: bool,
    probed: bool,
}

impl Control {
    /// Runs until the coordinator or the driver is gone.
    fn run(mut self) {
        // For good: nothing this thread does disturbs a capture.
        core::mem::forget(api::Relaxed::enter());
        // For good too: a thread that waits in the driver may wait for work that this thread is told to do.
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
        let session = self.session;
        match end {
            End::CoordinatorGone(why) => self.on_coordinator_gone(why),
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
        session.link.requests.end();
    }

    /// Waits once and does what is due.
    fn step(&mut self) -> Result<(), End> {
        let timeout = self.turn.grant().and(self.patience).map(between_tries);
        let timeout =
            if matches!(self.turn, Turn::Held { is_told: false, .. }) { Some(SHORTEST_WATCH) } else { timeout };
        let next_look = self.requests.look_again_after(self.turn.grant().is_some());
        let timeout = timeout.into_iter().chain(next_look).min();
        let timeout = self.corun.look_again_after().or(timeout);
        let timeout = timeout.or(self.turn_alone().and_then(|_| self.rest.look_again_after()));
        let timeout = timeout.into_iter().chain(self.is_probing().then_some(TICK)).min();
        let came = self.wait(timeout);
        if came.news {
            self.on_news();
        }
        match &mut self.probe {
            Some(probe) if came.probed => {
                if let Some(took_ms) = probe.end() {
                    self.on_probed(took_ms);
                }
            }
            Some(probe) => probe.tick(),
            None => {}
        }
        if came.message {
            self.receive()?;
        }
        if let Turn::Held { grant, is_told: false, arriving } = self.turn
            && gate::finish_holding() != gate::Held::NotYet
        {
            self.turn = Turn::Held { grant, is_told: true, arriving };
            self.report_held(grant);
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
            // Queued work may be paused.
            Turn::Held { .. } => {}
        }
        if let (Some(grant), Some(patience)) = (self.turn.grant(), self.patience)
            && self.watch.quiet() >= patience
            && self.last_try.is_none_or(|at| at.elapsed() >= between_tries(patience))
        {
            self.last_try = Some(Instant::now());
            self.try_to_yield(grant);
        }
        Ok(())
    }

    fn is_probing(&self) -> bool {
        self.probe.as_ref().is_some_and(Probe::is_under_way)
    }

    /// Waits for the coordinator, for news from the program's own threads, or for the end of a probe.
    fn wait(&self, timeout: Option<Duration>) -> Came {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // None is watched by a negative number.
        let probe = self.probe.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut watched =
            [watch(self.session.link.control.as_raw_fd()), watch(self.session.news.as_raw_fd()), watch(probe)];
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: so many structures, and a time or null, that live over the call.
        unsafe { libc::ppoll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, timeout, core::ptr::null()) };
        let [message, news, probed] = watched.map(|watched| watched.revents != 0);
        Came { message, news, probed }
    }

    /// A thread of the program has made a channel, or has left its rest.
    fn on_news(&mut self) {
        self.session.news.lower();
        self.session.tell_channels();
        self.rest.look_whether_awake();
        self.corun.look_whether_awake();
    }

    /// Receives one message and carries it out.
    fn receive(&mut self) -> Result<(), End> {
        // Frames that did not come are sent again; the pages of a coordinator that takes over are not.
        let needs_room = !self.undelivered.is_empty() || self.is_taken_over_next();
        let _spare = needs_room.then(reserve::let_go);
        let received = link::receive(self.session.link.control.as_fd(), false).ok().flatten();
        let received = received.ok_or(End::CoordinatorGone(baton_messages::CONNECTION_ENDED))?;
        let (gpu, message) = FromCoordinator::decode(&received.message).map_err(|_| SAYS_OTHERWISE)?;
        if gpu != self.session.link.gpu {
            return Err(SAYS_OTHERWISE);
        }
        match message.descriptors() {
            expected if expected == received.descriptors.len() => self.dispatch(message, received.descriptors),
            _ if received.truncated => self.on_descriptors_lost(message),
            _ => Err(SAYS_OTHERWISE),
        }
    }

    /// True if the next message is of a coordinator that takes over.
    fn is_taken_over_next(&self) -> bool {
        let mut beginning = [0; TAKEOVER_BYTES];
        let read = link::peek(self.session.link.control.as_fd(), &mut beginning);
        matches!(FromCoordinator::decode(&beginning[..read]), Ok((_, FromCoordinator::Takeover(_))))
    }

    /// Passes a message on to its family.
    fn dispatch(&mut self, message: FromCoordinator, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        if !matches!(message, FromCoordinator::Memory(_)) {
            self.rest.end();
        }
        let kind = baton_faults::Kind::of(&message);
        baton_faults::reach("program hears", &kind);
        let obeyed = match message {
            FromCoordinator::Turn(command) => {
                self.on_turn(command);
                Ok(())
            }
            FromCoordinator::Corun(command) => self.on_corun(command, &descriptors),
            FromCoordinator::Preemption(command) => {
                self.on_preemption(command);
                Ok(())
            }
            FromCoordinator::Memory(command) => self.on_memory(command, descriptors),
            FromCoordinator::Takeover(command) => self.on_takeover(command, descriptors),
            // Answers belong on the other socket.
            _ => Err(SAYS_OTHERWISE),
        };
        baton_faults::reach("program obeyed", &kind);
        obeyed
    }

    /// A message came without its descriptors, because this process can open no more.
    fn on_descriptors_lost(&mut self, message: FromCoordinator) -> Result<(), End> {
        match message {
            FromCoordinator::Memory(MemoryCommand::Prepare { batch, extents }) => self.on_undelivered(batch, extents),
            FromCoordinator::Corun(CorunCommand::Slot { .. }) => self.give_up_slot(),
            _ => return Err(End::CoordinatorGone(baton_messages::NO_DESCRIPTOR)),
        }
        Ok(())
    }

    /// The program goes on if all its memory is here; its GPU calls fail otherwise.
    fn on_coordinator_gone(mut self, why: &str) {
        self.corun.on_turn_ends();
        if self.session.link.coordinators().taken.load(Ordering::SeqCst) == TAKEN {
            end_without_memory();
        }
        // With the gate open, nothing is away; a thread may just be mapping what it was lent.
        if matches!(self.turn, Turn::Here { arriving: false, .. }) || self.session.space.extents.all_mapped() {
            arrival::end();
            arrival::all_is_here();
            // Also if it was about to pause us, or to resume us.
            self.session.channels.resume(arrival::elsewhere::taken());
            channels::resume_what_came();
            user::warn(&baton_messages::goes_on_alone(why));
            gate::open(false);
            arrival::wake();
        } else if user::is_on(settings::REQUIRE) {
            // Whoever asked for a shared GPU wants to know at once, and not from a program that goes on without one.
            refuse::end(&baton_messages::memory_is_lost(why), baton_messages::START_IT_AGAIN);
        } else {
            user::warn(&baton_messages::calls_fail_from_here(why));
            gate::set_broken();
            // Work that waits for memory or was taken off the GPU goes on, and faults where memory is missing: calls that wait for it return.
            arrival::all_is_here();
            self.session.channels.resume(arrival::elsewhere::taken());
            channels::resume_what_came();
            arrival::wake();
        }
    }
}

/// Ends this program: others have memory that is still mapped here.
fn end_without_memory() {
    user::warn(&baton_messages::memory_was_given_away());
    // SAFETY: our own process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}
