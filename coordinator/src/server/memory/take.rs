//! Memory that is taken without asking, from an unresponsive tenant: it was stopped, or waits for work that is paused.
//!
//! Its work is off the GPU, so its memory can be copied out as any tenant's. Only the tenant can unmap it, so its mappings still
//! lead to the frames that others get then. That does no harm as long as none of the tenant's work runs: it is let on the GPU again
//! only
//!
//! - when it has **answered**, and has unmapped the memory that it was left with; then its memory comes as it always does;
//! - or **in place**, if it cannot change mappings before its work goes on: others leave the very frames that it has mapped, its memory
//!   there comes back, and its work goes on with no trace of the taking.
//!
//! A frame that a former tenant still has mapped is neither exchanged nor given back to the driver ([`Arena::hold`]).
//!
//! [`Arena::hold`]: baton_books::arena::Arena::hold

use std::collections::HashSet;
use std::sync::atomic::Ordering::SeqCst;

use baton_contract::messages::{ExtentId, MAX_LISTED, MemoryCommand};
use baton_contract::page::PAUSED;

use super::ground::Ground;
use super::residency::Residency;
use super::transfer::Group;
use crate::server::tenants::memory::Batch;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::Extent;
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// Ends the taking of a tenant that answers again and can change mappings, or that is let in. The tenant unmaps the memory it
    /// was left with, except for memory on its way back there.
    pub(super) fn untake(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.memory.is_taken()) else { return };
        tenant.memory.untake();
        let told: HashSet<ExtentId> = tenant.memory.to_be_unmapped().into_iter().collect();
        let is_left = |extent: &Extent| extent.left_behind().is_some() && !extent.comes_in_place();
        let behind = tenant.extents().iter().filter(|(_, extent)| is_left(extent));
        let behind: Vec<ExtentId> = behind.map(|(extent, _)| extent).filter(|extent| !told.contains(extent)).collect();
        for extents in behind.chunks(MAX_LISTED) {
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let (batch, extents) = (tenant.memory.add_batch(Batch::Unmap(extents.to_vec())), extents.to_vec());
            self.tenants.tell(id, &MemoryCommand::Unmap { batch, extents });
        }
        self.is_whole_again(id);
    }
}

impl Residency {
    /// Takes the memory of an unresponsive tenant that is off the GPU: from now on it leaves without being unmapped there.
    pub(super) fn take(&self, ground: &mut Ground<'_>, id: TenantId) {
        let Some(tenant) = ground.tenants.get_mut(id) else { return };
        tenant.connection.page.taken.fetch_max(PAUSED, SeqCst);
        let signs = tenant.signs_of_life();
        tenant.memory.take(signs);
        let told = tenant.memory.to_be_unmapped();
        if let Some(mut own) = ground.tenants.extents(id) {
            own.map_no_more();
        }
        self.leave_behind(ground, id, &told);
    }

    /// Makes these extents of a tenant that is off the GPU leave, both resident ones and those that have only got their frames.
    pub(super) fn make_leave(&mut self, ground: &mut Ground<'_>, id: TenantId, extents: Vec<ExtentId>) {
        if !ground.is_off_the_gpu(id) || !ground.tenants.get(id).is_some_and(Tenant::is_evictable) {
            return;
        }
        let mut group = Group::default();
        for extent in &extents {
            if ground.tenants.extents(id).is_some_and(|mut own| own.give_up_reserved(*extent)) {
                group.leaving.push(*extent);
            }
        }
        self.submit_leaving(ground, id, group);
        self.evict_these(ground, id, extents);
    }
}
