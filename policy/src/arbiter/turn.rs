//! One turn: from the decision to bring a tenant in until its gate is closed again.

use super::rules::pause;
use super::{Micros, TenantId};

/// The stage of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its memory is on the way.
    Arriving,
    /// Its gate is open.
    Running,
    /// It was told to leave.
    Leaving {
        /// The time of that.
        since: Micros,
        /// True if it leaves because a better class waits, and not because its quantum is over.
        for_better: bool,
    },
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) tenant: TenantId,
    pub(super) stage: Stage,
    /// The time at which this turn was decided.
    pub(super) decided_at: Micros,
    /// The beginning of its arrival; after the grant, the time of the grant.
    pub(super) since: Micros,
    /// The time since which all its memory is resident. Its quantum begins then.
    pub(super) resident: Option<Micros>,
    /// The part of its quantum that it had before it was interrupted.
    pub(super) used_before: Micros,
    /// The earliest time at which it is told to leave.
    pub(super) not_before: Micros,
    /// It got its turn because it had waited for too long: no tenant interrupts that.
    pub(super) overdue: bool,
    /// The latest start of its request, if it has a target that could be met.
    pub(super) latest_start: Micros,
    /// The time that its memory took to come.
    pub(super) took: Micros,
    /// The part of its time with the baton that has been counted.
    pub(super) counted: Micros,
    /// Others have waited all the time.
    pub(super) contended: bool,
    /// The number of times that it could not be drained.
    failures: u32,
    /// It has nothing to do, and no tenant waits for it.
    pub(super) resting: bool,
    /// Its gang is to leave.
    pub(super) recalled: bool,
    /// Its gate was just opened, and it was not told yet whether others wait.
    pub(super) opened: bool,
}

impl Turn {
    pub(super) fn new(tenant: TenantId, now: Micros, decided_at: Micros) -> Self {
        Self {
            tenant,
            stage: Stage::Arriving,
            decided_at,
            since: now,
            resident: None,
            used_before: 0,
            not_before: 0,
            overdue: false,
            latest_start: Micros::MAX,
            took: 0,
            counted: 0,
            contended: false,
            failures: 0,
            resting: false,
            recalled: false,
            opened: false,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.stage != Stage::Arriving
    }

    /// The time for which the baton has been held in this turn.
    pub(super) fn held(&self, now: Micros) -> Micros {
        if self.is_held() { now.saturating_sub(self.since) } else { 0 }
    }

    /// Counts the part of that time that has not been counted yet, and returns it.
    pub(super) fn count(&mut self, now: Micros) -> Micros {
        let held = self.held(now);
        let more = held.saturating_sub(self.counted);
        self.counted += more;
        more
    }

    /// Takes out time that does not count, because the holder could do nothing.
    pub(super) fn stand_still(&mut self, time: Micros) {
        if self.is_held() {
            self.since += time;
            self.resident = self.resident.map(|since| since + time);
        }
    }

    /// Puts off the time at which it may be told to leave.
    pub(super) fn lasts_until(&mut self, time: Micros) {
        self.not_before = self.not_before.max(time);
    }

    pub(super) fn grant(&mut self, now: Micros, used_before: Micros) {
        self.stage = Stage::Running;
        self.opened = true;
        self.took = now.saturating_sub(self.since);
        self.since = now;
        self.used_before = used_before;
    }

    pub(super) fn resident(&mut self, now: Micros) {
        self.resident.get_or_insert(now);
    }

    pub(super) fn revoke(&mut self, now: Micros, for_better: bool) {
        self.stage = Stage::Leaving { since: now, for_better };
        self.resting = false;
    }

    pub(super) fn busy(&mut self, now: Micros) {
        self.stage = Stage::Running;
        self.opened = true;
        self.recalled = false;
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(pause(self.failures));
        // The failed drain counts as its arrival, even if memory is still missing.
        self.resident(now);
    }
}
