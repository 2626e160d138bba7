//! The control loop: the thread that opens and closes the gate, maps and unmaps, on the word of each GPU's coordinator.
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
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use baton_contract::messages::{CorunCommand, FromCoordinator, MemoryCommand, Message as _};
use baton_contract::page::TAKEN;
use baton_contract::{link, settings};

use self::state::{Control, End, Gpu, Turn};
use super::probe::{Probe, TICK};
use super::tenant::{self, Session};
use super::{consolidation, refuse};
use crate::driver::api;
use crate::sys::{reserve, thread, user};
use crate::{arrival, channels, gate};

/// The least time between two looks at whether the program is idle.
const SHORTEST_WATCH: Duration = Duration::from_micros(250);
/// How late the system may wake the loop: its watches are short.
const TIMER_SLACK: Duration = Duration::from_micros(5);

/// The control loop, as the threads that join know it.
struct Loop {
    runs: bool,
    has_run: bool,
    /// Sessions that it has yet to take.
    came: Vec<&'static Session>,
}

static LOOP: Mutex<Loop> = Mutex::new(Loop { runs: false, has_run: false, came: Vec::new() });

fn lock() -> MutexGuard<'static, Loop> {
    LOOP.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the control loop follow a session's coordinator: that of the first GPU with the gate closed, where no call can be inside yet. False
/// if there can be no such thread.
pub(super) fn begin(session: &'static Session) -> bool {
    let mut known = lock();
    if known.runs {
        known.came.push(session);
        tenant::wake();
        return true;
    }
    let is_open = known.has_run;
    if !is_open {
        // No program may be on the GPU without a grant: from here on calls wait for this thread.
        gate::close(None, || ());
        session.begin();
    }
    known.runs = thread::start("baton", move || Control::new(session, is_open).run());
    known.has_run |= known.runs;
    if !known.runs && !is_open {
        gate::open(false);
    }
    known.runs
}

/// The coordinator talks nonsense.
const SAYS_OTHERWISE: End = End::CoordinatorGone(baton_messages::SAYS_OTHERWISE);

/// More than a message has of a coordinator that takes over.
const TAKEOVER_BYTES: usize = 64;

/// How soon after a look, or a try to yield, the next one comes.
fn between_tries(patience: Duration) -> Duration {
    (patience / 2).max(SHORTEST_WATCH)
}

/// Why the loop woke up: the GPUs by their place.
#[derive(Default)]
struct Came {
    messages: Vec<usize>,
    probed: Vec<usize>,
    news: bool,
}

impl Control {
    /// Runs until no GPU has a coordinator, or the driver is gone.
    fn run(mut self) {
        // For good: nothing this thread does disturbs a capture.
        core::mem::forget(api::Relaxed::enter());
        // For good too: a thread that waits in the driver may wait for work that this thread is told to do.
        core::mem::forget(api::MustNotWait::begin());
        // SAFETY: a number for this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK.as_nanos() as libc::c_ulong) };
        self.tell_channels();
        while !self.gpus.is_empty() {
            if let Err((at, end)) = self.step() {
                match end {
                    End::CoordinatorGone(why) => self.on_coordinator_gone(at, why),
                    End::DriverGone => self.on_driver_gone(),
                }
                self.end_if_alone();
            }
        }
    }

    /// Lets other threads start the next loop, unless there is a GPU for this one.
    fn end_if_alone(&mut self) {
        let mut known = lock();
        if self.gpus.is_empty() {
            self.take_newcomers(&mut known);
        }
        known.runs = !self.gpus.is_empty();
    }

    /// Takes the sessions of GPUs that this program has joined beside others.
    fn take_newcomers(&mut self, known: &mut Loop) {
        self.gpus.extend(known.came.drain(..).map(Gpu::new));
    }

