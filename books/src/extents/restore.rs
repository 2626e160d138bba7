//! Extents that a coordinator takes over from another one.

use baton_contract::messages::{ExtentId, HeldExtent};

use super::Extents;
use super::extent::{Backing, Delivery, Extent, ExtentState, Holds, PAGE, Page};
use crate::arena::FrameId;
use crate::pool::Run;

/// An extent's place in the pool: its room, and which of its pages are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPool {
    /// Its room; none if all of it is zeros.
    pub runs: Vec<Run>,
    /// True for each page that is zeros.
    pub zeros: Vec<bool>,
}

/// Where an extent is, as the table and its tenant say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// In a frame that the tenant has mapped.
    Resident(FrameId),
    /// In a frame that the tenant has, and is to map.
    ToBeMapped(FrameId),
    /// In a frame that the tenant has unmapped: it is to be copied out, into this room if there is any.
    ToBeCopied(FrameId, Vec<Run>),
    /// In the pool, and in a frame that the tenant is to unmap.
    ToBeUnmapped(FrameId, InPool),
    /// In the pool, and in a frame that the tenant has unmapped and others, that share it, have not.
    ToBeLetGo(FrameId, InPool),
    /// In the pool; the tenant has this frame for it, whose contents are worthless.
    Reserved(FrameId, InPool),
    /// In the pool, although the tenant has a frame mapped there: it was taken without asking, and is to be unmapped.
    LeftBehind(InPool),
    /// In the pool.
    Host(InPool),
    /// Nowhere: the table and the tenant disagree.
    Lost,
}

impl Extents {
    /// Enters an extent that another coordinator has left, where it was found. False if there is one of this number or at this address, or it is
    /// lost.
    pub fn restore(&mut self, held: &HeldExtent, found: Where) -> bool {
        let HeldExtent { id, at, class, .. } = *held;
        if self.within(at, class.bytes()).next().is_some() || self.all.contains_key(&id) {
            return false;
        }
        let (state, pool) = match found {
            Where::Resident(frame) => (ExtentState::Resident { frame }, None),
            Where::ToBeMapped(frame) => (ExtentState::Mapping { frame }, None),
            Where::ToBeCopied(frame, _) => {
                (ExtentState::Leaving { frame, copied: false, unmapped: true, whole: true }, None)
            }
            Where::ToBeUnmapped(frame, pool) => {
                (ExtentState::Leaving { frame, copied: true, unmapped: false, whole: true }, Some(pool))
            }
            Where::ToBeLetGo(frame, pool) => {
                (ExtentState::Leaving { frame, copied: true, unmapped: true, whole: true }, Some(pool))
            }
            Where::Reserved(frame, pool) => {
                let (holds, delivery) = (Holds::Nothing, Delivery::Sent);
                (ExtentState::Reserved { frame, holds, delivery }, Some(pool))
            }
            Where::Host(pool) | Where::LeftBehind(pool) => (ExtentState::Host, Some(pool)),
            Where::Lost => return false,
        };
        let backing = pool.map(|InPool { runs, zeros }| {
            // No page is known to be equal to one that is found later.
            let pages = zeros.into_iter().map(|zero| Page { digest: if zero { [0, 0] } else { [!0, !0] }, zero });
            Backing { runs, pages: pages.collect(), before: Vec::new(), current: true }
        });
        self.last = self.last.max(id.0);
        self.put(id, Extent::new(at, class, state, backing));
        true
    }

    /// Gives an extent that is to be copied out room in the pool for that.
    pub fn give_room(&mut self, id: ExtentId, runs: Vec<Run>) {
        self.change(id, |extent| {
            extent.backing = Some(Backing { runs, pages: Vec::new(), before: Vec::new(), current: false });
        });
    }

    /// Notes that the tenant has freed this range, wherever it is, as far as it is its memory.
    pub fn restore_spare(&mut self, at: u64, bytes: u64) {
        let end = at.saturating_add(bytes);
        let ids: Vec<ExtentId> = self.within(at, bytes).map(|(id, _)| id).collect();
        for id in ids {
            self.change(id, |extent| {
                extent.spare.resize(extent.pages(), false);
                for page in 0..extent.pages() {
                    let start = extent.at + page as u64 * PAGE;
                    extent.spare[page] |= at <= start && start + PAGE <= end;
                }
            });
        }
    }
}
