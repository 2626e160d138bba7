//! The table of one tenant's extents, and their states.
//!
//! ```text
//!              add
//!   (nothing) ──────> Resident <──────────────────────────────────┐
//!                       │                                         │ mapped by it
//!                       │ leave: copy out what changed, unmap     │
//!                       v                                         │
//!                    Leaving ────> Host ──────> Reserved ─────> Arriving ──────> Mapping
//!                        both done    there is a frame    copy in      copied: give access
//! ```
//!
//! A frame that is **reserved** for an extent is behind its addresses already, but without access. So the slowest step is
//! done while the contents are still on their way, or before the tenant wants them.
//!
//! Beside its state, an extent has a **backing**: room in the pool with its contents as they were when it last left.
//! The backing stays while the extent is resident, so that unchanged pages need no copy when it leaves again. One valid copy
//! of the contents is known at every moment: in the frame until the backing is current, in the backing
//! until the tenant may write again.
//!
//! Each transition is a method here, and keeps the [`Counts`] up to date, so that no caller has to add up all extents.

mod counts;
mod extent;
#[cfg(test)]
mod fitting;
mod recut;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use baton_contract::memory::SizeClass;
use baton_contract::messages::ExtentId;

use super::arena::{FrameId, Keepsake};
use super::pool::Run;
#[cfg(test)]
pub(crate) use extent::OFTEN_DIRTY;
use extent::{Backing, Contents};

pub use counts::Counts;
pub use extent::{Arrival, Copies, Delivery, Extent, ExtentState, Holds, PAGE, Page, not_zero};
pub use recut::{Fit, Recut};
pub use restore::{InPool, Where};

use super::sharing::Place;

/// A finished part of leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// All necessary pages were copied.
    Copied,
    /// The tenant has unmapped it.
    Unmapped,
    /// The last of the other tenants that share it has unmapped it too.
    LetGo,
}

/// The next step when an extent's contents are in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The tenant can map it.
    Map,
    /// The tenant has had this frame mapped all the time.
    InPlace(FrameId),
    /// The tenant has not got the frame, so the copy was in vain: the frame may be needed for others before the tenant gets it.
    Lost,
}

/// A tenant's extents.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub struct Extents {
    all: BTreeMap<ExtentId, Extent>,
    by_address: BTreeMap<u64, ExtentId>,
    last: u32,
    /// This tenant's numbers for other tenants' extents.
    borrowed: BTreeSet<ExtentId>,
    counts: Counts,
    /// Extents that have come, changed or gone since [`Extents::take_touched`].
    touched: Vec<ExtentId>,
}

impl Extents {
    /// The sums over all extents.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The extent with this number.
    pub fn get(&self, id: ExtentId) -> Option<&Extent> {
        self.all.get(&id)
    }

