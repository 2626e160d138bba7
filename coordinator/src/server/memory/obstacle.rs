//! The obstacle to the memory that a tenant waits for, to explain why a program does not go on. This code only reads.

use super::facade::Memory;
use crate::server::tenants::memory::Notice;
use crate::server::tenants::table::Tenants;
use crate::server::tenants::tenant::Tenant;
use baton_books::sizes::bytes_of;
use baton_policy::arbiter::TenantId;

/// The obstacle, and the number of bytes that wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) enum Obstacle {
    /// No obstacle: the memory is on its way.
    Comes(u64),
    /// These tenants have to make room, and do so.
    Leaves(Vec<TenantId>, u64),
    /// These tenants have memory that others could use, and are unresponsive.
    Held(Vec<TenantId>, u64),
    /// The host has no room for the memory that would have to leave.
    HostPool(u64),
    /// Memory of these tenants cannot move, and the rest of the arena is too small.
    Arena(Vec<TenantId>, u64),
    /// The process can open no more descriptors.
    Descriptors(u64),
}

impl Memory {
    /// The obstacle to the memory that a tenant asks for or lacks; none if it waits for no memory.
    pub(in crate::server) fn obstacle(&self, id: TenantId, tenants: &Tenants) -> Option<Obstacle> {
        let tenant = tenants.get(id)?;
        let counts = tenant.extents().counts();
        if tenant.memory.undelivered_since().is_some() {
            return Some(Obstacle::Descriptors(counts.missing));
        }
        if let Some(arena) = self.does_not_fit(id, counts.bytes, tenants) {
            return Some(arena);
        }
        let claimed = self.claims.claimed_by(id);
        let bytes = claimed.unwrap_or(counts.missing);
        let leaving_of = |id, tenant: &Tenant| bytes_of(&self.store.leaving_soon(id, tenant, tenants));
        if claimed.is_none() && !tenant.memory.is_told(Notice::PutOff) {
            if counts.missing == 0 {
                return None;
            }
            let others_leave = || {
                let leaves = |(other, tenant): (TenantId, &Tenant)| other != id && leaving_of(other, tenant) > 0;
                tenants.iter().any(leaves)
            };
            // Copies out of its memory are over before it comes in. Memory that already comes waits for no tenant, but the rest
            // may.
            if leaving_of(id, tenant) == 0
                && self.store.transfer.is_copying_for(id)
                && (counts.away == 0 || !others_leave())
            {
                return Some(Obstacle::Comes(bytes));
            }
        }
        Some(self.in_the_way(id, bytes, tenants))
    }

    /// The obstacle, if others' immovable memory leaves too little of the arena for all memory of a tenant. Then it cannot run,
    /// however much of its memory comes.
    fn does_not_fit(&self, id: TenantId, bytes: u64, tenants: &Tenants) -> Option<Obstacle> {
        let immovable = |tenant: &Tenant| tenant.extents().counts().immovable;
        let others = tenants.iter().filter(|(other, tenant)| *other != id && immovable(tenant) > 0);
        let (whom, fixed): (Vec<TenantId>, Vec<u64>) = others.map(|(other, tenant)| (other, immovable(tenant))).unzip();
        let over = bytes.saturating_sub(self.store.frames.arena().capacity().saturating_sub(fixed.iter().sum()));
        (over > 0 && !whom.is_empty()).then_some(Obstacle::Arena(whom, over))
    }

    fn in_the_way(&self, id: TenantId, bytes: u64, tenants: &Tenants) -> Obstacle {
        let others = || tenants.iter().filter(|(other, _)| *other != id);
        let leaving_of = |(id, tenant)| (id, bytes_of(&self.store.leaving_soon(id, tenant, tenants)));
        let leaving =
            others().filter(|(_, tenant)| tenant.makes_room()).map(leaving_of).filter(|(_, bytes)| *bytes > 0);
        let (leaving, amounts): (Vec<TenantId>, Vec<u64>) = leaving.unzip();
        if !leaving.is_empty() {
            return Obstacle::Leaves(leaving, amounts.iter().sum());
        }
        // Memory of a left-out tenant on the GPU does not help: it belongs to another user, or its pieces are too large, or it
        // cannot be taken.
        let keeps = |tenant: &Tenant| !tenant.makes_room() || tenant.is_left_out();
        let has_any = |id, tenant: &Tenant| tenant.extents().counts().here() > 0 || self.store.sharing.holds_any(id);
        let held = others().filter(|(other, tenant)| keeps(tenant) && has_any(*other, tenant));
        let held: Vec<TenantId> = held.map(|(other, _)| other).collect();
        if !held.is_empty() {
            return Obstacle::Held(held, bytes);
        }
        let room = self.store.host.pool().ready().saturating_sub(self.store.host.pool().used());
        let is_free =
            self.store.frames.arena().capacity().saturating_sub(self.store.frames.arena().bytes().lent) >= bytes;
        if !is_free && room < self.store.frames.arena().largest_class().bytes() {
            return Obstacle::HostPool(bytes);
        }
        Obstacle::Comes(bytes)
    }
}
