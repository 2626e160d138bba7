//! The GPU's owner and each program's state over time, made from events.
//!
//! A [`Timeline`] reads one [`History`] after the other. [`Timeline::forget_before`] drops the events that are too old to be shown, so
//! a timeline stays as small as the time that it shows.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use baton_report::event::{Event, History, Kind};
use baton_report::record::Record;
use baton_report::status::Status;

#[cfg(test)]
mod tests;

/// The state of a program at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It has no work, or has not yet asked for the GPU.
    Idle,
    /// It waits for the GPU.
    Waiting,
    /// It is the next to have the GPU, and waits for its memory.
    Arriving,
    /// It has the GPU; calls wait for memory that still arrives.
    RunningArriving,
    /// It has the GPU.
    Running,
    /// It may use the GPU beside its owner.
    CoRunning,
    /// Its work makes way for a more urgent program, although it has the GPU or co-runs.
    Descheduled,
    /// Its work was taken off the GPU in the middle.
    Preempted,
    /// A user keeps it off the GPU.
    Suspended,
}

impl State {
    /// All states.
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::Waiting,
        Self::Arriving,
        Self::RunningArriving,
        Self::Running,
        Self::CoRunning,
        Self::Descheduled,
        Self::Preempted,
        Self::Suspended,
    ];

    /// The state's name in traces and pages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting for the baton",
            Self::Arriving => "waiting for memory",
            Self::RunningArriving => "running, memory arriving",
            Self::Running => "running",
            Self::CoRunning => "co-running",
            Self::Descheduled => "descheduled",
            Self::Preempted => "preempted",
            Self::Suspended => "suspended",
        }
    }
}

/// A stretch of time in which a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<T> {
    /// The start, in nanoseconds since the coordinator began.
    pub from: u64,
    /// The end; none while the value still holds.
    pub to: Option<u64>,
    /// The value.
    pub what: T,
}

impl<T> Span<T> {
    /// Returns the part of the span that lies in a stretch of time.
    pub fn within(&self, time: &Range<u64>) -> Option<Range<u64>> {
        let (from, to) = (self.from.max(time.start), self.to.unwrap_or(u64::MAX).min(time.end));
        (from < to).then_some(from..to)
    }
}

/// Spans in order, each of which ends when the next begins or earlier.
#[derive(Clone, Debug)]
pub struct Spans<T>(VecDeque<Span<T>>);

impl<T> Default for Spans<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Copy + PartialEq> Spans<T> {
    /// Sets the value from now on, or none. The same value as before changes nothing.
    fn become_at(&mut self, now: u64, what: Option<T>) {
        let open = self.0.back_mut().filter(|span| span.to.is_none());
        if open.as_ref().map(|span| span.what) == what {
            return;
        }
        if let Some(open) = open {
            // A span never ends before it began, and a span of no length is dropped.
            open.to = Some(now.max(open.from));
            if open.to == Some(open.from) {
                self.0.pop_back();
            }
        }
        self.0.extend(what.map(|what| Span { from: now, to: None, what }));
    }

    fn forget_before(&mut self, ns: u64) {
        while self.0.front().is_some_and(|span| span.to.is_some_and(|to| to < ns)) {
            self.0.pop_front();
        }
    }

    /// The spans, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Span<T>> {
        self.0.iter()
    }

    /// The value that holds now.
    pub fn now(&self) -> Option<T> {
        self.0.back().filter(|span| span.to.is_none()).map(|span| span.what)
    }
}

/// A program, as its events tell.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The name that the user gave it.
    pub name: String,
    /// Its class, if its first event is known.
    pub class: Option<String>,
    /// Its state over time. There is none before the first known one, and none after its end.
    pub states: Spans<State>,
    /// Times in which memory of the program was on its way to the host.
    pub evicting: Spans<()>,
    /// GPU time in each stretch of time, as the coordinator counts it: without the time in which the program could do nothing, and with
    /// its work beside the owner of the GPU.
    pub worked: VecDeque<Worked>,
    /// Bytes of its memory on the GPU before the first change that [`Timeline::resident`] still has, if known.
    pub resident_before: Option<u64>,
    /// The time when its process ended, if it has.
    pub ended: Option<u64>,
    /// Memory that has begun to leave, and has not left yet.
    leaving: Leaving,
    /// It has asked for the GPU, and has not had it since.
    wants: bool,
    /// A user keeps it off the GPU.
    suspended: bool,
    /// Set from the grant of its turn until its gate opens; true if memory was still arriving.
    granted: Option<bool>,
    /// The owner of the last turn before that, if it was another program.
    switch_from: Option<u32>,
    /// Its state once it is no longer descheduled or suspended.
    before: Option<State>,
}

