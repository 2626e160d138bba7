//! One extent: its place, the known facts about its contents, and the parts to copy when it moves.

use std::ops::Range;

use baton_contract::memory::{GRANULE, SizeClass};

use crate::arena::{FrameId, Keepsake};
use crate::pool::Run;

/// The size of a page, the unit in which contents are known and compared.
pub const PAGE: u64 = GRANULE;

/// After this many changes in a row, the next change is assumed.
pub(crate) const OFTEN_DIRTY: u8 = 3;

/// The known facts about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The digest. Pages of equal contents have equal digests; other pages almost certainly have different ones.
    pub digest: [u64; 2],
    /// True if the whole page is zero. This is not a guess by the digest.
    pub zero: bool,
}

/// The delivery to a tenant of the frame that is reserved for an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The frame was sent, and there is no reason to doubt that it came.
    Sent,
    /// The frame did not come.
    Lost,
    /// The frame was sent again, and may or may not have come.
    SentAgain,
}

/// The contents of a frame that an extent gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Anything: the frame is overwritten as a whole.
    Nothing,
    /// Zeros.
    Zeros,
    /// The extent's contents, because no other extent has had the frame since.
    Contents,
}

/// The place of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// In a frame that the tenant has mapped.
    Resident {
        /// Which.
        frame: FrameId,
    },
    /// On the way out.
    Leaving {
        /// The frame that it leaves.
        frame: FrameId,
        /// All necessary pages were copied.
        copied: bool,
        /// The tenant has unmapped the frame.
        unmapped: bool,
        /// All of the contents are in the frame.
        whole: bool,
    },
    /// In the pool.
    Host,
    /// In the pool. The tenant has a frame for it, or will get one, without access.
    Reserved {
        /// Which.
        frame: FrameId,
        /// The frame's contents.
        holds: Holds,
        /// The delivery of the frame.
        delivery: Delivery,
    },
    /// In the pool, being copied to a frame.
    Arriving {
        /// Which.
        frame: FrameId,
        /// The tenant has not got the frame.
        lost: bool,
    },
    /// In the pool and in a frame, which the tenant is mapping.
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

    /// True if its contents are in the pool only, and no copy is under way.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Host | Self::Reserved { .. })
    }

    /// True if the extent can come to the GPU now, as far as the tenant is concerned.
    pub fn can_come(&self) -> bool {
        matches!(self, Self::Host | Self::Reserved { delivery: Delivery::Sent, .. })
    }

    /// True if the tenant may have it mapped: the tenant may have said so on its other socket.
    pub(super) fn may_be_mapped(&self) -> bool {
        matches!(self, Self::Resident { .. } | Self::Mapping { .. })
    }

    /// True if the tenant has it mapped and its contents are there.
    pub fn is_resident(&self) -> bool {
        matches!(self, Self::Resident { .. })
    }
}

/// An extent's place in the pool.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) struct Backing {
    /// Its room; none if all of it is zeros.
    pub(super) runs: Vec<Run>,
    /// Its contents, page by page; empty if they were not scanned.
    pub(super) pages: Vec<Page>,
    /// Its earlier contents, if it was filled without a scan.
    pub(super) before: Vec<Page>,
    /// True if the backing equals the extent's present contents. If not, it serves only for comparison.
    pub(super) current: bool,
}

/// The GPU's findings about an extent's contents, as long as they hold.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) pages: Vec<Page>,
    /// Addresses that words in it point to, as multiples of 2 MiB; none if there were too many to list.
    pub(super) pointers: Option<Vec<u64>>,
}

/// The parts of a leaving extent to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Unknown: the extent was not scanned yet.
    Unknown,
    /// None: the host has all its contents already.
    Nothing,
    /// These parts, as offsets in bytes.
    Parts(Vec<Range<u64>>),
}

/// The parts of an extent by the way in which they come in: offsets in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Out of its backing.
    pub copied: Vec<Range<u64>>,
    /// As zeros.
    pub zeros: Vec<Range<u64>>,
}

