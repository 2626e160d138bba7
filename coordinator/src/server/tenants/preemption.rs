//! Taking a tenant off the GPU: the states, and the transitions between them.
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
//! The code that carries this out is in `server/preemption`.

use std::time::{Duration, Instant};

use super::limits::PATIENCE;
use super::slice::Slice;
use crate::device::preemptor::PreemptTarget;

/// The time a tenant has to close its gate before it is paused all the same.
pub(super) const GATE_LIMIT: Duration = Duration::from_millis(2);

/// The time the call may take, counted in milliseconds in which the tenant has checked for its end. On a busy machine those are
/// fewer than have passed. An unobstructed call takes a small part of one.
pub(super) const LIMIT_TICKS: u32 = 25;
/// The time before the first check that the call is over, and between later checks.
pub(super) const LOOK: Duration = Duration::from_millis(25);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The time for which a tenant is left alone after it could not be paused again, descheduled, or rescheduled.
const FAILED: Duration = Duration::from_millis(100);
/// The most attempts to take a tenant off the GPU that has lost its turn while it was resumed, or to put one back.
const MOST_FAILURES: u32 = 10;

/// A tenant's ability to be taken off the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ability {
    #[default]
    No,
    /// Not known yet.
    Trying,
    Works,
}

/// The stage of taking a tenant off the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Stage {
    /// The tenant was asked to close its gate.
    Asked,
    /// The preemptor pauses the tenant; `again` if the tenant has got more to be paused since.
    Pausing {
        again: bool,
    },
    /// The tenant could not be paused; this is the time of the next attempt.
    Failed {
        again_at: Instant,
    },
    Paused,
    Resuming,
    /// The tenant runs until it has answered the probe, and is paused then.
    Answering,
}

/// The tenant's last report about its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// The gate is closed; work may be queued.
    Closed,
    /// The gate is closed, and no work is queued.
    Drained,
}

/// The state of the probe, which tests that the tenant's mappings can be changed while it is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    No,
    /// The probe was asked, and is checked again later.
    Asked {
        since: Instant,
        look: Instant,
    },
    Passed,
    /// The tenant was let go on for long enough. It stays paused until its turn, and its memory stays where it is.
    Late,
}

/// A tenant on its way off the GPU, or off it.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Progress {
    pub(super) stage: Stage,
    pub(super) since: Instant,
    gate: Gate,
    pub(super) probe: Probe,
    /// The time since when the tenant is known to be unable to unmap memory before its work has ended.
    pub(super) stuck: Option<Instant>,
    /// The number of failures to pause it again, after it had lost its turn.
    failures: u32,
}

/// The stage of descheduling a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descheduling {
    Going,
    There,
    Coming,
}

/// The part of a tenant that can be taken off the GPU, and the progress of taking it off.
#[derive(Debug, Default)]
pub(in crate::server) struct Preemption {
    /// The target that the tenant has reported.
    target: Option<PreemptTarget>,
    ability: Ability,
    /// Tenants may be paused. One that another coordinator has paused is resumed in any case.
    is_allowed: bool,
    /// The number of times it had been about to make a pausable object, at the time of its report.
    pub(in crate::server) begun: u32,
    /// The target that the preemptor was asked to pause, including everything paused before.
    asked: Option<PreemptTarget>,
    /// The paused target. Pauses are counted, so no paused object is paused again.
    paused: Option<PreemptTarget>,
    progress: Option<Progress>,
    /// The number of probes sent so far.
    probes: u32,
    /// True if the user was told that the tenant cannot unmap memory before its work has ended.
    was_stuck: bool,
    /// The target that is descheduled for an urgent tenant's burst, and its stage.
    descheduling: Option<(Descheduling, PreemptTarget)>,
    /// The number of coordinators before that may have paused it, each once: resuming it once may not be enough.
    pub(in crate::server) coordinators_before: u32,
    /// True if a coordinator has found that it can be paused, so that its work may be.
    pub(in crate::server) may_be_paused: bool,
    /// The number of failures since it was last rescheduled, and the earliest time of the next attempt.
    failures: u32,
    not_before: Option<Instant>,
    pub(in crate::server) slice: Slice,
}

