//! One extent: where it is, what is known of its contents, and what has to be copied when it moves.

use std::ops::Range;

use baton_contract::memory::{GRANULE, SizeClass};

use crate::arena::{FrameId, Keepsake};
use crate::pool::Run;

/// The size of a page, by which contents are known and compared.
pub const PAGE: u64 = GRANULE;

/// After so many times, changes are taken for granted.
pub(super) const OFTEN_DIRTY: u8 = 3;

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

/// What a frame holds that an extent is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Anything: all of it is overwritten.
    Nothing,
    /// Zeros.
    Zeros,
    /// What the extent holds, because nobody else has had the frame since.
    Contents,
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
        /// All of the contents are in the frame.
        whole: bool,
    },
    /// In the pool.
    Host,
    /// In the pool; the tenant has a frame for it, or is about to, without access.
    Reserved {
        /// Which.
        frame: FrameId,
        /// What is in it.
        holds: Holds,
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

    /// Whether the tenant may have it mapped: it may have said so on its other socket.
    pub(super) fn may_be_mapped(&self) -> bool {
        matches!(self, Self::Resident { .. } | Self::Mapping { .. })
    }

    /// Whether the tenant has it mapped and its contents are there.
    pub fn is_resident(&self) -> bool {
        matches!(self, Self::Resident { .. })
    }
}

/// An extent's place in the pool.
#[derive(Debug)]
pub(super) struct Backing {
    /// Its room; none if all of it is zeros.
    pub(super) runs: Vec<Run>,
    /// What is in it, page by page; empty if nobody has looked.
    pub(super) pages: Vec<Page>,
    /// What was in it before, if it was filled without a look.
    pub(super) before: Vec<Page>,
    /// Whether that is what the extent holds now. If not, it is only good for comparing.
    pub(super) current: bool,
}

/// What the GPU found in an extent's contents, and which still holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) pages: Vec<Page>,
    /// Addresses that words in it point to, as multiples of 2 MiB; none if there were too many to list.
    pub(super) pointers: Option<Vec<u64>>,
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
    /// Its address in the tenant's process.
    pub(super) at: u64,
    pub(super) class: SizeClass,
    pub(super) state: ExtentState,
    pub(super) backing: Option<Backing>,
    /// Known since the tenant could last write.
    pub(super) contents: Option<Contents>,
    /// It held nothing but zeros when it was last looked at.
    pub(super) zero: bool,
    /// How often in a row most of it had changed when it left.
    pub(super) dirty: u8,
    /// Others can reach it: it stays where it is.
    pub(super) immovable: bool,
    /// Other tenants have it too.
    pub(super) shared: bool,
    /// Which of its pages the tenant has freed; empty if none.
    pub(super) spare: Vec<bool>,
    /// A frame that the tenant still has mapped here though it is not its own any more: it was taken, because the tenant did not answer.
    pub(super) left_behind: Option<FrameId>,
    /// The frame that it has left last, if it is in the pool: its contents are there too as long as the frame is kept.
    pub(super) kept: Option<(FrameId, Keepsake)>,
}

