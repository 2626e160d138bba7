//! The memory of a tenant that is taken off the GPU: the conditions for its leaving, and the times of later checks.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::limits::PATIENCE;
use super::preemption::{GATE_LIMIT, LIMIT_TICKS, LOOK, Looked, Probe, Progress, Stage};
use super::tenant::Tenant;

impl Tenant {
    /// True if the tenant's own state allows its memory to be taken away now.
    pub(in crate::server) fn is_evictable(&self) -> bool {
        self.is_movable() && self.is_off()
    }

    /// True if none of its work can touch memory: it has said so, or it is paused and its memory is taken without asking.
    pub(super) fn is_off(&self) -> bool {
        self.preemption.is_off() || self.memory.is_taken() && self.preemption.is_paused()
    }

    /// The times at which its memory is taken, if it does not answer before. The second one holds if no known reason keeps it from
    /// answering.
    fn is_taken_at(&self) -> Option<[Instant; 2]> {
        // Channels made since its last report may run, until it reports them.
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
            // It is off, paused or not, and was told to unmap memory.
            _ => {
                let since = self.memory.oldest_batch().filter(|_| !self.turn.is_ending())?;
                let last = self.connection.unresponsive_at(since);
                Some([last.min(since + LOOK), last])
            }
        }
    }

    /// True if its memory is to be taken now.
    pub(in crate::server) fn is_to_be_taken(&self) -> bool {
        let now = Instant::now();
        self.is_taken_at().is_some_and(|[first, last]| {
            // It was silent for long enough, was stopped, or is still where its last turn left it.
            let is_hopeless = || {
                let is_left_out = self.scheduling.left_out.is_some();
                is_left_out || self.connection.process.is_stopped() == Some(true) || self.is_still_in_driver()
            };
            now >= last || now >= first && is_hopeless()
        })
    }

    /// True if its memory can come before it asks for the GPU.
    pub(in crate::server) fn can_come_ahead(&self) -> bool {
        self.is_evictable() && !self.memory.is_taken() && self.memory.undelivered_since().is_none()
    }

    /// True if its memory can be taken away soon, with or without its help.
    pub(in crate::server) fn is_about_to_close(&self) -> bool {
        let progress = self.preemption.progress().filter(|_| self.connection.is_open());
        let held = !self.memory.is_taken()
            && progress.is_some_and(|progress| match progress.waits_until() {
                // It goes on to answer its probe, and is paused again if it does not.
                _ if progress.stage == Stage::Answering => true,
                Some(until) => Instant::now() < until || self.is_about_to_be_taken() || progress.is_paused_again(),
                None => !progress.is_off(),
            });
        // One that has been asked again and again since it was overdue is not waited for.
        held || self.turn.is_ending() && !self.turn.is_overdue()
    }

    /// True if its memory is taken soon, or as soon as the server sees that it is due.
    fn is_about_to_be_taken(&self) -> bool {
        self.is_taken_at().is_some_and(|[_, last]| Instant::now() < last + PATIENCE)
    }

    /// The time at which it is paused although it has not closed its gate, or again after a failure. A thread that waits for the
    /// coordinator is no reason to pause it.
    pub(in crate::server) fn is_paused_at(&self) -> Option<Instant> {
        let progress = self.preemption.progress().filter(|_| self.connection.is_open())?;
        match progress.stage {
            Stage::Asked => (!self.connection.is_asking()).then(|| progress.since + GATE_LIMIT),
            Stage::Failed { again_at } => Some(again_at),
            Stage::Pausing { .. } | Stage::Paused | Stage::Resuming | Stage::Answering => None,
        }
    }

    /// The time at which it has to be checked again.
    pub(in crate::server) fn next_look(&self, now: Instant) -> Option<Instant> {
        let given_up = self.preemption.progress().and_then(Progress::waits_until).filter(|at| *at > now);
        let taken = self.is_taken_at().into_iter().flatten().find(|at| *at > now);
        // A tenant that lives and cannot answer is let go on in place. The check comes however often the tenant is touched until then.
        let taken = taken.or(self.memory.looked_for_life().map(|looked| looked + LOOK));
        [self.is_paused_at(), self.probe_look(), given_up, taken].into_iter().flatten().min()
    }

    /// True if it has yet to answer, and is inside the call. A tenant that has not begun the call, for example because it was
    /// stopped, does not wait for the GPU.
    pub(in crate::server) fn is_probing(&self) -> bool {
        let is_asked = |progress: Progress| matches!(progress.probe, Probe::Asked { .. });
        self.preemption.progress().is_some_and(is_asked) && self.connection.theirs.probing.load(Relaxed) != 0
    }

    /// True if it lives, and waits in the driver for paused work.
    pub(in crate::server) fn is_in_driver(&self) -> bool {
        let ticks = self.connection.theirs.probing.load(Relaxed);
        match self.connection.process.is_stopped() {
            Some(is_stopped) => !is_stopped && ticks > 0,
            None => ticks > LIMIT_TICKS,
        }
    }

    /// True if it had a turn in place, and is still inside the same driver call: no answer is expected from it.
    pub(in crate::server) fn is_still_in_driver(&self) -> bool {
        self.scheduling.in_place.0 > 0 && self.is_in_driver()
    }

    /// The time of the next check that the call has come back. A disconnected tenant no longer answers, but may be inside the call.
    fn probe_look(&self) -> Option<Instant> {
        let progress = self.preemption.progress().filter(|_| self.connection.is_open() || self.is_probing())?;
        match (progress.stage, progress.probe) {
            (Stage::Paused, Probe::Asked { look, .. }) => Some(look),
            (Stage::Answering, Probe::Asked { .. }) => progress.stuck.map(|since| since + PATIENCE),
            _ => None,
        }
    }

    /// Checks the probe, if it is time.
    pub(in crate::server) fn check_probe(&mut self) -> Looked {
        if self.probe_look().is_none_or(|look| Instant::now() < look) {
            return Looked::Nothing;
        }
        self.preemption.look(self.connection.theirs.probing.load(Relaxed) > LIMIT_TICKS)
    }
}