/// The next step after a tenant has reported its pausable target.
#[derive(Debug)]
pub(in crate::server) enum Told {
    Nothing,
    /// Try to pause this target.
    Try(PreemptTarget),
    /// Pause the new part too.
    PauseRest,
}

/// The next step after the decision to pause a tenant.
#[derive(Debug)]
pub(in crate::server) enum Pause {
    Nothing,
    /// The tenant is only descheduled and may still run: it must be put back first.
    RescheduleFirst,
    This(PreemptTarget),
    /// All of it is paused already.
    IsPaused,
}

/// The result of a check of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Looked {
    Nothing,
    /// The tenant goes on, so that its work ends; `first` if the user does not know that yet.
    Resume {
        first: bool,
    },
    /// The tenant was let go on for long enough; `runs` if it is to be paused again.
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

    /// True if the tenant was let go on for long enough to answer its probe, and did not.
    pub(in crate::server) fn is_late(&self) -> bool {
        self.probe == Probe::Late
    }

    /// True if its gate was closed with no work queued.
    pub(in crate::server) fn is_drained(&self) -> bool {
        self.gate == Gate::Drained
    }

    /// True if none of the tenant's work can touch memory.
    pub(super) fn is_off(&self) -> bool {
        self.stage == Stage::Paused && self.gate != Gate::Open && self.probe == Probe::Passed
    }

    /// True if the tenant was let go on for long enough, and is being paused again.
    pub(super) fn is_paused_again(&self) -> bool {
        matches!(self.stage, Stage::Pausing { .. }) && self.is_late()
    }

    /// The deadline for closing its gate, or for answering the probe.
    pub(super) fn waits_until(self) -> Option<Instant> {
        match self.probe {
            _ if self.gate == Gate::Open => Some(self.since + PATIENCE),
            // Its work has to end first.
            Probe::Asked { .. } if self.stuck.is_some() => self.stuck.map(|since| since + PATIENCE),
            Probe::Asked { since, .. } => Some(since + PATIENCE),
            Probe::Late => Some(self.since),
            Probe::No | Probe::Passed => None,
        }
    }
}

impl Preemption {
    /// The target that can be taken off the GPU, as the tenant has reported it.
    pub(in crate::server) fn target(&self) -> Option<&PreemptTarget> {
        self.target.as_ref()
    }

    /// True if pausing it was found to work.
    pub(in crate::server) fn works(&self) -> bool {
        self.ability == Ability::Works && self.is_allowed
    }

    /// True if pausing it works, and its driver was never seen to wait for paused work when it was to unmap memory. If it was seen
    /// to, work that cannot end is better not queued.
    pub(in crate::server) fn works_promptly(&self) -> bool {
        self.works() && !self.was_stuck
    }

    /// True if it cannot be taken off the GPU, according to its own report, or is not to be.
    pub(in crate::server) fn is_impossible(&self) -> bool {
        self.ability == Ability::No || !self.is_allowed
    }

    /// The progress of taking it off the GPU; none if it is not on its way off.
    pub(in crate::server) fn progress(&self) -> Option<Progress> {
        self.progress
    }

    /// True if it is on its way off the GPU, or off it.
    pub(in crate::server) fn is_under_way(&self) -> bool {
        self.progress.is_some()
    }

    /// True if it is off the GPU, or about to be, and no longer only asked to close its gate.
    pub(in crate::server) fn has_begun(&self) -> bool {
        self.progress.is_some_and(|progress| progress.stage != Stage::Asked)
    }

    /// True if, judging by preemption alone, none of the tenant's work can touch memory.
    pub(in crate::server) fn is_off(&self) -> bool {
        self.progress.is_none_or(|progress| progress.is_off())
    }

