//! Memory that becomes one piece, because other processes or devices are to reach it by other means than its addresses.
//!
//! The program has made the piece, beside the arena, and names the extents that are to lie in it
//! ([`MemoryReport::Consolidate`](baton_contract::messages::MemoryReport::Consolidate)). It leaves the GPU for that as for another
//! tenant's turn: drained, or paused if its work does not end. When it comes in again and all its memory is there, the extents are
//! copied into the piece; the program maps the piece in their place, gives them back, and only then goes on. If its work can
//! neither end nor be paused, the program hears that consolidation is impossible.

use std::os::fd::OwnedFd;

use baton_contract::messages::{ExtentId, MemoryCommand};

use super::breach::MemoryBreach;
use super::events::MemoryEvent;
use super::ground::Ground;
use crate::device::gpu::Imported;
use crate::device::mover::{End, Piece};
use crate::server::tenants::memory::{Batch, Consolidation, Stage};
use baton_books::arena::FrameId;
use baton_books::extents::Extent;
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// Starts to consolidate a row of a tenant's extents into one piece of its own.
    pub(super) fn consolidate(
        &mut self,
        id: TenantId,
        at: u64,
        bytes: u64,
        piece: Option<OwnedFd>,
    ) -> Result<(), MemoryBreach> {
        let Some(tenant) = self.tenants.get(id) else { return Ok(()) };
        let row: Vec<(ExtentId, &Extent)> = tenant.extents().within(at, bytes).collect();
        let whole: u64 = row.iter().map(|(_, extent)| extent.class().bytes()).sum();
        let is_row = row.first().is_some_and(|(_, extent)| extent.at() == at) && whole == bytes;
        let overlaps = |one: &Consolidation| one.at < at + bytes && at < one.at + one.bytes;
        let all = &tenant.memory.consolidations;
        // Of a coordinator that has taken over, a program asks again, also if its first question has reached that one too; and perhaps
        // been answered, so that this is no row any more.
        let is_asked = |one: &Consolidation| (one.at, one.bytes) == (at, bytes);
        if tenant.came_back && (!is_row || all.iter().any(is_asked)) {
            return Ok(());
        }
        if !is_row || all.iter().any(overlaps) {
            return Err(MemoryBreach::WantsForeignBytesInOnePiece { at, bytes });
        }
        let is_shared = row.iter().any(|(extent, _)| self.store.sharing.is_shared((id, *extent)));
        let name = &tenant.name;
        let piece = match piece.map(|piece| self.store.frames.gpu().import(piece, bytes)) {
            Some(Ok(piece)) if !is_shared => Some(piece),
            Some(Err(error)) => {
                baton_messages::warn!(cannot_be_in_one_piece(name, bytes >> 20, error));
                None
            }
            _ => None,
        };
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        let stage = piece.map_or(Stage::Copying, Stage::Wanted);
        let is_wanted = matches!(stage, Stage::Wanted(_));
        tenant.memory.consolidations.push(Consolidation { at, bytes, stage });
        if is_wanted {
            self.raise(MemoryEvent::ComesAnew(id));
        } else {
            self.tell_consolidated(id, at, false);
        }
        Ok(())
    }

    /// True if any of a tenant's memory is to become one piece.
    pub(super) fn is_consolidating(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| !tenant.memory.consolidations.is_empty())
    }

    /// True if an extent's contents are being or were copied into one piece that the tenant does not have yet.
    pub(super) fn is_consolidated(&self, id: TenantId, extent: ExtentId) -> bool {
        let Some(tenant) = self.tenants.get(id) else { return false };
        let Some(entry) = tenant.extents().get(extent) else { return false };
        let is_of = |one: &Consolidation| {
            !matches!(one.stage, Stage::Wanted(_)) && (one.at..one.at + one.bytes).contains(&entry.at())
        };
        tenant.memory.consolidations.iter().any(is_of)
    }

    /// Copies the memory of these tenants that is to become one piece. All their memory is there, and they are off the GPU. Returns
    /// true if copies are under way.
    pub(super) fn consolidate_all(&mut self, members: &[TenantId]) -> bool {
        let mut is_under_way = false;
        for id in members {
            let Some(tenant) = self.tenants.get_mut(*id).filter(|_| self.arbiter.state(*id).is_off_the_gpu()) else {
                continue;
            };
            let mut wanted: Vec<(u64, u64, Imported)> = Vec::new();
            for one in &mut tenant.memory.consolidations {
                match std::mem::replace(&mut one.stage, Stage::Copying) {
                    Stage::Wanted(piece) => wanted.push((one.at, one.bytes, piece)),
                    stage => one.stage = stage,
                }
            }
            is_under_way |= !tenant.memory.consolidations.is_empty();
            wanted.into_iter().for_each(|(at, bytes, piece)| self.copy_into(*id, at, bytes, piece));
        }
        is_under_way
    }

    /// Copies a row of extents into a piece.
    fn copy_into(&mut self, id: TenantId, at: u64, bytes: u64, piece: Imported) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let (mut frames, mut pieces, mut copied): (Vec<FrameId>, _, _) = (Vec::new(), Vec::new(), 0);
        for (_, extent) in tenant.extents().within(at, bytes) {
            let frame = extent.state().frame().filter(|_| extent.state().is_resident());
            let Some((frame, memory)) = frame.and_then(|id| Some((id, self.store.frames.memory(id)?))) else {
                break;
            };
            let device = piece.address() + (extent.at() - at);
            pieces.push(Piece { device, other: End::Device(memory.address), bytes: extent.class().bytes() });
            copied += extent.class().bytes();
            frames.push(frame);
        }
        if copied != bytes {
            // The program has given some of it back meanwhile.
            return self.tell_consolidated(id, at, false);
        }
        self.store.frames.begin_reading(&frames);
        // SAFETY: the tenant is off the GPU and stays so until it has heard of the copies' end; frames that are being read stay as they
        // are, and the task keeps the piece. Other processes' writes to a piece that the tenant has shared already spoil no other
        // tenant's memory.
        unsafe { self.store.transfer.consolidate((id, at), pieces, frames, piece) };
    }

    /// Tells a tenant the result of its consolidation.
    pub(super) fn tell_consolidated(&mut self, id: TenantId, at: u64, copied: bool) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if let Some(one) = tenant.memory.consolidations.iter_mut().find(|one| one.at == at) {
            one.stage = Stage::Told;
            let batch = tenant.memory.add_batch(Batch::Consolidated(at));
            self.tenants.tell(id, &MemoryCommand::Consolidated { batch, at, copied });
        }
    }

    /// Gives up consolidating because the tenant's work goes on.
    pub(super) fn give_up_consolidating(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let wanted = tenant.memory.consolidations.iter().filter(|one| matches!(one.stage, Stage::Wanted(_)));
        let wanted: Vec<u64> = wanted.map(|one| one.at).collect();
        wanted.into_iter().for_each(|at| self.tell_consolidated(id, at, false));
    }
}
