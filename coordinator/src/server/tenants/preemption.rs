//! How far a tenant is taken off the GPU: the states, and what leads from one to another.
//!
//! ```text
//!            *Begin* to the tenant            its gate is closed, or it does not answer
//! (running) ──────────────────────> Asked ───────────────────────────────> Pausing ───────> Paused
//!     ^                               │ closed: nothing was queued              ^    it is done  │ its turn, and all
//!     │                               v                                         │                │ its memory is back
//!     │                            (drained)                                    │ turn lost      v
//!     └────────────────────────────── granted ──────────────────────────────────┴──────────── Resuming
//! ```
//!
//! Whoever carries this out is in `server/preemption`.

use std::time::{Duration, Instant};

use super::limits::PATIENCE;
use super::slice::Slice;
use crate::device::preemptor::PreemptTarget;

/// How long a tenant may take to close its gate before it is paused all the same.
pub(super) const GATE_LIMIT: Duration = Duration::from_millis(2);

/// How long the call may take, in milliseconds in which the tenant has looked for its end: on a busy machine those are fewer
/// than have passed. Where nothing is in its way it takes a small part of one.
pub(super) const LIMIT_TICKS: u32 = 25;
/// When it is looked for the first time whether that is over, and how often then.
pub(super) const LOOK: Duration = Duration::from_millis(25);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How long a tenant is left alone that could not be paused again, descheduled, or rescheduled.
const FAILED: Duration = Duration::from_millis(100);
/// How often it is tried to take a tenant off the GPU that has lost its turn while it was resumed, or to put one back.
const MOST_FAILURES: u32 = 10;

/// Whether a tenant can be taken off the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ability {
    #[default]
    No,
    /// Nobody knows yet.
    Trying,
    Works,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Stage {
    /// To close its gate.
    Asked,
    /// The preemptor is at it; `again` if the tenant has got more to be paused since.
    Pausing {
        again: bool,
    },
    /// It could not be paused, and is to be then.
    Failed {
        again_at: Instant,
    },
    Paused,
    Resuming,
    /// It runs until it has answered the probe, and is paused then.
    Answering,
}

/// What a tenant has said of its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Work may be queued.
    Closed,
    /// Nothing is.
    Drained,
}

/// Whether its mappings can be changed, since it was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
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

/// A tenant on its way off the GPU, or off it.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Progress {
    pub(super) stage: Stage,
    pub(super) since: Instant,
    gate: Gate,
    pub(super) probe: Probe,
    /// Since when it is known that it cannot unmap memory before its work has ended.
    pub(super) stuck: Option<Instant>,
    /// How often it could not be paused again, after it had lost its turn.
    failures: u32,
}

/// How far a tenant is descheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descheduling {
    Going,
    There,
    Coming,
}

/// What of a tenant can be taken off the GPU, and how far that is.
#[derive(Debug, Default)]
pub(in crate::server) struct Preemption {
    /// As it has said.
    target: Option<PreemptTarget>,
    ability: Ability,
    /// How often it had been about to make something that can be paused, when it said what there is.
    pub(in crate::server) begun: u32,
    /// What the preemptor was asked to pause, with all that was paused before.
    asked: Option<PreemptTarget>,
    /// What is paused. Pauses are counted, so nothing is paused that is already.
    paused: Option<PreemptTarget>,
    progress: Option<Progress>,
    /// Counts the questions whether mappings can be changed.
    probes: u32,
    /// The user was told that it cannot unmap memory before its work has ended.
    was_stuck: bool,
    /// What is descheduled for a burst of somebody urgent, and how far that is.
    descheduling: Option<(Descheduling, PreemptTarget)>,
    /// How often it could not be rescheduled since it last was, and before when it is not tried again to move it.
    failures: u32,
    not_before: Option<Instant>,
    pub(in crate::server) slice: Slice,
}

/// What is to be done after a tenant has said what it has.
#[derive(Debug)]
pub(in crate::server) enum Told {
    Nothing,
    /// To find out whether that can be paused.
    Try(PreemptTarget),
    /// What has come is to be paused too.
    PauseRest,
}

/// What is to be done after it is decided to pause a tenant.
#[derive(Debug)]
pub(in crate::server) enum Pause {
    Nothing,
    /// It is descheduled, and what is only descheduled may still run: it is to be put back first.
    RescheduleFirst,
    This(PreemptTarget),
    /// All of it is paused already.
    IsPaused,
}