    /// True if its work is paused, regardless of the tenant's reports.
    pub(in crate::server) fn is_paused(&self) -> bool {
        self.progress.is_some_and(|progress| progress.stage == Stage::Paused)
    }

    /// True if it is paused, or about to be, and not yet to go on.
    pub(in crate::server) fn is_kept_paused(&self) -> bool {
        self.progress.is_some_and(|progress| progress.stage != Stage::Resuming)
    }

    /// True if it has closed its gate and can change mappings, since it was paused.
    pub(in crate::server) fn has_passed(&self) -> bool {
        self.progress.is_some_and(|progress| progress.is_off())
    }

    /// True if it is on its way off the GPU and its gate is still open.
    pub(in crate::server) fn is_gate_open(&self) -> bool {
        self.progress.is_some_and(|progress| progress.gate == Gate::Open)
    }

    /// True if its tenant can co-run with others. Neither a slice that is yet to be set nor an unknown ability to be paused is a
    /// reason to part: parting takes longer.
    pub(in crate::server) fn can_corun(&self) -> bool {
        match self.ability {
            Ability::No => false,
            Ability::Trying => true,
            Ability::Works => self.is_allowed && !self.slice.failed,
        }
    }

    /// Handles the tenant's report of the target that can be paused.
    pub(in crate::server) fn on_channels(&mut self, target: Option<PreemptTarget>, is_allowed: bool) -> Told {
        self.is_allowed = is_allowed;
        let Some(target) = target else {
            // An already paused target can still be resumed.
            self.ability = Ability::No;
            return Told::Nothing;
        };
        self.target = Some(target.clone());
        // New contexts have the usual slice.
        self.slice.forget();
        match self.progress.as_mut().map(|progress| &mut progress.stage) {
            None if self.ability == Ability::Works || !is_allowed => Told::Nothing,
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

    /// Takes it over from another coordinator, which had asked it to close its gate: it is to be paused, whether or not it is already.
    pub(in crate::server) fn take_over(&mut self) {
        self.ask();
        self.gate_closed();
        self.ability = Ability::Works;
    }

    /// Handles the result of the attempt to pause it.
    pub(in crate::server) fn on_tried(&mut self, works: bool) {
        self.ability = if works { Ability::Works } else { Ability::No };
        self.may_be_paused |= works;
    }

    /// Notes that it is asked to close its gate.
    pub(in crate::server) fn ask(&mut self) {
        let (stage, since, gate, probe) = (Stage::Asked, Instant::now(), Gate::Open, Probe::No);
        self.progress = Some(Progress { stage, since, gate, probe, stuck: None, failures: 0 });
    }

    /// Notes that its gate is closed; work may be queued. Returns true if it is to be paused now.
    pub(in crate::server) fn gate_closed(&mut self) -> bool {
        let Some(progress) = &mut self.progress else { return false };
        progress.gate = Gate::Closed;
        progress.stage == Stage::Asked
    }

    /// Notes that its gate is closed, and no work is queued. Returns true if that ends the turn now, as without pausing.
    pub(in crate::server) fn on_drained(&mut self) -> bool {
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

    /// Decides to pause it, including every part that is not paused yet.
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

    /// Notes that the preemptor has paused the requested target.
    pub(in crate::server) fn on_paused(&mut self) {
        self.paused = self.asked.take();
    }

    /// Takes the paused target and forgets it: it is to be resumed, or goes on by itself.
    pub(in crate::server) fn take_paused(&mut self) -> Option<PreemptTarget> {
        self.paused.take()
    }

    /// Notes that it is off the GPU.
    pub(in crate::server) fn rest(&mut self) {
        self.set(Stage::Paused);
    }

    /// Notes that it could not be paused. Returns false if the attempt is to be given up.
    pub(in crate::server) fn fail(&mut self) -> bool {
        let Some(progress) = &mut self.progress else { return true };
        progress.failures += 1;
        progress.stage = Stage::Failed { again_at: Instant::now() + FAILED };
        progress.failures <= MOST_FAILURES
    }

    /// Notes that it cannot be paused after all, and is on the GPU.
    pub(in crate::server) fn give_up(&mut self) {
        (self.progress, self.ability) = (None, Ability::No);
    }

    /// Lets it go on. Returns the target to resume.
    pub(in crate::server) fn resume(&mut self) -> Option<PreemptTarget> {
        let (Some(_), Some(target)) = (&self.progress, self.target.clone()) else { return None };
        self.set(Stage::Resuming);
        Some(target)
    }

    /// Notes that the preemptor has put it back on the GPU.
    pub(in crate::server) fn on_resumed(&mut self) {
        self.paused = None;
    }

    /// Lets it run until it has answered the probe.
    pub(in crate::server) fn let_answer(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.stuck.get_or_insert_with(Instant::now);
        }
        self.set(Stage::Answering);
    }

    /// Ends preemption: it is on the GPU, and no tenant needs it off.
    pub(in crate::server) fn end(&mut self) {
        self.progress = None;
    }

    fn set(&mut self, stage: Stage) {
        if let Some(progress) = &mut self.progress {
            progress.stage = stage;
        }
    }

    /// Starts one probe of its mappings, if it is paused and its gate is closed. Returns the probe's number.
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

    /// Handles its answer to the probe. Returns the next step.
    pub(in crate::server) fn on_probed(&mut self, number: u32) -> Probed {
        let Some(progress) = self.progress.as_mut().filter(|_| self.probes == number) else { return Probed::Nothing };
        match (progress.stage, progress.probe) {
            (_, Probe::No | Probe::Passed) => Probed::Nothing,
            (Stage::Paused, Probe::Asked { .. }) => {
                progress.probe = Probe::Passed;
                Probed::Nothing
            }
            (Stage::Answering, _) => Probed::Pause,
            // It may have needed to run for the answer: it is asked again when it is paused again.
            _ => {
                progress.probe = Probe::No;
                Probed::AskAgain
            }
        }
    }

    /// Checks the probe when its time has come; `is_stuck` tells that the probe's call is stuck.
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

    /// True if it is off the GPU for a burst.
    pub(in crate::server) fn is_descheduled(&self) -> bool {
        matches!(self.descheduling, Some((Descheduling::There, _)))
    }

    /// The time of the next attempt to move it.
    pub(in crate::server) fn next_try(&self) -> Option<Instant> {
        self.not_before
    }

    /// True if an attempt to move it has just failed.
    fn is_left_alone(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// Has it make way for a burst. Returns the target to deschedule, if it can.
    pub(in crate::server) fn deschedule(&mut self) -> Option<PreemptTarget> {
        if self.descheduling.is_some() || !self.works() || self.is_left_alone() || self.failures >= MOST_FAILURES {
            return None;
        }
        let target = self.target.clone()?;
        self.descheduling = Some((Descheduling::Going, target.clone()));
        Some(target)
    }

    /// Has it put back if it is descheduled, and returns the target. If descheduling is still under way, it is put back afterwards.
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

    /// Notes that it was descheduled (`went`) or rescheduled, or that this failed. Returns false if the attempt is to be given up.
    pub(in crate::server) fn on_moved(&mut self, went: bool, works: bool) -> bool {
        if !works {
            self.failures += 1;
            self.not_before = Some(Instant::now() + FAILED);
            if !went && self.failures > MOST_FAILURES {
                return false;
            }
        }
        match &mut self.descheduling {
            // It is where it was to go, or where it was before.
            Some((descheduling, _)) if went == works => *descheduling = Descheduling::There,
            _ => self.descheduling = None,
        }
        if works && !went {
            self.failures = 0;
        }
        true
    }
}

/// The next step after a tenant has answered the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Probed {
    Nothing,
    Pause,
    AskAgain,
}
