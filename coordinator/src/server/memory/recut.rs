//! Memory on the host is cut into as few extents as possible, because the cost of a switch depends on their number: giving access
//! takes 30 µs for each, however large.
//!
//! The cut happens when the memory may come back next, so that memory that leaves together is cut together. It happens at once if
//! the tenant has freed some of the memory meanwhile.

use baton_contract::memory::SizeClass;
use baton_contract::messages::MemoryCommand;

use super::ground::Ground;
use super::residency::Residency;
use super::returned::offsets;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::Recut;
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

/// The largest extents that are made of smaller ones. Larger ones would delay a call that waits for a part of them by more than
/// they save.
const LARGEST: SizeClass = SizeClass::ALL[3];
/// Memory up to this size is always made one extent.
const LEAST: SizeClass = SizeClass::ALL[1];
/// The number of pieces of a tenant's memory that is few enough. Programs with little memory begin soon, and wait for the first
/// pieces: with 8 MiB instead of 32, models of 480 MB waited half as long on an H200, and their first launch came 0.2 ms earlier.
const FEW: u64 = 64;

/// The largest piece into which the memory of a tenant with `bytes` bytes is cut.
fn largest_piece(bytes: u64) -> SizeClass {
    SizeClass::within(bytes / FEW).clamp(LEAST, LARGEST)
}

impl Ground<'_> {
    /// The largest piece into which a tenant's memory is cut.
    pub(super) fn largest_piece_of(&self, tenant: &Tenant) -> SizeClass {
        largest_piece(tenant.extents().counts().bytes).min(self.store.frames.arena().largest_class())
    }

    /// Enters the recuts of a tenant's memory.
    pub(super) fn enter_recuts(&mut self, id: TenantId, recuts: Vec<Recut>) {
        for recut in recuts {
            recut.let_go.into_iter().for_each(|(frame, keepsake)| self.store.frames.let_go(frame, keepsake));
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.memory.history.recut(&recut.gone, recut.now.iter().map(|(id, _, _, of)| (*id, &of[..])));
                let extents = recut.now.iter().map(|(id, at, class, _)| (*id, *at, *class)).collect();
                self.tenants.tell(id, &MemoryCommand::Recut { gone: recut.gone, extents });
            }
            let freed: Vec<u64> = offsets(&recut.freed).collect();
            self.tenants.forget_unclaimed(&[], &freed);
            self.store.host.give_back(recut.freed);
        }
    }
}

impl Residency {
    /// Notes that an extent has gone to the host and can be recut.
    pub(super) fn can_be_recut(&self, ground: &mut Ground<'_>, id: TenantId) {
        let Some(tenant) = ground.tenants.unindexed(id) else { return };
        tenant.memory.can_be_recut = true;
        self.drop_spare(ground, id);
    }

    /// Drops a tenant's spare memory as soon as possible.
    pub(super) fn drop_spare(&self, ground: &mut Ground<'_>, id: TenantId) {
        if ground.tenants.get(id).is_some_and(|tenant| tenant.extents().counts().spare > 0) {
            self.recut(ground, id);
        }
    }

    /// Recuts a tenant's memory on the host, if that is worth it. It does nothing once the way in is planned, because the tenant
    /// may have been told about its pointers.
    pub(super) fn recut(&self, ground: &mut Ground<'_>, id: TenantId) {
        if !ground.is_off_the_gpu(id) || self.brings_in(ground, id) {
            return;
        }
        let Some(tenant) = ground.tenants.get_mut(id) else { return };
        // Extents that leave now are cut with those that have left. A scan's findings belong to the extents that it began with.
        if tenant.extents().counts().leaving != PerClass::default()
            || tenant.memory.scan.is_some()
            || !tenant.connection.is_open()
            || !std::mem::take(&mut tenant.memory.can_be_recut)
        {
            return;
        }
        let Some(tenant) = ground.tenants.get(id) else { return };
        let largest = ground.largest_piece_of(tenant);
        let Some(mut own) = ground.tenants.extents(id) else { return };
        let recuts = own.recut(largest, ground.store.host.slab());
        own.frees_unheard(&recuts);
        drop(own);
        ground.enter_recuts(id, recuts);
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