    /// All extents, in the order in which they were allocated.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ExtentId, &Extent)> {
        self.all.iter().map(|(id, extent)| (*id, extent))
    }

    /// The number of extents.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if there are no extents.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All extents, when the tenant has left.
    pub fn into_all(self) -> impl Iterator<Item = (ExtentId, Extent)> {
        self.all.into_iter()
    }

    /// Takes the extents that have come, changed or gone since the last call.
    pub fn take_touched(&mut self) -> Vec<ExtentId> {
        std::mem::take(&mut self.touched)
    }

    /// Changes an extent and updates the counts. No other method changes one alone.
    fn change<T>(&mut self, id: ExtentId, change: impl FnOnce(&mut Extent) -> T) -> Option<T> {
        let extent = self.all.get_mut(&id)?;
        self.touched.push(id);
        let before = Counts::of(extent);
        let result = change(extent);
        let after = Counts::of(extent);
        if before != after {
            self.counts = self.counts.less(&before).plus(&after);
        }
        Some(result)
    }

    /// Adds a new extent in this frame, which the tenant is about to map at this address. Nothing else lies there.
    pub fn add(&mut self, at: u64, class: SizeClass, frame: FrameId) -> ExtentId {
        self.enter(Extent::new(at, class, ExtentState::Resident { frame }, None))
    }

    fn enter(&mut self, extent: Extent) -> ExtentId {
        let id = self.next_number();
        self.put(id, extent);
        id
    }

    /// Numbers go up, so that the table is in order of allocation; they start again in 4 billion.
    fn next_number(&mut self) -> ExtentId {
        loop {
            self.last = self.last.wrapping_add(1);
            let id = ExtentId(self.last);
            if !self.all.contains_key(&id) && !self.borrowed.contains(&id) {
                return id;
            }
        }
    }

    fn put(&mut self, id: ExtentId, extent: Extent) {
        self.counts = self.counts.plus(&Counts::of(&extent));
        self.by_address.insert(extent.at, id);
        self.all.insert(id, extent);
        self.touched.push(id);
    }

    /// Reserves a number for another tenant's extent.
    pub fn borrow_number(&mut self) -> ExtentId {
        let id = self.next_number();
        self.borrowed.insert(id);
        id
    }

    /// Reserves the number that another coordinator has given another tenant's extent.
    pub fn lend_number(&mut self, id: ExtentId) {
        self.last = self.last.max(id.0);
        self.borrowed.insert(id);
    }

    /// Frees such a number.
    pub fn return_number(&mut self, id: ExtentId) {
        self.borrowed.remove(&id);
    }

    /// Sets whether other tenants share the extent. A shared extent is not cut anew.
    pub fn set_shared(&mut self, id: ExtentId, shared: bool) {
        self.change(id, |extent| extent.shared = shared);
    }

    /// Makes an extent whose owner no longer has it this tenant's own, under this tenant's number for it and at this address. `mapped`
    /// tells whether this tenant has it mapped; if not, the tenant was told to map it, to unmap it, or nothing, and has yet to answer.
    /// `held`: others still have it mapped. Returns the frame that the extent does not need.
    pub fn adopt(
        &mut self,
        id: ExtentId,
        (at, mapped): (u64, Place),
        mut extent: Extent,
        held: bool,
    ) -> Option<FrameId> {
        self.borrowed.remove(&id);
        (extent.at, extent.shared) = (at, false);
        // The pointers were found among the addresses of another process, and pages that it had freed are used here.
        (extent.contents, extent.spare) = (None, Vec::new());
        let (state, spare) = match (extent.state, mapped) {
            // An owner that takes turns with the others may have had it mapped after them.
            (ExtentState::Resident { frame } | ExtentState::Mapping { frame }, Place::Mapped) => {
                (ExtentState::Resident { frame }, None)
            }
            // The frame holds the only copy, or one that may be newer than the pool's.
            (ExtentState::Resident { frame }, _) => (ExtentState::Mapping { frame }, None),
            (ExtentState::Leaving { frame, copied, whole, .. }, place) => {
                let unmapped = place == Place::Away;
                match copied && unmapped && !held {
                    true => (ExtentState::Host, Some(frame)),
                    false => (ExtentState::Leaving { frame, copied, unmapped, whole }, None),
                }
            }
            (ExtentState::Host, _) => (ExtentState::Host, None),
            // The frame was for the owner, which had begun to map it. The extent gets another one.
            (ExtentState::Reserved { frame, .. }, _) => (ExtentState::Host, Some(frame)),
            (ExtentState::Arriving { frame, .. }, _) => (ExtentState::Arriving { frame, lost: true }, None),
            (ExtentState::Mapping { frame }, _) => {
                let (holds, delivery) = (Holds::Contents, Delivery::Lost);
                (ExtentState::Reserved { frame, holds, delivery }, None)
            }
        };
        extent.state = state;
        self.put(id, extent);
        spare
    }

    fn take_out(&mut self, id: ExtentId) -> Option<Extent> {
        let extent = self.all.remove(&id)?;
        self.touched.push(id);
        self.by_address.remove(&extent.at);
        self.counts = self.counts.less(&Counts::of(&extent));
        Some(extent)
    }

    /// The extents that lie wholly or partly in a range of addresses, in order.
    pub fn within(&self, at: u64, bytes: u64) -> impl Iterator<Item = (ExtentId, &Extent)> {
        let end = at.saturating_add(bytes);
        let before = self.by_address.range(..at).next_back();
        let all = before.into_iter().chain(self.by_address.range(at..end));
        all.filter_map(|(_, id)| Some((*id, self.all.get(id)?)))
            .filter(move |(_, extent)| extent.at < end && at < extent.at + extent.class.bytes())
    }

    /// Removes an extent that the tenant has unmapped and needs no longer. None if the tenant does not have it mapped.
    pub fn remove(&mut self, id: ExtentId) -> Option<Extent> {
        self.all.get(&id).filter(|extent| extent.may_be_mapped())?;
        self.take_out(id)
    }

    /// Removes an extent like [`Extents::remove`], for one of those that share it: it is not among those that were
    /// [touched](Self::take_touched).
    pub fn remove_for_heir(&mut self, id: ExtentId) -> Option<Extent> {
        let touched = self.touched.len();
        let removed = self.remove(id);
        self.touched.truncate(touched);
        removed
    }

    /// Removes an extent, in whichever state, for one that shares it: the tenant keeps its number, which is now for another tenant's extent.
    /// As [`Extents::remove_for_heir`], it is not among those that were touched.
    pub fn pass_on(&mut self, id: ExtentId) -> Option<Extent> {
        let touched = self.touched.len();
        let passed = self.take_out(id)?;
        self.touched.truncate(touched);
        self.borrowed.insert(id);
        Some(passed)
    }

    /// Notes that the tenant has freed this range of its mapped memory, or uses it again. False if the tenant has not mapped the whole
    /// range, or if a part of it was in that state already.
    pub fn set_spare(&mut self, at: u64, bytes: u64, spare: bool) -> bool {
        if !at.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) || at.checked_add(bytes).is_none() {
            return false;
        }
        let pages = |extent: &Extent| {
            let (start, end) = (at.max(extent.at), (at + bytes).min(extent.at + extent.class.bytes()));
            ((start - extent.at) / PAGE) as usize..((end - extent.at) / PAGE) as usize
        };
        let mut covered = 0;
        let mut touched = Vec::new();
        for (id, extent) in self.within(at, bytes) {
            if !extent.may_be_mapped() || pages(extent).any(|page| extent.is_spare(page) == spare) {
                return false;
            }
            covered += pages(extent).len() as u64 * PAGE;
            touched.push(id);
        }
        if covered != bytes {
            return false;
        }
        for id in touched {
            self.change(id, |extent| {
                let pages = pages(extent);
                extent.spare.resize(extent.pages(), false);
                extent.spare[pages].fill(spare);
                if !extent.spare.contains(&true) {
                    extent.spare = Vec::new();
                }
            });
        }
        true
    }

    /// Notes that the tenant may write to all its resident extents from now on.
    pub fn may_change(&mut self) {
        for extent in self.all.values_mut().filter(|extent| extent.state.is_resident()) {
            self.counts.unread += usize::from(extent.pointers().is_some());
            extent.may_change();
        }
    }

    /// Makes a resident extent leave, into its backing or into this new one. Returns the frame to leave. If nothing has to be
    /// copied, the copy counts as done.
    pub fn leave(&mut self, id: ExtentId, new: Option<Vec<Run>>, nothing_to_copy: bool) -> Option<FrameId> {
        self.change(id, |extent| {
            let ExtentState::Resident { frame } = extent.state else { return None };
            if let Some(runs) = new {
                extent.backing = Some(Backing { runs, pages: Vec::new(), before: Vec::new(), current: false });
            }
            if !extent.backing.as_ref()?.current {
                let pages = extent.contents.as_ref().map_or(Vec::new(), |contents| contents.pages.clone());
                let pages = extent.as_copied(pages);
                let backing = extent.backing.as_mut()?;
                let before = std::mem::replace(&mut backing.pages, pages);
                backing.before = if extent.contents.is_none() { before } else { Vec::new() };
                backing.current = nothing_to_copy;
            }
            extent.state = ExtentState::Leaving { frame, copied: nothing_to_copy, unmapped: false, whole: true };
            Some(frame)
        })?
    }

    /// Takes the reserved frame away from an extent, for another use. False if it has none.
    pub fn give_up_reserved(&mut self, id: ExtentId) -> bool {
        let gave_up = self.change(id, |extent| {
            let ExtentState::Reserved { frame, holds, .. } = extent.state else { return false };
            let whole = holds == Holds::Contents;
            extent.state = ExtentState::Leaving { frame, copied: true, unmapped: false, whole };
            true
        });
        gave_up == Some(true)
    }

    /// Lets an extent leave though its tenant does not unmap it now. Returns the frame that the tenant still has mapped, and true if
    /// that is new: the extent may have been on its way back to that frame.
    pub fn leave_behind(&mut self, id: ExtentId) -> Option<(FrameId, bool)> {
        self.change(id, |extent| {
            let ExtentState::Leaving { frame, unmapped: false, .. } = extent.state else { return None };
            Some((frame, extent.left_behind.replace(frame).is_none()))
        })?
    }

    /// Notes that the tenant has unmapped the frame that it was left with, and returns that frame.
    pub fn on_unmapped(&mut self, id: ExtentId) -> Option<FrameId> {
        self.change(id, |extent| extent.left_behind.take())?
    }

    /// Stops the mapping of extents for an unresponsive tenant: their frames may belong to others by the time that it answers.
    pub fn map_no_more(&mut self) {
        let mapping = |(id, extent): (&ExtentId, &Extent)| match extent.state {
            ExtentState::Mapping { .. } if extent.backing.as_ref().is_some_and(|backing| backing.current) => Some(*id),
            _ => None,
        };
        let all: Vec<ExtentId> = self.all.iter().filter_map(mapping).collect();
        for id in all {
            self.change(id, |extent| {
                if let ExtentState::Mapping { frame } = extent.state {
                    let (holds, delivery) = (Holds::Contents, Delivery::Sent);
                    extent.state = ExtentState::Reserved { frame, holds, delivery };
                }
            });
        }
    }

    /// Notes that a part of leaving is done. When all parts are, the frame is free, and the result is that frame and its
    /// contents. `held`: others still have it mapped.
    pub fn on_left(&mut self, id: ExtentId, half: Half, held: bool) -> Option<(FrameId, Holds)> {
        self.change(id, |extent| {
            let ExtentState::Leaving { frame, copied, unmapped, whole } = &mut extent.state else { return None };
            match half {
                Half::Copied => *copied = true,
                Half::Unmapped => *unmapped = true,
                Half::LetGo => {}
            }
            if let Some(backing) = extent.backing.as_mut().filter(|_| *copied) {
                backing.current = true;
            }
            if !*copied || !*unmapped || held {
                return None;
            }
            let (frame, whole) = (*frame, *whole);
            extent.state = ExtentState::Host;
            let holds = match () {
                () if !whole => Holds::Nothing,
                () if extent.is_zero() => Holds::Zeros,
                () => Holds::Contents,
            };
            Some((frame, holds))
        })?
    }

    /// Notes that the frame which an extent has left is kept for it.
    pub fn on_kept(&mut self, id: ExtentId, frame: FrameId, keepsake: Keepsake) {
        self.change(id, |extent| extent.kept = (extent.state == ExtentState::Host).then_some((frame, keepsake)));
    }

    /// Gives an extent that is in the pool a frame with these contents. False if the extent has a frame, or is gone.
    pub fn reserve(&mut self, id: ExtentId, frame: FrameId, holds: Holds) -> bool {
        let reserved = self.change(id, |extent| {
            // The tenant unmaps the frame that it was left with before another frame can lie there.
            let is_without = extent.state == ExtentState::Host && extent.left_behind.is_none();
            if is_without {
                extent.state = ExtentState::Reserved { frame, holds, delivery: Delivery::Sent };
                extent.kept = None;
            }
            is_without
        });
        reserved == Some(true)
    }

    /// Reserves the frame that the tenant was left with for the extent again, if no other tenant has it now. False if that is impossible.
    pub fn reserve_in_place(&mut self, id: ExtentId, holds: Holds) -> bool {
        let reserved = self.change(id, |extent| {
            let Some(frame) = extent.left_behind.filter(|_| extent.state == ExtentState::Host) else { return false };
            extent.state = ExtentState::Reserved { frame, holds, delivery: Delivery::Sent };
            extent.kept = None;
            true
        });
        reserved == Some(true)
    }

    /// Starts the copy of an extent's contents to its frame. Returns the frame and its present contents; none if the extent has no
    /// frame, or the tenant may not have got it.
    pub fn arrive(&mut self, id: ExtentId) -> Option<(FrameId, Holds)> {
        self.change(id, |extent| match extent.state {
            ExtentState::Reserved { frame, holds, delivery: Delivery::Sent } if extent.backing.is_some() => {
                extent.state = ExtentState::Arriving { frame, lost: false };
                Some((frame, holds))
            }
            _ => None,
        })?
    }

    /// Notes that an extent's contents are in its frame.
    pub fn on_arrived(&mut self, id: ExtentId) -> Arrived {
        let arrived = self.change(id, |extent| match extent.state {
            ExtentState::Arriving { frame, .. } if extent.left_behind == Some(frame) => {
                (extent.state, extent.left_behind) = (ExtentState::Resident { frame }, None);
                Arrived::InPlace(frame)
            }
            ExtentState::Arriving { frame, lost: false } => {
                extent.state = ExtentState::Mapping { frame };
                Arrived::Map
            }
            ExtentState::Arriving { frame, lost: true } => {
                extent.state = ExtentState::Reserved { frame, holds: Holds::Nothing, delivery: Delivery::Lost };
                Arrived::Lost
            }
            _ => Arrived::Lost,
        });
        arrived.unwrap_or(Arrived::Lost)
    }

    /// Notes that the tenant has mapped an extent, and may have written to it already.
    pub fn on_mapped(&mut self, id: ExtentId, may_write: bool) {
        self.change(id, |extent| {
            if let ExtentState::Mapping { frame } = extent.state {
                extent.state = ExtentState::Resident { frame };
                if may_write {
                    extent.may_change();
                }
            }
        });
    }

    /// Notes that an extent's frame did not reach the tenant.
    pub fn lose(&mut self, id: ExtentId) {
        self.change(id, |extent| {
            extent.state = match extent.state {
                ExtentState::Reserved { frame, holds, .. } => {
                    ExtentState::Reserved { frame, holds, delivery: Delivery::Lost }
                }
                ExtentState::Arriving { frame, .. } => ExtentState::Arriving { frame, lost: true },
                ExtentState::Mapping { frame } if extent.backing.as_ref().is_some_and(|backing| backing.current) => {
                    ExtentState::Reserved { frame, holds: Holds::Nothing, delivery: Delivery::Lost }
                }
                // The extent is leaving already.
                other => other,
            };
        });
    }

    /// Sends frames that did not reach the tenant again, at most `most`. Returns their extents.
    pub fn send_again(&mut self, most: usize) -> Vec<ExtentId> {
        let is_lost = |extent: &Extent| matches!(extent.state, ExtentState::Reserved { delivery: Delivery::Lost, .. });
        if self.counts.lost == 0 {
            return Vec::new();
        }
        let lost: Vec<ExtentId> =
            self.iter().filter(|(_, extent)| is_lost(extent)).map(|(id, _)| id).take(most).collect();
        lost.iter().for_each(|id| self.deliver(*id, Delivery::SentAgain));
        lost
    }

    /// Notes that a frame which was sent again has reached the tenant.
    pub fn on_delivered(&mut self, id: ExtentId) {
        let state = self.get(id).map(Extent::state);
        if matches!(state, Some(ExtentState::Reserved { delivery: Delivery::SentAgain, .. })) {
            self.deliver(id, Delivery::Sent);
        }
    }

    fn deliver(&mut self, id: ExtentId, now: Delivery) {
        self.change(id, |extent| {
            if let ExtentState::Reserved { delivery, .. } = &mut extent.state {
                *delivery = now;
            }
        });
    }

    /// Makes a resident extent immovable. It needs no backing any more; returns the room of that.
    pub fn make_immovable(&mut self, id: ExtentId) -> Vec<Run> {
        let backing = self.change(id, |extent| {
            extent.immovable |= extent.state.is_resident();
            extent.backing.take_if(|_| extent.immovable)
        });
        backing.flatten().map_or(Vec::new(), |backing| backing.runs)
    }

    /// Takes a resident extent's room in the pool.
    pub fn give_up_backing(&mut self, id: ExtentId) -> Option<Vec<Run>> {
        self.change(id, |extent| extent.backing.take_if(|_| extent.state.is_resident()))?.map(|backing| backing.runs)
    }

    /// Notes that an extent was copied to a place in the pool while it was resident in this frame and could be written to at any time;
    /// `pages` describes the copy. Returns the room that is not needed: the old backing, or all of `runs` if the extent has left the frame.
    pub fn on_copied_ahead(&mut self, id: ExtentId, frame: FrameId, pages: Vec<Page>, runs: Vec<Run>) -> Vec<Run> {
        if !self.get(id).is_some_and(|extent| extent.is_evictable() && extent.state.frame() == Some(frame)) {
            return runs;
        }
        let before = self.change(id, |extent| {
            // The extent is scanned before it counts as changed.
            extent.dirty = 0;
            extent.backing.replace(Backing { runs, pages, before: Vec::new(), current: false })
        });
        before.flatten().map_or(Vec::new(), |backing| backing.runs)
    }

    /// Enters a scan's result for an extent.
    pub fn on_scanned(&mut self, id: ExtentId, pages: Vec<Page>, pointers: Option<Vec<u64>>) {
        self.change(id, |extent| {
            extent.zero = pages.iter().all(|page| page.zero);
            extent.contents = Some(Contents { pages: pages.clone(), pointers });
            extent.count_changes();
            if !extent.state.is_resident() {
                // The extent left unscanned; now its pages are known.
                let pages = extent.as_copied(pages);
                if let Some(backing) = &mut extent.backing {
                    backing.pages = pages;
                }
            }
        });
    }
}
