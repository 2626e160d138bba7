//! The program's threads: their steps, which steps of others those come after, and who waits for which flags.

use std::collections::BTreeSet;

use super::clock::Clock;
use super::{Done, Model, Skip};
use crate::generated::script::{Call, Flag, HostKind, Id, Question, Step, Stream};

/// A resource about which calls of several threads have to be in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    Context(Id),
    /// A stream, by its timeline.
    Stream(usize),
    Event(Id),
    Mem(Id),
    Host(Id),
    Graph(Id),
    Exec(Id),
    Module(Id),
    Flag(Flag),
    /// The order between a context's legacy stream and its blocking streams.
    LegacyOrder(Id),
    /// Captures in a context, of which waiting for all of it is no part.
    CapturesIn(Id),
    /// Captures during which no thread may make unsafe calls.
    GlobalCapture,
    Capture(usize),
    /// A pool's contents, and that it is there.
    Pool(Id),
    /// Which pool is the current one.
    CurrentPool,
    /// The process's children and descriptors.
    Process,
}

/// A call looks at something, or changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Looks,
    Changes,
}

pub(super) use Access::{Changes, Looks};

/// A step of a thread; they are counted from 1.
pub(super) type StepOf = (usize, usize);

/// The last accesses to a resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    change: Option<StepOf>,
    looks: Vec<StepOf>,
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    pub(super) steps: Vec<Step>,
    /// For each step, which steps of each thread were made before it ended.
    known: Vec<Vec<usize>>,
    /// The part of the device's work that it knows to have ended.
    pub(super) ended: Clock,
    /// Its current context.
    pub(super) current: Option<Id>,
    /// Its mode of captures.
    pub(super) mode: u8,
    pub(super) blocked: Option<Blocked>,
    /// Its steps that waited for everything.
    waited_for_all: Vec<usize>,
}

/// The thread's last step does not return before these waits are over.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    waits: BTreeSet<usize>,
    /// The work that has ended then.
    gains: Clock,
    how: Waits,
}

/// The things that a call waits for in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// For work that is known when it begins.
    ForSome,
    /// For all of a context's work: perhaps also for what others begin meanwhile.
    ForAll,
    /// The same, and other threads' calls that make, end or submit something in this context wait until it returns. Which
    /// ones do was measured (`bench/driver_facts`).
    Alone(Id),
}

/// A stream's wait for a flag.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) point: super::clock::Point,
    pub(super) flag: Flag,
    pub(super) released: bool,
}

impl Model {
    /// Another step of a thread, behind whatever it conflicts with.
    pub(super) fn step(&mut self, call: Call, accesses: &[(Resource, Access)]) -> Done {
        self.step_after(call, accesses, &[])
    }

    /// As [`Self::step`], behind these steps too.
    pub(super) fn step_after(&mut self, call: Call, accesses: &[(Resource, Access)], behind: &[StepOf]) -> Done {
        let me = self.me;
        debug_assert!(self.threads[me].blocked.is_none(), "a blocked thread does nothing");
        let current = self.threads[me].current;
        let mut others = self.threads.iter().filter_map(|thread| thread.blocked.as_ref());
        let is_elsewhere = |context| is_of_one_context(&call) && current.is_some_and(|current| current != context);
        let keeps_out = |blocked: &Blocked| matches!(blocked.how, Waits::Alone(context) if !is_elsewhere(context));
        if others.any(keeps_out) && !returns_beside_others(&call) {
            return Err(Skip);
        }
        let mut after = vec![0; self.threads.len()];
        for (thread, number) in behind {
            after[*thread] = after[*thread].max(*number);
        }
        for (resource, access) in accesses {
            let Some(uses) = self.uses.get(resource) else { continue };
            let looks = uses.looks.iter().filter(|_| *access == Changes);
            for (thread, number) in uses.change.iter().chain(looks) {
                after[*thread] = after[*thread].max(*number);
            }
        }
        after[me] = 0;
        // To wait for a step that has not returned could be to wait for ever.
        if after.iter().enumerate().any(|(thread, number)| self.is_open((thread, *number))) {
            return Err(Skip);
        }
        let thread = &self.threads[me];
        let mut known = thread.known.last().cloned().unwrap_or_else(|| vec![0; self.threads.len()]);
        let told = |(other, number): StepOf, of: usize| -> usize {
            if number == 0 { 0 } else { self.threads[other].known[number - 1][of] }
        };
        let needed: Vec<StepOf> = after
            .iter()
            .enumerate()
            .map(|(other, number)| (other, *number))
            .filter(|(other, number)| *number > known[*other])
            .filter(|(other, number)| {
                let others = after.iter().enumerate().filter(|(by, _)| by != other);
                !others.into_iter().any(|(by, its)| told((by, *its), *other) >= *number)
            })
            .collect();
        for (other, number) in after.iter().enumerate() {
            for (of, known) in known.iter_mut().enumerate() {
                *known = (*known).max(told((other, *number), of));
            }
        }
        let number = thread.steps.len() + 1;
        known[me] = number;
        let thread = &mut self.threads[me];
        thread.steps.push(Step { after: needed, call });
        thread.known.push(known);
        for (resource, access) in accesses {
            let uses = self.uses.entry(*resource).or_default();
            match access {
                Looks => uses.looks.push((me, number)),
                Changes => *uses = Uses { change: Some((me, number)), looks: Vec::new() },
            }
        }
        Ok(())
    }

    /// True if a step may not have returned yet.
    fn is_open(&self, (thread, number): StepOf) -> bool {
        let thread = &self.threads[thread];
        thread.blocked.is_some() && thread.steps.len() == number
    }

