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
    /// Who had them, and perhaps extents of others too.
    tenant: TenantId,
    /// Not before this time are they free.
    until: Instant,
    since: Instant,
    frames: Vec<FrameId>,
    /// Others' frames that it still had mapped.
    held: Vec<FrameId>,
    remains: Remains,
}

/// What is left of a tenant that may have had work on the GPU when it ended.
#[derive(Debug)]
pub(in crate::server) struct Remains {
    /// While anybody holds the other end, somebody holds all that the process had, the GPU too.
    pub(in crate::server) connection: Peer,
    /// We ourselves still hold the tenant's control device, and by that all that it had on the GPU.
    pub(in crate::server) held_by_us: Option<TenantId>,
}

impl Remains {
    pub(super) fn is_any(&self) -> bool {
        self.held_by_us.is_some() || self.connection.is_open()
    }
}

/// How often it is looked whether a child still holds what a process had that died with the baton.
const NEXT_LOOK: Duration = Duration::from_millis(50);

/// What tenants that have ended have left behind.
#[derive(Debug, Default)]
pub(super) struct Departed {
    /// Frames and runs of extents that nobody has any more while a copy is under way.
    orphans: HashMap<(TenantId, ExtentId), (Option<FrameId>, Vec<Run>)>,
    quarantine: VecDeque<Quarantine>,
}

impl Departed {
    /// A tenant no longer has an extent that is still being copied.
    pub(super) fn add_orphan(&mut self, id: (TenantId, ExtentId), extent: Extent) {
        self.orphans.insert(id, (extent.state().frame(), extent.into_runs()));
    }

    /// When it is looked next whether something is left.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.quarantine.iter().map(|quarantine| quarantine.until).min()
    }

    /// Whether memory can be expected to come back soon: a child that lives on may hold it for ever.
    pub(super) fn is_any_fresh(&self) -> bool {
        self.quarantine.iter().any(|quarantine| quarantine.since.elapsed() < ANSWER_LIMIT)
    }

    /// Says of whom nothing is left any more.
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

    /// These frames of a tenant that has ended are free when nothing can touch them any more; so are those of others that it had mapped.
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

    /// What an extent left behind whose copy is over.
    pub(super) fn take_orphan(&mut self, tenant: TenantId, extent: ExtentId) -> Option<(Option<FrameId>, Vec<Run>)> {
        self.orphans.remove(&(tenant, extent))
    }
}

/// Nothing of a tenant can touch memory any more.
fn release_all(frames: &mut Frames, own: Vec<FrameId>, held: Vec<FrameId>) {
    held.into_iter().for_each(|frame| frames.unhold(frame));
    own.into_iter().for_each(|frame| frames.release(frame));
}