/// What a look at the probe has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Looked {
    Nothing,
    /// It is to go on, so that its work ends; `first` if the user does not know that yet.
    Resume {
        first: bool,
    },
    /// It was let go on for long enough; `runs` if it is to be paused again.
    Late {
        runs: bool,
    },
}

impl Progress {
    pub(in crate::server) fn stage(&self) -> Stage {
        self.stage
    }

    pub(in crate::server) fn since(&self) -> Instant {
        self.since
    }

    /// Whether it was let go on for long enough to answer its probe, and did not.
    pub(in crate::server) fn is_late(&self) -> bool {
        self.probe == Probe::Late
    }

    /// Whether its gate was closed with nothing queued.
    pub(in crate::server) fn is_drained(&self) -> bool {
        self.gate == Gate::Drained
    }

    /// Whether nothing of the tenant can touch memory.
    pub(super) fn is_off(&self) -> bool {
        self.stage == Stage::Paused && self.gate != Gate::Open && self.probe == Probe::Passed
    }

    /// Whether it was let go on for long enough, and is being paused again.
    pub(super) fn is_paused_again(&self) -> bool {
        matches!(self.stage, Stage::Pausing { .. }) && self.is_late()
    }

    /// Until when its gate should be closed, or the probe answered.
    pub(super) fn waits_until(self) -> Option<Instant> {
        match self.probe {
            _ if self.gate == Gate::Open => Some(self.since + PATIENCE),
            // First its work has to end.
            Probe::Asked { .. } if self.stuck.is_some() => self.stuck.map(|since| since + PATIENCE),
            Probe::Asked { since, .. } => Some(since + PATIENCE),
            Probe::Late => Some(self.since),
            Probe::No | Probe::Passed => None,
        }
    }
}

impl Preemption {
    /// What of it can be taken off the GPU, as it has said.
    pub(in crate::server) fn target(&self) -> Option<&PreemptTarget> {
        self.target.as_ref()
    }

    /// Whether that was found to work.
    pub(in crate::server) fn works(&self) -> bool {
        self.ability == Ability::Works
    }

    /// The same, and its driver was never seen to wait for paused work when it was to unmap memory. Of one that was, work is better
    /// not queued that cannot end.
    pub(in crate::server) fn works_promptly(&self) -> bool {
        self.works() && !self.was_stuck
    }

    /// Whether it cannot be taken off the GPU, as far as it has said what there is.
    pub(in crate::server) fn is_impossible(&self) -> bool {
        self.ability == Ability::No
    }

    /// How far it is; none if it is not on its way off.
    pub(in crate::server) fn progress(&self) -> Option<Progress> {
        self.progress
    }

    /// Whether it is on its way off the GPU, or off it.
    pub(in crate::server) fn is_under_way(&self) -> bool {
        self.progress.is_some()
    }

    /// Whether it is off the GPU, or about to be, and no longer only asked to close its gate.
    pub(in crate::server) fn has_begun(&self) -> bool {
        self.progress.is_some_and(|progress| progress.stage != Stage::Asked)
    }

    /// Whether, as far as this goes, nothing of the tenant can touch memory.
    pub(in crate::server) fn is_off(&self) -> bool {
        self.progress.is_none_or(|progress| progress.is_off())
    }

    /// Whether its work is paused, whatever the tenant has said.
    pub(in crate::server) fn is_paused(&self) -> bool {
        self.progress.is_some_and(|progress| progress.stage == Stage::Paused)
    }

    /// Whether it has closed its gate and can change mappings, since it was paused.
    pub(in crate::server) fn has_passed(&self) -> bool {
        self.progress.is_some_and(|progress| progress.is_off())
    }

    /// Whether it is on its way and its gate is open all the same.
    pub(in crate::server) fn is_gate_open(&self) -> bool {
        self.progress.is_some_and(|progress| progress.gate == Gate::Open)
    }

    /// Whether its tenant can run at the same time as others. A slice that is yet to be set is no reason to part: that takes
    /// longer; nor is it one that nobody knows yet whether it can be paused.
    pub(in crate::server) fn can_corun(&self) -> bool {
        match self.ability {
            Ability::No => false,
            Ability::Trying => true,
            Ability::Works => !self.slice.failed,
        }
    }