    /// Waits once and does what is due. An error comes with the place of its GPU.
    fn step(&mut self) -> Result<(), (usize, End)> {
        // Others see by that that it was not stopped.
        let is_untold = |gpu: &Gpu| matches!(gpu.turn, Turn::Held { is_told: false, .. });
        let timeout = self.patience().map(between_tries);
        let timeout = if self.gpus.iter().any(is_untold) { Some(SHORTEST_WATCH) } else { timeout };
        let next_look = self.requests.look_again_after(self.is_here());
        let timeout = timeout.into_iter().chain(next_look).min();
        let timeout = self.gpus.iter().find_map(|gpu| gpu.corun.look_again_after()).or(timeout);
        let timeout = timeout.or(self.turns_alone().and_then(|_| self.rest.look_again_after()));
        let is_probing = self.gpus.iter().any(|gpu| gpu.probe.as_ref().is_some_and(Probe::is_under_way));
        let timeout = timeout.into_iter().chain(is_probing.then_some(TICK)).min();
        let came = self.wait(timeout);
        if came.news {
            self.on_news();
        }
        for at in 0..self.gpus.len() {
            match &mut self.gpus[at].probe {
                Some(probe) if came.probed.contains(&at) => {
                    if let Some(took_ms) = probe.end() {
                        self.on_probed(at, took_ms);
                    }
                }
                Some(probe) => probe.tick(),
                None => {}
            }
        }
        for at in came.messages {
            self.receive(at).map_err(|end| (at, end))?;
        }
        for gpu in &mut self.gpus {
            if let Turn::Held { grant, is_told: false, arriving } = gpu.turn
                && gate::finish_holding() != gate::Held::NotYet
            {
                gpu.turn = Turn::Held { grant, is_told: true, arriving };
                gpu.report_held(grant);
            }
        }
        for gpu in &self.gpus {
            if gpu.patience.is_some() || gpu.corun.is_busy() || is_untold(gpu) {
                gpu.beat();
            }
        }
        for gpu in self.gpus.iter_mut().filter(|gpu| gpu.corun.is_busy()) {
            gpu.corun.try_to_rest(&mut self.watch, &mut self.idle, &mut self.requests);
        }
        if let Some(turns) = self.turns_alone() {
            self.rest.look(turns, &mut self.watch, &mut self.idle);
        }
        if self.is_here() {
            self.requests.look(&mut self.watch, &mut self.idle);
        } else if !self.is_held() {
            self.requests.look_behind_closed_gate();
        }
        if let Some(patience) = self.patience()
            && self.watch.quiet() >= patience
            && self.last_try.is_none_or(|at| at.elapsed() >= between_tries(patience))
        {
            self.last_try = Some(Instant::now());
            self.try_to_yield();
        }
        Ok(())
    }

