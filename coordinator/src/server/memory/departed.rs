//! Memory of tenants that have ended: free when nothing can touch it any more.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::transfer::Task;
use super::{Access, Memory};
use crate::server::tenants::peer::Peer;
use crate::server::tenants::tenant::ANSWER_LIMIT;
use baton_books::arena::FrameId;
use baton_books::extents::{Extent, Extents};
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

impl Quarantine {
    /// Whether it can be expected to end soon: a child that lives on may hold it for ever.
    pub(super) fn is_fresh(&self) -> bool {
        self.since.elapsed() < ANSWER_LIMIT
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

impl Memory {
    fn depart(&mut self, id: TenantId, extents: Vec<(ExtentId, Extent)>, remains: Option<Remains>) {
        self.ledger.remove(id);
        self.before_context.remove(&id);
        let mut frames = Vec::new();
        let copies = self.tasks.values().filter_map(|task| match task {
            Task::Copy { tenant, extents, .. } if *tenant == id => Some(extents),
            _ => None,
        });
        let mut copied: HashSet<ExtentId> = copies.flatten().copied().collect();
        let inherited = self.tasks.values().filter_map(|task| match task {
            Task::Copy { inherited, .. } => Some(inherited),
            Task::CopyAhead { .. } | Task::Consolidate { .. } => None,
        });
        copied.extend(inherited.flatten().filter(|(heir, _)| *heir == id).map(|(_, extent)| *extent));
        let mut held = Vec::new();
        for (extent, entry) in extents {
            held.extend(entry.left_behind());
            let frame = entry.state().frame();
            if let Some((frame, keepsake)) = entry.kept() {
                self.frames.let_go(frame, keepsake);
            }
            let runs = entry.into_runs();
            if copied.contains(&extent) {
                self.orphans.insert((id, extent), (frame, runs));
            } else {
                frames.extend(frame);
                self.host.give_back(runs);
            }
        }
        // Its descriptors are closed by now, and with the last one of the GPU's the driver has taken its context down,
        // running kernels and all (measured). But a child may hold them too.
        match remains.filter(Remains::is_any) {
            Some(remains) => {
                let now = Instant::now();
                self.quarantine.push_back(Quarantine {
                    tenant: id,
                    until: now + NEXT_LOOK,
                    since: now,
                    frames,
                    held,
                    remains,
                });
            }
            None => self.release_all(frames, held),
        }
    }

    /// Nothing of a tenant can touch memory any more.
    fn release_all(&mut self, frames: Vec<FrameId>, held: Vec<FrameId>) {
        held.into_iter().for_each(|frame| self.frames.unhold(frame));
        frames.into_iter().for_each(|frame| self.frames.release(frame));
    }

    /// The copy for an extent of a tenant that has ended meanwhile is over.
    pub(super) fn release_orphan(&mut self, tenant: TenantId, extent: ExtentId) {
        if let Some((frame, runs)) = self.orphans.remove(&(tenant, extent)) {
            if let Some(frame) = frame {
                self.frames.release(frame);
            }
            self.host.give_back(runs);
        }
    }

    /// When it is looked next whether something is left.
    pub(super) fn next_look_at_departed(&self) -> Option<Instant> {
        self.quarantine.iter().map(|quarantine| quarantine.until).min()
    }

    /// Says of whom nothing is left any more.
    pub(super) fn end_quarantine(&mut self) -> Vec<TenantId> {
        let mut gone = Vec::new();
        let now = Instant::now();
        while let Some(mut first) = self.quarantine.pop_front_if(|first| first.until <= now) {
            if first.remains.is_any() {
                // Our library's children let go of the GPU and of this connection; this one was not told.
                first.until = now + NEXT_LOOK;
                self.quarantine.push_back(first);
            } else {
                self.release_all(first.frames, first.held);
                gone.push(first.tenant);
            }
        }
        gone
    }

    /// The preemptor has closed the control device of a tenant whose process has ended.
    pub(in crate::server) fn let_go(&mut self, id: TenantId) {
        let now = Instant::now();
        for quarantine in self.quarantine.iter_mut().filter(|one| one.remains.held_by_us == Some(id)) {
            (quarantine.remains.held_by_us, quarantine.until) = (None, now);
        }
    }
}
