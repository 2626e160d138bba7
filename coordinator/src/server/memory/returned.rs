//! Memory of tenants that another coordinator has had: where it is found, and what is left to do about it.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use baton_contract::memory::GRANULE;
use baton_contract::messages::{ExtentId, HeldExtent, MAX_LISTED, MemoryCommand};

use super::ground::Ground;
use super::transfer::Group;
use crate::device::mover::Lane;
use crate::keeper::KeptFrame;
use crate::server::tenants::limits::ANSWER_LIMIT;
use crate::server::tenants::memory::Batch;
use baton_books::arena::FrameId;
use baton_books::extents::Where;
use baton_books::pool::Run;
use baton_books::sharing::Place;
use baton_books::table::Found;
use baton_policy::arbiter::TenantId;

/// Some of a tenant's memory was not found: it could only go on with wrong results.
#[derive(Debug)]
pub(in crate::server) struct MemoryLost;

impl Ground<'_> {
    /// Enters a tenant's memory where it was found, and starts what the coordinator before has left undone. Returns true if the tenant has
    /// frames mapped that are no longer its own: its work may not go on before it has unmapped them, and has its memory again.
    pub(super) fn take_over(
        &mut self,
        id: TenantId,
        extents: &[HeldExtent],
        spare: &[(u64, u64)],
        found: &Found,
    ) -> Result<bool, MemoryLost> {
        let was_taken = self.tenants.get(id).is_some_and(|tenant| tenant.was_taken);
        let mut is_left_behind = false;
        let (mut to_map, mut to_unmap, mut to_copy) = (Vec::new(), Vec::new(), Vec::new());
        let (mut frames, mut pages, mut lost) = (HashSet::new(), HashSet::new(), false);
        let Some(mut own) = self.tenants.extents(id) else { return Ok(false) };
        for held in extents {
            if let Some(attachment) = self.store.sharing.get((id, held.id)) {
                if attachment.place == Place::Coming {
                    to_map.push(held.id);
                }
                own.lend_number(held.id);
                continue;
            }
            let place = match found.find(id.0, held, was_taken) {
                // Others have yet to unmap it.
                Where::Host(pool) if self.store.sharing.is_held((id, held.id)) => found
                    .spare_frame(id.0, held)
                    .map_or(Where::Host(pool.clone()), |frame| Where::ToBeLetGo(frame, pool)),
                place => place,
            };
            match &place {
                Where::ToBeMapped(_) => to_map.push(held.id),
                Where::ToBeUnmapped(..) => to_unmap.push(held.id),
                // Before any other frame is sent for it.
                Where::LeftBehind(_) => {
                    is_left_behind = true;
                    to_unmap.push(held.id);
                }
                Where::ToBeCopied(_, runs) => {
                    to_copy.push((held.id, runs.clone()));
                    pages.extend(offsets(runs));
                }
                Where::Resident(_) | Where::Reserved(..) | Where::ToBeLetGo(..) | Where::Host(_) | Where::Lost => {}
            }
            let frame = if let Where::Resident(frame) = &place { Some(*frame) } else { None };
            lost |= !own.restore(held, place);
            if frame.is_some_and(|frame| self.store.frames.is_always_reachable(frame)) {
                self.store.host.give_back(own.make_immovable(held.id));
            }
            if let Some(extent) = own.get(held.id) {
                frames.extend(extent.state().frame());
                pages.extend(offsets(extent.runs().unwrap_or_default()));
            }
        }
        lost |= pages.iter().any(|page| self.store.host.is_lost(*page));
        spare.iter().for_each(|(at, bytes)| own.restore_spare(*at, *bytes));
        self.store.sharing.of_owner(id).into_iter().for_each(|extent| own.set_shared(extent, true));
        drop(own);
        self.let_go_of_unclaimed(id, found, &frames, &pages);
        if lost {
            return Err(MemoryLost);
        }
        if !is_left_behind {
            self.is_whole_again(id);
        }
        self.map(id, to_map);
        for extents in to_unmap.chunks(MAX_LISTED) {
            let Some(tenant) = self.tenants.get_mut(id) else { return Ok(false) };
            let (batch, extents) = (tenant.memory.add_batch(Batch::Unmap(extents.to_vec())), extents.to_vec());
            self.tenants.tell(id, &MemoryCommand::Unmap { batch, extents });
        }
        for (extent, runs) in to_copy {
            self.copy_out_again(id, extent, runs)?;
        }
        Ok(is_left_behind)
    }

    /// Frees frames and pages that a tenant had and no extent of it needs.
    pub(super) fn let_go_of_unclaimed(
        &mut self,
        id: TenantId,
        found: &Found,
        claimed_frames: &HashSet<FrameId>,
        claimed_pages: &HashSet<u64>,
    ) {
        let of_it = |tenant: u32| tenant == id.0;
        let frames: Vec<FrameId> = found
            .frames()
            .filter(|(tenant, frame)| of_it(*tenant) && !claimed_frames.contains(frame))
            .map(|(_, frame)| frame)
            .collect();
        let pages: Vec<u64> = found
            .pages()
            .filter(|(tenant, page)| of_it(*tenant) && !claimed_pages.contains(page))
            .map(|(_, page)| page)
            .collect();
        self.tenants.forget_unclaimed(&frames, &pages);
        for frame in frames {
            if self.store.frames.memory(frame).is_some() {
                self.store.frames.release(frame);
            }
        }
        pages.into_iter().for_each(|page| self.store.host.give_back_page(page));
    }

    /// Copies an extent out of the frame that its tenant has unmapped. A copy that was under way may have come to any point.
    fn copy_out_again(&mut self, id: TenantId, extent: ExtentId, runs: Vec<Run>) -> Result<(), MemoryLost> {
        let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)).ok_or(MemoryLost)?;
        let (frame, bytes) = (entry.state().frame().ok_or(MemoryLost)?, entry.class().bytes());
        let runs = match runs.is_empty() {
            true => self.room_in_pool(bytes, (id, extent), id).ok_or(MemoryLost)?,
            false => runs,
        };
        let address = self.store.frames.memory(frame).ok_or(MemoryLost)?.address;
        let mut group = Group::default();
        group.extents.push(extent);
        group.leaving.push(extent);
        group.whole += bytes;
        group.add_part(address, &runs, 0..bytes, |run| self.store.host.address(run));
        if let Some(mut own) = self.tenants.extents(id) {
            own.give_room(extent, runs);
        }
        self.submit(Lane::Out, id, group);
        Ok(())
    }

    /// Takes over the frames that tenants of another coordinator have, and reserves their pages in the pool. On an error nothing is
    /// changed that another coordinator would need.
    pub(super) fn inherit(
        &mut self,
        frames: Vec<KeptFrame>,
        found: &Found,
        guest_of: impl Fn(u32) -> Option<Option<u32>>,
    ) -> std::io::Result<()> {
        self.store.returning = Some(Instant::now() + ANSWER_LIMIT);
        let owners: HashMap<FrameId, u32> = found.frames().map(|(id, frame)| (frame, id)).collect();
        let (mut wanted, mut others) = (Vec::new(), Vec::new());
        for frame in frames {
            let owner = owners.get(&FrameId(frame.number)).and_then(|id| Some((*id, guest_of(*id)?)));
            match owner {
                Some((id, guest)) => wanted.push((frame, self.owner_of_number(id, guest))),
                None => others.push((FrameId(frame.number), frame.bytes)),
            }
        }
        self.store.frames.adopt(wanted)?;
        others.iter().for_each(|(frame, bytes)| self.store.frames.let_go_of_kept(*frame, *bytes));
        let others: Vec<FrameId> = others.into_iter().map(|(frame, _)| frame).collect();
        let (kept, gone): (Vec<_>, Vec<_>) = found.pages().partition(|(id, _)| guest_of(*id).is_some());
        let gone: Vec<u64> = gone.into_iter().map(|(_, page)| page).chain(found.stale().iter().copied()).collect();
        self.tenants.forget_unclaimed(&others, &gone);
        self.store.host.take_pages(kept.into_iter().map(|(_, page)| page));
        Ok(())
    }
}

/// The offsets of the pages that runs consist of.
pub(super) fn offsets(runs: &[Run]) -> impl Iterator<Item = u64> {
    runs.iter().flat_map(|run| (run.at..run.at + run.bytes).step_by(GRANULE as usize))
}
