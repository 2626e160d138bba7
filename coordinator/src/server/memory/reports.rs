//! Reports of lanes and tenants: the consequences when a copy has ended, or when a tenant has changed its mappings as told.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::breach::MemoryBreach;
use super::events::MemoryEvent;
use super::ground::Ground;
use super::residency::Residency;
use baton_contract::messages::ExtentId;

use super::transfer::{Ended, Task};
use crate::device::mover::Lane;
use crate::server::recorder::event::{Way, What};
use crate::server::tenants::memory::Batch;
use baton_books::extents::Half;
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    fn record_copy(&mut self, lane: Lane, task: &Task, time: Range<Instant>) {
        let bytes = task.bytes();
        match task {
            Task::CopyAhead { tenant, .. } => self.recorder.record(*tenant, What::CopiedAhead { bytes, time }),
            // A consolidation does not use the bus.
            Task::Consolidate { .. } => {}
            Task::Copy { tenant, .. } => {
                self.costs.record_copy(bytes, &time);
                let way = if lane == Lane::In { Way::In } else { Way::Out };
                self.recorder.record(*tenant, What::Copied { way, bytes, time });
            }
        }
    }

    pub(super) fn batch_failed(&mut self, id: TenantId, batch: u32, code: u32) -> Result<(), MemoryBreach> {
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        if !tenant.memory.has_batch(batch) {
            return Err(MemoryBreach::ReportedUnknownCommand { batch });
        }
        // After an error that breaks a context, as a kernel's wild access does, the driver maps and unmaps nothing
        // any more in that process. Its memory comes back when it ends.
        baton_messages::error!(cannot_map(&tenant.name, code));
        tenant.memory.stay();
        // The tenant's calls fail from here on, and give the reason.
        Err(MemoryBreach::CannotCarryOut)
    }
}

impl Residency {
    /// Handles the end of a job, successful or not.
    pub(super) fn on_job_ended(&mut self, ground: &mut Ground<'_>, Ended { lane, task, time, well }: Ended) {
        if well {
            ground.record_copy(lane, &task, time);
        }
        self.task_ended(ground, lane, task, well);
    }

    fn task_ended(&self, ground: &mut Ground<'_>, lane: Lane, mut task: Task, well: bool) {
        if let Task::Copy { inherited, .. } = &mut task {
            let inherited = std::mem::take(inherited);
            self.inherited_copy_ended(ground, lane == Lane::Out, well, inherited);
        }
        match task {
            Task::Consolidate { tenant, at, frames, piece, .. } => {
                drop(piece);
                ground.store.frames.end_reading(&frames);
                ground.tell_consolidated(tenant, at, well);
            }
            Task::CopyAhead { tenant, rest, copied, .. } => self.on_copied_ahead(ground, tenant, rest, copied, well),
            Task::Copy { tenant, extents, .. } if !ground.tenants.has(tenant) => {
                extents.into_iter().for_each(|extent| ground.release_orphan(tenant, extent));
            }
            Task::Copy { tenant, .. } if !well => ground.raise(MemoryEvent::NotCopied(tenant)),
            Task::Copy { tenant, extents, .. } if lane == Lane::Out => {
                for extent in extents {
                    self.half_left(ground, tenant, extent, Half::Copied);
                }
            }
            Task::Copy { tenant, extents, .. } => ground.on_arrived(tenant, extents),
        }
    }

    pub(super) fn batch_done(
        &self,
        ground: &mut Ground<'_>,
        id: TenantId,
        batch: u32,
        took: Duration,
    ) -> Result<(), MemoryBreach> {
        let Some(tenant) = ground.tenants.get_mut(id) else { return Ok(()) };
        match tenant.memory.take_batch(batch) {
            Some(Batch::Map(extents)) => {
                let listed = extents;
                let extents = listed.len() as u64;
                ground.on_mapped_of_others(id, &listed);
                ground.on_mapped(id, listed);
                ground.costs.record_mapping(took, extents);
                let resident = ground.resident_bytes(id);
                ground.recorder.record(id, What::Mapped { took, extents, resident });
            }
            Some(Batch::Prepare(extents)) => {
                ground.recorder.record(id, What::Prepared { took });
                ground.on_delivered(id, &extents);
            }
            Some(Batch::Unmap(extents)) => {
                for extent in extents {
                    if !self.unmapped_of_another(ground, id, extent) {
                        self.half_left(ground, id, extent, Half::Unmapped);
                        self.unmapped(ground, id, extent);
                    }
                }
                let resident = ground.resident_bytes(id);
                ground.recorder.record(id, What::Unmapped { took, resident });
            }
            Some(Batch::Consolidated(at)) => {
                if let Some(tenant) = ground.tenants.get_mut(id) {
                    tenant.memory.consolidations.retain(|one| one.at != at);
                }
            }
            None => return Err(MemoryBreach::ReportedUnknownCommand { batch }),
        }
        Ok(())
    }

    /// Handles the end of a copy for extents that have passed to another tenant meanwhile.
    pub(super) fn inherited_copy_ended(
        &self,
        ground: &mut Ground<'_>,
        out: bool,
        well: bool,
        inherited: Vec<(TenantId, ExtentId)>,
    ) {
        for (heir, extent) in inherited {
            if !ground.tenants.has(heir) {
                ground.release_orphan(heir, extent);
            } else if !well {
                ground.raise(MemoryEvent::NotCopied(heir));
            } else if out {
                self.half_left(ground, heir, extent, Half::Copied);
            } else {
                ground.on_arrived(heir, vec![extent]);
            }
        }
    }
}
