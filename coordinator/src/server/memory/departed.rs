//! Memory of tenants that have ended: free when nothing can touch it any more.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::frames::Frames;
use super::{Access, Memory};
use crate::server::tenants::peer::Peer;
use crate::server::tenants::tenant::ANSWER_LIMIT;
use baton_books::arena::FrameId;
use baton_books::extents::{Extent, Extents};
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
    fn is_any(&self) -> bool {
        self.held_by_us.is_some() || self.connection.is_open()
    }
}

/// How often it is looked whether a child still holds what a process had that died with the baton.
const NEXT_LOOK: Duration = Duration::from_millis(50);

impl Access<'_> {
    /// A process has ended: all that it had and shares with nobody comes back. If work of its may have been on the GPU then, not before nothing is left of
    /// it.
    pub(in crate::server) fn depart(&mut self, id: TenantId, extents: Extents, remains: Option<Remains>) {
        self.memory.sharing.forget_exports(id);
        if remains.as_ref().is_some_and(Remains::is_any) {
            self.hold_attachments(id);
        } else {
            self.drop_attachments(id);
        }
        let own = extents.into_all().filter_map(|(extent, entry)| Some((extent, self.hand_over(id, extent, entry)?)));
        let own = own.collect();
        self.memory.depart(id, own, remains);
    }
}

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
}

/// Nothing of a tenant can touch memory any more.
fn release_all(frames: &mut Frames, own: Vec<FrameId>, held: Vec<FrameId>) {
    held.into_iter().for_each(|frame| frames.unhold(frame));
    own.into_iter().for_each(|frame| frames.release(frame));
}

impl Memory {
    fn depart(&mut self, id: TenantId, extents: Vec<(ExtentId, Extent)>, remains: Option<Remains>) {
        self.leases.remove(id);
        let copied = self.transfer.copied_of(id);
        let (mut frames, mut held) = (Vec::new(), Vec::new());
        for (extent, entry) in extents {
            held.extend(entry.left_behind());
            if let Some((frame, keepsake)) = entry.kept() {
                self.frames.let_go(frame, keepsake);
            }
            if copied.contains(&extent) {
                self.departed.add_orphan((id, extent), entry);
            } else {
                frames.extend(entry.state().frame());
                self.host.give_back(entry.into_runs());
            }
        }
        // Its descriptors are closed by now, and with the last one of the GPU's the driver has taken its context down,
        // running kernels and all (measured). But a child may hold them too.
        match remains.filter(Remains::is_any) {
            Some(remains) => {
                let since = Instant::now();
                let quarantine = Quarantine { tenant: id, until: since + NEXT_LOOK, since, frames, held, remains };
                self.departed.quarantine.push_back(quarantine);
            }
            None => release_all(&mut self.frames, frames, held),
        }
    }

    /// The copy for an extent that its tenant no longer has is over.
    pub(super) fn release_orphan(&mut self, tenant: TenantId, extent: ExtentId) {
        if let Some((frame, runs)) = self.departed.orphans.remove(&(tenant, extent)) {
            if let Some(frame) = frame {
                self.frames.release(frame);
            }
            self.host.give_back(runs);
        }
    }

    /// The preemptor has closed the control device of a tenant whose process has ended.
    pub(in crate::server) fn let_go(&mut self, id: TenantId) {
        let now = Instant::now();
        let quarantine = self.departed.quarantine.iter_mut();
        for quarantine in quarantine.filter(|one| one.remains.held_by_us == Some(id)) {
            (quarantine.remains.held_by_us, quarantine.until) = (None, now);
        }
    }
}