/// Memory that has begun to leave, and is not yet copied and unmapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Leaving {
    to_copy: u64,
    to_unmap: u64,
}

/// The GPU time of a program in a stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worked {
    /// The stretch of time.
    pub time: Range<u64>,
    /// GPU time in it, in nanoseconds.
    pub ns: u64,
}

/// A change of the GPU's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The time when the new owner's gate opened.
    pub at: u64,
    /// The owner before.
    pub from: u32,
    /// The new owner.
    pub to: u32,
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number of its program; none if it concerns the GPU.
    pub id: Option<u32>,
    /// The time that it took.
    pub time: Range<u64>,
    /// The bytes that it concerned.
    pub bytes: u64,
}

/// A wait for a turn: from asking for the GPU to the first launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The program's number.
    pub id: u32,
    /// The time when the program asked for the GPU.
    pub asked: u64,
    /// The time when its turn was granted.
    pub granted: u64,
    /// The time of its first call on the GPU if recorded, else the time when its gate opened.
    pub launched: Option<u64>,
}

/// All that is known of a coordinator's programs and GPU over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    next: u64,
    /// The end of the known time, in nanoseconds since the coordinator began.
    pub now: u64,
    /// The start of the known time.
    pub since: u64,
    /// Events that were dropped before they were read.
    pub lost: u64,
    /// Programs by number, including ended ones until they are forgotten.
    pub programs: BTreeMap<u32, Program>,
    /// The owner of the GPU over time. Programs that co-run use it beside the owner.
    pub owner: Spans<u32>,
    /// Copies to the GPU.
    pub copies_in: VecDeque<Done>,
    /// Copies to the host. For those to the GPU, see [`Self::copies_in`].
    pub copies_out: VecDeque<Done>,
    /// Requests of programs of class latency.
    pub requests: VecDeque<Done>,
    /// Waits for turns.
    pub waits: VecDeque<Wait>,
    /// Changes of resident memory: time, program, and bytes on the GPU from then on.
    pub resident: VecDeque<(u64, u32, u64)>,
    /// Changes of the GPU's owner.
    pub switched: VecDeque<Switch>,
    /// The number of changes of the owner in all events read, forgotten ones included.
    pub switches: u64,
    last_granted: Option<u32>,
}

impl Program {
    /// GPU time of the program in a stretch of time, in nanoseconds.
    pub fn worked(&self, time: &Range<u64>) -> f64 {
        let later = self.worked.iter().rev().take_while(|worked| worked.time.end > time.start);
        let part = |worked: &Worked| {
            let all = worked.time.end.saturating_sub(worked.time.start).max(1) as f64;
            let shown = worked.time.end.min(time.end).saturating_sub(worked.time.start.max(time.start));
            worked.ns as f64 * shown as f64 / all
        };
        later.map(part).sum()
    }

    /// Tracks whether memory of the program is on its way to the host: from the moment when it begins to leave until it is copied and
    /// unmapped.
    fn leave(&mut self, event: &Event) {
        let Leaving { to_copy, to_unmap } = &mut self.leaving;
        let bytes = event.bytes.unwrap_or(0);
        match event.what {
            Kind::Leaves => {
                *to_copy = to_copy.saturating_add(bytes.saturating_sub(event.uncopied_bytes.unwrap_or(0)));
                *to_unmap += 1;
            }
            Kind::CopiedOut => *to_copy = to_copy.saturating_sub(bytes),
            Kind::Unmapped => *to_unmap = to_unmap.saturating_sub(1),
            // This ends departures that failed: with the GPU a program has all its memory, and after its end it has none.
            Kind::Opened | Kind::Departed => self.leaving = Leaving::default(),
            _ => return,
        }
        let is_leaving = self.leaving != Leaving::default();
        self.evicting.become_at(event.ns, is_leaving.then_some(()));
    }
}

