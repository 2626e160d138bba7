//! Copies under way: between frames and the pool, within the GPU's memory, ahead of need.
//!
//! [`Transfer`] owns the lanes that copy and knows the purpose of each job. The layer above decides how to react when a copy ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use baton_contract::messages::ExtentId;

use crate::device::digest::Page;
use crate::device::gpu::{Gpu, GpuError, Imported};
use crate::device::mover::{End, Finished, JobId, Lane, Mover, Piece};
use crate::device::wake::Waker;
use baton_books::arena::FrameId;
use baton_books::pool::Run;
use baton_policy::arbiter::TenantId;

/// Approximate size of the groups in which copies are queued: large enough for full speed, small enough that the other direction
/// can soon use the freed memory.
pub(super) const GROUP_BYTES: u64 = 64 << 20;
/// The most extents in a group, because unmapping takes time for each.
pub(super) const GROUP_EXTENTS: usize = 64;

/// Identifies one rest of a program: each rest has its own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) grant: u64,
    pub(super) number: u32,
}

/// A copy ahead of need under way, of one extent.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) extent: ExtentId,
    pub(super) frame: FrameId,
    pub(super) pages: Vec<Page>,
    pub(super) runs: Vec<Run>,
}

/// The task of a lane.
#[derive(Debug)]
pub(super) enum Task {
    /// Copies out of or into these extents' frames.
    Copy {
        tenant: TenantId,
        extents: Vec<ExtentId>,
        bytes: u64,
        /// Extents that have passed to another tenant since, with their numbers there.
        inherited: Vec<(TenantId, ExtentId)>,
    },
    /// Copies out of frames of a tenant that rests, into room of their own.
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
    /// All extents that leave, including those that need no copy.
    pub(super) leaving: Vec<ExtentId>,
    pieces: Vec<Piece>,
    /// Bytes copied over the bus.
    bytes: u64,
    /// The same copies, in bytes of memory.
    size: u64,
    /// Bytes of all these extents.
    pub(super) whole: u64,
    /// Bytes of these extents that come as zeros.
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

    /// Bytes of the group's extents that are not copied over the bus.
    pub(super) fn unchanged(&self) -> u64 {
        self.whole - self.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.size >= GROUP_BYTES || self.extents.len().max(self.leaving.len()) >= GROUP_EXTENTS
    }
}

/// A job that has ended.
pub(super) struct Ended {
    pub(super) lane: Lane,
    pub(super) task: Task,
    pub(super) time: Range<Instant>,
    pub(super) well: bool,
}

/// All copies under way.
pub(super) struct Transfer {
    mover: Mover,
    finished: Receiver<Finished>,
    /// Those that have ended while all were waited for.
    ended: VecDeque<Ended>,
    tasks: HashMap<JobId, Task>,
}

impl Transfer {
    /// Starts the lanes.
    pub(super) fn new(gpu: &Gpu, waker: &Waker) -> Result<Self, GpuError> {
        let (reports, finished) = channel();
        let mover = Mover::start(gpu, &[Lane::In, Lane::Out], &reports, waker)?;
        Ok(Self { mover, finished, ended: VecDeque::new(), tasks: HashMap::new() })
    }

    /// The next job that has ended.
    pub(super) fn next_ended(&mut self) -> Option<Ended> {
        while self.ended.is_empty() {
            let finished = self.finished.try_recv().ok()?;
            self.end(finished);
        }
        self.ended.pop_front()
    }

    fn end(&mut self, Finished { lane, job, time, result }: Finished) {
        if let Err(error) = &result {
            baton_messages::error!(copy_failed(format_args!("{lane:?}"), error));
        }
        let task = self.tasks.remove(&job);
        self.ended.extend(task.map(|task| Ended { lane, task, time, well: result.is_ok() }));
    }

    /// Waits until no job is under way. False if one takes longer.
    pub(super) fn await_all(&mut self, end: Instant) -> bool {
        while !self.tasks.is_empty() {
            match self.finished.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(finished) => self.end(finished),
                Err(_) => return false,
            }
        }
        true
    }

    /// Queues the copies of a tenant's extents, one way.
    ///
    /// # Safety
    ///
    /// The frames and runs belong to these extents until the job has ended: leaving memory is not written, and arriving memory is
    /// not mapped.
    pub(super) unsafe fn copy(&mut self, lane: Lane, tenant: TenantId, group: Group) {
        // SAFETY: by the caller's promise.
        let job = unsafe { self.mover.submit(lane, group.pieces) };
        let task = Task::Copy { tenant, extents: group.extents, bytes: group.bytes, inherited: Vec::new() };
        self.tasks.insert(job, task);
    }

    /// Queues copies out of frames of a tenant that rests. Data that it writes meanwhile may or may not be copied.
    ///
    /// # Safety
    ///
    /// The frames stay mapped here until the job has ended, and the runs belong to no other job.
    pub(super) unsafe fn copy_ahead(&mut self, tenant: TenantId, rest: Rest, group: Group, copied: Vec<Copied>) {
        let bytes = group.bytes;
        // SAFETY: by the caller's promise.
        let job = unsafe { self.mover.submit(Lane::Out, group.pieces) };
        self.tasks.insert(job, Task::CopyAhead { tenant, rest, copied, bytes });
    }

    /// Queues copies out of frames into a piece of the tenant's own, for the extents that begin at an address.
    ///
    /// # Safety
    ///
    /// The frames stay unchanged and the tenant stays off the GPU until the job has ended.
    pub(super) unsafe fn consolidate(
        &mut self,
        (tenant, at): (TenantId, u64),
        pieces: Vec<Piece>,
        frames: Vec<FrameId>,
        piece: Imported,
    ) {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        // SAFETY: by the caller's promise.
        let job = unsafe { self.mover.submit(Lane::In, pieces) };
        self.tasks.insert(job, Task::Consolidate { tenant, at, frames, piece, bytes });
    }

    /// True if no copy is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// True if any tenant's memory is being copied out or in.
    pub(super) fn is_copying(&self) -> bool {
        self.tasks.values().any(|task| matches!(task, Task::Copy { .. }))
    }

    /// True if this tenant's memory is being copied out or in.
    pub(super) fn is_copying_for(&self, id: TenantId) -> bool {
        self.tasks.values().any(|task| matches!(task, Task::Copy { tenant, .. } if *tenant == id))
    }

    /// True if any copy ahead of need is under way.
    pub(super) fn is_copying_ahead(&self) -> bool {
        self.tasks.values().any(|task| matches!(task, Task::CopyAhead { .. }))
    }

    /// The extents of a tenant that are being copied.
    pub(super) fn copied_of(&self, id: TenantId) -> HashSet<ExtentId> {
        let mut copied = HashSet::new();
        for task in self.tasks.values() {
            let Task::Copy { tenant, extents, inherited, .. } = task else { continue };
            if *tenant == id {
                copied.extend(extents);
            }
            copied.extend(inherited.iter().filter(|(heir, _)| *heir == id).map(|(_, extent)| *extent));
        }
        copied
    }

    /// Moves an extent's copy to another tenant and number, because the extent has passed there.
    pub(super) fn inherit(&mut self, from: (TenantId, ExtentId), to: (TenantId, ExtentId)) {
        for task in self.tasks.values_mut() {
            let Task::Copy { tenant, extents, inherited, .. } = task else { continue };
            if let Some(again) = inherited.iter_mut().find(|one| **one == from) {
                *again = to;
            } else if *tenant == from.0 && extents.contains(&from.1) {
                extents.retain(|one| *one != from.1);
                inherited.push(to);
            }
        }
    }
}
