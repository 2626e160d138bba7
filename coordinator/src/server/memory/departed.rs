//! Memory of tenants that have ended: free when nothing can touch it any more.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::frames::Frames;
use crate::server::tenants::limits::ANSWER_LIMIT;
use crate::server::tenants::peer::Peer;
use baton_books::arena::FrameId;
use baton_books::extents::Extent;
use baton_books::pool::Run;
use baton_policy::arbiter::TenantId;

/// Frames that a process which just died may still be writing to.
#[derive(Debug)]
pub(super) struct Quarantine {
    /// The tenant that had them, and perhaps extents of others too.
    tenant: TenantId,
    /// The earliest time at which they are free.
    until: Instant,
    since: Instant,
    frames: Vec<FrameId>,
    /// Others' frames that the process still had mapped.
    held: Vec<FrameId>,
    remains: Remains,
}

/// The remains of a tenant that may have had work on the GPU when it ended.
#[derive(Debug)]
pub(in crate::server) struct Remains {
    /// While any process holds the other end, it holds everything that the dead process had, including the GPU.
    pub(in crate::server) connection: Peer,
    /// Set if the coordinator itself still holds the tenant's control device, and with it everything that the tenant had on the
    /// GPU.
    pub(in crate::server) held_by_us: Option<TenantId>,
}

impl Remains {
    pub(super) fn is_any(&self) -> bool {
        self.held_by_us.is_some() || self.connection.is_open()
    }
}

/// Interval between checks that a child still holds the resources of a process that died with the baton.
const NEXT_LOOK: Duration = Duration::from_millis(50);

/// The memory left behind by tenants that have ended.
#[derive(Debug, Default)]
pub(super) struct Departed {
    /// Frames and runs of extents that no tenant has any more while a copy is under way.
    orphans: HashMap<(TenantId, ExtentId), (Option<FrameId>, Vec<Run>)>,
    quarantine: VecDeque<Quarantine>,
    /// Frames of others that were freed while tenants that have ended may still write to them.
    written: HashMap<TenantId, Vec<FrameId>>,
}

impl Departed {
    /// Keeps a frame from others for as long as a tenant that has ended may write to it.
    pub(super) fn keep_from_others(&mut self, frame: FrameId, writer: TenantId, frames: &mut Frames) {
        frames.begin_reading(&[frame]);
        self.written.entry(writer).or_default().push(frame);
    }

    /// Ends the keeping of frames, because nothing of a tenant can touch memory any more.
    pub(super) fn end_writing(&mut self, id: TenantId, frames: &mut Frames) {
        frames.end_reading(&self.written.remove(&id).unwrap_or_default());
    }

    /// Adds an extent that its tenant no longer has while it is still being copied.
    pub(super) fn add_orphan(&mut self, id: (TenantId, ExtentId), extent: Extent) {
        self.orphans.insert(id, (extent.state().frame(), extent.into_runs()));
    }

    /// The time of the next check for remains.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.quarantine.iter().map(|quarantine| quarantine.until).min()
    }

    /// True if memory is expected to come back soon. A surviving child may hold it for ever.
    pub(super) fn is_any_fresh(&self) -> bool {
        self.quarantine.iter().any(|quarantine| quarantine.since.elapsed() < ANSWER_LIMIT)
    }

    /// Ends the quarantine of the dead whose time has come. Returns the tenants that are gone completely.
    pub(super) fn end_quarantine(&mut self, frames: &mut Frames) -> Vec<TenantId> {
        let mut gone = Vec::new();
        let now = Instant::now();
        while let Some(mut first) = self.quarantine.pop_front_if(|first| first.until <= now) {
            if first.remains.is_any() {
                // Our library's children let go of the GPU and of this connection; this one was not told.
                first.until = now + NEXT_LOOK;
                self.quarantine.push_back(first);
            } else {
                release_all(frames, first.frames, first.held);
                gone.push(first.tenant);
            }
        }
        gone
    }

    /// Buries the frames of a tenant that has ended, and others' frames that it had mapped: they are free when nothing can touch
    /// them any more.
    pub(super) fn bury(
        &mut self,
        tenant: TenantId,
        (own, held): (Vec<FrameId>, Vec<FrameId>),
        remains: Option<Remains>,
        frames: &mut Frames,
    ) {
        // Its descriptors are closed by now, and with the last one of the GPU's the driver has taken its context down,
        // running kernels and all (measured). But a child may hold them too.
        match remains.filter(Remains::is_any) {
            Some(remains) => {
                let since = Instant::now();
                let until = since + NEXT_LOOK;
                self.quarantine.push_back(Quarantine { tenant, until, since, frames: own, held, remains });
            }
            None => release_all(frames, own, held),
        }
    }

    /// Notes that the preemptor has closed the control device of a tenant whose process has ended.
    pub(super) fn let_go(&mut self, id: TenantId) {
        let now = Instant::now();
        for quarantine in self.quarantine.iter_mut().filter(|one| one.remains.held_by_us == Some(id)) {
            (quarantine.remains.held_by_us, quarantine.until) = (None, now);
        }
    }

    /// Takes the frame and runs of an orphaned extent whose copy is over.
    pub(super) fn take_orphan(&mut self, tenant: TenantId, extent: ExtentId) -> Option<(Option<FrameId>, Vec<Run>)> {
        self.orphans.remove(&(tenant, extent))
    }
}

/// Frees all frames of a tenant whose work can no longer touch memory.
fn release_all(frames: &mut Frames, own: Vec<FrameId>, held: Vec<FrameId>) {
    held.into_iter().for_each(|frame| frames.unhold(frame));
    own.into_iter().for_each(|frame| frames.release(frame));
}