impl Timeline {
    /// Makes a timeline of a whole record that a coordinator has left.
    pub fn of(record: &Record) -> Self {
        let mut timeline = Self::default();
        record.histories.iter().for_each(|history| timeline.see(history));
        for (id, (_, class)) in &record.head.programs {
            if let Some(program) = timeline.programs.get_mut(id) {
                program.class.get_or_insert_with(|| class.clone());
            }
        }
        timeline
    }

    /// The number of the next event to ask the coordinator for.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Reads more events.
    pub fn see(&mut self, history: &History) {
        if history.oldest > self.next {
            // The present states are unknown; the next events tell them.
            self.lost += history.oldest - self.next;
            let at = history.events.first().map_or(history.now_ns, |event| event.ns);
            self.owner.become_at(at, None);
            for program in self.programs.values_mut() {
                program.states.become_at(at, None);
                program.evicting.become_at(at, None);
                program.leaving = Leaving::default();
            }
            self.since = at;
        }
        history.events.iter().for_each(|event| self.add(event));
        self.next = history.next;
        self.now = match history.events.last() {
            Some(last) if history.more => last.ns,
            _ => history.now_ns,
        };
    }

    fn add(&mut self, event: &Event) {
        let done = |bytes| Done {
            id: event.id,
            time: event.from_ns.unwrap_or(event.ns)..event.to_ns.unwrap_or(event.ns),
            bytes,
        };
        match event.what {
            Kind::CopiedIn => self.copies_in.push_back(done(event.bytes.unwrap_or(0))),
            Kind::CopiedOut => self.copies_out.push_back(done(event.bytes.unwrap_or(0))),
            Kind::Request => self.requests.push_back(done(0)),
            _ => {}
        }
        let Some(id) = event.id else { return };
        // Later events of an ended program change nothing in its state.
        match self.programs.get(&id) {
            Some(program) if program.ended.is_some() => return,
            None if event.what == Kind::Departed || event.tenant.is_none() => return,
            _ => {}
        }
        self.resident.extend(event.resident_bytes.map(|bytes| (event.ns, id, bytes)));
        let at = event.ns;
        let program = self.programs.entry(id).or_default();
        if program.name.is_empty() {
            program.name = event.tenant.clone().unwrap_or_default();
        }
        program.leave(event);
        if event.what == Kind::Worked {
            let time = event.from_ns.unwrap_or(at)..event.to_ns.unwrap_or(at);
            program.worked.push_back(Worked { time, ns: event.gpu_ns.unwrap_or(0) });
            return;
        }
        let state = program.states.now();
        let becomes = match event.what {
            Kind::Joined => {
                program.class.clone_from(&event.class);
                State::Idle
            }
            Kind::Departed => {
                program.ended = Some(at);
                program.states.become_at(at, None);
                if self.owner.now() == Some(id) {
                    self.owner.become_at(at, None);
                }
                return;
            }
            Kind::Suspended | Kind::Unsuspended => {
                program.suspended = event.what == Kind::Suspended;
                match state {
                    Some(State::Idle | State::Waiting | State::Preempted) if program.suspended => {
                        program.before = state;
                        State::Suspended
                    }
                    Some(State::Suspended) if !program.suspended => program.before.take().unwrap_or(State::Idle),
                    _ => return,
                }
            }
            Kind::Asked => {
                program.wants = true;
                match state {
                    Some(State::Idle) | None => State::Waiting,
                    Some(State::Suspended) if program.before == Some(State::Idle) => {
                        program.before = Some(State::Waiting);
                        return;
                    }
                    _ => return,
                }
            }
            Kind::Chosen => State::Arriving,
            Kind::Granted => {
                program.granted = Some(event.arriving.unwrap_or(false));
                program.switch_from = self.last_granted.replace(id).filter(|last| *last != id);
                let asked = event.from_ns.unwrap_or(at);
                self.waits.push_back(Wait { id, asked, granted: at, launched: None });
                return;
            }
            Kind::Opened => {
                program.wants = false;
                match program.granted.take() {
                    Some(arriving) => {
                        if let Some(from) = program.switch_from.take() {
                            self.switches += 1;
                            self.switched.push_back(Switch { at, from, to: id });
                        }
                        self.owner.become_at(at, Some(id));
                        let last = self.waits.iter_mut().rev().find(|wait| wait.id == id);
                        if let Some(wait) = last.filter(|_| !arriving) {
                            wait.launched = Some(at);
                        }
                        if arriving { State::RunningArriving } else { State::Running }
                    }
                    None => State::CoRunning,
                }
            }
            Kind::Arrived => {
                let last = self.waits.iter_mut().rev().find(|wait| wait.id == id);
                if let Some(wait) = last.filter(|wait| wait.launched.is_none()) {
                    wait.launched = Some(event.first_launch_ns.unwrap_or(at).max(wait.granted));
                }
                match state {
                    Some(State::RunningArriving) => State::Running,
                    Some(State::Descheduled) if program.before == Some(State::RunningArriving) => {
                        program.before = Some(State::Running);
                        return;
                    }
                    _ => return,
                }
            }
            Kind::Drained | Kind::Preempted => {
                program.granted = None;
                if self.owner.now() == Some(id) {
                    self.owner.become_at(at, None);
                }
                let off = match (&event.what, state) {
                    // The end of its turn is recorded too, just after its preemption.
                    (Kind::Preempted, _) | (_, Some(State::Preempted)) => State::Preempted,
                    (_, Some(State::Suspended)) if program.before == Some(State::Preempted) => return,
                    _ => State::Idle,
                };
                if program.suspended {
                    program.before = Some(off);
                    State::Suspended
                } else {
                    off
                }
            }
            Kind::Resumed if state == Some(State::Preempted) => {
                if program.wants {
                    State::Waiting
                } else {
                    State::Idle
                }
            }
            Kind::Descheduled => {
                if state != Some(State::Descheduled) {
                    program.before = state;
                }
                State::Descheduled
            }
            Kind::Rescheduled if state == Some(State::Descheduled) => match program.before.take() {
                Some(before) => before,
                None => State::Running,
            },
            _ => return,
        };
        program.states.become_at(at, Some(becomes));
    }

