//! Memory that arrives: in the order of its first use, in groups, into frames that are reserved for it.

use std::collections::VecDeque;

use baton_contract::memory::SizeClass;
use baton_contract::messages::ExtentId;
use baton_contract::wire::MAX_DESCRIPTORS;

use super::ground::Ground;
use super::transfer::{GROUP_EXTENTS, Group};
use crate::device::mover::Lane;
use baton_books::arena::FrameId;
use baton_books::extents::{Arrived, Extent, Holds};
use baton_policy::arbiter::TenantId;
use baton_policy::arrival;
use baton_policy::planner::Item;

impl Ground<'_> {
    /// Gives an extent that is in the pool a frame. [`Self::tell_reserved`] tells the tenant.
    pub(super) fn reserve(&mut self, id: TenantId, extent: ExtentId, frame: FrameId, holds: Holds) {
        // Clean ones are poisoned.
        let holds = if holds == Holds::Zeros && self.store.frames.is_poisoned() { Holds::Nothing } else { holds };
        if !self.tenants.extents(id).is_some_and(|mut extents| extents.reserve(extent, frame, holds)) {
            return self.store.frames.give_back(frame);
        }
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.memory.reserved.push(extent);
        }
    }

    /// Has the tenant put the new frames behind its extents.
    pub(super) fn tell_reserved(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let reserved = std::mem::take(&mut tenant.memory.reserved);
        self.send_frames(id, &reserved, MAX_DESCRIPTORS);
    }

    fn start_arrival(&mut self, id: TenantId, extent: ExtentId, job: &mut Group) {
        let Some(mut extents) = self.tenants.extents(id) else { return };
        let Some((frame, holds)) = extents.arrive(extent) else { return };
        let Some(entry) = extents.get(extent) else { return };
        let address = self.store.frames.memory(frame).map_or(0, |memory| memory.address);
        let (arrival, runs) = (entry.arrival(), entry.runs().unwrap_or_default());
        job.extents.push(extent);
        job.whole += entry.class().bytes();
        if holds == Holds::Contents {
            return;
        }
        for part in arrival.copied {
            job.add_part(address, runs, part, |run| self.store.host.address(run));
        }
        for part in arrival.zeros {
            job.zeros += part.end - part.start;
            if holds != Holds::Zeros {
                job.add_zeros(address, part);
            }
        }
    }

    /// A tenant's missing extents, in the order in which it will use them.
    pub(super) fn order_of(&self, id: TenantId) -> Vec<(ExtentId, SizeClass)> {
        let Some(tenant) = self.tenants.get(id) else { return Vec::new() };
        let can_come = |extent: &Extent| extent.state().can_come() && extent.left_behind().is_none();
        let missing = tenant.extents().iter().filter(|(_, extent)| can_come(extent));
        let mut wanted: Vec<(ExtentId, SizeClass)> = missing.map(|(id, extent)| (id, extent.class())).collect();
        tenant.memory.history.order(&mut wanted, |(id, _)| *id);
        wanted
    }

    /// Handles extents whose contents have arrived: the tenant may map them.
    pub(super) fn on_arrived(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        let Some(mut own) = self.tenants.extents(id) else { return };
        let (mut came, mut in_place) = (Vec::new(), Vec::new());
        for extent in extents {
            match own.on_arrived(extent) {
                Arrived::Map => came.push(extent),
                Arrived::InPlace(frame) => in_place.push(frame),
                Arrived::Lost => {}
            }
        }
        drop(own);
        in_place.into_iter().for_each(|frame| self.store.frames.unhold(frame));
        self.map(id, came);
    }

    /// Gives an extent back the frame that it left last, if no other tenant has needed it since. Then no copy is needed.
    pub(super) fn reserve_kept(&mut self, id: TenantId, extent: ExtentId) -> bool {
        let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
        let Some((frame, keepsake)) = entry.and_then(Extent::kept) else { return false };
        let is_kept = self.store.frames.take_kept(frame, keepsake);
        if is_kept {
            self.reserve(id, extent, frame, Holds::Contents);
        }
        is_kept
    }

    /// Starts the copies into reserved frames, as one job or, if there are very many, several.
    pub(super) fn start_copies(&mut self, id: TenantId, extents: &[ExtentId]) {
        let mut job = Group::default();
        for extent in extents {
            self.start_arrival(id, *extent, &mut job);
            if job.extents.len() >= GROUP_EXTENTS {
                self.submit(Lane::In, id, std::mem::take(&mut job));
            }
        }
        self.submit(Lane::In, id, job);
    }

    /// Divides extents that are to come in this order into groups.
    pub(super) fn in_groups(&self, id: TenantId, wanted: &[(ExtentId, SizeClass)]) -> VecDeque<Vec<ExtentId>> {
        let Some(tenant) = self.tenants.get(id) else { return VecDeque::new() };
        let items: Vec<Item> = wanted
            .iter()
            .map(|(id, class)| Item {
                bytes: if tenant.extents().get(*id).is_some_and(Extent::is_in_frame) { 0 } else { class.bytes() },
                extents: 1,
                first_use: tenant.memory.history.first_use(*id).unwrap_or(u64::MAX),
            })
            .collect();
        let ends = arrival::groups(&items, &self.costs.costs(), self.store.rules.pipeline, GROUP_EXTENTS);
        let mut groups = VecDeque::new();
        let mut start = 0;
        for end in ends {
            groups.push_back(wanted[start..end].iter().map(|(id, _)| *id).collect());
            start = end;
        }
        groups
    }

    /// A tenant's missing extents, in groups.
    pub(super) fn groups_of(&self, id: TenantId) -> VecDeque<Vec<ExtentId>> {
        self.in_groups(id, &self.order_of(id))
    }
}