/// Joins the pages that are wanted to parts as long as possible.
pub(super) fn parts(wanted: impl Iterator<Item = bool>) -> Vec<Range<u64>> {
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

/// The parts of an extent that are not zero.
pub fn not_zero(pages: &[Page]) -> Vec<Range<u64>> {
    parts(pages.iter().map(|page| !page.zero))
}

impl Extent {
    /// Where it is in its tenant's process.
    pub fn at(&self) -> u64 {
        self.at
    }

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

    /// Whether it has a frame, and is not on its way.
    pub fn is_here(&self) -> bool {
        matches!(self.state, ExtentState::Resident { .. } | ExtentState::Reserved { .. })
    }

    /// Whether it is known what it holds now.
    pub fn is_scanned(&self) -> bool {
        self.contents.is_some()
    }

    /// Whether a scan has found that it holds nothing but zeros now.
    pub fn is_zero(&self) -> bool {
        self.is_scanned() && self.was_zero()
    }

    /// What it points to: multiples of 2 MiB; none if that is not known, or too much to list.
    pub fn pointers(&self) -> Option<&[u64]> {
        self.contents.as_ref()?.pointers.as_deref()
    }

    /// Whether it held nothing but zeros when that was last known: then it costs little to have it go and come.
    pub fn was_zero(&self) -> bool {
        self.zero
    }

    /// The frame that has its contents, if they can be looked at there. Also while it leaves, unseen because it was often dirty; but not
    /// a frame that was only reserved for it, which holds something else.
    pub fn frame_of_contents(&self) -> Option<FrameId> {
        match self.state {
            ExtentState::Resident { frame } | ExtentState::Leaving { frame, whole: true, .. } => Some(frame),
            _ => None,
        }
    }

    /// The frame that its tenant still has mapped there though it is not its own any more.
    pub fn left_behind(&self) -> Option<FrameId> {
        self.left_behind
    }

    /// Whether it comes back to the frame that its tenant was left with, and still has mapped.
    pub fn comes_in_place(&self) -> bool {
        let comes = matches!(self.state, ExtentState::Reserved { .. } | ExtentState::Arriving { .. });
        comes && self.left_behind.is_some_and(|frame| self.state.frame() == Some(frame))
    }

    /// Whether the tenant may have something mapped there, in its own frame or in one that was.
    pub(super) fn may_be_mapped(&self) -> bool {
        self.state.may_be_mapped() || self.left_behind.is_some()
    }

    /// Whether its contents are in its frame already, though it is in the pool.
    pub fn is_in_frame(&self) -> bool {
        matches!(self.state, ExtentState::Reserved { holds: Holds::Contents, .. })
    }

    /// The frame that it has left last, if its contents may still be there.
    pub fn kept(&self) -> Option<(FrameId, Keepsake)> {
        self.kept
    }

    /// Its room in the pool: nothing, if it holds nothing but zeros.
    pub fn runs(&self) -> Option<&[Run]> {
        self.backing.as_ref().map(|backing| &backing.runs[..])
    }

    /// How much its room in the pool saves when it leaves: nothing is copied that has not changed.
    pub fn saved_by_backing(&self) -> u8 {
        match &self.backing {
            Some(backing) if self.dirty < OFTEN_DIRTY => 1 + u8::from(backing.current),
            _ => 0,
        }
    }

    /// The same, from one that is no more.
    pub fn into_runs(self) -> Vec<Run> {
        self.backing.map_or(Vec::new(), |backing| backing.runs)
    }

    pub(super) fn pages(&self) -> usize {
        (self.class.bytes() / PAGE) as usize
    }

    pub(super) fn is_spare(&self, page: usize) -> bool {
        self.spare.get(page).is_some_and(|spare| *spare)
    }

    /// Whether what a page holds is worth nothing: its tenant has freed it, and nobody else has it.
    fn is_worthless(&self, page: usize) -> bool {
        !self.shared && self.is_spare(page)
    }

    /// What of it the tenant has freed, in bytes.
    pub fn spare_bytes(&self) -> u64 {
        self.spare.iter().filter(|spare| **spare).count() as u64 * PAGE
    }

    /// Whether some of it comes in as zeros.
    pub fn has_zeros(&self) -> bool {
        (0..self.pages()).any(|page| self.comes_as_zeros(page))
    }

    /// What is spare was not copied out: in the pool stands anything.
    fn comes_as_zeros(&self, page: usize) -> bool {
        let known = || self.backing.as_ref()?.pages.get(page);
        self.is_worthless(page) || known().is_some_and(|page| page.zero)
    }

    /// What will be in its backing when these pages have been copied there: what is spare has not, and comes back as zeros.
    pub(super) fn as_copied(&self, mut pages: Vec<Page>) -> Vec<Page> {
        let spare = pages.iter_mut().enumerate().filter(|(at, _)| self.is_worthless(*at));
        spare.for_each(|(_, page)| *page = Page { digest: [0, 0], zero: true });
        pages
    }

    /// Of each of these pages, which it holds now, whether its place in the pool lacks that.
    fn lacking<'a>(&'a self, pages: &'a [Page]) -> impl Iterator<Item = bool> + 'a {
        let known = self.backing.as_ref().map_or(&[][..], |backing| &backing.pages);
        let lacks = |(at, page): (usize, &Page)| !page.zero && known.get(at) != Some(page) && !self.is_worthless(at);
        pages.iter().enumerate().map(lacks)
    }

    /// Whether its place in the pool lacks some of what these pages hold.
    pub fn differs(&self, pages: &[Page]) -> bool {
        self.lacking(pages).any(|lacks| lacks)
    }

    /// What has to be copied out of it, if it leaves now. Without scans, everything that may have changed.
    pub fn copies(&self, scans: bool) -> Copies {
        let everything = || Copies::Parts(parts((0..self.pages()).map(|page| !self.is_worthless(page))));
        if self.backing.as_ref().is_some_and(|backing| backing.current) {
            return Copies::Nothing;
        }
        match &self.contents {
            None if self.dirty >= OFTEN_DIRTY || !scans => everything(),
            None => Copies::Unknown,
            Some(_) if !scans => everything(),
            Some(contents) => match parts(self.lacking(&contents.pages)) {
                parts if parts.is_empty() => Copies::Nothing,
                parts => Copies::Parts(parts),
            },
        }
    }

    /// What has to be copied into it, if it comes now into a frame of which it is not known what that holds.
    pub fn arrival(&self) -> Arrival {
        let zero = |at| self.comes_as_zeros(at);
        let pages = 0..self.pages();
        Arrival { copied: parts(pages.clone().map(|at| !zero(at))), zeros: parts(pages.map(zero)) }
    }

    /// Counts whether most of it had changed.
    pub(super) fn count_changes(&mut self) {
        let (Some(contents), Some(backing)) = (&self.contents, &self.backing) else { return };
        let known = if backing.before.is_empty() { &backing.pages } else { &backing.before };
        if known.is_empty() {
            return;
        }
        let changed = contents.pages.iter().zip(known).filter(|(now, before)| now != before).count();
        self.dirty = if 2 * changed > contents.pages.len() { self.dirty.saturating_add(1) } else { 0 };
    }

    /// From here on the tenant may write to it.
    pub(super) fn may_change(&mut self) {
        self.contents = None;
        if let Some(backing) = &mut self.backing {
            backing.current = false;
        }
    }
}
