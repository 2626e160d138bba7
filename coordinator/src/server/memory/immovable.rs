//! Memory that cannot move, because somebody can reach it at any time: another process, another device, or the program itself by
//! other addresses.
//!
//! A tenant says so of its own extents ([`Request::MakeImmovable`](baton_contract::messages::Request::MakeImmovable)), before it
//! happens. From then on they stay in their frames until it frees them or ends. They count as unmanaged memory, and nobody else can
//! have that part of the arena. When they are freed, their frames are given back to the driver and not lent again: whoever else
//! has one mapped keeps it.

use std::sync::atomic::Ordering::Relaxed;

use baton_contract::messages::{Answer, ExtentId};

use super::Access;
use super::sharing::movable_bytes;
use crate::server::tenants::memory::Notice;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::sharing::Place;
use baton_policy::arbiter::TenantId;

impl Access<'_> {
    /// A tenant is about to let others reach these extents, of its own or of another's.
    pub(in crate::server) fn make_immovable(&mut self, id: TenantId, extents: &[ExtentId]) {
        if !self.tenants.get(id).is_some_and(|tenant| tenant.connection.is_open()) {
            return;
        }
        // A frame that a tenant that does not answer has mapped too is needed there again.
        let is_its_own = |(owner, extent, frame): (TenantId, ExtentId, FrameId)| {
            (!self.memory.frames.arena().is_held(frame)).then_some((owner, extent, frame))
        };
        let here: Option<Vec<_>> =
            extents.iter().map(|extent| self.resident((id, *extent)).and_then(is_its_own)).collect();
        let Some(here) = here else { return self.tenants.answer(id, &Answer::Movable, &[]) };
        if self.may_not_stay(id, &here) {
            return self.tenants.answer(id, &Answer::Movable, &[]);
        }
        let owner = here.first().map_or(id, |(owner, ..)| *owner);
        for (owner, extent, frame) in here {
            let Some(mut own) = self.tenants.extents(owner) else { continue };
            self.memory.frames.make_reachable(frame);
            // It will never leave again.
            self.memory.host.give_back(own.make_immovable(extent));
        }
        self.has_made_immovable(owner);
        self.tenants.answer(id, &Answer::Immovable, &[]);
    }

    /// Whose an extent is that a tenant has mapped, and its frame.
    fn resident(&self, id: (TenantId, ExtentId)) -> Option<(TenantId, ExtentId, FrameId)> {
        let attachment = self.memory.sharing.get(id);
        let (owner, extent) = match attachment {
            Some(attachment) if attachment.place != Place::Mapped => return None,
            Some(attachment) => attachment.owner,
            None => id,
        };
        let state = self.tenants.get(owner)?.extents().get(extent)?.state();
        state.frame().filter(|_| state.is_resident()).map(|frame| (owner, extent, frame))
    }

    /// Says what it means for others that some of a tenant's memory cannot move from now on.
    fn has_made_immovable(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let (name, bytes) = (tenant.name.clone(), tenant.extents().counts().immovable >> 20);
        if bytes > 0 && tenant.memory.is_news(Notice::Immovable) {
            log::info!("{name} has {bytes} MiB that others can reach: they stay on the GPU until it frees them");
        }
        let does_not_fit = |(other, tenant): &(TenantId, &Tenant)| {
            *other != id && tenant.extents().counts().bytes > self.beside_immovable(*other)
        };
        let squeezed: Vec<TenantId> = self.tenants.iter().filter(does_not_fit).map(|(other, _)| other).collect();
        for other in squeezed {
            let Some(other) = self.tenants.get_mut(other) else { continue };
            if other.memory.is_news(Notice::NoRoom) {
                log::warn!(
                    "{} does not fit beside the {bytes} MiB of {name} that cannot move, and has to wait",
                    other.name
                );
            }
        }
    }

    /// What of the arena cannot move, in bytes.
    fn immovable_bytes(&self) -> u64 {
        self.tenants.totals().immovable
    }

    /// What this tenant may have, in bytes: nobody has what of others cannot move, nor what those have that it runs with.
    pub(super) fn offered_to(&self, id: TenantId) -> u64 {
        self.beside_immovable(id).saturating_sub(self.memory.rules.headroom).saturating_sub(self.bytes_beside(id))
    }

    /// What of the arena a tenant can have beside what of others cannot move, in bytes.
    pub(super) fn beside_immovable(&self, id: TenantId) -> u64 {
        let own = self.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().immovable);
        self.memory.frames.arena().capacity().saturating_sub(self.immovable_bytes() - own)
    }

    /// How small the arena may become at most: so that each tenant fits beside what cannot move.
    pub(super) fn least_capacity(&self) -> u64 {
        let movable =
            |(id, tenant): (TenantId, &Tenant)| movable_bytes(tenant.extents().counts()) + self.bytes_beside(id);
        self.immovable_bytes() + self.tenants.iter().map(movable).max().unwrap_or(0)
    }

    /// What all tenants see of the ledger now.
    fn shown(&self) -> Shown {
        let step = (self.memory.frames.arena().configured() / STEPS).max(1);
        let (capacity, grantable) =
            (self.memory.frames.arena().capacity(), self.memory.grantable(self.tenants, None) / step * step);
        Shown { capacity, immovable: self.immovable_bytes(), grantable }
    }

    /// Lets tenants know how much each may have, if that has changed.
    pub(in crate::server) fn show_offers(&mut self) {
        let shown = self.shown();
        if self.memory.shown.replace(shown) != Some(shown) {
            self.tenants.ids().collect::<Vec<_>>().into_iter().for_each(|id| self.show_offer(id));
        }
    }

    /// Lets one know.
    pub(in crate::server) fn show_offer(&self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let Shown { capacity, immovable, .. } = self.shown();
        // What it has beside the arena is its own too, whether the arena is smaller for it or not.
        let own =
            capacity.saturating_add(self.memory.leases.account(id).leased).min(self.memory.frames.arena().configured());
        let others = (immovable - tenant.extents().counts().immovable).saturating_add(self.memory.rules.headroom);
        let others = others.saturating_add(self.bytes_beside(id));
        let guest = tenant.connection.control.guest();
        tenant.connection.page.arena_bytes.store(own.saturating_sub(others).min(self.quota_of(guest)), Relaxed);
        let more = self.grantable_to(id).min(self.memory.quota_left(self.tenants, guest));
        let could_have = tenant.extents().counts().used().saturating_add(more);
        tenant.connection.page.could_have_bytes.store(could_have, Relaxed);
    }

    /// What is shown to one that has just come, of this guest's if it is one's.
    pub(in crate::server) fn first_offer(&self, guest: Option<u32>) -> (u64, u64) {
        let total = self.memory.offered().saturating_sub(self.immovable_bytes());
        (
            total.min(self.quota_of(guest)),
            self.memory.grantable(self.tenants, None).min(self.memory.quota_left(self.tenants, guest)),
        )
    }

    /// What is shown to one that comes later, or never.
    pub(in crate::server) fn offer_of_later(&self, guest: Option<u32>) -> u64 {
        self.memory.offered().min(self.quota_of(guest))
    }
}

/// What tenants see of what there is for all of them, is shown in so many steps, so that not every allocation is told to all.
const STEPS: u64 = 256;

/// What depends on all tenants together, of what is shown to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    capacity: u64,
    immovable: u64,
    grantable: u64,
}
