//! Copies under way, and what tenants are told to do with their mappings: what becomes of both when they end.

use std::ops::Range;
use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::ahead::{Copied, Rest};
use super::{Access, MemoryEvent};
use crate::device::gpu::Imported;
use crate::device::mover::{End, Finished, Lane, Piece};
use crate::server::recorder::event::{Way, What};
use crate::server::tenants::memory::Batch;
use baton_books::arena::FrameId;
use baton_books::extents::Half;
use baton_books::pool::Run;
use baton_policy::arbiter::TenantId;

/// Copies are queued in groups of about so much: large enough for full speed, small enough that the other
/// direction can soon use what became free.
pub(super) const GROUP_BYTES: u64 = 64 << 20;
/// And no more extents than this, because unmapping takes time for each.
pub(super) const GROUP_EXTENTS: usize = 64;

/// What a lane is working at.
#[derive(Debug)]
pub(super) enum Task {
    /// Copies out of or into these extents' frames.
    Copy {
        tenant: TenantId,
        extents: Vec<ExtentId>,
        bytes: u64,
        /// Those that have got another tenant since, by their numbers there.
        inherited: Vec<(TenantId, ExtentId)>,
    },
    /// Copies out of frames of a tenant that rests, into room of their own ([`super::ahead`]).
    CopyAhead { tenant: TenantId, rest: Rest, copied: Vec<Copied>, bytes: u64 },
    /// Copies out of these frames into a piece of the tenant's own, for the extents that begin at an address.
    Consolidate { tenant: TenantId, at: u64, frames: Vec<FrameId>, piece: Imported, bytes: u64 },
}

impl Task {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Copy { bytes, .. } | Self::CopyAhead { bytes, .. } | Self::Consolidate { bytes, .. } => *bytes,
        }
    }
}

/// Extents whose copies are queued as one job.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) extents: Vec<ExtentId>,
    /// All that leave, also those that need no copy.
    pub(super) leaving: Vec<ExtentId>,
    pieces: Vec<Piece>,
    /// What is copied over the bus.
    bytes: u64,
    /// What that is of memory.
    size: u64,
    /// What all of these extents are, in bytes.
    pub(super) whole: u64,
    /// What of that comes as zeros.
    pub(super) zeros: u64,
}

impl Group {
    /// Adds the copy of a part of an extent, between its frame and its runs.
    pub(super) fn add_part(&mut self, frame: u64, runs: &[Run], part: Range<u64>, address: impl Fn(Run) -> usize) {
        let mut at = 0;
        for run in runs {
            let (start, end) = (part.start.max(at), part.end.min(at + run.bytes));
            if start < end {
                let host = address(Run { at: run.at + (start - at), bytes: end - start });
                self.pieces.push(Piece { device: frame + start, other: End::Host(host), bytes: end - start });
            }
            at += run.bytes;
        }
        self.bytes += part.end - part.start;
        self.size += part.end - part.start;
    }

    /// Adds zeros in a part of a frame.
    pub(super) fn add_zeros(&mut self, frame: u64, part: Range<u64>) {
        self.pieces.push(Piece { device: frame + part.start, other: End::Bytes(0), bytes: part.end - part.start });
        self.size += part.end - part.start;
    }

    /// What is copied over the bus, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn into_pieces(self) -> Vec<Piece> {
        self.pieces
    }

    pub(super) fn is_full(&self) -> bool {
        self.size >= GROUP_BYTES || self.extents.len().max(self.leaving.len()) >= GROUP_EXTENTS
    }
}

impl Access<'_> {
    /// Queues a group's copies.
    pub(super) fn submit(&mut self, lane: Lane, tenant: TenantId, group: Group) {
        if lane == Lane::Out && group.whole > 0 {
            let extents = group.leaving.len() as u64;
            let unchanged = group.whole - group.bytes;
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
        let job = unsafe { self.memory.mover.submit(lane, group.pieces) };
        self.memory
            .tasks
            .insert(job, Task::Copy { tenant, extents: group.extents, bytes: group.bytes, inherited: Vec::new() });
    }

    pub(super) fn job_finished(&mut self, finished: Finished) {
        let Some(task) = self.memory.tasks.remove(&finished.job) else { return };
        if let Err(error) = &finished.result {
            log::error!("a copy failed ({:?}): {error}", finished.lane);
        } else {
            self.moved(finished.lane, &task, finished.time.clone());
        }
        self.task_ended(finished.lane, task, finished.result.is_ok());
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

    /// A job has ended, well or not.
    pub(super) fn task_ended(&mut self, lane: Lane, mut task: Task, well: bool) {
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
