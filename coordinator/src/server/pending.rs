//! Users' requests that take a while: memory that is to leave, or to come back.

use std::time::Instant;

use super::tenants::peer::Peer;
use super::tenants::table::Tenants;
use baton_policy::arbiter::TenantId;

/// Peers that wait until a tenant has been evicted, or until a tenant's memory has come.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) evictions: Vec<Eviction>,
    pub(super) prefetches: Vec<Prefetch>,
}

/// A peer that waits until a tenant has been evicted.
pub(super) struct Eviction {
    pub(super) tenant: TenantId,
    /// The peer that waits for it. The request is carried out even if there is none.
    pub(super) peer: Option<Peer>,
    /// The tenant's last grant when that was asked for: with another one, it is in use again.
    pub(super) grant: u64,
    pub(super) stage: Stage,
}

/// The stage of an eviction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The tenant has not been asked for anything yet, or could not do it.
    Asked,
    /// It was asked to close its gate for this.
    Draining,
}

/// A peer that waits until a tenant's memory has come.
pub(super) struct Prefetch {
    pub(super) tenant: TenantId,
    pub(super) peer: Peer,
    /// Bytes on the host at the time of the request.
    pub(super) missing: u64,
}

impl Pending {
    /// A tenant's work did not end in time: it is asked again.
    pub(super) fn could_not_close(&mut self, tenant: TenantId) {
        let its = self.evictions.iter_mut().filter(|eviction| eviction.tenant == tenant);
        its.for_each(|eviction| eviction.stage = Stage::Asked);
    }

    /// The time at which an eviction goes on by itself.
    pub(super) fn next_timer(&self, tenants: &Tenants) -> Option<Instant> {
        let asked = self.evictions.iter().filter(|eviction| eviction.stage == Stage::Asked);
        asked.filter_map(|eviction| tenants.get(eviction.tenant)?.turn.left_alone()).min()
    }

    /// True if a tenant was asked to drain for an eviction.
    pub(super) fn has_drain(&self, id: TenantId) -> bool {
        self.evictions.iter().any(|eviction| eviction.tenant == id && eviction.stage == Stage::Draining)
    }
}
