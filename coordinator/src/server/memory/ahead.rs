//! Copies of memory that a program may have to give up, made while it rests. When another one asks, only data that has changed
//! since is copied.
//!
//! The program has its turn and may go on at any moment. So its memory is scanned and copied in steps of about a millisecond, and a
//! step counts only if the program has rested all the time ([`TenantPage::rests`](baton_contract::page::TenantPage::rests)): then
//! the copy equals the data scanned before. Later changes are found by the scan that begins every eviction ([`super::scan`]),
//! behind a closed gate.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;

use baton_contract::messages::ExtentId;

use super::ground::Ground;
use super::residency::{Ahead, Residency};
use super::scans::ScanAhead;
use super::transfer::{Copied, Group, Rest};
use crate::device::digest::{PAGE, Page, Scanned};
use crate::server::recorder::event::What;
use baton_books::arena::FrameId;
use baton_books::extents::{Extent, not_zero};
use baton_policy::arbiter::TenantId;

/// Bytes scanned and bytes copied in a step: each takes a GPU of 80 GB about a millisecond (measured). A step may be one extent
/// larger.
const LOOK_BYTES: u64 = 1 << 30;
const COPY_BYTES: u64 = 48 << 20;

impl Ground<'_> {
    /// The rest that a program is in, if it is in one.
    fn rest_of(&self, id: TenantId) -> Option<Rest> {
        let tenant = self.tenants.get(id).filter(|tenant| tenant.is_movable() && !tenant.memory.is_taken())?;
        let number = tenant.connection.theirs.rests.load(SeqCst);
        (!number.is_multiple_of(2)).then(|| Rest { grant: tenant.turn.number(), number })
    }

    /// The frame of an extent, if the extent could leave.
    fn could_leave(&self, id: TenantId, extent: ExtentId) -> Option<FrameId> {
        let entry = self.tenants.get(id)?.extents().get(extent).filter(|entry| Extent::is_evictable(entry))?;
        entry.frame_of_contents().filter(|_| self.is_let_go(id, extent))
    }

    /// Scans the next extents.
    fn scan_ahead(&mut self, ahead: &mut Ahead) {
        let (mut extents, mut pages) = (Vec::new(), Vec::new());
        while (pages.len() as u64) < LOOK_BYTES / PAGE
            && let Some(extent) = ahead.left.pop_front()
        {
            let Some(frame) = self.could_leave(ahead.tenant, extent) else { continue };
            let Some(memory) = self.store.frames.memory(frame) else { continue };
            pages.extend((0..memory.bytes / PAGE).map(|page| memory.address + page * PAGE));
            extents.push((extent, frame));
        }
        if extents.is_empty() {
            return;
        }
        self.store.frames.begin_reading(&frames(&extents));
        // SAFETY: frames stay mapped here while they are in use, and `release` keeps those that are looked at.
        unsafe {
            self.store.scans.begin_ahead(pages, ScanAhead { tenant: ahead.tenant, rest: ahead.rest, extents });
        }
    }

    /// Copies some of the changed extents into separate room: the earlier copy may still be needed. Returns false if nothing has
    /// changed, or there is no room.
    fn copy_changed(&mut self, ahead: &mut Ahead) -> bool {
        let (mut group, mut copied) = (Group::default(), Vec::new());
        while group.whole < COPY_BYTES
            && let Some((extent, frame, pages)) = ahead.changed.pop_front()
        {
            if self.could_leave(ahead.tenant, extent) != Some(frame) {
                continue;
            }
            let Some(memory) = self.store.frames.memory(frame) else { continue };
            let Some(runs) = self.store.host.take(memory.bytes) else {
                // No tenant loses room for this.
                ahead.changed.clear();
                ahead.left.clear();
                break;
            };
            group.whole += memory.bytes;
            for part in not_zero(&pages) {
                group.add_part(memory.address, &runs, part, |run| self.store.host.address(run));
            }
            copied.push(Copied { extent, frame, pages, runs });
        }
        if copied.is_empty() {
            return false;
        }
        self.store.frames.begin_reading(&copied.iter().map(|one| one.frame).collect::<Vec<_>>());
        // SAFETY: `release` keeps frames that are being read, and the runs are the task's own. Words that the program writes meanwhile
        // may be copied or not: then the copy does not count.
        unsafe { self.store.transfer.copy_ahead(ahead.tenant, ahead.rest, group, copied) };
        true
    }
}

