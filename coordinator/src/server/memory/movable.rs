//! Checks that memory can move now, or is about to.

use std::time::Instant;

use baton_contract::messages::ExtentId;

use super::ground::{Ground, Store};
use crate::server::tenants::table::Tenants;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::{Extent, ExtentState};
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

impl Store {
    /// True if an extent that leaves is not expected to be free soon: a tenant that does not answer has it mapped too.
    pub(super) fn is_stuck(&self, extent: (TenantId, ExtentId), tenants: &Tenants) -> bool {
        self.sharing.holders(extent).any(|id| !tenants.get(id).is_some_and(Tenant::is_responsive))
    }

    /// The number of a tenant's extents of each class that leave and are expected to be free soon.
    pub(super) fn leaving_soon(&self, id: TenantId, tenant: &Tenant, tenants: &Tenants) -> PerClass {
        let mut leaving = tenant.extents().counts().leaving;
        if leaving != PerClass::default() && !self.sharing.is_empty() {
            let shared = self.sharing.of_owner(id).into_iter();
            let shared = shared.filter_map(|extent| Some((extent, tenant.extents().get(extent)?)));
            let leaves = |extent: &Extent| matches!(extent.state(), ExtentState::Leaving { .. });
            let stuck = shared.filter(|(number, extent)| leaves(extent) && self.is_stuck((id, *number), tenants));
            stuck.for_each(|(_, extent)| leaving[extent.class().index()] -= 1);
        }
        leaving
    }
}

impl Ground<'_> {
    /// True if no other tenant keeps the extent, and no copy of it is being made.
    pub(super) fn is_let_go(&self, id: TenantId, extent: ExtentId) -> bool {
        let is_taken = |tenant: &Tenant| tenant.memory.is_taken() && self.store.sharing.is_shared((id, extent));
        // Memory that an unresponsive tenant shares stays: others have it too.
        self.is_let_go_by_others(id, extent)
            && !self.is_consolidated(id, extent)
            && !self.tenants.get(id).is_some_and(is_taken)
    }

    /// True if the frame of a tenant's extent can be exchanged when the extent has left. Taken memory cannot: its frame stays
    /// mapped, or was taken from another tenant.
    pub(super) fn can_be_exchanged(&self, tenant: &Tenant, extent: &Extent) -> bool {
        !tenant.memory.is_taken()
            && extent.state().frame().is_some_and(|frame| !self.store.frames.arena().is_held(frame))
    }

    /// True if any work under way will change the memory available to claims: otherwise waiting is useless.
    pub(super) fn is_anything_coming(&mut self) -> bool {
        self.what_is_coming().is_some()
    }

    /// Words for the work under way that will change it, if there is any.
    pub(super) fn what_is_coming(&mut self) -> Option<&'static str> {
        let answering: Vec<TenantId> = self.tenants.index().answering().collect();
        let answers = |tenant: &Tenant| tenant.is_about_to_answer() || tenant.is_about_to_close();
        let store = &self.store;
        Some(match () {
            () if answering.into_iter().filter_map(|id| self.tenants.get(id)).any(answers) => "a program answers",
            () if !store.transfer.is_idle() => "memory is copied",
            () if store.frames.is_scrubbing() => "memory is overwritten",
            () if store.frames.is_any_leaving() => "the keeper lets go of memory",
            () if !store.scans.is_idle() => "memory is scanned",
            () if store.departed.is_any_fresh() => "a program has just ended",
            () if store.host.is_preparing() => "the host pool is prepared",
            () if store.returning.is_some_and(|end| Instant::now() < end) => "programs come back",
            () => return None,
        })
    }
}
