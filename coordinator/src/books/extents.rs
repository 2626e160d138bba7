//! The table of one tenant's extents, and what follows from it.
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
//! A frame that is **reserved** for an extent is behind its addresses already, but without access: what takes longest is
//! done while the contents are still on their way, or before anybody wants them.
//!
//! Beside its state, an extent has a **backing**: room in the pool with its contents as they were when it last left.
//! It stays there while the extent is resident, so that what has not changed needs no copy when it leaves again. At
//! every moment one valid copy of the contents is known: in the frame until the backing is current, in the backing
//! until the tenant may write again.
//!
//! Each transition is a method here, and keeps the [`Counts`]: nobody goes through all extents to know what they add up to.

use std::collections::BTreeMap;
use std::ops::Range;

use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::ExtentId;

use super::arena::FrameId;
use super::pool::Run;
use super::sizes::PerClass;

/// The size of a page, by which contents are known and compared.
pub const PAGE: u64 = GRANULE;

/// After so many times, changes are taken for granted.
const OFTEN_DIRTY: u8 = 3;

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The digest: equal for pages of equal contents, and different for others as good as surely.
    pub digest: [u64; 2],
    /// Whether all of it is zero. Not a guess by the digest.
    pub zero: bool,
}

/// Whether a tenant has got the frame that is reserved for an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It was sent, and there is no reason to doubt that it came.
    Sent,
    /// It did not come.
    Lost,
    /// It was sent again, and whether it came is not known yet.
    SentAgain,
}

/// Where an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// In a frame that the tenant has mapped.
    Resident {
        /// Which.
        frame: FrameId,
    },
    /// On the way out.
    Leaving {
        /// From where.
        frame: FrameId,
        /// What has to be copied has been.
        copied: bool,
        /// The tenant has unmapped it.
        unmapped: bool,
    },
    /// In the pool.
    Host,
    /// In the pool; the tenant has a frame for it, or is about to, without access.
    Reserved {
        /// Which.
        frame: FrameId,
        /// It is full of zeros.
        zeroed: bool,
        /// Whether it came.
        delivery: Delivery,
    },
    /// In the pool, being copied to a frame.
    Arriving {
        /// Which.
        frame: FrameId,
        /// The tenant has not got it.
        lost: bool,
    },
    /// In the pool and a frame, which the tenant is mapping.
    Mapping {
        /// Which.
        frame: FrameId,
    },
}

impl ExtentState {
    /// The frame, if there is one.
    pub fn frame(&self) -> Option<FrameId> {
        match *self {
            Self::Host => None,
            Self::Resident { frame }
            | Self::Leaving { frame, .. }
            | Self::Reserved { frame, .. }
            | Self::Arriving { frame, .. }
            | Self::Mapping { frame } => Some(frame),
        }
    }

    /// Whether its contents are in the pool only, and nobody copies them.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Host | Self::Reserved { .. })
    }

    /// Whether that can be changed now, as far as the tenant is concerned.
    pub fn can_come(&self) -> bool {
        matches!(self, Self::Host | Self::Reserved { delivery: Delivery::Sent, .. })
    }

    /// Whether the tenant has it mapped and its contents are there.
    pub fn is_resident(&self) -> bool {
        matches!(self, Self::Resident { .. })
    }
}

/// An extent's room in the pool.
#[derive(Debug)]
struct Backing {
    runs: Vec<Run>,
    /// What is in it, page by page; empty if nobody has looked.
    pages: Vec<Page>,
    /// What was in it before, if it was filled without a look.
    before: Vec<Page>,
    /// Whether that is what the extent holds now. If not, it is only good for comparing.
    current: bool,
}

/// What the GPU found in an extent's contents, and which still holds.
#[derive(Debug)]
struct Contents {
    pages: Vec<Page>,
    /// Addresses that words in it point to, as multiples of 2 MiB; none if there were too many to list.
    pointers: Option<Vec<u64>>,
}