impl Residency {
    /// Takes the next step, if a resting program has memory that others may want.
    pub(super) fn copy_ahead(&mut self, ground: &mut Ground<'_>, wanted: u64) {
        let is_copying = ground.store.transfer.is_copying_ahead();
        if !ground.store.rules.hash || is_copying || ground.store.scans.is_looking_ahead() {
            return;
        }
        let resting = ground.arbiter.holder().filter(|id| ground.arbiter.is_resting(*id));
        let rest = resting.and_then(|id| Some((id, ground.rest_of(id)?)));
        // If everything fits, no tenant will want any of it.
        let Some((id, rest)) = rest.filter(|_| wanted > ground.store.frames.arena().capacity()) else {
            self.ahead = None;
            return;
        };
        let ahead = self.ahead.take().filter(|ahead| (ahead.tenant, ahead.rest) == (id, rest));
        let mut ahead = ahead.unwrap_or_else(|| {
            // The memory used last goes first.
            let left = ground.tenants[id].extents().iter().rev().map(|(extent, _)| extent).collect();
            Ahead { tenant: id, rest, left, changed: VecDeque::new() }
        });
        if !ground.copy_changed(&mut ahead) {
            ground.scan_ahead(&mut ahead);
        }
        self.ahead = Some(ahead);
    }

    /// Handles the end of such a scan.
    pub(super) fn on_scanned_ahead(&mut self, ground: &mut Ground<'_>, look: ScanAhead, scanned: Scanned) {
        ground.store.frames.end_reading(&frames(&look.extents));
        let Ok(scan) = scanned.result else { return };
        ground
            .recorder
            .record(look.tenant, What::Scanned { bytes: scan.pages.len() as u64 * PAGE, time: scanned.time });
        let rests = ground.rest_of(look.tenant) == Some(look.rest);
        let is_its = |ahead: &&mut Ahead| rests && (ahead.tenant, ahead.rest) == (look.tenant, look.rest);
        let Some(ahead) = self.ahead.as_mut().filter(is_its) else { return };
        let Some(tenant) = ground.tenants.get(look.tenant) else { return };
        let mut pages = scan.pages.into_iter();
        for (extent, frame) in look.extents {
            let Some(entry) = tenant.extents().get(extent) else { return };
            let pages: Vec<Page> = pages.by_ref().take((entry.class().bytes() / PAGE) as usize).collect();
            if entry.differs(&pages) {
                ahead.changed.push_back((extent, frame, pages));
            }
        }
        // For the next step.
        self.waker.wake();
    }

    /// Handles the end of such a copy, successful or not.
    pub(super) fn on_copied_ahead(
        &self,
        ground: &mut Ground<'_>,
        id: TenantId,
        rest: Rest,
        copied: Vec<Copied>,
        well: bool,
    ) {
        let counts = well && ground.rest_of(id) == Some(rest);
        for Copied { extent, frame, pages, runs } in copied {
            let over = match ground.tenants.extents(id).filter(|_| counts) {
                Some(mut extents) => extents.on_copied_ahead(extent, frame, pages, runs),
                None => runs,
            };
            ground.store.host.give_back(over);
            ground.store.frames.end_reading(&[frame]);
        }
        self.waker.wake();
    }
}

fn frames(extents: &[(ExtentId, FrameId)]) -> Vec<FrameId> {
    extents.iter().map(|(_, frame)| *frame).collect()
}
