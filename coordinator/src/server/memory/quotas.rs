//! What a guest's programs may have of memory, each and all together.

use baton_contract::memory::size;
use baton_contract::messages::{Answer, ExtentId, Full};
use baton_views::quota::{Met, Quota};

use super::Access;
use super::allocate::Claim;
use crate::server::recorder::event::What;
use baton_books::arena::FrameId;
use baton_policy::arbiter::TenantId;

impl Access<'_> {
    fn guest(&self, id: TenantId) -> Option<u32> {
        self.tenants.get(id)?.connection.control.guest()
    }

    /// What one of a guest's programs may have at most, as far as quotas are concerned.
    pub(super) fn quota_of(&self, guest: Option<u32>) -> u64 {
        guest.map_or(u64::MAX, |_| self.memory.rules.quotas.arena)
    }

    /// How much more those of this tenant's user may have that does not move: beside the arena, or in it and within others' reach.
    pub(super) fn leases_left(&self, id: TenantId) -> u64 {
        let Some(user) = self.guest(id) else { return u64::MAX };
        let is_its = |other: &TenantId| self.guest(*other) == Some(user);
        let leased: u64 = self.tenants.ids().filter(is_its).map(|other| self.memory.leases.account(other).leased).sum();
        let has = leased + self.tenants.memory_of_guest(user).immovable;
        self.memory.rules.quotas.leases.saturating_sub(has)
    }

    /// Whether a tenant's user would have more that does not move than it may, if these stayed.
    pub(super) fn may_not_stay(&mut self, id: TenantId, extents: &[(TenantId, ExtentId, FrameId)]) -> bool {
        let bytes = |(owner, extent, _): &(TenantId, ExtentId, FrameId)| {
            let extent = self.tenants.get(*owner)?.extents().get(*extent)?;
            (!extent.is_immovable()).then_some(extent.class().bytes())
        };
        let (bytes, left) = (extents.iter().filter_map(bytes).sum(), self.leases_left(id));
        let is_above = bytes > left;
        if is_above {
            self.met_leases(id, bytes, left);
        }
        is_above
    }

    /// Which quota keeps a tenant from so much more, if one does.
    fn quota_in_the_way(&self, id: TenantId, bytes: u64) -> Option<Met> {
        let guest = self.guest(id)?;
        let used = self.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().used());
        let (own, most) = (used.saturating_add(bytes), self.quota_of(Some(guest)));
        if own > most {
            return Some(Met { quota: Quota::Arena, most: size(most), asked: size(own) });
        }
        // Several of them may be about to get some.
        let is_its = |claim: &&Claim| self.guest(claim.tenant()) == Some(guest);
        let claimed: u64 = self.memory.claims.iter().filter(is_its).map(Claim::bytes).sum();
        let left = self.memory.quota_left(self.tenants, Some(guest)).saturating_sub(claimed);
        let most = self.tenants.memory_of_guest(guest).used() + claimed + left;
        (bytes > left).then(|| Met { quota: Quota::HostPool, most: size(most), asked: size(bytes) })
    }

    /// Says no to an allocation above a quota, as where there is no memory. True if it was.
    pub(super) fn is_above_quota(&mut self, id: TenantId, bytes: u64) -> bool {
        let Some(met) = self.quota_in_the_way(id, bytes) else { return false };
        let full = if met.quota == Quota::Arena { Full::Arena } else { Full::HostPool };
        if let Some(tenant) = self.tenants.get(id) {
            log::warn!("{} asked for {} MiB and got none: {met}", tenant.name, bytes >> 20);
        }
        self.tenants.met(id, met);
        self.recorder.record(id, What::Refused { bytes, why: full });
        self.tenants.answer(id, &Answer::Denied { full }, &[]);
        true
    }

    /// A tenant is refused so much beside the arena, of which its user's programs may have `left` more.
    pub(super) fn met_leases(&mut self, id: TenantId, bytes: u64, left: u64) {
        let most = self.memory.rules.quotas.leases;
        let met = Met { quota: Quota::Leases, most: size(most), asked: size(bytes) };
        if let Some(tenant) = self.tenants.get(id) {
            log::warn!("{} asked for {} MiB and got none ({} are left): {met}", tenant.name, bytes >> 20, size(left));
        }
        self.tenants.met(id, met);
    }
}
