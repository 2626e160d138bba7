//! The memory available to each tenant: arena and host pool together, less immovable memory and memory kept for others.

use baton_contract::memory::size;

use super::ground::{Ground, Store};
use crate::server::tenants::table::Tenants;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::Counts;
use baton_books::reservations::{Need, Run};
use baton_messages::Message;
use baton_policy::arbiter::TenantId;

/// One byte in this many is kept for the coordinator's user and root alone, however many guests there are.
const OWN_PART: u64 = 8;

/// Bytes of a tenant's memory that can move.
pub(super) fn movable_bytes(counts: &Counts) -> u64 {
    counts.bytes - counts.immovable
}

impl Ground<'_> {
    /// Bytes of arena and host pool that a tenant can have on top of all current memory.
    pub(super) fn grantable_to(&self, id: TenantId) -> u64 {
        self.store.grantable(self.tenants, self.tenants.run_of(id))
    }

    /// Bytes of the arena that cannot move.
    pub(super) fn immovable_bytes(&self) -> u64 {
        self.tenants.totals().immovable
    }

    /// Bytes that this tenant may have: not the others' immovable memory, nor the memory of those it runs with.
    pub(super) fn offered_to(&self, id: TenantId) -> u64 {
        self.capacity_without_immovable(id)
            .saturating_sub(self.store.rules.headroom)
            .saturating_sub(self.bytes_of_others_in_unit(id))
    }

    /// Bytes of the arena that a tenant can have beside the others' immovable memory.
    pub(super) fn capacity_without_immovable(&self, id: TenantId) -> u64 {
        let own = self.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().immovable);
        self.store.frames.arena().capacity().saturating_sub(self.immovable_bytes() - own)
    }

    /// The smallest capacity of the arena with which each tenant still fits beside immovable memory, and all of them together fit
    /// arena and host pool.
    pub(super) fn least_capacity(&self) -> u64 {
        let movable = |(id, tenant): (TenantId, &Tenant)| {
            movable_bytes(tenant.extents().counts()) + self.bytes_of_others_in_unit(id)
        };
        let each = self.immovable_bytes() + self.tenants.iter().map(movable).max().unwrap_or(0);
        let one_moves =
            self.store.host.pool().bytes().saturating_sub(self.store.frames.arena().largest_class().bytes());
        each.max(self.tenants.totals().used().saturating_sub(one_moves))
    }

    /// The offer shown to a tenant that comes later, if it ever does.
    pub(super) fn offer_of_later(&self, guest: Option<u32>) -> u64 {
        self.store.offered().min(self.quota_of(guest))
    }

    pub(super) fn guest(&self, id: TenantId) -> Option<u32> {
        self.tenants.get(id)?.connection.control.guest()
    }

    /// The most that quotas allow one of a guest's programs.
    pub(super) fn quota_of(&self, guest: Option<u32>) -> u64 {
        guest.map_or(u64::MAX, |_| self.store.rules.quotas.arena)
    }

    /// Bytes that all tenants of this tenant's unit have.
    pub(super) fn bytes_of_unit(&self, id: TenantId) -> u64 {
        let bytes = |id| self.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().bytes);
        self.arbiter.members(id).into_iter().map(bytes).sum()
    }

    /// Bytes that the other tenants of its unit have, without immovable memory, which is excluded in any case.
    pub(super) fn bytes_of_others_in_unit(&self, id: TenantId) -> u64 {
        if !self.arbiter.is_united(id) {
            return 0;
        }
        let movable = |id| self.tenants.get(id).map_or(0, |tenant| movable_bytes(tenant.extents().counts()));
        self.arbiter.members(id).into_iter().filter(|other| *other != id).map(movable).sum()
    }
}

impl Store {
    /// The most that all tenants together can have, in bytes.
    pub(super) fn most(&self) -> u64 {
        let (arena, pool) = (self.frames.arena().capacity(), self.host.pool().bytes());
        // As long as everything fits the arena, nothing ever has to move. Beyond that, one extent's room is
        // kept free, so that one can always go where another comes from.
        arena.max((arena + pool).saturating_sub(self.frames.arena().largest_class().bytes()))
    }

    /// Bytes of arena and host pool that tenants of this run can have on top of all current memory, without memory kept for others.
    pub(super) fn grantable(&self, tenants: &Tenants, run: Option<Run>) -> u64 {
        let kept = tenants.reservations().of_others(run);
        self.most().saturating_sub(tenants.totals().used()).saturating_sub(kept)
    }

    /// The most that the programs of this guest can have together, in bytes.
    pub(super) fn most_of(&self, guest: Option<u32>) -> u64 {
        let all = self.frames.arena().capacity() + self.host.pool().bytes();
        guest.map_or(all, |_| self.rules.quotas.memory().min(all - all / OWN_PART))
    }

    /// Bytes that quotas still allow the programs of this guest together.
    pub(super) fn quota_left(&self, tenants: &Tenants, guest: Option<u32>) -> u64 {
        let Some(user) = guest else { return u64::MAX };
        let all = self.frames.arena().capacity() + self.host.pool().bytes();
        let own = self.rules.quotas.memory().saturating_sub(tenants.memory_of_guest(user).used());
        own.min((all - all / OWN_PART).saturating_sub(tenants.memory_of_guests().used()))
    }

    /// The reason why a newcomer with this need would wait for ever, if it would.
    pub(super) fn never_has(&self, tenants: &Tenants, need: Need) -> Option<Message> {
        let (arena, pool) = (self.frames.arena().configured(), self.host.pool().bytes());
        let limit = match need.run.guest {
            Some(user) if need.bytes > self.most_of(need.run.guest).min(arena + pool) => {
                baton_messages::user_may_have(user, size(self.most_of(need.run.guest)))
            }
            _ if need.bytes > arena + pool || tenants.is_empty() && need.bytes > self.most() => {
                baton_messages::both_are_less(size(arena), size(pool))
            }
            _ => return None,
        };
        Some(baton_messages::never_fits(size(need.bytes), limit))
    }

    /// Bytes that one tenant may have: the arena less the headroom.
    pub(super) fn offered(&self) -> u64 {
        self.frames.arena().capacity().saturating_sub(self.rules.headroom)
    }
}