    /// The tenant says what of it can be paused.
    pub(in crate::server) fn told(&mut self, target: Option<PreemptTarget>) -> Told {
        let Some(target) = target else {
            // What is paused already can still be resumed.
            self.ability = Ability::No;
            return Told::Nothing;
        };
        self.target = Some(target.clone());
        // New contexts have a usual one.
        self.slice.forget();
        match self.progress.as_mut().map(|progress| &mut progress.stage) {
            None if self.ability == Ability::Works => Told::Nothing,
            None => {
                self.ability = Ability::Trying;
                Told::Try(target)
            }
            Some(Stage::Pausing { again }) => {
                *again = true;
                Told::Nothing
            }
            Some(Stage::Paused) => Told::PauseRest,
            Some(Stage::Asked | Stage::Failed { .. } | Stage::Resuming | Stage::Answering) => Told::Nothing,
        }
    }

    /// It was tried whether it can be paused.
    pub(in crate::server) fn tried(&mut self, works: bool) {
        self.ability = if works { Ability::Works } else { Ability::No };
    }

    /// It is asked to close its gate.
    pub(in crate::server) fn ask(&mut self) {
        let (stage, since, gate, probe) = (Stage::Asked, Instant::now(), Gate::Open, Probe::No);
        self.progress = Some(Progress { stage, since, gate, probe, stuck: None, failures: 0 });
    }

    /// Its gate is closed; work may be queued. Says whether it is to be paused now.
    pub(in crate::server) fn gate_closed(&mut self) -> bool {
        let Some(progress) = &mut self.progress else { return false };
        progress.gate = Gate::Closed;
        progress.stage == Stage::Asked
    }

    /// Its gate is closed, and nothing is queued. Says whether that ends the turn now, as without pausing.
    pub(in crate::server) fn drained(&mut self) -> bool {
        match &mut self.progress {
            None => true,
            Some(progress) if progress.stage == Stage::Asked => {
                self.progress = None;
                true
            }
            Some(progress) => {
                progress.gate = Gate::Drained;
                false
            }
        }
    }

    /// It is to be paused, with all that is not yet.
    pub(in crate::server) fn pause(&mut self) -> Pause {
        let (Some(progress), Some(target)) = (&mut self.progress, &self.target) else { return Pause::Nothing };
        progress.stage = Stage::Pausing { again: false };
        if self.paused.is_none() && progress.probe != Probe::Late {
            progress.probe = Probe::No;
        }
        if self.descheduling.is_some() {
            return Pause::RescheduleFirst;
        }
        let rest = target.beyond(self.paused.as_ref());
        self.asked = Some(target.clone());
        rest.map_or(Pause::IsPaused, Pause::This)
    }

    /// The preemptor has paused what it was asked to.
    pub(in crate::server) fn paused(&mut self) {
        self.paused = self.asked.take();
    }

    /// What is paused, of which nothing is kept: it is to be resumed, or goes on by itself.
    pub(in crate::server) fn take_paused(&mut self) -> Option<PreemptTarget> {
        self.paused.take()
    }

    /// It is off the GPU.
    pub(in crate::server) fn rest(&mut self) {
        self.set(Stage::Paused);
    }

    /// It could not be paused. False if it is to be given up.
    pub(in crate::server) fn fail(&mut self) -> bool {
        let Some(progress) = &mut self.progress else { return true };
        progress.failures += 1;
        progress.stage = Stage::Failed { again_at: Instant::now() + FAILED };
        progress.failures <= MOST_FAILURES
    }

    /// It cannot be paused after all, and is on the GPU.
    pub(in crate::server) fn give_up(&mut self) {
        (self.progress, self.ability) = (None, Ability::No);
    }

    /// It is to go on. Says with what.
    pub(in crate::server) fn resume(&mut self) -> Option<PreemptTarget> {
        let (Some(_), Some(target)) = (&self.progress, self.target.clone()) else { return None };
        self.set(Stage::Resuming);
        Some(target)
    }

    /// It is on the GPU again, as far as the preemptor goes.
    pub(in crate::server) fn resumed(&mut self) {
        self.paused = None;
    }

