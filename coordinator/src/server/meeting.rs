//! Tenants that share memory and take turns: when both want the GPU, they meet, and are united if there is room for both. One may wait for
//! the other's work, and would otherwise do so for its whole turn. A tenant that has shared its memory and never wants the GPU again, like a
//! process that keeps weights for others, is united with nobody.

use std::time::{Duration, Instant};

use super::state::Server;
use super::tenants::tenant::Tenant;
use baton_books::sharing::Key;
use baton_policy::arbiter::{State, TenantId};

/// A tenant that has the GPU for so long while another one waits has work there: one without any would have yielded.
const AT_WORK: Duration = Duration::from_millis(20);

impl Tenant {
    /// The time at which it meets those that have the GPU and share memory with it.
    pub(super) fn meets_at(&self) -> Option<Instant> {
        let wants_since = self.turn.demanded().filter(|_| !self.shares_with.is_empty());
        wants_since.map(|since| since + AT_WORK)
    }
}

impl Server {
    /// A tenant is about to share the memory that another one has exported by this key. True if the two are to be united first; otherwise
    /// they take turns until they meet.
    pub(super) fn is_about_to_share(&mut self, id: TenantId, exporter: TenantId, key: &Key) -> bool {
        let memory = self.memory();
        if !memory.may_share(id, exporter, key) {
            return false;
        }
        if memory.may_be_apart(id, exporter) {
            self.card.tenants.are_to_meet(id, exporter);
            return false;
        }
        memory.fits_with(id, exporter)
    }

    /// Those that share memory with a tenant, take turns with it, and want the GPU when it does.
    pub(super) fn met_by(&self, id: TenantId) -> Vec<TenantId> {
        let Some(tenant) = self.card.tenants.get(id).filter(|tenant| !tenant.shares_with.is_empty()) else {
            return Vec::new();
        };
        let state = |id: TenantId| self.card.arbiter.state(id);
        let has_waited = tenant.meets_at().is_some_and(|at| at <= Instant::now());
        let wants = |other: TenantId| match state(other) {
            State::Waiting | State::Arriving => state(id) != State::Idle,
            State::Running | State::Leaving => has_waited && !self.card.arbiter.is_resting(other),
            State::Idle | State::Corunning => false,
        };
        let apart = |other: &TenantId| !self.card.arbiter.are_united(id, *other);
        tenant.shares_with.iter().copied().filter(|other| wants(*other)).filter(apart).collect()
    }
}
