//! Frames that did not reach a tenant, because its process can open no more descriptors.
//!
//! Such a frame stays reserved for its extent, so others can have it, and is sent again after a while, for as long as it takes:
//! by itself, so that one free descriptor is enough. Nothing is copied into it before it is known that it came. Nobody else
//! waits for that for long: after [`PATIENCE`] the tenant's turn is over, and it is tried again as one that cannot arrive.

use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::Access;
use crate::books::extents::ExtentState;
use crate::policy::arbiter::{State, TenantId};
use crate::server::tenants::tenant::{Batch, Redelivery, Tenant};

/// How soon frames are sent again: at first, and at last. It doubles in between.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long others wait.
const PATIENCE: Duration = Duration::from_millis(250);
/// So many are under way at once.
const AT_ONCE: usize = 16;

impl Access<'_> {
    /// A tenant was told something for which it has not got the frames.
    pub(in crate::server) fn undelivered(&mut self, id: TenantId, batch: u32) -> Result<(), String> {
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        match tenant.batches.remove(&batch).map(|(_, batch)| batch) {
            Some(Batch::Prepare(extents)) => {
                if let Some(mut own) = self.tenants.extents(id) {
                    extents.into_iter().for_each(|extent| own.lose(extent));
                }
                let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
                let now = Instant::now();
                let before = tenant.redelivery;
                let pause = before.map_or(SHORTEST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
                let since = before.map_or(now, |before| before.since);
                tenant.redelivery = Some(Redelivery { since, at: now + pause, pause });
                if !std::mem::replace(&mut tenant.lacked_descriptors, true) {
                    log::warn!(
                        "{} can open no more descriptors, and waits for its memory until it can: raise its limit (`ulimit -n`)",
                        tenant.name
                    );
                }
                Ok(())
            }
            Some(Batch::Map(extents)) => {
                // What of it has come is mapped; the rest was lost before.
                let mapping = |extent: &ExtentId| {
                    tenant
                        .extents()
                        .get(*extent)
                        .is_some_and(|entry| matches!(entry.state(), ExtentState::Mapping { .. }))
                };
                let came: Vec<ExtentId> = extents.into_iter().filter(mapping).collect();
                self.map(id, came);
                Ok(())
            }
            Some(Batch::Unmap(_)) | None => Err(format!("it reports command {batch}, which it was not given")),
        }
    }

    /// A tenant has got these frames.
    pub(super) fn delivered(&mut self, id: TenantId, extents: &[ExtentId]) {
        if !self.awaits_delivery(id) {
            return;
        }
        let Some(mut own) = self.tenants.extents(id) else { return };
        for extent in extents {
            own.delivered(*extent);
        }
        drop(own);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let counts = tenant.extents().counts();
        if counts.lost + counts.sent_again == 0 {
            tenant.redelivery = None;
        } else if counts.sent_again == 0
            && let Some(redelivery) = &mut tenant.redelivery
        {
            (redelivery.at, redelivery.pause) = (Instant::now(), SHORTEST_PAUSE);
        }
    }

    /// Sends frames again whose time has come.
    pub(in crate::server) fn deliver_again(&mut self, id: TenantId) {
        let now = Instant::now();
        let is_due = |tenant: &Tenant| tenant.redelivery.is_some_and(|redelivery| redelivery.at <= now);
        if self.tenants.get(id).is_some_and(is_due) {
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let counts = tenant.extents().counts();
            if counts.lost + counts.sent_again == 0 || tenant.disconnected.is_some() {
                // The frames have gone to somebody else.
                tenant.redelivery = None;
                return;
            }
            if let Some(redelivery) = &mut tenant.redelivery {
                redelivery.at = now + LONGEST_PAUSE;
            }
            let lost = self.tenants.extents(id).map_or(Vec::new(), |mut extents| extents.send_again(AT_ONCE));
            self.send_frames(id, &lost, 1);
        }
    }

    /// Whether it is waited for that frames reach this tenant.
    pub(super) fn awaits_delivery(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.redelivery.is_some())
    }

    /// Whether others have waited for that for long enough.
    pub(super) fn is_undeliverable(&self, id: TenantId) -> bool {
        let redelivery = self.tenants.get(id).and_then(|tenant| tenant.redelivery);
        redelivery.is_some_and(|redelivery| redelivery.since.elapsed() >= PATIENCE)
            && self.tenants.ids().any(|other| other != id && self.arbiter.state(other) == State::Waiting)
    }
}
