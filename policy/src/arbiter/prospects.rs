//! The prospects of a waiting tenant, for a user who asks why it waits. The code here decides nothing.

use super::turn::Stage;
use super::{Arbiter, Micros, TenantId};

/// The rule that gives it a turn at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The present turn ends, because others have waited for long enough.
    Quantum,
    /// It has waited for `max_wait`.
    MaxWait,
}

/// A waiting tenant's situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// The time for which it has waited.
    pub waited: Micros,
    /// The tenant whose turn comes before its own, beside the present holder of the baton.
    pub ahead: Option<TenantId>,
    /// The longest time until its turn, if nothing else happens; none if that cannot be told.
    pub latest: Option<(Micros, Bound)>,
    /// It could not arrive when it was its turn.
    pub failed: bool,
}

impl Arbiter {
    /// A tenant's prospects; none if it does not wait.
    pub fn prospect(&self, id: TenantId, now: Micros) -> Option<Prospect> {
        let tenant = self.tenants.get(id)?;
        let wait = tenant.waiting?;
        let ahead = self.next().filter(|next| *next != id);
        let turn = self.turn.as_ref().filter(|turn| turn.stage == Stage::Running && turn.tenant != id);
        let end = turn.and_then(|turn| Some((turn.tenant, self.end_of(turn)?)));
        let is_first = ahead.is_none();
        let latest = match end {
            Some((holder, at)) if is_first => {
                let is_better = self.tenants.get(holder).is_some_and(|holder| holder.class() < tenant.class());
                Some((at, if is_better { Bound::MaxWait } else { Bound::Quantum }))
            }
            _ => Some(wait.since.saturating_add(self.max_wait))
                .filter(|at| *at < Micros::MAX)
                .map(|at| (at, Bound::MaxWait)),
        };
        Some(Prospect {
            waited: now.saturating_sub(wait.since),
            ahead,
            latest: latest.map(|(at, bound)| (at.saturating_sub(now), bound)),
            failed: tenant.failures > 0,
        })
    }

    /// The time for which a tenant that does not wait has been in its state: has had the GPU, or nothing to do.
    pub fn unchanged_for(&self, id: TenantId, now: Micros) -> Option<Micros> {
        let turn = self.turn.as_ref().filter(|turn| turn.tenant == id).map(|turn| turn.since);
        let since = turn.or_else(|| self.tenants.get(id)?.idle_since)?;
        Some(now.saturating_sub(since))
    }
}