    /// Waits for a coordinator, for news from the program's own threads, or for the end of a probe.
    fn wait(&self, timeout: Option<Duration>) -> Came {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // None is watched by a negative number.
        let number = |what: Option<&dyn AsRawFd>| watch(what.map_or(-1, AsRawFd::as_raw_fd));
        let of_gpu = |gpu: &Gpu| {
            [watch(gpu.session.link.control.as_raw_fd()), number(gpu.probe.as_ref().map(|probe| probe as &dyn AsRawFd))]
        };
        let mut watched: Vec<libc::pollfd> = self.gpus.iter().flat_map(of_gpu).collect();
        watched.push(number(tenant::news().map(|news| news as &dyn AsRawFd)));
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: so many structures, and a time or null, that live over the call.
        unsafe { libc::ppoll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, timeout, core::ptr::null()) };
        let mut came = Came::default();
        let (gpus, news) = watched.as_chunks::<2>();
        for (at, [message, probed]) in gpus.iter().enumerate() {
            came.messages.extend((message.revents != 0).then_some(at));
            came.probed.extend((probed.revents != 0).then_some(at));
        }
        came.news = news.iter().any(|news| news.revents != 0);
        came
    }

    /// A thread of the program has made a channel, has left its rest, or has joined another GPU.
    fn on_news(&mut self) {
        if let Some(news) = tenant::news() {
            news.lower();
        }
        self.take_newcomers(&mut lock());
        self.tell_channels();
        self.rest.look_whether_awake();
        self.gpus.iter_mut().filter(|gpu| gpu.counts).for_each(|gpu| gpu.corun.look_whether_awake());
    }

    fn tell_channels(&self) {
        self.gpus.iter().for_each(|gpu| gpu.session.tell_channels());
    }

    /// Receives one message of a GPU's coordinator and carries it out.
    fn receive(&mut self, at: usize) -> Result<(), End> {
        let gpu = &self.gpus[at];
        let link = gpu.session.link;
        // Frames that did not come are sent again; the pages of a coordinator that takes over are not.
        let needs_room = !gpu.undelivered.is_empty() || gpu.is_taken_over_next();
        let _spare = needs_room.then(reserve::let_go);
        let received = link::receive(link.control.as_fd(), false).ok().flatten();
        let received = received.ok_or(End::CoordinatorGone(baton_messages::CONNECTION_ENDED))?;
        let (number, message) = FromCoordinator::decode(&received.message).map_err(|_| SAYS_OTHERWISE)?;
        if number != link.gpu {
            return Err(SAYS_OTHERWISE);
        }
        match message.descriptors() {
            expected if expected == received.descriptors.len() => self.dispatch(at, message, received.descriptors),
            _ if received.truncated => self.gpus[at].on_descriptors_lost(message),
            _ => Err(SAYS_OTHERWISE),
        }
    }

    /// Passes a message on to its family.
    fn dispatch(&mut self, at: usize, message: FromCoordinator, descriptors: Vec<OwnedFd>) -> Result<(), End> {
        if !matches!(message, FromCoordinator::Memory(_)) {
            self.rest.end();
        }
        let kind = baton_faults::Kind::of(&message);
        baton_faults::reach("program hears", &kind);
        let obeyed = match message {
            FromCoordinator::Turn(command) => {
                self.on_turn(at, command);
                Ok(())
            }
            FromCoordinator::Corun(command) => self.on_corun(at, command, &descriptors),
            FromCoordinator::Preemption(command) => {
                self.on_preemption(at, command);
                Ok(())
            }
            FromCoordinator::Memory(command) => self.on_memory(at, command, descriptors),
            FromCoordinator::Takeover(command) => self.on_takeover(at, command, descriptors),
            // Answers belong on the other socket.
            _ => Err(SAYS_OTHERWISE),
        };
        baton_faults::reach("program obeyed", &kind);
        obeyed
    }

    /// A GPU has no coordinator any more. The program goes on if all its memory there is here; its GPU calls fail otherwise.
    fn on_coordinator_gone(&mut self, at: usize, why: &str) {
        self.rest.end();
        let is_open = self.is_open;
        let mut gpu = self.gpus.remove(at);
        gpu.corun.on_turn_ends();
        let session = gpu.session;
        if session.link.coordinators().taken.load(Ordering::SeqCst) == TAKEN {
            end_without_memory();
        }
        // With the gate open, nothing is away; a thread may just be mapping what it was lent.
        let is_all_here = is_open && !gpu.turn.is_arriving() || session.space.extents.all_mapped();
        if !is_all_here && user::is_on(settings::REQUIRE) {
            // Whoever asked for a shared GPU wants to know at once, and not from a program that goes on without one.
            refuse::end(&baton_messages::memory_is_lost(why), baton_messages::START_IT_AGAIN);
        }
        if is_all_here {
            user::warn(&baton_messages::goes_on_alone(why));
        } else {
            user::warn(&baton_messages::calls_fail_from_here(why));
            gate::set_broken();
        }
        // Also if it was about to pause us, or to resume us. Where memory is missing, work that waits for it faults: calls that wait for the
        // work return.
        self.gone.push(session);
        if !is_all_here {
            self.leave_all();
        }
        self.resume_for_gone();
        no_longer_shared(session);
        if !self.gpus.is_empty() {
            return if is_open { self.note_opened() } else { self.open_if_here() };
        }
        arrival::all_is_here();
        channels::resume_what_came();
        if is_all_here {
            arrival::end();
            gate::open(false);
        }
        arrival::wake();
    }

    /// Resumes what coordinators that are gone may have paused, unless another one has paused it too: then when that lets it go on.
    pub(super) fn resume_for_gone(&mut self) {
        let is_taken = |gpu: &Gpu| gpu.session.link.coordinators().taken.load(Ordering::SeqCst) != 0;
        if !self.is_held() && !self.gpus.iter().any(is_taken) {
            self.gone.drain(..).for_each(|session| session.channels.resume(session.others()));
        }
    }

    /// The program is exiting.
    fn on_driver_gone(&mut self) {
        // Exit handlers may still make calls; the driver answers them. The coordinators take the memory back when the process has ended.
        arrival::end();
        gate::open(false);
        arrival::wake();
        self.leave_all();
    }

    /// Follows no coordinator any more.
    fn leave_all(&mut self) {
        for gpu in self.gpus.drain(..) {
            // SAFETY: shuts down a socket of ours.
            unsafe { libc::shutdown(gpu.session.link.control.as_raw_fd(), libc::SHUT_RDWR) };
            no_longer_shared(gpu.session);
        }
    }
}

/// No thread waits for this GPU's coordinator any more.
fn no_longer_shared(session: &Session) {
    consolidation::no_coordinator(session.device);
    session.link.requests.end();
    session.begin();
}

impl Gpu {
    /// True if the next message is of a coordinator that takes over.
    fn is_taken_over_next(&self) -> bool {
        let mut beginning = [0; TAKEOVER_BYTES];
        let read = link::peek(self.session.link.control.as_fd(), &mut beginning);
        matches!(FromCoordinator::decode(&beginning[..read]), Ok((_, FromCoordinator::Takeover(_))))
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
}

/// Ends this program: others have memory that is still mapped here.
fn end_without_memory() {
    user::warn(&baton_messages::memory_was_given_away());
    // SAFETY: our own process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}
