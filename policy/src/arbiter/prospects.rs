//! What a tenant that waits can expect: for whoever asks why it waits. Nothing is decided here.

use super::turn::Stage;
use super::{Arbiter, Micros, TenantId};

/// By what it has its turn at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The present turn ends, because others have waited for long enough.
    Quantum,
    /// It has waited for `max_wait`.
    MaxWait,
}

/// How a tenant waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// For how long.
    pub waited: Micros,
    /// Whose turn it is before its own, beside whoever has the baton now.
    pub ahead: Option<TenantId>,
    /// In how long it has its turn at the latest, if nothing else happens; none if nobody can say.
    pub latest: Option<(Micros, Bound)>,
    /// It could not arrive when it was its turn.
    pub failed: bool,
}

impl Arbiter {
    /// How a tenant waits; none if it does not.
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

    /// For how long a tenant has been as it is, if it does not wait: has had the GPU, or nothing to do.
    pub fn unchanged_for(&self, id: TenantId, now: Micros) -> Option<Micros> {
        let turn = self.turn.as_ref().filter(|turn| turn.tenant == id).map(|turn| turn.since);
        let since = turn.or_else(|| self.tenants.get(id)?.idle_since)?;
        Some(now.saturating_sub(since))
    }
}
