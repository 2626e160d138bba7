//! Frames that did not reach a tenant, because its process can open no more descriptors.
//!
//! Such a frame stays reserved for its extent, so others can have it, and is sent again after a while, for as long as it takes.
//! Each frame is sent by itself, so that one free descriptor is enough. No data is copied into it before its arrival is confirmed.
//! The same goes for frames that another tenant shares with it, as long as they are there. Other tenants do not wait long for that:
//! after [`PATIENCE`] the tenant's turn is over, and it is tried again as one that cannot arrive.

use std::time::Duration;

use baton_contract::messages::ExtentId;

use super::breach::MemoryBreach;
use super::ground::Ground;
use crate::server::tenants::memory::{Batch, Notice};
use baton_books::extents::ExtentState;
use baton_books::sharing::Place;
use baton_policy::arbiter::{State, TenantId};

/// The time that others wait for a delivery.
const PATIENCE: Duration = Duration::from_millis(250);
/// The most frames that are under way at once.
const AT_ONCE: usize = 16;

impl Ground<'_> {
    /// Notes that the frames for a batch did not reach the tenant.
    pub(super) fn on_undelivered(&mut self, id: TenantId, batch: u32) -> Result<(), MemoryBreach> {
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        match tenant.memory.take_batch(batch) {
            Some(Batch::Prepare(extents)) => {
                self.on_lost_of_others(id, &extents);
                if let Some(mut own) = self.tenants.extents(id) {
                    extents.into_iter().for_each(|extent| own.lose(extent));
                }
                let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
                tenant.memory.redeliver();
                if tenant.memory.is_news(Notice::NoDescriptors) {
                    baton_messages::warn!(waits_for_descriptors(&tenant.name));
                }
                Ok(())
            }
            Some(Batch::Map(extents)) => {
                // The part that has come is mapped; the rest was lost before.
                let sharing = &self.store.sharing;
                let mapping = |extent: &ExtentId| match tenant.extents().get(*extent) {
                    Some(entry) => matches!(entry.state(), ExtentState::Mapping { .. }),
                    None => sharing.get((id, *extent)).is_some_and(|one| one.place == Place::Coming),
                };
                let came: Vec<ExtentId> = extents.into_iter().filter(mapping).collect();
                self.map(id, came);
                Ok(())
            }
            Some(Batch::Unmap(_) | Batch::Consolidated(_)) | None => {
                Err(MemoryBreach::ReportedUnknownCommand { batch })
            }
        }
    }

    /// Notes that a tenant has received these frames.
    pub(super) fn on_delivered(&mut self, id: TenantId, extents: &[ExtentId]) {
        if !self.awaits_delivery(id) {
            return;
        }
        let Some(mut own) = self.tenants.extents(id) else { return };
        for extent in extents {
            own.on_delivered(*extent);
        }
        drop(own);
        self.on_delivered_of_others(id, extents);
        let of_others = self.on_undelivered_of_others(id);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.memory.on_delivered(!of_others.lost.is_empty(), of_others.are_under_way);
    }

    /// Sends frames again that are due for another try.
    pub(super) fn deliver_again(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.memory.is_redelivery_due() {
            let of_others = self.on_undelivered_of_others(id);
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let counts = tenant.extents().counts();
            let is_any_lost =
                counts.lost + counts.sent_again > 0 || !of_others.lost.is_empty() || of_others.are_under_way;
            if !is_any_lost || !tenant.connection.is_open() {
                // The frames have gone to another tenant.
                return tenant.memory.redeliver_nothing();
            }
            let lost = self.tenants.extents(id).map_or(Vec::new(), |mut extents| extents.send_again(AT_ONCE));
            self.send_frames(id, &lost, 1);
            let more = of_others.lost.into_iter().take(AT_ONCE - lost.len()).collect();
            self.bring_again(id, more);
        }
    }

    /// True if others have waited long enough for this tenant's frames.
    pub(super) fn is_undeliverable(&self, id: TenantId) -> bool {
        self.undelivered_since(id).is_some_and(|since| since.elapsed() >= PATIENCE)
            && self.tenants.ids().any(|other| other != id && self.arbiter.state(other) == State::Waiting)
    }
}
