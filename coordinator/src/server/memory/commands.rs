//! Commands to lanes and tenants: copies, frames to be put behind extents, extents to be mapped.

use baton_contract::messages::{Answer, ExtentId, MemoryCommand};

use super::breach::MemoryBreach;
use super::ground::Ground;
use super::transfer::Group;
use crate::device::mover::Lane;
use crate::keeper::Reach;
use crate::server::recorder::event::What;
use crate::server::tenants::memory::Batch;
use crate::server::tenants::peer::Sent;
use baton_books::arena::FrameId;
use baton_books::extents::{Extent, ExtentState};
use baton_books::sharing::{Attachment, Place};
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// Sends a tenant the frames behind extents that it has mapped.
    pub(super) fn give_frames(&mut self, id: TenantId, extents: Vec<ExtentId>) -> Result<(), MemoryBreach> {
        let frames = self.frames_of(id, &extents)?;
        self.answer_with(id, &Answer::Frames { extents }, &frames);
        Ok(())
    }

    /// Answers a tenant's request with frames.
    pub(super) fn answer_with(&mut self, id: TenantId, message: &Answer, frames: &[FrameId]) {
        let descriptors: Vec<Sent> = frames.iter().filter_map(|frame| self.store.frames.descriptor(*frame)).collect();
        self.tenants.answer(id, message, &descriptors);
    }

    /// The frames behind extents that a tenant has.
    fn frames_of(&self, id: TenantId, extents: &[ExtentId]) -> Result<Vec<FrameId>, MemoryBreach> {
        let Some(tenant) = self.tenants.get(id) else { return Ok(Vec::new()) };
        let resident = |extent: &ExtentId| match tenant.extents().get(*extent).map(Extent::state) {
            Some(ExtentState::Resident { frame }) => Ok(frame),
            _ if let Some(frame) = self.frame_of_attachment((id, *extent)) => Ok(frame),
            _ => Err(MemoryBreach::AskedForUnmappedFrame(*extent)),
        };
        extents.iter().map(resident).collect()
    }

    /// Queues a group's copies.
    pub(super) fn submit(&mut self, lane: Lane, tenant: TenantId, group: Group) {
        if lane == Lane::Out && group.whole > 0 {
            let extents = group.leaving.len() as u64;
            let unchanged = group.unchanged();
            self.recorder.record(tenant, What::Leaves { extents, bytes: group.whole, unchanged });
        }
        if group.extents.is_empty() {
            return;
        }
        if lane == Lane::In {
            let extents = group.extents.len() as u64;
            self.recorder.record(tenant, What::Comes { extents, bytes: group.whole, zeros: group.zeros });
        }
        // SAFETY: the extents' table says that these frames and runs belong to these extents until the job has ended; leaving memory is
        // not written, because its tenant is off the GPU, and arriving memory is not mapped.
        unsafe { self.store.transfer.copy(lane, tenant, group) };
    }

    /// The frame that is to be sent to a tenant for one of its extents, its own or another's.
    pub(super) fn frame_to_send(&mut self, id: TenantId, extent: ExtentId) -> Option<FrameId> {
        match self.store.sharing.get((id, extent)) {
            Some(attachment) => {
                let (owner, frame) = (attachment.owner.0, self.frame_of_owner(attachment)?);
                if self.owner_of(owner) != self.owner_of(id) {
                    // Both tenants have had the frame, so no other tenant gets it.
                    self.store.frames.make_reachable(frame, Reach::Others);
                }
                Some(frame)
            }
            None => self.tenants.get(id)?.extents().get(extent)?.state().frame(),
        }
    }

    /// Sends a tenant the frames that are reserved for these extents, `at_once` in each message.
    pub(super) fn send_frames(&mut self, id: TenantId, extents: &[ExtentId], at_once: usize) {
        for extents in extents.chunks(at_once) {
            let frames: Vec<FrameId> = extents.iter().filter_map(|extent| self.frame_to_send(id, *extent)).collect();
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let descriptors: Vec<Sent> =
                frames.into_iter().filter_map(|frame| self.store.frames.descriptor(frame)).collect();
            let batch = tenant.memory.add_batch(Batch::Prepare(extents.to_vec()));
            let message = MemoryCommand::Prepare { batch, extents: extents.to_vec() };
            self.tenants.tell_with(id, &message, &descriptors);
        }
    }

    /// Has the tenant give access to extents whose contents are there.
    pub(super) fn map(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if extents.is_empty() || !tenant.connection.is_open() {
            return;
        }
        let batch = tenant.memory.add_batch(Batch::Map(extents.clone()));
        self.tenants.tell(id, &MemoryCommand::Map { batch, extents });
    }

    /// Notes that the tenant has mapped these extents.
    pub(super) fn on_mapped(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        let may_write = !self.is_off_the_gpu(id);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        // The tenant may already have used an extent before it closed its gate.
        let may_write = may_write || tenant.turn.is_overdue() || tenant.preemption.is_gate_open();
        let Some(mut own) = self.tenants.extents(id) else { return };
        for extent in extents {
            own.on_mapped(extent, may_write);
        }
    }

    pub(super) fn frame_of_owner(&self, attachment: &Attachment<TenantId>) -> Option<FrameId> {
        let (owner, extent) = attachment.owner;
        let state = self.tenants.get(owner)?.extents().get(extent)?.state();
        state.frame().filter(|_| state.is_resident())
    }

    /// The frame of another tenant's extent that this tenant has mapped.
    pub(super) fn frame_of_attachment(&self, id: (TenantId, ExtentId)) -> Option<FrameId> {
        let attachment = self.store.sharing.get(id).filter(|one| one.place == Place::Mapped)?;
        self.frame_of_owner(attachment)
    }
}