/// What has to be copied of an extent that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies {
    /// It has to be scanned before.
    Unknown,
    /// Nothing.
    Nothing,
    /// These parts: offsets in bytes.
    Parts(Vec<Range<u64>>),
}

/// What of an extent comes in how: offsets in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Out of its backing.
    pub copied: Vec<Range<u64>>,
    /// As zeros.
    pub zeros: Vec<Range<u64>>,
}

/// A piece of a tenant's memory.
#[derive(Debug)]
pub struct Extent {
    class: SizeClass,
    state: ExtentState,
    backing: Option<Backing>,
    /// Known since the tenant could last write.
    contents: Option<Contents>,
    /// How often in a row most of it had changed when it left.
    dirty: u8,
    /// Others can reach it: it stays where it is.
    immovable: bool,
}

/// Joins the pages that are wanted to parts as long as possible.
fn parts(wanted: impl Iterator<Item = bool>) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = Vec::new();
    for (at, wanted) in wanted.enumerate() {
        let (start, end) = (at as u64 * PAGE, (at as u64 + 1) * PAGE);
        match parts.last_mut() {
            _ if !wanted => {}
            Some(last) if last.end == start => last.end = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

impl Extent {
    /// Its size.
    pub fn class(&self) -> SizeClass {
        self.class
    }

    /// Where it is.
    pub fn state(&self) -> ExtentState {
        self.state
    }

    /// Whether it stays where it is.
    pub fn is_immovable(&self) -> bool {
        self.immovable
    }

    /// Whether it can be evicted, if its tenant can be.
    pub fn is_evictable(&self) -> bool {
        self.state.is_resident() && !self.immovable
    }

    /// Whether it is known what it holds now.
    pub fn is_scanned(&self) -> bool {
        self.contents.is_some()
    }

    /// What it points to: multiples of 2 MiB; none if that is not known, or too much to list.
    pub fn pointers(&self) -> Option<&[u64]> {
        self.contents.as_ref()?.pointers.as_deref()
    }

    /// Its room in the pool.
    pub fn runs(&self) -> Option<&[Run]> {
        self.backing.as_ref().map(|backing| &backing.runs[..])
    }

    /// The same, from one that is no more.
    pub fn into_runs(self) -> Vec<Run> {
        self.backing.map_or(Vec::new(), |backing| backing.runs)
    }

    fn pages(&self) -> usize {
        (self.class.bytes() / PAGE) as usize
    }

    /// Whether some of it comes in as zeros.
    pub fn has_zeros(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.pages.iter().any(|page| page.zero))
    }

    /// What has to be copied out of it, if it leaves now. Without scans, everything that may have changed.
    pub fn copies(&self, scans: bool) -> Copies {
        let everything = || Copies::Parts(parts(std::iter::repeat_n(true, self.pages())));
        if self.backing.as_ref().is_some_and(|backing| backing.current) {
            return Copies::Nothing;
        }
        match &self.contents {
            None if self.dirty >= OFTEN_DIRTY || !scans => everything(),
            None => Copies::Unknown,
            Some(_) if !scans => everything(),
            Some(contents) => {
                let known = self.backing.as_ref().map_or(&[][..], |backing| &backing.pages);
                let changed = |(at, page): (usize, &Page)| !page.zero && known.get(at) != Some(page);
                match parts(contents.pages.iter().enumerate().map(changed)) {
                    parts if parts.is_empty() => Copies::Nothing,
                    parts => Copies::Parts(parts),
                }
            }
        }
    }

    /// What has to be copied into it, if it comes now.
    pub fn arrival(&self) -> Arrival {
        let zero =
            |at: usize| self.backing.as_ref().and_then(|backing| backing.pages.get(at)).is_some_and(|page| page.zero);
        let pages = 0..self.pages();
        Arrival { copied: parts(pages.clone().map(|at| !zero(at))), zeros: parts(pages.map(zero)) }
    }

    /// Counts whether most of it had changed.
    fn count_changes(&mut self) {
        let (Some(contents), Some(backing)) = (&self.contents, &self.backing) else { return };
        let known = if backing.before.is_empty() { &backing.pages } else { &backing.before };
        if known.is_empty() {
            return;
        }
        let changed = contents.pages.iter().zip(known).filter(|(now, before)| now != before).count();
        self.dirty = if 2 * changed > contents.pages.len() { self.dirty.saturating_add(1) } else { 0 };
    }

    /// From here on the tenant may write to it.
    fn may_change(&mut self) {
        self.contents = None;
        if let Some(backing) = &mut self.backing {
            backing.current = false;
        }
    }
}

/// What extents add up to. In bytes, where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub bytes: u64,
    /// What is in the pool only, and nobody copies it.
    pub away: u64,
    /// Of that, what has a frame that waits for it.
    pub reserved: u64,
    /// What the tenant cannot use yet: all that is not resident.
    pub missing: u64,
    /// What stays where it is.
    pub immovable: u64,
    /// How many extents, of each size, can be evicted if their tenant can be.
    pub evictable: PerClass,
    /// How many, of each size, are on the way out.
    pub leaving: PerClass,
    /// Of how many extents it is not known what they point to.
    pub unread: usize,
    /// How many frames did not reach the tenant.
    pub lost: usize,
    /// How many were sent again, and may not reach it either.
    pub sent_again: usize,
}