    /// The waits for flags that may have to end before this has.
    pub(super) fn pending(&self, before: &Clock) -> BTreeSet<usize> {
        let waits = self.waits.iter().enumerate();
        waits.filter(|(_, wait)| !wait.released && before.covers(wait.point)).map(|(number, _)| number).collect()
    }

    /// The waits for flags that all of a context's work may be behind.
    pub(super) fn pending_in(&self, context: Id) -> BTreeSet<usize> {
        let mut before = Clock::default();
        for stream in self.streams.values().filter(|stream| stream.context == context) {
            before.join(&stream.before.may);
        }
        for gone in self.timelines.iter().filter(|line| line.context == context) {
            before.join(&gone.left);
        }
        self.pending(&before)
    }

    /// The thread's last step waits for these waits, and then this has ended.
    pub(super) fn block(&mut self, waits: BTreeSet<usize>, gains: Clock, how: Waits) -> Done {
        let me = self.me;
        if how != Waits::ForSome {
            let step = self.threads[me].steps.len();
            self.threads[me].waited_for_all.push(step);
        }
        if waits.is_empty() {
            self.threads[me].ended.join(&gains);
            return Ok(());
        }
        let is_left = |(number, thread): (usize, &Thread)| number != me && thread.blocked.is_none();
        if !self.threads.iter().enumerate().any(is_left) {
            return Err(Skip);
        }
        self.threads[me].blocked = Some(Blocked { waits, gains, how });
        Ok(())
    }

    /// A stream begins to wait for a flag. The steps that it has to come after: a step that waits for everything now does not wait for
    /// this, because it may be the one that releases the flag.
    pub(super) fn steps_that_waited_for_all(&self) -> Vec<StepOf> {
        let done = self.threads.iter().enumerate().filter_map(|(number, thread)| {
            let mut steps = thread.waited_for_all.iter().map(|step| (number, *step));
            steps.rfind(|step| !self.is_open(*step))
        });
        done.collect()
    }

    /// A stream waits for a flag.
    pub(super) fn begin_wait(&mut self, wait: Wait) {
        let number = self.waits.len();
        self.waits.push(wait);
        for thread in &mut self.threads {
            if let Some(blocked) = thread.blocked.as_mut().filter(|blocked| blocked.how != Waits::ForSome) {
                blocked.waits.insert(number);
            }
        }
    }

    /// A flag is set: threads that wait for nothing else go on.
    pub(super) fn end_waits(&mut self, flag: Flag) {
        for (number, wait) in self.waits.iter_mut().enumerate().filter(|(_, wait)| wait.flag == flag) {
            wait.released = true;
            for blocked in self.threads.iter_mut().filter_map(|thread| thread.blocked.as_mut()) {
                blocked.waits.remove(&number);
            }
        }
        for thread in &mut self.threads {
            if thread.blocked.as_ref().is_some_and(|blocked| blocked.waits.is_empty()) {
                let blocked = thread.blocked.take().expect("just looked");
                thread.ended.join(&blocked.gains);
            }
        }
    }

    /// All that all threads have done.
    pub(super) fn everything_so_far(&self) -> Vec<StepOf> {
        self.threads.iter().enumerate().map(|(number, thread)| (number, thread.steps.len())).collect()
    }

    /// The same without the calls that have not returned.
    pub(super) fn returned_so_far(&self) -> Vec<StepOf> {
        let threads = self.threads.iter().enumerate();
        threads.map(|(number, thread)| (number, thread.steps.len() - usize::from(thread.blocked.is_some()))).collect()
    }
}

/// True if a call has to do with its thread's context alone, so that those who wait in another context do not keep it up.
fn is_of_one_context(call: &Call) -> bool {
    use Call::*;
    matches!(
        call,
        StreamCreate { .. }
            | StreamDestroy { .. }
            | StreamSynchronize { .. }
            | EventCreate { .. }
            | EventDestroy { .. }
            | EventRecord { .. }
            | EventWait { .. }
            | MemAlloc { .. }
            | MemFree { .. }
            | MemFreeAsync { .. }
            | MemRead { .. }
            | HostAlloc { .. }
            | HostFree { .. }
            | Submit { .. }
            | SubmitAndWait { .. }
            | WaitFlag { .. }
            | ModuleLoad { .. }
            | ModuleUnload { .. }
            | VariableLoad { .. }
            | VariableUnload { .. }
            | Launch { .. }
            | BeginCapture { .. }
            | EndCapture { .. }
    )
}

/// True if a call returns while another thread waits [alone](Waits::Alone) in the driver. Of calls that were not measured it
/// is taken that they do not.
fn returns_beside_others(call: &Call) -> bool {
    match call {
        Call::SetCurrent { .. } | Call::ContextSynchronize => true,
        Call::StreamQuery { .. } | Call::EventQuery { .. } | Call::EventSynchronize { .. } => true,
        Call::StreamSynchronize { on } | Call::MemFreeAsync { on, .. } => on.stream != Stream::Legacy,
        Call::EventWait { on, .. } => on.stream != Stream::Legacy,
        Call::ThreadMode { .. } | Call::LaunchBy { .. } => true,
        Call::MemFree { .. } | Call::HostFree { .. } => true,
        Call::HostAlloc { kind, .. } => *kind == HostKind::Pageable,
        Call::HostFill { .. } | Call::HostTable { .. } | Call::HostRead { .. } => true,
        Call::Release { flag, .. } => matches!(flag, Flag::Host(_)),
        Call::Ask { question, .. } => *question != Question::RetainHandle,
        Call::Fork { .. } | Call::ForkTouch { .. } | Call::Reap => true,
        Call::TakeDescriptors { .. } | Call::GiveDescriptors => true,
        Call::ChurnBegin { .. } | Call::ChurnEnd { .. } => true,
        Call::Sleep { .. } | Call::Rest => true,
        _ => false,
    }
}
