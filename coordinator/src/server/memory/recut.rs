//! Memory on the host is cut into as few extents as possible, for what a switch costs goes by their number: to give access takes 30 µs
//! for each, however large.
//!
//! That is done when it may come back next, so that what leaves together is cut together; or at once, if there is something that the
//! tenant has freed meanwhile.

use baton_contract::memory::SizeClass;
use baton_contract::messages::MemoryCommand;

use super::ground::Ground;
use super::residency::Residency;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::Recut;
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

impl Ground<'_> {
    /// The largest piece that a tenant's memory is cut into.
    pub(super) fn largest_piece_of(&self, tenant: &Tenant) -> SizeClass {
        largest_piece(tenant.extents().counts().bytes).min(self.store.frames.arena().largest_class())
    }
}

impl Residency {
    /// An extent has gone to the host.
    pub(super) fn can_be_recut(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        let Some(tenant) = ground.tenants.unindexed(id) else { return };
        tenant.memory.can_be_recut = true;
        self.drop_spare(ground, id);
    }

    /// If something of a tenant is spare, it is not kept for longer than it has to be.
    pub(super) fn drop_spare(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        if ground.tenants.get(id).is_some_and(|tenant| tenant.extents().counts().spare > 0) {
            self.recut(ground, id);
        }
    }

    /// Cuts what a tenant has on the host anew, if that is worth it. Not when it is planned already how that comes in, and the tenant
    /// may have been told what points where.
    pub(super) fn recut(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        if !ground.is_off_the_gpu(id) || self.brings_in(ground, id) {
            return;
        }
        let Some(tenant) = ground.tenants.get_mut(id) else { return };
        // What leaves now is cut with what has left. What a look finds belongs to the extents that it began with.
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
        drop(own);
        self.enter_recuts(ground, id, recuts);
    }

    /// Something of a tenant's was cut anew.
    pub(super) fn enter_recuts(&mut self, ground: &mut Ground<'_>, id: TenantId, recuts: Vec<Recut>) {
        for recut in recuts {
            ground.store.host.give_back(recut.freed);
            recut.let_go.into_iter().for_each(|(frame, keepsake)| ground.store.frames.let_go(frame, keepsake));
            let Some(tenant) = ground.tenants.get_mut(id) else { return };
            tenant.memory.history.recut(&recut.gone, recut.now.iter().map(|(id, _, _, of)| (*id, &of[..])));
            let extents = recut.now.iter().map(|(id, at, class, _)| (*id, *at, *class)).collect();
            ground.tenants.tell(id, &MemoryCommand::Recut { gone: recut.gone, extents });
        }
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
