//! Frames that did not reach a tenant, because its process can open no more descriptors.
//!
//! Such a frame stays reserved for its extent, so others can have it, and is sent again after a while, for as long as it takes:
//! by itself, so that one free descriptor is enough. Nothing is copied into it before it is known that it came. Nobody else
//! waits for that for long: after [`PATIENCE`] the tenant's turn is over, and it is tried again as one that cannot arrive.

use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::Server;
use super::tenant::{Batch, ExtentState, Tenant};
use crate::policy::arbiter::{State, TenantId};

/// How soon frames are sent again: at first, and at last. It doubles in between.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long others wait.
const PATIENCE: Duration = Duration::from_millis(250);
/// So many are under way at once.
const AT_ONCE: usize = 16;

/// Whether a tenant has got the frame that is reserved for an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It was sent, and there is no reason to doubt that it came.
    Sent,
    /// It did not come.
    Lost,
    /// It was sent again, and whether it came is not known yet.
    SentAgain,
}

/// What a tenant is yet to get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Redelivery {
    since: Instant,
    /// When it is sent again.
    pub(super) at: Instant,
    pause: Duration,
}

impl Tenant {
    /// Whether there are extents with a frame of which it is not sure that the tenant has it, in this state or any.
    fn has_doubtful(&self, wanted: Option<Delivery>) -> bool {
        self.extents.values().any(|extent| match extent.state {
            ExtentState::Reserved { delivery: Delivery::Sent, .. } => false,
            ExtentState::Reserved { delivery, .. } => wanted.is_none_or(|wanted| wanted == delivery),
            ExtentState::Arriving { lost, .. } => lost && wanted.is_none_or(|wanted| wanted == Delivery::Lost),
            _ => false,
        })
    }
}

impl Server {
    /// A tenant was told something for which it has not got the frames.
    pub(super) fn undelivered(&mut self, id: TenantId, batch: u32) -> Result<(), String> {
        let Some(tenant) = self.tenants.get_mut(&id) else { return Ok(()) };
        match tenant.batches.remove(&batch).map(|(_, batch)| batch) {
            Some(Batch::Prepare(extents)) => {
                for extent in extents {
                    let Some(entry) = tenant.extents.get_mut(&extent) else { continue };
                    entry.state = match entry.state {
                        ExtentState::Reserved { frame, zeroed, .. } => {
                            ExtentState::Reserved { frame, zeroed, delivery: Delivery::Lost }
                        }
                        ExtentState::Arriving { frame, .. } => ExtentState::Arriving { frame, lost: true },
                        ExtentState::Mapping { frame } => {
                            ExtentState::Reserved { frame, zeroed: false, delivery: Delivery::Lost }
                        }
                        // It is on its way out already.
                        other => other,
                    };
                }
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
                    tenant.extents.get(extent).is_some_and(|entry| matches!(entry.state, ExtentState::Mapping { .. }))
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
        let Some(tenant) = self.tenants.get_mut(&id).filter(|tenant| tenant.redelivery.is_some()) else { return };
        for extent in extents {
            if let Some(entry) = tenant.extents.get_mut(extent)
                && let ExtentState::Reserved { delivery: delivery @ Delivery::SentAgain, .. } = &mut entry.state
            {
                *delivery = Delivery::Sent;
            }
        }
        if !tenant.has_doubtful(None) {
            tenant.redelivery = None;
        } else if !tenant.has_doubtful(Some(Delivery::SentAgain))
            && let Some(redelivery) = &mut tenant.redelivery
        {
            (redelivery.at, redelivery.pause) = (Instant::now(), SHORTEST_PAUSE);
        }
    }

    /// Sends frames again whose time has come.
    pub(super) fn deliver_again(&mut self) {
        let now = Instant::now();
        let is_due = |tenant: &Tenant| tenant.redelivery.is_some_and(|redelivery| redelivery.at <= now);
        let due: Vec<TenantId> = self.tenants.iter().filter(|(_, tenant)| is_due(tenant)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(tenant) = self.tenants.get_mut(&id) else { continue };
            if !tenant.has_doubtful(None) || tenant.disconnected.is_some() {
                // The frames have gone to somebody else.
                tenant.redelivery = None;
                continue;
            }
            if let Some(redelivery) = &mut tenant.redelivery {
                redelivery.at = now + LONGEST_PAUSE;
            }
            let mut lost = Vec::new();
            for (extent, entry) in &mut tenant.extents {
                if let ExtentState::Reserved { delivery: delivery @ Delivery::Lost, .. } = &mut entry.state {
                    *delivery = Delivery::SentAgain;
                    lost.push(*extent);
                }
                if lost.len() == AT_ONCE {
                    break;
                }
            }
            self.send_frames(id, &lost, 1);
        }
    }

    /// Whether it is waited for that frames reach this tenant.
    pub(super) fn awaits_delivery(&self, id: TenantId) -> bool {
        self.tenants.get(&id).is_some_and(|tenant| tenant.redelivery.is_some())
    }

    /// Whether others have waited for that for long enough.
    pub(super) fn is_undeliverable(&self, id: TenantId) -> bool {
        let redelivery = self.tenants.get(&id).and_then(|tenant| tenant.redelivery);
        redelivery.is_some_and(|redelivery| redelivery.since.elapsed() >= PATIENCE)
            && self.tenants.keys().any(|other| *other != id && self.arbiter.state(*other) == State::Waiting)
    }
}
