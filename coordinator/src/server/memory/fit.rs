//! Memory is cut into the sizes at hand. What one has mapped that does not answer can be had only as it is ([`super::take`]): if there is
//! not enough else, what an allocation asks for, and what comes back from the host, is cut into such pieces.
//!
//! So many extents of each class are then to come **as they are**: they wait for such frames, and leave all else to the others.

use std::collections::HashMap;

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, MAX_LISTED};

use super::ground::Ground;
use super::residency::Residency;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::{Extent, ExtentState};
use baton_books::sizes::{AtHand, PerClass, bytes_of, count};
use baton_policy::arbiter::TenantId;

/// What came of cutting what a tenant lacks.
pub(super) enum Fitted {
    /// There is no need, or it cannot be done now, or is of no use.
    Not,
    /// So many extents of each class are to come as they are.
    AsItIs(PerClass),
    /// These are here, and have to leave before.
    Leaves(Vec<ExtentId>),
}

impl Residency {
    /// Cuts what a tenant lacks into the sizes at hand, if it cannot have it as it is cut. If that is not enough and some of the rest
    /// `may_leave`, that is cut too.
    pub(super) fn fit(&mut self, ground: &mut Ground<'_>, id: TenantId, may_leave: bool) -> Fitted {
        let is_quiet = |tenant: &Tenant| {
            let is_still = tenant.memory.scan.is_none() && tenant.extents().counts().leaving == PerClass::default();
            is_still && tenant.connection.is_open() && !tenant.memory.is_taken()
        };
        // Else frames can be exchanged.
        if !ground.tenants.index().is_any_had_as_it_is(id) || !ground.is_off_the_gpu(id) || self.brings_in(ground, id) {
            return Fitted::Not;
        }
        // Not for want of what comes anyway.
        let may_leave = may_leave && !ground.is_anything_coming() && !ground.is_anybody_corunning();
        let Some(tenant) = ground.tenants.get(id).filter(|tenant| is_quiet(tenant)) else { return Fitted::Not };
        let away = tenant.extents().iter().filter(|(_, extent)| extent.state() == ExtentState::Host);
        let needed = count(away.map(|(_, extent)| extent.class()));
        let largest = ground.largest_piece_of(tenant);
        let stock = match self.at_hand(ground, id).share(&needed) {
            Ok(share) => return Fitted::AsItIs(share),
            Err(stock) => stock,
        };
        let Some(fit) = tenant.extents().fit(stock, largest, |_, _| false) else {
            let can_leave =
                |extent, entry: &Extent| ground.is_let_go(id, extent) && ground.can_be_exchanged(tenant, entry);
            let may_leave = may_leave && tenant.is_evictable();
            let fit = if may_leave { tenant.extents().fit(stock, largest, can_leave) } else { None };
            let is_here = |extent: &ExtentId| tenant.extents().get(*extent).is_some_and(Extent::is_here);
            return fit.map_or(Fitted::Not, |fit| Fitted::Leaves(fit.cuts().filter(is_here).collect()));
        };
        let Some(mut own) = ground.tenants.extents(id) else { return Fitted::Not };
        let (as_it_is, slab) = (fit.as_it_is, ground.store.host.slab());
        let recuts = own.cut_to_fit(fit, slab, |bytes| ground.store.host.take(bytes));
        drop(own);
        let Some(recuts) = recuts else { return Fitted::Not };
        log::debug!("{id:?} is cut into the sizes at hand, at {} places", recuts.len());
        self.enter_recuts(ground, id, recuts);
        Fitted::AsItIs(as_it_is)
    }

    /// Has extents of a tenant leave that comes in, so that they can be cut. Says whether some are on their way out.
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

    /// The sizes in which so much can be had that a tenant asks for, and how many of each as they are.
    pub(super) fn sizes_at_hand(
        &mut self,
        ground: &mut Ground<'_>,
        id: TenantId,
        cut: &[SizeClass],
    ) -> Option<(Vec<SizeClass>, PerClass)> {
        if !ground.tenants.index().is_any_had_as_it_is(id) {
            return None;
        }
        let needed = count(cut.iter().copied());
        let stock = match self.at_hand(ground, id).share(&needed) {
            Ok(share) => return Some((cut.to_vec(), share)),
            Err(stock) => stock,
        };
        let (bytes, largest) = (bytes_of(&needed), ground.store.frames.arena().largest_class());
        stock.tries().find_map(|mut stock| {
            let sizes = stock.cut(bytes, largest);
            Some((sizes, stock.enough()?)).filter(|(sizes, _)| sizes.len() <= MAX_LISTED)
        })
    }

    /// What a tenant could have if it needs memory. Rather too little: of what others are about to do nothing is expected but that
    /// memory leaves.
    fn at_hand(&self, ground: &Ground<'_>, id: TenantId) -> AtHand {
        let (arena, owner) = (&ground.store.frames.arena(), ground.owner_of(id));
        let (mut as_it_is, held) = arena.free_but_held(owner);
        let mut any = arena.capacity().saturating_sub(arena.bytes().lent + held);
        for (other, tenant) in ground.tenants.iter() {
            if ground.arbiter.are_united(other, id) || !ground.is_off_the_gpu(other) || !tenant.is_evictable() {
                continue;
            }
            let is_its_owner = ground.owner_of(other) == owner;
            for (extent, entry) in tenant.extents().iter() {
                let leaves = match entry.state() {
                    ExtentState::Resident { .. } => entry.is_evictable() && ground.is_let_go(other, extent),
                    ExtentState::Reserved { .. } | ExtentState::Leaving { .. } => !tenant.memory.is_late(),
                    _ => false,
                };
                if leaves && ground.can_be_exchanged(tenant, entry) {
                    any += entry.class().bytes();
                } else if leaves && is_its_owner {
                    as_it_is[entry.class().index()] += 1;
                }
            }
        }
        AtHand { any, as_it_is }
    }
}
