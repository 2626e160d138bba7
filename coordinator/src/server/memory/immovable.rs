//! Memory that cannot move, because others can reach it at any time: another process, another device, or the program itself by
//! other addresses.
//!
//! A tenant says so of its own extents ([`Request::MakeImmovable`](baton_contract::messages::Request::MakeImmovable)), before it
//! happens. From then on they stay in their frames until it frees them or ends. They count as unmanaged memory, and no other tenant
//! can have that part of the arena. When they are freed, their frames are given back to the driver and not lent again: every other
//! process that has one mapped keeps it.

use baton_contract::messages::{Answer, ExtentId};

use super::claims::Claims;
use super::ground::Ground;
use crate::keeper::Reach;
use crate::server::tenants::memory::Notice;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::sharing::Place;
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// The owner of an extent that a tenant has mapped, and the extent's frame.
    fn resident(&self, id: (TenantId, ExtentId)) -> Option<(TenantId, ExtentId, FrameId)> {
        let attachment = self.store.sharing.get(id);
        let (owner, extent) = match attachment {
            Some(attachment) if attachment.place != Place::Mapped => return None,
            Some(attachment) => attachment.owner,
            None => id,
        };
        let state = self.tenants.get(owner)?.extents().get(extent)?.state();
        state.frame().filter(|_| state.is_resident()).map(|frame| (owner, extent, frame))
    }

    /// Applies the consequences for others when some of a tenant's memory cannot move from now on.
    fn has_made_immovable(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let (name, bytes) = (tenant.name.clone(), tenant.extents().counts().immovable >> 20);
        if bytes > 0 && tenant.memory.is_news(Notice::Immovable) {
            baton_messages::info!(others_can_reach(&name, bytes));
        }
        let does_not_fit = |(other, tenant): &(TenantId, &Tenant)| {
            *other != id && tenant.extents().counts().bytes > self.capacity_without_immovable(*other)
        };
        let squeezed: Vec<TenantId> = self.tenants.iter().filter(does_not_fit).map(|(other, _)| other).collect();
        for other in squeezed {
            let Some(other) = self.tenants.get_mut(other) else { continue };
            if other.memory.is_news(Notice::NoRoom) {
                baton_messages::warn!(does_not_fit_beside(&other.name, bytes, &name));
            }
        }
    }
}

impl Claims {
    /// Makes extents immovable, of this tenant or of another one, because the tenant is about to let others reach them.
    pub(super) fn make_immovable(&self, ground: &mut Ground<'_>, id: TenantId, extents: &[ExtentId]) {
        if !ground.tenants.get(id).is_some_and(|tenant| tenant.connection.is_open()) {
            return;
        }
        // A frame that an unresponsive tenant also has mapped is needed there again.
        let is_its_own = |(owner, extent, frame): (TenantId, ExtentId, FrameId)| {
            (!ground.store.frames.arena().is_held(frame)).then_some((owner, extent, frame))
        };
        let here: Option<Vec<_>> =
            extents.iter().map(|extent| ground.resident((id, *extent)).and_then(is_its_own)).collect();
        let Some(here) = here else { return ground.tenants.answer(id, &Answer::Movable, &[]) };
        if self.may_not_stay(ground, id, &here) {
            return ground.tenants.answer(id, &Answer::Movable, &[]);
        }
        let owner = here.first().map_or(id, |(owner, ..)| *owner);
        for (owner, extent, frame) in here {
            let Some(mut own) = ground.tenants.extents(owner) else { continue };
            ground.store.frames.make_reachable(frame, Reach::Always);
            // The extent will never leave again.
            ground.store.host.give_back(own.make_immovable(extent));
        }
        ground.has_made_immovable(owner);
        ground.tenants.answer(id, &Answer::Immovable, &[]);
    }
}
