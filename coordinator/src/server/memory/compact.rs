//! Compaction: a tenant gives back its spare memory while it is off the GPU for a moment.

use baton_contract::messages::ExtentId;

use super::evict::Evicted;
use super::ground::Ground;
use super::residency::Residency;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::Extent;
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// True if a tenant could regain its spare memory by leaving the GPU for a moment.
    pub(super) fn can_compact(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.is_movable() && tenant.memory.can_compact())
    }
}

impl Residency {
    /// Makes partly spare extents leave, if that was requested, while their tenant comes in again. Returns true if some are on
    /// their way out.
    pub(super) fn compacts(&mut self, ground: &mut Ground<'_>, id: TenantId) -> bool {
        let is_to = |tenant: &Tenant| tenant.memory.is_compacting();
        if !ground.is_off_the_gpu(id) || !ground.tenants.get(id).is_some_and(is_to) {
            return false;
        }
        self.recut(ground, id);
        let Some(tenant) = ground.tenants.get(id) else { return false };
        let has_spare = |(_, extent): &(ExtentId, &Extent)| extent.spare_bytes() > 0;
        let left: Vec<ExtentId> = tenant.extents().iter().filter(has_spare).map(|(extent, _)| extent).collect();
        let outcome = self.evict_these(ground, id, left);
        if outcome != Evicted::UnderWay
            && let Some(tenant) = ground.tenants.get_mut(id)
        {
            tenant.memory.end_compaction(outcome == Evicted::Done);
        }
        outcome == Evicted::UnderWay
    }
}
