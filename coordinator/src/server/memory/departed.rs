//! Memory of tenants that have ended: free when nothing can touch it any more.

use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use crate::books::arena::FrameId;
use crate::policy::arbiter::TenantId;
use crate::server::Server;
use crate::server::tenants::peer::Peer;
use crate::server::tenants::tenant::ANSWER_LIMIT;

/// Frames that a process which just died may still be writing to.
#[derive(Debug)]
pub(in crate::server) struct Quarantine {
    /// Not before this time are they free.
    pub(in crate::server) until: Instant,
    pub(in crate::server) since: Instant,
    pub(in crate::server) frames: Vec<FrameId>,
    /// While anybody holds the other end, somebody holds all that the process had, the GPU too.
    pub(in crate::server) connection: Peer,
    /// We ourselves still hold the tenant's control device, and by that all that it had on the GPU.
    pub(in crate::server) held_by_us: Option<TenantId>,
}

impl Quarantine {
    /// Whether it can be expected to end soon: a child that lives on may hold it for ever.
    pub(in crate::server) fn is_fresh(&self) -> bool {
        self.since.elapsed() < ANSWER_LIMIT
    }
}

/// How often it is looked whether a child still holds what a process had that died with the baton.
pub(in crate::server) const NEXT_LOOK: Duration = Duration::from_millis(50);

impl Server {
    /// The copy for an extent of a tenant that has ended meanwhile is over.
    pub(in crate::server) fn release_orphan(&mut self, tenant: TenantId, extent: ExtentId) {
        if let Some((frame, runs)) = self.orphans.remove(&(tenant, extent)) {
            if let Some(frame) = frame {
                self.release(frame);
            }
            self.pool.give_back(runs);
        }
    }

    pub(in crate::server) fn end_quarantine(&mut self) {
        let now = Instant::now();
        while let Some(mut first) = self.quarantine.pop_front_if(|first| first.until <= now) {
            if first.held_by_us.is_some() || first.connection.is_open() {
                // Our library's children let go of the GPU and of this connection; this one was not told.
                first.until = now + NEXT_LOOK;
                self.quarantine.push_back(first);
            } else {
                first.frames.into_iter().for_each(|frame| self.release(frame));
            }
        }
    }

    /// The preemptor has closed the control device of a tenant whose process has ended.
    pub(in crate::server) fn let_go(&mut self, id: TenantId) {
        let now = Instant::now();
        for quarantine in self.quarantine.iter_mut().filter(|quarantine| quarantine.held_by_us == Some(id)) {
            (quarantine.held_by_us, quarantine.until) = (None, now);
        }
    }
}