/// A piece of a tenant's memory.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub struct Extent {
    /// Its address in the tenant's process.
    pub(super) at: u64,
    pub(super) class: SizeClass,
    pub(super) state: ExtentState,
    pub(super) backing: Option<Backing>,
    /// Known since the tenant could last write.
    pub(super) contents: Option<Contents>,
    /// It held nothing but zeros at the last scan.
    pub(super) zero: bool,
    /// The number of times in a row that most of it had changed when it left.
    pub(super) dirty: u8,
    /// Others can reach it: it stays where it is.
    pub(super) immovable: bool,
    /// Other tenants have it too.
    pub(super) shared: bool,
    /// Marks the pages that the tenant has freed; empty if none.
    pub(super) spare: Vec<bool>,
    /// A frame that the tenant has lost and still has mapped here: it was taken because the tenant was unresponsive.
    pub(super) left_behind: Option<FrameId>,
    /// The last frame that it left, if the extent is in the pool. Its contents are there too as long as the frame is kept.
    pub(super) kept: Option<(FrameId, Keepsake)>,
}

/// Joins the wanted pages into parts as long as possible.
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
    /// An extent of which nothing else is known. One whose backing has no room holds nothing but zeros.
    pub(super) fn new(at: u64, class: SizeClass, state: ExtentState, backing: Option<Backing>) -> Self {
        let zero = backing.as_ref().is_some_and(|backing| backing.runs.is_empty());
        Self {
            at,
            class,
            state,
            backing,
            contents: None,
            zero,
            dirty: 0,
            immovable: false,
            shared: false,
            spare: Vec::new(),
            left_behind: None,
            kept: None,
        }
    }

    /// Its address in its tenant's process.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Its size.
    pub fn class(&self) -> SizeClass {
        self.class
    }

    /// Its state.
    pub fn state(&self) -> ExtentState {
        self.state
    }

    /// True if it stays where it is.
    pub fn is_immovable(&self) -> bool {
        self.immovable
    }

    /// True if it can be evicted, if its tenant can be.
    pub fn is_evictable(&self) -> bool {
        self.state.is_resident() && !self.immovable
    }

    /// True if it has a frame, and is not on its way.
    pub fn is_here(&self) -> bool {
        matches!(self.state, ExtentState::Resident { .. } | ExtentState::Reserved { .. })
    }

    /// True if a scan's result for its present contents is known.
    pub fn is_scanned(&self) -> bool {
        self.contents.is_some()
    }

    /// True if a scan has found that it holds nothing but zeros now.
    pub fn is_zero(&self) -> bool {
        self.is_scanned() && self.was_zero()
    }

    /// The addresses that it points to, as multiples of 2 MiB; none if they are unknown, or too many to list.
    pub fn pointers(&self) -> Option<&[u64]> {
        self.contents.as_ref()?.pointers.as_deref()
    }

    /// True if it held nothing but zeros at the last scan: then it is cheap to evict and to swap in.
    pub fn was_zero(&self) -> bool {
        self.zero
    }

    /// The frame that has its contents, if they can be scanned there. This includes an extent that leaves unscanned because it was often
    /// dirty, but not a frame that was only reserved, which holds other contents.
    pub fn frame_of_contents(&self) -> Option<FrameId> {
        match self.state {
            ExtentState::Resident { frame } | ExtentState::Leaving { frame, whole: true, .. } => Some(frame),
            _ => None,
        }
    }

    /// The frame that its tenant has lost and still has mapped there.
    pub fn left_behind(&self) -> Option<FrameId> {
        self.left_behind
    }

    /// True if it comes back to the frame that its tenant was left with, and still has mapped.
    pub fn comes_in_place(&self) -> bool {
        let comes = matches!(self.state, ExtentState::Reserved { .. } | ExtentState::Arriving { .. });
        comes && self.left_behind.is_some_and(|frame| self.state.frame() == Some(frame))
    }

    /// True if the tenant may have a frame mapped there: its own, or one that it has lost.
    pub(super) fn may_be_mapped(&self) -> bool {
        self.state.may_be_mapped() || self.left_behind.is_some()
    }

    /// True if its contents are in its frame already, though it is in the pool.
    pub fn is_in_frame(&self) -> bool {
        matches!(self.state, ExtentState::Reserved { holds: Holds::Contents, .. })
    }

    /// The last frame that it left, if its contents may still be there.
    pub fn kept(&self) -> Option<(FrameId, Keepsake)> {
        self.kept
    }

    /// Its room in the pool: empty if it holds nothing but zeros.
    pub fn runs(&self) -> Option<&[Run]> {
        self.backing.as_ref().map(|backing| &backing.runs[..])
    }

    /// Grades how much its room in the pool saves when it leaves: unchanged pages are not copied.
    pub fn saved_by_backing(&self) -> u8 {
        match &self.backing {
            Some(backing) if self.dirty < OFTEN_DIRTY => 1 + u8::from(backing.current),
            _ => 0,
        }
    }

    /// Gives away the room in the pool of a removed extent.
    pub fn into_runs(self) -> Vec<Run> {
        self.backing.map_or(Vec::new(), |backing| backing.runs)
    }

    pub(super) fn pages(&self) -> usize {
        (self.class.bytes() / PAGE) as usize
    }

    pub(super) fn is_spare(&self, page: usize) -> bool {
        self.spare.get(page).is_some_and(|spare| *spare)
    }

    /// True if a page's contents are worthless: its tenant has freed the page, and no other tenant shares it.
    fn is_worthless(&self, page: usize) -> bool {
        !self.shared && self.is_spare(page)
    }

    /// Bytes of it that the tenant has freed.
    pub fn spare_bytes(&self) -> u64 {
        self.spare.iter().filter(|spare| **spare).count() as u64 * PAGE
    }

    /// True if some of it comes in as zeros.
    pub fn has_zeros(&self) -> bool {
        (0..self.pages()).any(|page| self.comes_as_zeros(page))
    }

    /// True if a page comes in as zeros. Spare pages were not copied out: their room in the pool holds anything.
    pub(crate) fn comes_as_zeros(&self, page: usize) -> bool {
        let known = || self.backing.as_ref()?.pages.get(page);
        self.is_worthless(page) || known().is_some_and(|page| page.zero)
    }

    /// The contents of its backing after these pages are copied there. Spare pages are not copied, and come back as zeros.
    pub(super) fn as_copied(&self, mut pages: Vec<Page>) -> Vec<Page> {
        let spare = pages.iter_mut().enumerate().filter(|(at, _)| self.is_worthless(*at));
        spare.for_each(|(_, page)| *page = Page { digest: [0, 0], zero: true });
        pages
    }

    /// Tells for each of these pages, its present contents, whether its room in the pool lacks it.
    fn lacking<'a>(&'a self, pages: &'a [Page]) -> impl Iterator<Item = bool> + 'a {
        let known = self.backing.as_ref().map_or(&[][..], |backing| &backing.pages);
        let lacks = |(at, page): (usize, &Page)| !page.zero && known.get(at) != Some(page) && !self.is_worthless(at);
        pages.iter().enumerate().map(lacks)
    }

    /// True if its room in the pool lacks any of these pages.
    pub fn differs(&self, pages: &[Page]) -> bool {
        self.lacking(pages).any(|lacks| lacks)
    }

    /// The parts to copy out if it leaves now. Without scans, these are all parts that may have changed.
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

    /// The parts to copy in if it comes now into a frame with unknown contents.
    pub fn arrival(&self) -> Arrival {
        let zero = |at| self.comes_as_zeros(at);
        let pages = 0..self.pages();
        Arrival { copied: parts(pages.clone().map(|at| !zero(at))), zeros: parts(pages.map(zero)) }
    }

    /// Counts one more change in a row if most of it had changed, and otherwise starts again at zero.
    pub(super) fn count_changes(&mut self) {
        let (Some(contents), Some(backing)) = (&self.contents, &self.backing) else { return };
        let known = if backing.before.is_empty() { &backing.pages } else { &backing.before };
        if known.is_empty() {
            return;
        }
        let changed = contents.pages.iter().zip(known).filter(|(now, before)| now != before).count();
        self.dirty = if 2 * changed > contents.pages.len() { self.dirty.saturating_add(1) } else { 0 };
    }

    /// Notes that the tenant may write to it from now on.
    pub(super) fn may_change(&mut self) {
        self.contents = None;
        if let Some(backing) = &mut self.backing {
            backing.current = false;
        }
    }
}
