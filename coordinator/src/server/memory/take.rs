//! Memory that is taken without asking, from a tenant that does not answer: it was stopped, or waits for work that is paused.
//!
//! Its work is off the GPU, so its memory can be copied out as anybody's. Only the tenant can unmap it, so its mappings still lead to the
//! frames that others get then. That does no harm as long as nothing of the tenant runs: it is let on the GPU again only
//!
//! - when it has **answered**, and has unmapped what it was left with; then its memory comes as it always does;
//! - or **in place**, if it cannot change mappings before its work goes on: others leave the very frames that it has mapped, what
//!   it had there comes back, and its work goes on as if nothing had been.
//!
//! A frame that somebody has mapped whose it is no more is neither exchanged nor given back to the driver ([`Arena::hold`]).
//!
//! [`Arena::hold`]: baton_books::arena::Arena::hold

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::SeqCst;

use baton_contract::messages::{ExtentId, MAX_LISTED, MemoryCommand};
use baton_contract::page::{PAUSED, TAKEN};

use super::transfer::Group;
use super::{Access, MemoryEvent};
use crate::server::tenants::memory::Batch;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::extents::{Extent, ExtentState, Half, Holds};
use baton_policy::arbiter::TenantId;

impl Access<'_> {
    /// A tenant that is off the GPU does not answer: from now on its memory leaves without being unmapped there.
    pub(in crate::server) fn take(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.connection.page.taken.fetch_max(PAUSED, SeqCst);
        let signs = tenant.signs_of_life();
        tenant.memory.take(signs);
        let told = tenant.memory.to_be_unmapped();
        if let Some(mut own) = self.tenants.extents(id) {
            own.map_no_more();
        }
        self.leave_behind(id, &told);
    }

    /// Extents are leaving that their tenant does not unmap now.
    pub(super) fn leave_behind(&mut self, id: TenantId, extents: &[ExtentId]) {
        for extent in extents {
            let behind = self.tenants.extents(id).and_then(|mut own| own.leave_behind(*extent));
            let Some((frame, is_news)) = behind else { continue };
            if is_news {
                // Before anybody else gets it: from here on the tenant must not go on by itself.
                if let Some(tenant) = self.tenants.get(id) {
                    tenant.connection.page.taken.store(TAKEN, SeqCst);
                }
                self.memory.frames.hold(frame);
            }
            self.half_left(id, *extent, Half::Unmapped);
        }
    }

    /// A tenant has unmapped what may have been left with it.
    pub(super) fn unmapped(&mut self, id: TenantId, extent: ExtentId) {
        let behind = self.tenants.extents(id).and_then(|mut own| own.unmapped(extent));
        if let Some(frame) = behind {
            self.memory.frames.unhold(frame);
            self.can_be_recut(id);
        }
        self.is_whole_again(id);
    }

    /// If nothing of others is mapped in a tenant any more that answers, it may go on without us, and with us.
    pub(super) fn is_whole_again(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get(id)
            && !tenant.memory.is_taken()
            && tenant.extents().counts().left_behind == 0
            && tenant.connection.page.taken.swap(0, SeqCst) == TAKEN
        {
            self.happened(MemoryEvent::Whole(id));
        }
    }

    /// A tenant answers again, and can change mappings, or is let in: it unmaps what it was left with, but for what is on its way back
    /// there.
    pub(in crate::server) fn untake(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.memory.is_taken()) else { return };
        tenant.memory.untake();
        let told: HashSet<ExtentId> = tenant.memory.to_be_unmapped().into_iter().collect();
        let is_left = |extent: &Extent| extent.left_behind().is_some() && !extent.comes_in_place();
        let behind = tenant.extents().iter().filter(|(_, extent)| is_left(extent));
        let behind: Vec<ExtentId> = behind.map(|(extent, _)| extent).filter(|extent| !told.contains(extent)).collect();
        for extents in behind.chunks(MAX_LISTED) {
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let (batch, extents) = (tenant.memory.add_batch(Batch::Unmap(extents.to_vec())), extents.to_vec());
            self.tenants.tell(id, &MemoryCommand::Unmap { batch, extents });
        }
        self.is_whole_again(id);
    }

    /// Brings what was taken of a tenant back to where it was. It is arriving, so others are off the GPU, or leave it.
    pub(super) fn return_in_place(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let away = tenant.extents().iter().filter(|(_, extent)| extent.state() == ExtentState::Host);
        let away: Vec<(ExtentId, FrameId)> =
            away.filter_map(|(number, extent)| Some((number, extent.left_behind()?))).collect();
        if away.is_empty() {
            return;
        }
        let (mut ready, mut lent) = (Vec::new(), HashSet::new());
        for (extent, frame) in away {
            let kept = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)?.kept());
            let holds = match kept {
                Some((kept, keepsake)) if kept == frame && self.memory.frames.take_kept(frame, keepsake) => {
                    Holds::Contents
                }
                _ if self.memory.frames.take_this(frame) => Holds::Nothing,
                _ => {
                    lent.insert(frame);
                    continue;
                }
            };
            if self.tenants.extents(id).is_some_and(|mut own| own.reserve_in_place(extent, holds)) {
                ready.push(extent);
            }
        }
        log::debug!("{id:?} returns in place: {} extents come, others leave {}", ready.len(), lent.len());
        self.start_copies(id, &ready);
        if lent.is_empty() {
            return;
        }
        // Those who have these frames now leave them.
        let mut theirs: HashMap<TenantId, Vec<ExtentId>> = HashMap::new();
        for (other, tenant) in self.tenants.iter().filter(|(other, _)| *other != id) {
            for (extent, entry) in tenant.extents().iter() {
                if entry.state().frame().is_some_and(|frame| lent.contains(&frame)) {
                    theirs.entry(other).or_default().push(extent);
                }
            }
        }
        for (other, extents) in theirs {
            self.make_leave(other, extents);
        }
    }

    /// Has these extents of a tenant that is off the GPU leave, whether they are resident or have only got their frames.
    pub(super) fn make_leave(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        if !self.is_off_the_gpu(id) || !self.tenants.get(id).is_some_and(Tenant::is_evictable) {
            return;
        }
        let mut group = Group::default();
        for extent in &extents {
            if self.tenants.extents(id).is_some_and(|mut own| own.give_up_reserved(*extent)) {
                group.leaving.push(*extent);
            }
        }
        self.submit_leaving(id, group);
        self.evict_these(id, extents);
    }
}
