//! The memory of the simulated world, measured in the time that it takes to swap it in. It has just enough room
//! for the largest tenant.

use std::collections::BTreeMap;

use super::super::{Micros, TenantId};

#[derive(Debug, Default)]
pub(super) struct Memory {
    room: Micros,
    /// The resident memory of each tenant.
    there: BTreeMap<TenantId, Micros>,
    /// The tenant whose memory is on the way, the time since which it is, and the amount that comes.
    coming: Option<(TenantId, Micros, Micros)>,
}

impl Memory {
    pub(super) fn join(&mut self, id: TenantId, size: Micros) {
        self.room = self.room.max(size);
        self.there.insert(id, 0);
    }

    pub(super) fn leave(&mut self, now: Micros, id: TenantId) {
        self.stop(now);
        self.there.remove(&id);
    }

    pub(super) fn missing(&self, id: TenantId, size: Micros) -> Micros {
        size - self.there[&id]
    }

    /// Begins to swap in this tenant's memory, and evicts that of others if there is no room.
    pub(super) fn bring(&mut self, now: Micros, id: TenantId, size: Micros) {
        self.stop(now);
        self.coming = Some((id, now, self.missing(id, size)));
    }

    /// Stops the swap-in. The memory that has come so far stays.
    pub(super) fn stop(&mut self, now: Micros) {
        let Some((id, since, missing)) = self.coming.take() else { return };
        *self.there.entry(id).or_default() += (now - since).min(missing);
        let mut too_much = self.there.values().sum::<Micros>().saturating_sub(self.room);
        for (_, there) in self.there.iter_mut().filter(|(other, _)| **other != id) {
            let goes = too_much.min(*there);
            *there -= goes;
            too_much -= goes;
        }
    }
}
