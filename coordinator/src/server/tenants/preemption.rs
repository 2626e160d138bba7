//! What of a tenant can be taken off the GPU, and how far that is.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::slice::Slice;
use super::tenant::{ANSWER_LIMIT, Tenant};
use crate::device::preemptor::PreemptTarget;

/// How long a tenant may take to close its gate before it is paused all the same.
const GATE_LIMIT: Duration = Duration::from_millis(2);
/// How long others wait for the memory of one that is paused and has not closed its gate: it was stopped, say.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the call may take, in milliseconds in which the tenant has looked for its end: on a busy machine those are fewer
/// than have passed. Where nothing is in its way it takes a small part of one.
const LIMIT_TICKS: u32 = 25;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Stage {
    Asked,
    Pausing,
    Paused,
    Resuming,
    /// It runs until it has answered (`server/preemption/probe.rs`), and is paused then.
    Answering,
}

/// A tenant on its way off the GPU, or off it.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Preemption {
    pub(in crate::server) stage: Stage,
    pub(in crate::server) since: Instant,
    /// It has said that its gate is closed.
    pub(in crate::server) closed: bool,
    /// It has said so, and that it has nothing queued.
    pub(in crate::server) drained: bool,
    /// It has got more to be paused since that was begun.
    pub(in crate::server) again: bool,
    pub(in crate::server) probe: Probe,
    /// Since when it is known that it cannot unmap memory before its work has ended.
    pub(in crate::server) stuck: Option<Instant>,
    /// How often it could not be paused again, after it had lost its turn, and when it is tried again.
    pub(in crate::server) failures: u32,
    pub(in crate::server) again_at: Option<Instant>,
}

/// What of a tenant can be taken off the GPU.
#[derive(Debug, Default)]
pub(in crate::server) struct Preemptible {
    /// As it has said.
    pub(in crate::server) told: Option<PreemptTarget>,
    /// That was found to work, or nobody knows yet.
    pub(in crate::server) works: bool,
    pub(in crate::server) trying: bool,
    /// What the preemptor was asked to pause, with all that was paused before.
    pub(in crate::server) asked: Option<PreemptTarget>,
    pub(in crate::server) slice: Slice,
    /// What is paused. Pauses are counted, so nothing is paused that is already.
    pub(in crate::server) paused: Option<PreemptTarget>,
    /// The user was told that it cannot unmap memory before its work has ended.
    pub(in crate::server) was_stuck: bool,
    /// What is descheduled for a burst of somebody urgent, and how far that is.
    pub(in crate::server) descheduling: Option<(Descheduling, PreemptTarget)>,
    /// How often it could not be rescheduled since it last was, and before when it is not tried again to move it.
    pub(in crate::server) failures: u32,
    pub(in crate::server) not_before: Option<Instant>,
}

/// How far it is, since the tenant was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Probe {
    No,
    /// To be looked at again at some time.
    Asked {
        since: Instant,
        look: Instant,
    },
    Passed,
    /// It was let go on for long enough. It stays paused, and its memory where it is, until its turn.
    Late,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Descheduling {
    Going,
    There,
    Coming,
}

impl Preemption {
    /// Whether nothing of the tenant can touch memory.
    pub(in crate::server) fn is_off(&self) -> bool {
        self.stage == Stage::Paused && self.closed && self.probe == Probe::Passed
    }

    /// Until when its gate should be closed, or the probe answered.
    pub(in crate::server) fn waits_until(self) -> Option<Instant> {
        match self.probe {
            _ if !self.closed => Some(self.since + PATIENCE),
            // First its work has to end.
            Probe::Asked { .. } if self.stuck.is_some() => self.stuck.map(|since| since + ANSWER_LIMIT),
            Probe::Asked { since, .. } => Some(since + PATIENCE),
            Probe::Late => Some(self.since),
            Probe::No | Probe::Passed => None,
        }
    }

    /// Whether it has said that its gate is closed.
    pub(in crate::server) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether it is about to be paused, as soon as nothing is in the way.
    pub(in crate::server) fn is_pausing(&self) -> bool {
        self.stage == Stage::Pausing
    }

    /// Whether it is off the GPU, or about to be.
    pub(in crate::server) fn has_begun(&self) -> bool {
        self.stage != Stage::Asked
    }
}

impl Preemptible {
    /// Whether it is off the GPU for a burst.
    pub(in crate::server) fn is_descheduled(&self) -> bool {
        matches!(self.descheduling, Some((Descheduling::There, _)))
    }

    /// When it is tried again to move it.
    pub(in crate::server) fn next_try(&self) -> Option<Instant> {
        self.not_before
    }

    /// Whether it just could not be moved.
    pub(in crate::server) fn is_left_alone(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// Whether its tenant can run at the same time as others. A slice that is yet to be set is no reason to part: that takes
    /// longer; nor is it one that nobody knows yet whether it can be paused.
    pub(in crate::server) fn can_corun(&self) -> bool {
        self.trying || self.works && !self.slice.failed
    }
}

impl Tenant {
    /// Whether its memory can be taken away now, as far as it itself is concerned.
    pub(in crate::server) fn is_evictable(&self) -> bool {
        self.is_movable() && self.hold.is_none_or(|hold| hold.is_off())
    }

    /// Whether its memory can be taken away soon.
    pub(in crate::server) fn is_about_to_close(&self) -> bool {
        let held = self.hold.filter(|_| self.disconnected.is_none()).is_some_and(|hold| match hold.waits_until() {
            Some(until) => Instant::now() < until,
            None => !hold.is_off(),
        });
        held || self.revoked.is_some()
    }

    /// When it is paused though it has not closed its gate, or once more because it could not be. A thread that waits for us
    /// is no reason for that.
    pub(in crate::server) fn is_paused_at(&self) -> Option<Instant> {
        let hold = self.hold.filter(|_| self.disconnected.is_none())?;
        let asked = (hold.stage == Stage::Asked && !self.asking).then(|| hold.since + GATE_LIMIT);
        hold.again_at.or(asked)
    }

    /// When it has to be looked at again.
    pub(in crate::server) fn next_look(&self, now: Instant) -> Option<Instant> {
        let given_up = self.hold.and_then(Preemption::waits_until).filter(|at| *at > now);
        [self.is_paused_at(), self.probe_look(), given_up].into_iter().flatten().min()
    }

    /// Whether it has yet to answer, and is inside of the call. One that has not begun, because it was stopped, say, waits for
    /// nothing on the GPU.
    pub(in crate::server) fn is_probing(&self) -> bool {
        let is_asked = |hold: Preemption| matches!(hold.probe, Probe::Asked { .. });
        self.hold.is_some_and(is_asked) && self.theirs.probing.load(Relaxed) != 0
    }

    /// Whether the call was seen not to come back for too long.
    pub(in crate::server) fn is_stuck_in_probe(&self) -> bool {
        self.theirs.probing.load(Relaxed) > LIMIT_TICKS
    }

    /// When it is to be looked whether the call has come back. Who is cut off answers no more, but may be inside.
    pub(in crate::server) fn probe_look(&self) -> Option<Instant> {
        let hold = self.hold.filter(|_| self.disconnected.is_none() || self.is_probing())?;
        match (hold.stage, hold.probe) {
            (Stage::Paused, Probe::Asked { look, .. }) => Some(look),
            (Stage::Answering, Probe::Asked { .. }) => hold.stuck.map(|since| since + ANSWER_LIMIT),
            _ => None,
        }
    }
}
