//! The offers: each tenant is shown how much memory it could have.

use std::sync::atomic::Ordering::Relaxed;

use super::claims::{Claims, Shown};
use super::ground::Ground;
use baton_policy::arbiter::TenantId;

/// Number of steps in which tenants are shown the common memory, so that not every allocation is reported to all.
const STEPS: u64 = 256;

impl Ground<'_> {
    /// The values of the ledger that all tenants see now.
    fn shown(&self) -> Shown {
        let step = (self.store.frames.arena().configured() / STEPS).max(1);
        let (capacity, grantable) =
            (self.store.frames.arena().capacity(), self.store.grantable(self.tenants, None) / step * step);
        Shown { capacity, immovable: self.immovable_bytes(), grantable }
    }

    /// The offer shown to a tenant that has just come, for this guest if it is a guest's.
    pub(super) fn first_offer(&self, guest: Option<u32>) -> (u64, u64) {
        let total = self.store.offered().saturating_sub(self.immovable_bytes());
        (
            total.min(self.quota_of(guest)),
            self.store.grantable(self.tenants, None).min(self.store.quota_left(self.tenants, guest)),
        )
    }
}

impl Claims {
    /// Tells each tenant how much it may have, if that has changed.
    pub(super) fn show_offers(&mut self, ground: &Ground<'_>) {
        let shown = ground.shown();
        if self.shown.replace(shown) != Some(shown) {
            ground.tenants.ids().collect::<Vec<_>>().into_iter().for_each(|id| self.show_offer(ground, id));
        }
    }

    /// Tells one tenant how much it may have.
    pub(super) fn show_offer(&self, ground: &Ground<'_>, id: TenantId) {
        let Some(tenant) = ground.tenants.get(id) else { return };
        let Shown { capacity, immovable, .. } = ground.shown();
        // Its memory beside the arena is its own too, even if the arena is not smaller for it.
        let own = capacity.saturating_add(self.leases.account(id).leased).min(ground.store.frames.arena().configured());
        let others = (immovable - tenant.extents().counts().immovable).saturating_add(ground.store.rules.headroom);
        let others = others.saturating_add(ground.bytes_of_others_in_unit(id));
        let guest = tenant.connection.control.guest();
        tenant.connection.page.arena_bytes.store(own.saturating_sub(others).min(ground.quota_of(guest)), Relaxed);
        let more = ground.grantable_to(id).min(ground.store.quota_left(ground.tenants, guest));
        let could_have = tenant.extents().counts().used().saturating_add(more);
        tenant.connection.page.could_have_bytes.store(could_have, Relaxed);
    }
}
