//! Memory is cut into the sizes at hand. Frames that an unresponsive tenant has mapped can be used only as they are
//! ([`super::take`]). If there is not enough other memory, allocations and memory that comes back from the host are cut into such
//! pieces.
//!
//! A number of extents of each class then come **as they are**: they wait for such frames, and leave all other frames to the other
//! extents.

use std::collections::HashMap;

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, MAX_LISTED};

use super::ground::Ground;
use super::residency::Residency;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::{Extent, ExtentState};
use baton_books::sizes::{AtHand, PerClass, bytes_of, count};
use baton_policy::arbiter::TenantId;

/// Result of cutting a tenant's missing memory.
pub(super) enum Fitted {
    /// A cut is unnecessary, impossible now, or useless.
    Not,
    /// The number of extents of each class that come as they are.
    AsItIs(PerClass),
    /// These extents are on the GPU and have to leave first.
    Leaves(Vec<ExtentId>),
}

impl Ground<'_> {
    /// The memory that a tenant could get if it needs some. The estimate is low: of the others' pending work it counts only memory
    /// that leaves.
    fn at_hand(&self, id: TenantId) -> AtHand {
        let (arena, owner) = (&self.store.frames.arena(), self.owner_of(id));
        let (mut as_it_is, held) = arena.free_but_held(owner);
        let mut any = arena.capacity().saturating_sub(arena.bytes().lent + held);
        for (other, tenant) in self.tenants.iter() {
            if self.arbiter.are_united(other, id) || !self.is_off_the_gpu(other) || !tenant.is_evictable() {
                continue;
            }
            let is_its_owner = self.owner_of(other) == owner;
            for (extent, entry) in tenant.extents().iter() {
                let leaves = match entry.state() {
                    ExtentState::Resident { .. } => entry.is_evictable() && self.is_let_go(other, extent),
                    ExtentState::Reserved { .. } => !tenant.memory.is_late(),
                    ExtentState::Leaving { .. } => {
                        !tenant.memory.is_late() && !self.store.is_stuck((other, extent), self.tenants)
                    }
                    _ => false,
                };
                if leaves && self.can_be_exchanged(tenant, entry) {
                    any += entry.class().bytes();
                } else if leaves && is_its_owner {
                    as_it_is[entry.class().index()] += 1;
                }
            }
        }
        AtHand { any, as_it_is }
    }

    /// The sizes in which a tenant can have the memory that it asks for, and the number of each that come as they are.
    pub(super) fn sizes_at_hand(&mut self, id: TenantId, cut: &[SizeClass]) -> Option<(Vec<SizeClass>, PerClass)> {
        if !self.tenants.index().is_any_had_as_it_is(id) {
            return None;
        }
        let needed = count(cut.iter().copied());
        let stock = match self.at_hand(id).share(&needed) {
            Ok(share) => return Some((cut.to_vec(), share)),
            Err(stock) => stock,
        };
        let (bytes, largest) = (bytes_of(&needed), self.store.frames.arena().largest_class());
        stock.tries().find_map(|mut stock| {
            let sizes = stock.cut(bytes, largest);
            Some((sizes, stock.enough()?)).filter(|(sizes, _)| sizes.len() <= MAX_LISTED)
        })
    }
}

impl Residency {
    /// Cuts a tenant's missing memory into the sizes at hand, if it cannot come with its current cut. If that is not enough and
    /// some of the rest `may_leave`, that is cut too.
    pub(super) fn fit(&self, ground: &mut Ground<'_>, id: TenantId, may_leave: bool) -> Fitted {
        let is_quiet = |tenant: &Tenant| {
            let is_still = tenant.memory.scan.is_none() && tenant.extents().counts().leaving == PerClass::default();
            is_still && tenant.connection.is_open() && !tenant.memory.is_taken()
        };
        // Otherwise frames can be exchanged.
        if !ground.tenants.index().is_any_had_as_it_is(id) || !ground.is_off_the_gpu(id) || self.brings_in(ground, id) {
            return Fitted::Not;
        }
        // No extent leaves for memory that comes anyway.
        let may_leave = may_leave && !ground.is_anything_coming() && !ground.is_anybody_corunning();
        let Some(tenant) = ground.tenants.get(id).filter(|tenant| is_quiet(tenant)) else { return Fitted::Not };
        let away = tenant.extents().iter().filter(|(_, extent)| extent.state() == ExtentState::Host);
        let needed = count(away.map(|(_, extent)| extent.class()));
        let largest = ground.largest_piece_of(tenant);
        let stock = match ground.at_hand(id).share(&needed) {
            Ok(share) => return Fitted::AsItIs(share),
            Err(stock) => stock,
        };
        let may_leave = may_leave && tenant.is_evictable();
        let can_leave = |extent, entry: &Extent| ground.is_let_go(id, extent) && ground.can_be_exchanged(tenant, entry);
        let with_some_that_leave = || may_leave.then(|| tenant.extents().fit(stock, largest, can_leave)).flatten();
        let fit = tenant.extents().fit(stock, largest, |_, _| false);
        let Some(fit) = fit.or_else(with_some_that_leave) else { return Fitted::Not };
        let is_here = |extent: &ExtentId| tenant.extents().get(*extent).is_some_and(Extent::is_here);
        let leaves: Vec<ExtentId> = fit.cuts().filter(is_here).collect();
        if !leaves.is_empty() {
            return Fitted::Leaves(leaves);
        }
        let Some(mut own) = ground.tenants.extents(id) else { return Fitted::Not };
        let (as_it_is, slab) = (fit.as_it_is, ground.store.host.slab());
        let recuts = own.cut_to_fit(fit, slab, |bytes| ground.store.host.take(bytes));
        own.frees_unheard(recuts.as_deref().unwrap_or_default());
        drop(own);
        let Some(recuts) = recuts else { return Fitted::Not };
        log::debug!("{id:?} is cut into the sizes at hand, at {} places", recuts.len());
        ground.enter_recuts(id, recuts);
        Fitted::AsItIs(as_it_is)
    }

    /// Makes extents of an arriving tenant leave, so that they can be cut. Returns true if some are on their way out.
    pub(super) fn leaves_first(
        &mut self,
        ground: &mut Ground<'_>,
        id: TenantId,
        leaves: &mut HashMap<TenantId, Vec<ExtentId>>,
    ) -> bool {
        let (Some(tenant), Some(left)) = (ground.tenants.get(id), leaves.get_mut(&id)) else { return false };
        left.retain(|extent| tenant.extents().get(*extent).is_some_and(|entry| entry.state() != ExtentState::Host));
        if left.is_empty() {
            return false;
        }
        self.make_leave(ground, id, left.clone());
        if !ground.is_anything_coming() {
            // There is no room for them.
            left.clear();
        }
        !left.is_empty()
    }
}
