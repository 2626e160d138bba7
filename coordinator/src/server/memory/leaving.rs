//! Memory that leaves: extent by extent, until its frame is free.
//!
//! An eviction's copy and its unmapping run at the same time; the frame is free when both are done. Memory that has not changed
//! since it came in is not copied ([`super::scan`]).

use std::sync::atomic::Ordering::SeqCst;

use baton_contract::messages::{ExtentId, MAX_LISTED, MemoryCommand};
use baton_contract::page::TAKEN;

use super::events::MemoryEvent;
use super::frames::SCRUB_BYTES;
use super::ground::Ground;
use super::residency::Residency;
use super::transfer::Group;
use crate::device::mover::Lane;
use crate::server::tenants::memory::Batch;
use baton_books::extents::{Copies, Extent, Half, Holds};
use baton_books::sharing::Place;
use baton_policy::arbiter::TenantId;

/// Result of sending an extent on its way out.
pub(super) enum Leaves {
    Now,
    /// The extent's contents have to be scanned first.
    Soon,
    /// There is no room for it in the pool.
    NoRoom,
}

impl Ground<'_> {
    /// Sends one extent on its way out.
    pub(super) fn start_leaving(
        &mut self,
        id: TenantId,
        extent: ExtentId,
        except: TenantId,
        group: &mut Group,
    ) -> Leaves {
        let Some(entry) = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)) else {
            return Leaves::NoRoom;
        };
        let parts = match entry.copies(self.store.rules.hash) {
            Copies::Unknown => return Leaves::Soon,
            Copies::Nothing => Vec::new(),
            Copies::Parts(parts) => parts,
        };
        let bytes = entry.class().bytes();
        if parts.is_empty() && entry.is_zero() {
            // Zeros need no room, even if the extent had some before.
            self.give_up_room(id, extent);
        }
        let Some(entry) = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)) else {
            return Leaves::NoRoom;
        };
        let new_runs = match entry.runs() {
            None if parts.is_empty() => Some(Vec::new()),
            Some(runs) if parts.is_empty() || !runs.is_empty() => None,
            _ => match self.room_in_pool(bytes, (id, extent), except) {
                Some(runs) => Some(runs),
                None => return Leaves::NoRoom,
            },
        };
        let Some(mut extents) = self.tenants.extents(id) else { return Leaves::NoRoom };
        let Some(frame) = extents.leave(extent, new_runs, parts.is_empty()) else { return Leaves::NoRoom };
        let address = self.store.frames.memory(frame).map_or(0, |memory| memory.address);
        group.leaving.push(extent);
        if !parts.is_empty() {
            group.extents.push(extent);
            let runs = extents.get(extent).and_then(Extent::runs).unwrap_or_default();
            for part in &parts {
                group.add_part(address, runs, part.clone(), |run| self.store.host.address(run));
            }
        }
        group.whole += bytes;
        Leaves::Now
    }
}

impl Residency {
    /// Queues a group's copies out, and has the tenant unmap it.
    pub(super) fn submit_leaving(&self, ground: &mut Ground<'_>, id: TenantId, group: Group) {
        if group.leaving.is_empty() {
            return;
        }
        let leaving = group.leaving.clone();
        ground.have_others_unmap(id, &leaving);
        ground.submit(Lane::Out, id, group);
        if ground.tenants.get(id).is_some_and(|tenant| tenant.memory.is_taken()) {
            return self.leave_behind(ground, id, &leaving);
        }
        for extents in leaving.chunks(MAX_LISTED) {
            let Some(tenant) = ground.tenants.get_mut(id) else { return };
            let (batch, extents) = (tenant.memory.add_batch(Batch::Unmap(extents.to_vec())), extents.to_vec());
            ground.tenants.tell(id, &MemoryCommand::Unmap { batch, extents });
        }
    }

