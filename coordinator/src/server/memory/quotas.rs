//! The memory quotas of a guest's programs, of each and of all together.

use baton_contract::memory::size;
use baton_contract::messages::{Answer, ExtentId, Full};
use baton_report::quota::{Met, Quota};

use super::claims::{Claim, Claims};
use super::ground::Ground;
use crate::server::recorder::event::What;
use baton_books::arena::FrameId;
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// Notes that a tenant was refused `bytes` beside the arena, where its user's programs may have `left` more.
    pub(super) fn met_leases(&mut self, id: TenantId, bytes: u64, left: u64) {
        let most = self.store.rules.quotas.leases;
        let met = Met { quota: Quota::Leases, most: size(most), asked: size(bytes) };
        if let Some(tenant) = self.tenants.get(id) {
            baton_messages::warn!(lease_quota_is_used_up(&tenant.name, bytes >> 20, size(left), &met));
        }
        self.tenants.record_met(id, met);
    }
}

impl Claims {
    /// Bytes of immovable memory that this tenant's user may still have: beside the arena, or in it and within others' reach.
    pub(super) fn leases_left(&self, ground: &Ground<'_>, id: TenantId) -> u64 {
        let Some(user) = ground.guest(id) else { return u64::MAX };
        let is_its = |other: &TenantId| ground.guest(*other) == Some(user);
        let leased: u64 = ground.tenants.ids().filter(is_its).map(|other| self.leases.account(other).leased).sum();
        let has = leased + ground.tenants.memory_of_guest(user).immovable;
        ground.store.rules.quotas.leases.saturating_sub(has)
    }

    /// True if a tenant's user would exceed its quota of immovable memory, if these extents stayed.
    pub(super) fn may_not_stay(
        &self,
        ground: &mut Ground<'_>,
        id: TenantId,
        extents: &[(TenantId, ExtentId, FrameId)],
    ) -> bool {
        let bytes = |(owner, extent, _): &(TenantId, ExtentId, FrameId)| {
            let extent = ground.tenants.get(*owner)?.extents().get(*extent)?;
            (!extent.is_immovable()).then_some(extent.class().bytes())
        };
        let (bytes, left) = (extents.iter().filter_map(bytes).sum(), self.leases_left(ground, id));
        let is_above = bytes > left;
        if is_above {
            ground.met_leases(id, bytes, left);
        }
        is_above
    }

    /// The quota that denies a tenant this many more bytes, if one does.
    fn quota_in_the_way(&self, ground: &Ground<'_>, id: TenantId, bytes: u64) -> Option<Met> {
        let guest = ground.guest(id)?;
        let used = ground.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().used());
        let (own, most) = (used.saturating_add(bytes), ground.quota_of(Some(guest)));
        if own > most {
            return Some(Met { quota: Quota::Arena, most: size(most), asked: size(own) });
        }
        // Several of the guest's tenants may be about to get memory.
        let is_its = |claim: &&Claim| ground.guest(claim.tenant()) == Some(guest);
        let claimed: u64 = self.queue.iter().filter(is_its).map(Claim::bytes).sum();
        let left = ground.store.quota_left(ground.tenants, Some(guest)).saturating_sub(claimed);
        let most = ground.tenants.memory_of_guest(guest).used() + claimed + left;
        (bytes > left).then(|| Met { quota: Quota::HostPool, most: size(most), asked: size(bytes) })
    }

    /// Denies an allocation above a quota, as if there were no memory. Returns true if it was above one.
    pub(super) fn is_above_quota(&self, ground: &mut Ground<'_>, id: TenantId, bytes: u64) -> bool {
        let Some(met) = self.quota_in_the_way(ground, id, bytes) else { return false };
        let full = if met.quota == Quota::Arena { Full::Arena } else { Full::HostPool };
        if let Some(tenant) = ground.tenants.get(id) {
            baton_messages::warn!(quota_is_used_up(&tenant.name, bytes >> 20, &met));
        }
        ground.tenants.record_met(id, met);
        ground.recorder.record(id, What::Refused { bytes, why: full });
        ground.tenants.answer(id, &Answer::Denied { full }, &[]);
        true
    }
}