impl Counts {
    /// What is on the GPU, whole or in part, in bytes.
    pub fn here(&self) -> u64 {
        self.bytes - self.away
    }

    /// What one extent counts for.
    fn of(extent: &Extent) -> Self {
        let (bytes, state) = (extent.class.bytes(), extent.state);
        let if_so = |so: bool| if so { bytes } else { 0 };
        let mut counts = Self {
            bytes,
            away: if_so(state.is_away()),
            reserved: if_so(matches!(state, ExtentState::Reserved { .. })),
            missing: if_so(!state.is_resident()),
            immovable: if_so(extent.immovable),
            unread: extent.pointers().is_none().into(),
            ..Self::default()
        };
        counts.evictable[extent.class.index()] = extent.is_evictable().into();
        match state {
            ExtentState::Leaving { .. } => counts.leaving[extent.class.index()] = 1,
            ExtentState::Reserved { delivery: Delivery::Lost, .. } | ExtentState::Arriving { lost: true, .. } => {
                counts.lost = 1;
            }
            ExtentState::Reserved { delivery: Delivery::SentAgain, .. } => counts.sent_again = 1,
            _ => {}
        }
        counts
    }

    /// Both together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.each(other, |a, b| *a += b, |a, b| *a += b);
        self
    }

    /// Without what was part of it.
    #[must_use]
    pub fn less(mut self, part: &Self) -> Self {
        self.each(part, |a, b| *a -= b, |a, b| *a -= b);
        self
    }

    fn each(&mut self, other: &Self, bytes: fn(&mut u64, u64), numbers: fn(&mut usize, usize)) {
        bytes(&mut self.bytes, other.bytes);
        bytes(&mut self.away, other.away);
        bytes(&mut self.reserved, other.reserved);
        bytes(&mut self.missing, other.missing);
        bytes(&mut self.immovable, other.immovable);
        for (own, other) in self.evictable.iter_mut().zip(other.evictable) {
            numbers(own, other);
        }
        for (own, other) in self.leaving.iter_mut().zip(other.leaving) {
            numbers(own, other);
        }
        numbers(&mut self.unread, other.unread);
        numbers(&mut self.lost, other.lost);
        numbers(&mut self.sent_again, other.sent_again);
    }
}

/// Which half of leaving is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// What had to be copied.
    Copied,
    /// The tenant has unmapped it.
    Unmapped,
}

/// A tenant's extents.
#[derive(Debug, Default)]
pub struct Extents {
    all: BTreeMap<ExtentId, Extent>,
    last: u32,
    counts: Counts,
}

impl Extents {
    /// What they add up to.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// One of them.
    pub fn get(&self, id: ExtentId) -> Option<&Extent> {
        self.all.get(&id)
    }

