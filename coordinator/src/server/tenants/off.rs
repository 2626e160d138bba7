//! How a tenant that is taken off the GPU stands with its memory: whether that can go, and when it is looked at again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::limits::PATIENCE;
use super::preemption::{GATE_LIMIT, LIMIT_TICKS, LOOK, Looked, Probe, Progress, Stage};
use super::tenant::Tenant;

impl Tenant {
    /// Whether its memory can be taken away now, as far as it itself is concerned.
    pub(in crate::server) fn is_evictable(&self) -> bool {
        self.is_movable() && self.is_off()
    }

    /// Whether nothing of it can touch memory: it has said so, or is paused and its memory is taken without asking.
    pub(super) fn is_off(&self) -> bool {
        self.preemption.is_off() || self.memory.is_taken() && self.preemption.is_paused()
    }

    /// When its memory is taken, if it does not answer before: at the second time if nothing is known that keeps it from that.
    fn is_taken_at(&self) -> Option<[Instant; 2]> {
        // What it has made since it last said what there is may run, until it says so.
        let is_all_known = self.preemption.begun == self.connection.theirs.channels_begun.load(Relaxed);
        let can_be =
            self.is_movable() && self.preemption.works() && !self.scheduling.stuck.keeps_memory && is_all_known;
        if !can_be || self.memory.is_taken() {
            return None;
        }
        match self.preemption.progress() {
            Some(progress) if progress.stage == Stage::Paused && !progress.is_off() => {
                let last = progress.waits_until()?;
                Some([last.min(progress.since + GATE_LIMIT), last])
            }
            Some(progress) if !progress.is_off() => None,
            // It is off, paused or not, and was told to unmap something.
            _ => {
                let since = self.memory.oldest_batch().filter(|_| !self.turn.is_ending())?;
                let last = self.connection.is_silent_at(since);
                Some([last.min(since + LOOK), last])
            }
        }
    }

    /// Whether its memory is to be taken now.
    pub(in crate::server) fn is_to_be_taken(&self) -> bool {
        let now = Instant::now();
        self.is_taken_at().is_some_and(|[first, last]| {
            // It was silent for long enough, was stopped, or is where it was after its last turn.
            let is_hopeless = || {
                let is_left_out = self.scheduling.left_out.is_some();
                is_left_out || self.connection.process.is_stopped() == Some(true) || self.is_still_in_driver()
            };
            now >= last || now >= first && is_hopeless()
        })
    }

    /// Whether its memory can come before it asks for the GPU.
    pub(in crate::server) fn can_come_ahead(&self) -> bool {
        self.is_evictable() && !self.memory.is_taken() && self.memory.undelivered_since().is_none()
    }

    /// Whether its memory can be taken away soon, with or without its help.
    pub(in crate::server) fn is_about_to_close(&self) -> bool {
        let progress = self.preemption.progress().filter(|_| self.connection.is_open());
        let held = !self.memory.is_taken()
            && progress.is_some_and(|progress| match progress.waits_until() {
                // It goes on to answer its probe, and is paused again if it does not.
                _ if progress.stage == Stage::Answering => true,
                Some(until) => Instant::now() < until || self.is_about_to_be_taken() || progress.is_paused_again(),
                None => !progress.is_off(),
            });
        held || self.turn.is_ending()
    }

    /// Whether its memory is taken soon, or as soon as that is seen to be due.
    fn is_about_to_be_taken(&self) -> bool {
        self.is_taken_at().is_some_and(|[_, last]| Instant::now() < last + PATIENCE)
    }

    /// When it is paused though it has not closed its gate, or once more because it could not be. A thread that waits for us
    /// is no reason for that.
    pub(in crate::server) fn is_paused_at(&self) -> Option<Instant> {
        let progress = self.preemption.progress().filter(|_| self.connection.is_open())?;
        match progress.stage {
            Stage::Asked => (!self.connection.is_asking()).then(|| progress.since + GATE_LIMIT),
            Stage::Failed { again_at } => Some(again_at),
            Stage::Pausing { .. } | Stage::Paused | Stage::Resuming | Stage::Answering => None,
        }
    }

    /// When it has to be looked at again.
    pub(in crate::server) fn next_look(&self, now: Instant) -> Option<Instant> {
        let given_up = self.preemption.progress().and_then(Progress::waits_until).filter(|at| *at > now);
        let taken = self.is_taken_at().into_iter().flatten().find(|at| *at > now);
        // One that lives and cannot answer is let go on where it was.
        let lives = (self.memory.is_taken() && !self.memory.returns_in_place()).then(|| now + LOOK);
        let taken = taken.or(lives);
        [self.is_paused_at(), self.probe_look(), given_up, taken].into_iter().flatten().min()
    }

    /// Whether it has yet to answer, and is inside of the call. One that has not begun, because it was stopped, say, waits for
    /// nothing on the GPU.
    pub(in crate::server) fn is_probing(&self) -> bool {
        let is_asked = |progress: Progress| matches!(progress.probe, Probe::Asked { .. });
        self.preemption.progress().is_some_and(is_asked) && self.connection.theirs.probing.load(Relaxed) != 0
    }

    /// Whether it lives, and waits in the driver for work that is paused.
    pub(in crate::server) fn is_in_driver(&self) -> bool {
        let ticks = self.connection.theirs.probing.load(Relaxed);
        match self.connection.process.is_stopped() {
            Some(is_stopped) => !is_stopped && ticks > 0,
            None => ticks > LIMIT_TICKS,
        }
    }

    /// Whether it had a turn where it was, and is inside of the same call of its driver: nothing is to be expected of it.
    pub(in crate::server) fn is_still_in_driver(&self) -> bool {
        self.scheduling.in_place.0 > 0 && self.is_in_driver()
    }

    /// When it is to be looked whether the call has come back. Who is cut off answers no more, but may be inside.
    fn probe_look(&self) -> Option<Instant> {
        let progress = self.preemption.progress().filter(|_| self.connection.is_open() || self.is_probing())?;
        match (progress.stage, progress.probe) {
            (Stage::Paused, Probe::Asked { look, .. }) => Some(look),
            (Stage::Answering, Probe::Asked { .. }) => progress.stuck.map(|since| since + PATIENCE),
            _ => None,
        }
    }

    /// Looks at the probe, if it is time.
    pub(in crate::server) fn look_at_probe(&mut self) -> Looked {
        if self.probe_look().is_none_or(|look| Instant::now() < look) {
            return Looked::Nothing;
        }
        self.preemption.look(self.connection.theirs.probing.load(Relaxed) > LIMIT_TICKS)
    }
}
