//! One turn: from the decision to bring a tenant in until its gate is closed again.

use super::rules::pause;
use super::{Micros, TenantId};

/// How far a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its memory is on the way.
    Arriving,
    /// Its gate is open.
    Running,
    /// It was told to leave.
    Leaving {
        /// When.
        since: Micros,
        /// Because a better class waits, and not because its quantum is over.
        for_better: bool,
    },
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) tenant: TenantId,
    pub(super) stage: Stage,
    /// When it was decided that this turn should begin.
    pub(super) decided_at: Micros,
    /// Since when it is arriving; from the grant on, when that was.
    pub(super) since: Micros,
    /// Since when all its memory is there: then its quantum begins.
    pub(super) resident: Option<Micros>,
    /// How much of its quantum it had before it was interrupted.
    pub(super) used_before: Micros,
    /// It is not told to leave before.
    pub(super) not_before: Micros,
    /// It got its turn because it had waited for too long: nobody interrupts that.
    pub(super) overdue: bool,
    /// When its request had to be begun, if it has a target that could be met.
    pub(super) latest_start: Micros,
    /// How long its memory took to come.
    pub(super) took: Micros,
    /// How much of the time that it has been held has been counted.
    pub(super) counted: Micros,
    /// Others have waited all the time.
    pub(super) contended: bool,
    /// How often it could not be drained.
    failures: u32,
    /// It has nothing to do, and nobody waits for it.
    pub(super) resting: bool,
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
            opened: false,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.stage != Stage::Arriving
    }

    /// How long the baton has been held in this turn.
    pub(super) fn held(&self, now: Micros) -> Micros {
        if self.is_held() { now.saturating_sub(self.since) } else { 0 }
    }

    /// How much of that has not been counted yet: it is counted with this.
    pub(super) fn count(&mut self, now: Micros) -> Micros {
        let held = self.held(now);
        let more = held.saturating_sub(self.counted);
        self.counted += more;
        more
    }

    /// That time does not count: the holder could do nothing.
    pub(super) fn stand_still(&mut self, time: Micros) {
        if self.is_held() {
            self.since += time;
            self.resident = self.resident.map(|since| since + time);
        }
    }

    /// It is not told to leave before.
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
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(pause(self.failures));
        // That it could not be drained counts, whatever is still missing.
        self.resident(now);
    }
}