    /// All of them, in the order in which they were allocated.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ExtentId, &Extent)> {
        self.all.iter().map(|(id, extent)| (*id, extent))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, when the tenant is no more.
    pub fn into_all(self) -> impl Iterator<Item = (ExtentId, Extent)> {
        self.all.into_iter()
    }

    /// The only way to change an extent: what it counts for is kept.
    fn change<T>(&mut self, id: ExtentId, change: impl FnOnce(&mut Extent) -> T) -> Option<T> {
        let extent = self.all.get_mut(&id)?;
        let before = Counts::of(extent);
        let result = change(extent);
        let after = Counts::of(extent);
        if before != after {
            self.counts = self.counts.less(&before).plus(&after);
        }
        Some(result)
    }

    /// A new one, in this frame, which the tenant is about to map.
    pub fn add(&mut self, class: SizeClass, frame: FrameId) -> ExtentId {
        // Numbers go up, so that the table is in order of allocation; they start again in 4 billion.
        let id = loop {
            self.last = self.last.wrapping_add(1);
            if !self.all.contains_key(&ExtentId(self.last)) {
                break ExtentId(self.last);
            }
        };
        let state = ExtentState::Resident { frame };
        let extent = Extent { class, state, backing: None, contents: None, dirty: 0, immovable: false };
        self.counts = self.counts.plus(&Counts::of(&extent));
        self.all.insert(id, extent);
        id
    }

    /// The tenant has unmapped one and needs it no longer. None if it does not have it mapped. It may have mapped it a moment
    /// ago, and said so on its other socket.
    pub fn remove(&mut self, id: ExtentId) -> Option<Extent> {
        let is_mapped = |state: ExtentState| state.is_resident() || matches!(state, ExtentState::Mapping { .. });
        self.all.get(&id).filter(|extent| is_mapped(extent.state))?;
        let extent = self.all.remove(&id)?;
        self.counts = self.counts.less(&Counts::of(&extent));
        Some(extent)
    }

    /// From here on the tenant may write to all that is resident.
    pub fn may_change(&mut self) {
        for extent in self.all.values_mut().filter(|extent| extent.state.is_resident()) {
            self.counts.unread += usize::from(extent.pointers().is_some());
            extent.may_change();
        }
    }

    /// A resident one leaves, into its backing or into this new one. Says which frame it is to leave. If nothing has to be
    /// copied, that is done.
    pub fn leave(&mut self, id: ExtentId, new: Option<Vec<Run>>, nothing_to_copy: bool) -> Option<FrameId> {
        self.change(id, |extent| {
            let ExtentState::Resident { frame } = extent.state else { return None };
            if let Some(runs) = new {
                extent.backing = Some(Backing { runs, pages: Vec::new(), before: Vec::new(), current: false });
            }
            let backing = extent.backing.as_mut()?;
            if !backing.current {
                let pages = extent.contents.as_ref().map_or(Vec::new(), |contents| contents.pages.clone());
                let before = std::mem::replace(&mut backing.pages, pages);
                backing.before = if extent.contents.is_none() { before } else { Vec::new() };
            }
            backing.current |= nothing_to_copy;
            extent.state = ExtentState::Leaving { frame, copied: nothing_to_copy, unmapped: false };
            Some(frame)
        })?
    }

    /// A frame that is reserved for one is to be somebody else's. False if it has none.
    pub fn give_up_reserved(&mut self, id: ExtentId) -> bool {
        let gave_up = self.change(id, |extent| {
            let ExtentState::Reserved { frame, .. } = extent.state else { return false };
            extent.state = ExtentState::Leaving { frame, copied: true, unmapped: false };
            true
        });
        gave_up == Some(true)
    }