    /// Drops everything that ended before that time.
    pub fn forget_before(&mut self, ns: u64) {
        self.since = self.since.max(ns);
        self.owner.forget_before(ns);
        for done in [&mut self.copies_in, &mut self.copies_out, &mut self.requests] {
            // Records are nearly in the order of their ends.
            while done.front().is_some_and(|done| done.time.end < ns) {
                done.pop_front();
            }
        }
        while self.waits.front().is_some_and(|wait| wait.launched.unwrap_or(wait.granted) < ns) {
            self.waits.pop_front();
        }
        while self.switched.front().is_some_and(|switch| switch.at < ns) {
            self.switched.pop_front();
        }
        while let Some((_, id, bytes)) = self.resident.pop_front_if(|(at, ..)| *at < ns) {
            if let Some(program) = self.programs.get_mut(&id) {
                program.resident_before = Some(bytes);
            }
        }
        for program in self.programs.values_mut() {
            program.states.forget_before(ns);
            program.evicting.forget_before(ns);
            while program.worked.front().is_some_and(|worked| worked.time.end < ns) {
                program.worked.pop_front();
            }
        }
        self.programs.retain(|_, program| program.ended.is_none_or(|at| at >= ns));
    }

    /// Adds from the status the classes of programs whose first event was dropped.
    pub fn know(&mut self, status: &Status) {
        for tenant in &status.tenants {
            if let Some(program) = self.programs.get_mut(&tenant.id) {
                program.class.get_or_insert_with(|| tenant.class.clone());
            }
        }
    }

    /// Returns the part of a stretch of time in which each program had the GPU, by number: from 0 to 1.
    pub fn shares(&self, time: &Range<u64>) -> BTreeMap<u32, f64> {
        let all = time.end.saturating_sub(time.start).max(1) as f64;
        self.programs.iter().map(|(id, program)| (*id, program.worked(time) / all)).collect()
    }
}
