//! What lanes and tenants report: what it means that a copy has ended, or that a tenant has done with its mappings as it was told.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::transfer::{Ended, Group, Task};
use super::{Access, MemoryEvent};
use crate::device::mover::Lane;
use crate::server::recorder::event::{Way, What};
use crate::server::tenants::memory::Batch;
use baton_books::extents::Half;
use baton_policy::arbiter::TenantId;

impl Access<'_> {
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
        // SAFETY: the extents' table says that these frames and runs belong to these extents until the job has
        // ended; what leaves is not written, because its tenant is off the GPU, and what arrives is not mapped.
        unsafe { self.memory.transfer.copy(lane, tenant, group) };
    }

    /// A job has ended, well or not.
    pub(super) fn job_ended(&mut self, Ended { lane, task, time, well }: Ended) {
        if well {
            self.moved(lane, &task, time);
        }
        self.task_ended(lane, task, well);
    }

    fn moved(&mut self, lane: Lane, task: &Task, time: Range<Instant>) {
        let bytes = task.bytes();
        match task {
            Task::CopyAhead { tenant, .. } => self.recorder.record(*tenant, What::CopiedAhead { bytes, time }),
            // Nothing of that goes over the bus.
            Task::Consolidate { .. } => {}
            Task::Copy { tenant, .. } => {
                self.costs.copied(bytes, &time);
                let way = if lane == Lane::In { Way::In } else { Way::Out };
                self.recorder.record(*tenant, What::Copied { way, bytes, time });
            }
        }
    }

    fn task_ended(&mut self, lane: Lane, mut task: Task, well: bool) {
        if let Task::Copy { inherited, .. } = &mut task {
            let inherited = std::mem::take(inherited);
            self.inherited_copy_ended(lane == Lane::Out, well, inherited);
        }
        match task {
            Task::Consolidate { tenant, at, frames, piece, .. } => {
                drop(piece);
                self.memory.frames.end_reading(&frames);
                self.tell_consolidated(tenant, at, well);
            }
            Task::CopyAhead { tenant, rest, copied, .. } => self.copied_ahead(tenant, rest, copied, well),
            Task::Copy { tenant, extents, .. } if !self.tenants.has(tenant) => {
                extents.into_iter().for_each(|extent| self.memory.release_orphan(tenant, extent));
            }
            Task::Copy { tenant, extents, .. } if !well => {
                // Its contents cannot be trusted any more: a tenant must never go on with wrong ones.
                let _ = extents;
                self.happened(MemoryEvent::Spoiled(tenant));
            }
            Task::Copy { tenant, extents, .. } if lane == Lane::Out => {
                for extent in extents {
                    self.half_left(tenant, extent, Half::Copied);
                }
            }
            Task::Copy { tenant, extents, .. } => self.arrived(tenant, extents),
        }
    }

    pub(in crate::server) fn batch_done(&mut self, id: TenantId, batch: u32, took: Duration) -> Result<(), String> {
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        match tenant.memory.take_batch(batch) {
            Some(Batch::Map(extents)) => {
                let listed = extents;
                let extents = listed.len() as u64;
                self.mapped_of_others(id, &listed);
                self.mapped(id, listed);
                self.costs.mapped(took, extents);
                let resident = self.resident_bytes(id);
                self.recorder.record(id, What::Mapped { took, extents, resident });
            }
            Some(Batch::Prepare(extents)) => {
                self.recorder.record(id, What::Prepared { took });
                self.delivered(id, &extents);
            }
            Some(Batch::Unmap(extents)) => {
                for extent in extents {
                    if !self.unmapped_of_another(id, extent) {
                        self.half_left(id, extent, Half::Unmapped);
                        self.unmapped(id, extent);
                    }
                }
                let resident = self.resident_bytes(id);
                self.recorder.record(id, What::Unmapped { took, resident });
            }
            Some(Batch::Consolidated(at)) => {
                if let Some(tenant) = self.tenants.get_mut(id) {
                    tenant.memory.consolidations.retain(|one| one.at != at);
                }
            }
            None => return Err(format!("it reports command {batch}, which it was not given")),
        }
        Ok(())
    }

    pub(in crate::server) fn batch_failed(&mut self, id: TenantId, batch: u32, code: u32) -> Result<(), String> {
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        if !tenant.memory.has_batch(batch) {
            return Err(format!("it reports command {batch}, which it was not given"));
        }
        // After an error that breaks a context, as a kernel's wild access does, the driver maps and unmaps nothing
        // any more in that process. Its memory comes back when it ends.
        log::error!("{} cannot map or unmap (CUDA error {code}): its memory stays until it ends", tenant.name);
        tenant.memory.stay();
        // Its calls fail from here on, and say why.
        Err("it cannot carry out what it is told".to_owned())
    }
}