    /// It runs until it has answered the probe.
    pub(in crate::server) fn let_answer(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.stuck.get_or_insert_with(Instant::now);
        }
        self.set(Stage::Answering);
    }

    /// It is on the GPU, and nobody wants it off.
    pub(in crate::server) fn end(&mut self) {
        self.progress = None;
    }

    fn set(&mut self, stage: Stage) {
        if let Some(progress) = &mut self.progress {
            progress.stage = stage;
        }
    }

    /// If it is paused and its gate is closed, asks once whether its mappings can be changed: the number of that question.
    pub(in crate::server) fn probe(&mut self) -> Option<u32> {
        let is_due = |progress: &&mut Progress| {
            progress.stage == Stage::Paused && progress.gate != Gate::Open && progress.probe == Probe::No
        };
        let progress = self.progress.as_mut().filter(is_due)?;
        let since = Instant::now();
        progress.probe = Probe::Asked { since, look: since + LOOK };
        self.probes = self.probes.wrapping_add(1);
        Some(self.probes)
    }

    /// It has answered that question. Says what is to be done.
    pub(in crate::server) fn probed(&mut self, number: u32) -> Probed {
        let Some(progress) = self.progress.as_mut().filter(|_| self.probes == number) else { return Probed::Nothing };
        match (progress.stage, progress.probe) {
            (_, Probe::No | Probe::Passed) => Probed::Nothing,
            (Stage::Paused, Probe::Asked { .. }) => {
                progress.probe = Probe::Passed;
                Probed::Nothing
            }
            (Stage::Answering, _) => Probed::Pause,
            // It may have needed to run for that: it is asked again when it is paused again.
            _ => {
                progress.probe = Probe::No;
                Probed::AskAgain
            }
        }
    }

    /// It is time to look whether the probe's call has come back, of which is known whether it `is_stuck`.
    pub(super) fn look(&mut self, is_stuck: bool) -> Looked {
        let now = Instant::now();
        let Some(progress) = &mut self.progress else { return Looked::Nothing };
        match (progress.stage, &mut progress.probe) {
            (Stage::Answering, probe) => {
                *probe = Probe::Late;
                Looked::Late { runs: true }
            }
            (_, Probe::Asked { look, .. }) if is_stuck => {
                *look = now + LOOK;
                if progress.stuck.is_some_and(|since| now >= since + PATIENCE) {
                    progress.probe = Probe::Late;
                    return Looked::Late { runs: false };
                }
                progress.stuck.get_or_insert(now);
                Looked::Resume { first: !std::mem::replace(&mut self.was_stuck, true) }
            }
            (_, Probe::Asked { look, .. }) => {
                *look = now + LOOK_AGAIN;
                Looked::Nothing
            }
            _ => Looked::Nothing,
        }
    }

    /// Whether it is off the GPU for a burst.
    pub(in crate::server) fn is_descheduled(&self) -> bool {
        matches!(self.descheduling, Some((Descheduling::There, _)))
    }

    /// When it is tried again to move it.
    pub(in crate::server) fn next_try(&self) -> Option<Instant> {
        self.not_before
    }

    /// Whether it just could not be moved.
    fn is_left_alone(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// It is to make way for a burst. Says with what, if it can.
    pub(in crate::server) fn deschedule(&mut self) -> Option<PreemptTarget> {
        if self.descheduling.is_some() || !self.works() || self.is_left_alone() || self.failures >= MOST_FAILURES {
            return None;
        }
        let target = self.target.clone()?;
        self.descheduling = Some((Descheduling::Going, target.clone()));
        Some(target)
    }

    /// If it is descheduled, it is to be put back; with this. If that is still under way, as soon as it is over.
    pub(in crate::server) fn reschedule(&mut self) -> Option<PreemptTarget> {
        if self.is_left_alone() {
            return None;
        }
        match &mut self.descheduling {
            Some((descheduling @ Descheduling::There, target)) => {
                *descheduling = Descheduling::Coming;
                Some(target.clone())
            }
            _ => None,
        }
    }

    /// It is descheduled (`went`), or rescheduled; or could not be. False if it is to be given up.
    pub(in crate::server) fn moved(&mut self, went: bool, works: bool) -> bool {
        if !works {
            self.failures += 1;
            self.not_before = Some(Instant::now() + FAILED);
            if !went && self.failures > MOST_FAILURES {
                return false;
            }
        }
        match &mut self.descheduling {
            // Where it was to go, or where it was before.
            Some((descheduling, _)) if went == works => *descheduling = Descheduling::There,
            _ => self.descheduling = None,
        }
        if works && !went {
            self.failures = 0;
        }
        true
    }
}

/// What is to be done after a tenant has answered the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Probed {
    Nothing,
    Pause,
    AskAgain,
}