    /// Half of leaving is done; when both are, the frame is free.
    pub fn left(&mut self, id: ExtentId, half: Half) -> Option<FrameId> {
        self.change(id, |extent| {
            let ExtentState::Leaving { frame, copied, unmapped } = &mut extent.state else { return None };
            match half {
                Half::Copied => *copied = true,
                Half::Unmapped => *unmapped = true,
            }
            if let Some(backing) = extent.backing.as_mut().filter(|_| *copied) {
                backing.current = true;
            }
            let free = (*copied && *unmapped).then_some(*frame);
            if free.is_some() {
                extent.state = ExtentState::Host;
            }
            free
        })?
    }

    /// One that is in the pool gets a frame, perhaps one full of zeros. False if it has one, or is no more.
    pub fn reserve(&mut self, id: ExtentId, frame: FrameId, zeroed: bool) -> bool {
        let reserved = self.change(id, |extent| {
            let is_without = extent.state == ExtentState::Host;
            if is_without {
                extent.state = ExtentState::Reserved { frame, zeroed, delivery: Delivery::Sent };
            }
            is_without
        });
        reserved == Some(true)
    }

    /// Its contents are being copied to its frame. Says which that is, and whether it is full of zeros; none if it has none, or
    /// the tenant may not have got it.
    pub fn arrive(&mut self, id: ExtentId) -> Option<(FrameId, bool)> {
        self.change(id, |extent| match extent.state {
            ExtentState::Reserved { frame, zeroed, delivery: Delivery::Sent } if extent.backing.is_some() => {
                extent.state = ExtentState::Arriving { frame, lost: false };
                Some((frame, zeroed))
            }
            _ => None,
        })?
    }

    /// Its contents are there. Says whether the tenant can map it: not if it has not got the frame. Then what is in that may
    /// have to make room for others before the tenant gets it, and was copied in vain.
    pub fn arrived(&mut self, id: ExtentId) -> bool {
        let can_map = self.change(id, |extent| match extent.state {
            ExtentState::Arriving { frame, lost: false } => {
                extent.state = ExtentState::Mapping { frame };
                true
            }
            ExtentState::Arriving { frame, lost: true } => {
                extent.state = ExtentState::Reserved { frame, zeroed: false, delivery: Delivery::Lost };
                false
            }
            _ => false,
        });
        can_map == Some(true)
    }

    /// The tenant has mapped it, and may have written to it already.
    pub fn mapped(&mut self, id: ExtentId, may_write: bool) {
        self.change(id, |extent| {
            if let ExtentState::Mapping { frame } = extent.state {
                extent.state = ExtentState::Resident { frame };
                if may_write {
                    extent.may_change();
                }
            }
        });
    }

    /// Its frame did not reach the tenant.
    pub fn lose(&mut self, id: ExtentId) {
        self.change(id, |extent| {
            extent.state = match extent.state {
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
        });
    }

    /// Frames that did not reach the tenant are sent again, so many at most. Says which.
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

    /// A frame that was sent again has reached the tenant.
    pub fn delivered(&mut self, id: ExtentId) {
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

    /// A resident one stays from now on, and needs no backing any more.
    pub fn make_immovable(&mut self, id: ExtentId) -> Vec<Run> {
        let backing = self.change(id, |extent| {
            extent.immovable |= extent.state.is_resident();
            extent.backing.take_if(|_| extent.immovable)
        });
        backing.flatten().map_or(Vec::new(), |backing| backing.runs)
    }

    /// One that is resident gives its room in the pool away.
    pub fn give_up_backing(&mut self, id: ExtentId) -> Option<Vec<Run>> {
        self.change(id, |extent| extent.backing.take_if(|_| extent.state.is_resident()))?.map(|backing| backing.runs)
    }

    /// A scan has found what it holds.
    pub fn scanned(&mut self, id: ExtentId, pages: Vec<Page>, pointers: Option<Vec<u64>>) {
        self.change(id, |extent| {
            extent.contents = Some(Contents { pages: pages.clone(), pointers });
            extent.count_changes();
            if !extent.state.is_resident()
                && let Some(backing) = &mut extent.backing
            {
                // It left unseen; now it is known what of.
                backing.pages = pages;
            }
        });
    }
}

#[cfg(test)]
mod tests;
