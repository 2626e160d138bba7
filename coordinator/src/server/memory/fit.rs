//! Memory is cut into the sizes at hand. What one has mapped that does not answer can be had only as it is ([`super::take`]): if there is
//! not enough else, what an allocation asks for, and what comes back from the host, is cut into such pieces.

use baton_contract::memory::SizeClass;
use baton_contract::messages::MAX_LISTED;

use super::Access;
use crate::books::extents::{Extent, ExtentState};
use crate::books::sizes::{AtHand, PerClass, Stock, bytes_of, count};
use crate::policy::arbiter::TenantId;
use crate::server::tenants::tenant::Tenant;

impl Access<'_> {
    /// Cuts what a tenant lacks into the sizes at hand, if it cannot have it as it is cut. Says whether something was cut.
    pub(super) fn fit(&mut self, id: TenantId) -> bool {
        let can_be = |tenant: &Tenant| {
            let is_quiet = tenant.memory.scan.is_none() && tenant.extents().counts().leaving == PerClass::default();
            is_quiet && tenant.connection.is_open() && !tenant.memory.is_taken()
        };
        let Some(tenant) = self.tenants.get(id).filter(|tenant| can_be(tenant)) else { return false };
        if !self.is_off_the_gpu(id) || self.brings_in(id) {
            return false;
        }
        let away = tenant.extents().iter().filter(|(_, extent)| extent.state() == ExtentState::Host);
        let needed = count(away.map(|(_, extent)| extent.class()));
        let largest = self.largest_piece_of(tenant);
        let Some(stock) = self.stock_for(id, &needed) else { return false };
        let Some(mut own) = self.tenants.extents(id) else { return false };
        let recuts = own.fit(stock, largest, self.memory.slabs.slab);
        drop(own);
        log::debug!("{id:?} is cut into the sizes at hand, at {} places", recuts.len());
        let is_any = !recuts.is_empty();
        self.enter_recuts(id, recuts);
        is_any
    }

    /// The sizes in which so much can be had that a tenant asks for, if it cannot as it is cut.
    pub(super) fn sizes_at_hand(&self, id: TenantId, cut: impl Iterator<Item = SizeClass>) -> Option<Vec<SizeClass>> {
        let needed = count(cut);
        let (bytes, largest) = (bytes_of(&needed), self.memory.arena.largest_class());
        let stock = self.stock_for(id, &needed)?;
        stock.tries().find_map(|mut stock| {
            let sizes = stock.cut(bytes, largest);
            (stock.is_enough() && sizes.len() <= MAX_LISTED).then_some(sizes)
        })
    }

    fn stock_for(&self, id: TenantId, needed: &PerClass) -> Option<Stock> {
        // Else frames can be exchanged.
        let keeps = |tenant: &Tenant| tenant.memory.is_taken() || tenant.extents().counts().left_behind > 0;
        let any = self.tenants.iter().any(|(other, tenant)| other != id && keeps(tenant));
        any.then(|| self.at_hand(id).stock_for(needed))?
    }

    /// What a tenant could have if it needs memory. Rather too little: of what others are about to do nothing is expected but that
    /// memory leaves.
    fn at_hand(&self, id: TenantId) -> AtHand {
        let (arena, owner) = (&self.memory.arena, self.owner_of(id));
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
                    ExtentState::Reserved { .. } | ExtentState::Leaving { .. } => !tenant.memory.is_late(),
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

    /// Whether the frame of a tenant's extent can be exchanged when it has left: what is taken stays mapped, or was taken of another one.
    pub(super) fn can_be_exchanged(&self, tenant: &Tenant, extent: &Extent) -> bool {
        !tenant.memory.is_taken() && extent.state().frame().is_some_and(|frame| !self.memory.arena.is_held(frame))
    }
}
