//! Memory that tenants free, or parts of it.

use baton_contract::messages::ExtentId;

use super::breach::MemoryBreach;
use super::departed::Remains;
use super::ground::Ground;
use super::residency::Residency;
use crate::server::recorder::event::What;
use baton_books::extents::{ExtentState, Extents};
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// Notes that the tenant has freed parts of extents that it goes on using.
    pub(super) fn spare(&mut self, id: TenantId, ranges: &[(u64, u64)]) -> Result<(), MemoryBreach> {
        if let Some(tenant) = self.tenants.unindexed(id) {
            tenant.memory.may_compact_again();
        }
        let Some(mut own) = self.tenants.extents(id) else { return Ok(()) };
        let refused = ranges.iter().find(|(at, bytes)| !own.set_spare(*at, *bytes, true));
        drop(own);
        match refused.filter(|_| !self.came_back(id)) {
            Some(&(at, bytes)) => Err(MemoryBreach::FreedUnmappedBytes { at, bytes }),
            None => Ok(()),
        }
    }

    /// True for a tenant that was another coordinator's: what it was about to tell that one may be known already.
    pub(super) fn came_back(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.came_back)
    }

    /// Notes that the tenant uses a spare range again.
    pub(super) fn reuse(&mut self, id: TenantId, at: u64, bytes: u64) -> Result<(), MemoryBreach> {
        let Some(mut own) = self.tenants.extents(id) else { return Ok(()) };
        let was_spare = own.set_spare(at, bytes, false);
        drop(own);
        if was_spare || self.came_back(id) { Ok(()) } else { Err(MemoryBreach::UsedWhatWasNotSpare { at, bytes }) }
    }
}

impl Residency {
    /// Frees extents that the tenant has unmapped and released.
    pub(super) fn free(&self, ground: &mut Ground<'_>, id: TenantId, extents: &[ExtentId]) -> Result<(), MemoryBreach> {
        if let Some(tenant) = ground.tenants.unindexed(id) {
            tenant.memory.may_compact_again();
        }
        for extent in extents {
            if self.detach(ground, id, *extent) {
                continue;
            }
            let Some(mut own) = ground.tenants.extents(id) else { return Ok(()) };
            let freed = own.remove_for_heir(*extent);
            drop(own);
            if freed.is_none() && ground.came_back(id) {
                continue;
            }
            let (Some(freed), Some(tenant)) = (freed, ground.tenants.get_mut(id)) else {
                return Err(MemoryBreach::FreedUnmappedExtent(*extent));
            };
            tenant.memory.history.forget(*extent);
            if let Some(frame) = freed.left_behind() {
                ground.store.frames.unhold(frame);
                ground.is_whole_again(id);
            }
            if matches!(freed.state(), ExtentState::Leaving { .. }) {
                // The extent was taken, and is still being copied.
                ground.keep_from_others((id, *extent), &freed);
                ground.tenants.gone(id, *extent);
                ground.store.departed.add_orphan((id, *extent), freed);
                continue;
            }
            let Some(freed) = ground.hand_over(id, *extent, freed) else { continue };
            if let Some(frame) = freed.state().frame() {
                ground.store.frames.release(frame);
            }
            ground.store.host.give_back(freed.into_runs());
        }
        let resident = ground.resident_bytes(id);
        ground.recorder.record(id, What::Freed { resident });
        Ok(())
    }

    /// Takes back all memory of a process that has ended, except memory that it shares with others. If its work may still have been
    /// on the GPU, the memory comes back only when none of that work is left.
    pub(super) fn depart(&mut self, ground: &mut Ground<'_>, id: TenantId, extents: Extents, remains: Option<Remains>) {
        ground.store.sharing.forget_exports(id);
        if remains.as_ref().is_some_and(Remains::is_any) {
            ground.hold_attachments(id);
        } else {
            self.drop_attachments(ground, id);
        }
        let own = extents.into_all().filter_map(|(extent, entry)| Some((extent, ground.hand_over(id, extent, entry)?)));
        let own = own.collect();
        ground.tenants.forget(id);
        ground.store.bury(id, own, remains);
    }
}