    /// Notes that one half of an eviction is done. The frame is free when both are.
    pub(super) fn half_left(&self, ground: &mut Ground<'_>, id: TenantId, extent: ExtentId, half: Half) {
        let held = ground.store.sharing.is_held((id, extent));
        let free = ground.tenants.extents(id).and_then(|mut extents| extents.on_left(extent, half, held));
        if half == Half::Copied {
            // The extent may have been freed meanwhile.
            ground.release_orphan(id, extent);
        }
        if let Some((frame, holds)) = free {
            match holds {
                Holds::Nothing => ground.store.frames.release(frame),
                Holds::Zeros => ground.store.frames.release_zeros(frame),
                Holds::Contents => {
                    if let Some(keepsake) = ground.store.frames.keep(frame)
                        && let Some(mut extents) = ground.tenants.extents(id)
                    {
                        extents.on_kept(extent, frame, keepsake);
                    }
                }
            }
            self.can_be_recut(ground, id);
            if ground.store.frames.is_poisoned() {
                ground.store.frames.scrub(None, SCRUB_BYTES);
            }
        }
    }

    /// Detaches a tenant from an extent of another tenant. Returns false if the extent is its own.
    pub(super) fn detach(&self, ground: &mut Ground<'_>, id: TenantId, extent: ExtentId) -> bool {
        let Some(owner) = ground.store.sharing.detach((id, extent)) else { return false };
        if let Some(mut own) = ground.tenants.extents(id) {
            own.return_number(extent);
        }
        if !ground.store.sharing.is_shared(owner)
            && let Some(mut theirs) = ground.tenants.extents(owner.0)
        {
            theirs.set_shared(owner.1, false);
        }
        self.half_left(ground, owner.0, owner.1, Half::LetGo);
        true
    }

    /// Notes that a tenant has unmapped an extent of another tenant. Returns false if the extent is its own.
    pub(super) fn unmapped_of_another(&self, ground: &mut Ground<'_>, id: TenantId, extent: ExtentId) -> bool {
        let Some(owner) = ground.store.sharing.get((id, extent)).map(|one| one.owner) else { return false };
        if ground.store.sharing.set_place((id, extent), &[Place::Going], Place::Away) {
            self.half_left(ground, owner.0, owner.1, Half::LetGo);
        }
        true
    }

    /// Drops the attachments of a tenant that has ended completely: nothing can touch its memory any more.
    pub(super) fn drop_attachments(&self, ground: &mut Ground<'_>, id: TenantId) {
        let had: Vec<ExtentId> = ground.store.sharing.of(id).map(|(extent, _)| extent).collect();
        for extent in had {
            self.detach(ground, id, extent);
        }
        ground.store.departed.end_writing(id, &mut ground.store.frames);
        ground.raise(MemoryEvent::Free);
    }

    /// Leaves extents behind that are leaving and that their tenant does not unmap now.
    pub(super) fn leave_behind(&self, ground: &mut Ground<'_>, id: TenantId, extents: &[ExtentId]) {
        for extent in extents {
            let behind = ground.tenants.extents(id).and_then(|mut own| own.leave_behind(*extent));
            let Some((frame, is_news)) = behind else { continue };
            if is_news {
                // This comes before any other tenant gets the frames: from here on the tenant must not go on by itself.
                if let Some(tenant) = ground.tenants.get(id) {
                    tenant.connection.page.taken.store(TAKEN, SeqCst);
                }
                ground.store.frames.hold(frame);
            }
            self.half_left(ground, id, *extent, Half::Unmapped);
        }
    }

    /// Notes that a tenant has unmapped an extent that may have been left behind with it.
    pub(super) fn unmapped(&self, ground: &mut Ground<'_>, id: TenantId, extent: ExtentId) {
        let behind = ground.tenants.extents(id).and_then(|mut own| own.on_unmapped(extent));
        if let Some(frame) = behind {
            ground.store.frames.unhold(frame);
            self.can_be_recut(ground, id);
        }
        ground.is_whole_again(id);
    }
}
