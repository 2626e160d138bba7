//! Memory on the host is cut into as few extents as possible, for what a switch costs goes by their number: to give access takes 30 µs
//! for each, however large.
//!
//! That is done when it may come back next, so that what leaves together is cut together; or at once, if there is something that the
//! tenant has freed meanwhile.

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, MemoryCommand};

use super::{Access, Evicted};
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::{Extent, Recut};
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

/// The largest extents that are made of smaller ones. Larger ones would keep whoever waits for a part of them waiting for longer than
/// they save.
const LARGEST: SizeClass = SizeClass::ALL[3];
/// What is no larger is always made one.
const LEAST: SizeClass = SizeClass::ALL[1];
/// So many pieces of a tenant's memory are few enough. Programs with little memory begin soon, and wait for the first pieces: with 8 MiB
/// instead of 32, models of 480 MB waited half as long on an H200, and their first launch came 0.2 ms earlier.
const FEW: u64 = 64;

/// The largest piece that the memory of a tenant with so many bytes is cut into.
fn largest_piece(bytes: u64) -> SizeClass {
    SizeClass::within(bytes / FEW).clamp(LEAST, LARGEST)
}

impl Access<'_> {
    /// An extent has gone to the host.
    pub(super) fn can_be_recut(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.unindexed(id) else { return };
        tenant.memory.can_be_recut = true;
        self.drop_spare(id);
    }

    /// If something of a tenant is spare, it is not kept for longer than it has to be.
    pub(super) fn drop_spare(&mut self, id: TenantId) {
        if self.tenants.get(id).is_some_and(|tenant| tenant.extents().counts().spare > 0) {
            self.recut(id);
        }
    }

    /// Cuts what a tenant has on the host anew, if that is worth it. Not when it is planned already how that comes in, and the tenant
    /// may have been told what points where.
    pub(super) fn recut(&mut self, id: TenantId) {
        if !self.is_off_the_gpu(id) || self.brings_in(id) {
            return;
        }
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        // What leaves now is cut with what has left. What a look finds belongs to the extents that it began with.
        if tenant.extents().counts().leaving != PerClass::default()
            || tenant.memory.scan.is_some()
            || !tenant.connection.is_open()
            || !std::mem::take(&mut tenant.memory.can_be_recut)
        {
            return;
        }
        let Some(tenant) = self.tenants.get(id) else { return };
        let largest = self.largest_piece_of(tenant);
        let Some(mut own) = self.tenants.extents(id) else { return };
        let recuts = own.recut(largest, self.memory.host.slab());
        drop(own);
        self.enter_recuts(id, recuts);
    }

    /// The largest piece that a tenant's memory is cut into.
    pub(super) fn largest_piece_of(&self, tenant: &Tenant) -> SizeClass {
        largest_piece(tenant.extents().counts().bytes).min(self.memory.frames.arena().largest_class())
    }

    /// Something of a tenant's was cut anew.
    pub(super) fn enter_recuts(&mut self, id: TenantId, recuts: Vec<Recut>) {
        for recut in recuts {
            self.memory.host.give_back(recut.freed);
            recut.let_go.into_iter().for_each(|(frame, keepsake)| self.memory.frames.let_go(frame, keepsake));
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            tenant.memory.history.recut(&recut.gone, recut.now.iter().map(|(id, _, _, of)| (*id, &of[..])));
            let extents = recut.now.iter().map(|(id, at, class, _)| (*id, *at, *class)).collect();
            self.tenants.tell(id, &MemoryCommand::Recut { gone: recut.gone, extents });
        }
    }

    /// Whether a tenant could have what is spare of its memory, if it left the GPU for a moment.
    pub(super) fn can_compact(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.is_movable() && tenant.memory.can_compact())
    }

    /// Has extents leave of which a part is spare, if that was wanted, while their tenant comes in again. Says whether some are
    /// on their way out.
    pub(super) fn compacts(&mut self, id: TenantId) -> bool {
        let is_to = |tenant: &Tenant| tenant.memory.is_compacting();
        if !self.is_off_the_gpu(id) || !self.tenants.get(id).is_some_and(is_to) {
            return false;
        }
        self.recut(id);
        let Some(tenant) = self.tenants.get(id) else { return false };
        let has_spare = |(_, extent): &(ExtentId, &Extent)| extent.spare_bytes() > 0;
        let left: Vec<ExtentId> = tenant.extents().iter().filter(has_spare).map(|(extent, _)| extent).collect();
        let outcome = self.evict_these(id, left);
        if outcome != Evicted::UnderWay
            && let Some(tenant) = self.tenants.get_mut(id)
        {
            tenant.memory.end_compaction(outcome == Evicted::Done);
        }
        outcome == Evicted::UnderWay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_memory_is_cut_into_large_pieces_and_little_into_small_ones() {
        const MIB: u64 = 1 << 20;
        for (bytes, piece) in [(2, 8), (480, 8), (1200, 8), (1280, 20), (2048, 32), (80 << 10, 32)] {
            assert_eq!(largest_piece(bytes * MIB).bytes(), piece * MIB, "{bytes} MiB");
        }
    }
}
