//! Memory on the host has no frames, so it can be cut into extents anew. Neighbours become one extent, because mapping costs by the
//! handle, and pages that the tenant has freed meanwhile are dropped. Or the extents are cut to fit the available frames.

use std::ops::Range;

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, MAX_RECUT};

use super::extent::{Backing, Contents, Extent, ExtentState, PAGE, Page};
use super::{Extents, Run};
use crate::arena::{FrameId, Keepsake};
use crate::sizes::{PerClass, Stock};

/// A way to cut extents into pieces that are available as they are.
#[derive(Debug)]
pub struct Fit {
    plans: Vec<Plan>,
    /// The number of pieces of each class that are used as they are.
    pub as_it_is: PerClass,
}

/// The most that is cut at a time, in bytes.
const MOST: u64 = 512 << 20;
const _: () = assert!(MOST / PAGE <= MAX_RECUT as u64, "one message tells of it");

/// The result of a recut.
#[derive(Debug, Default)]
pub struct Recut {
    /// Extents that are gone.
    pub gone: Vec<ExtentId>,
    /// Extents that take their place, each with its address, its size and the extents that it is made of.
    pub now: Vec<(ExtentId, u64, SizeClass, Vec<ExtentId>)>,
    /// Room in the pool that is no longer needed.
    pub freed: Vec<Run>,
    /// Frames that were kept for extents that are gone.
    pub let_go: Vec<(FrameId, Keepsake)>,
}

/// Properties that extents on the host have to share to become one.
#[derive(PartialEq, Eq)]
struct Known {
    /// True if it has room in the pool: an extent that holds only zeros has none.
    room: bool,
    contents: bool,
    pages: bool,
}

/// Extents that lie side by side, and the way to cut them: the used pages, and the pieces that these become.
#[derive(Debug)]
struct Plan {
    gone: Vec<ExtentId>,
    used: Vec<bool>,
    cuts: Vec<(Range<usize>, SizeClass)>,
}

impl Extents {
    /// Cuts the memory on the host into as few extents as possible, none larger than `largest`, without spare pages. Extents that are
    /// larger already stay as they are if they have no spare pages. No run of the pool crosses from one `slab` into the next.
    pub fn recut(&mut self, largest: SizeClass, slab: u64) -> Vec<Recut> {
        let is_wanted = |extent: &Extent| extent.class <= largest || !extent.spare.is_empty();
        let neighbours = self.neighbours(|_, extent| extent.known().filter(|_| is_wanted(extent)));
        let plans =
            neighbours.into_iter().map(|gone| self.plan(gone, |bytes| SizeClass::cut(bytes, largest).collect()));
        let is_worth_it = |plan: &Plan| plan.cuts.len() < plan.gone.len() || plan.used.contains(&false);
        let plans: Vec<Plan> = plans.filter(is_worth_it).collect();
        plans.into_iter().map(|plan| self.cut(plan, slab)).collect()
    }

    /// Finds a cut that turns as much memory as necessary into pieces of the stock. The rest of the cut memory becomes as few extents
    /// as possible, none larger than `largest`. None if the stock cannot be used enough. Extents outside the host can be cut too if they
    /// `may_leave`, but have to leave first.
    pub fn fit(&self, stock: Stock, largest: SizeClass, may_leave: impl Fn(ExtentId, &Extent) -> bool) -> Option<Fit> {
        let can_be = |id, extent: &Extent| {
            let can_leave = extent.is_here() && !extent.immovable && !extent.shared && extent.left_behind.is_none();
            (extent.known().is_some() || can_leave && may_leave(id, extent)).then_some(())
        };
        let bytes_here = |extent: &Extent| if extent.is_here() { extent.class.bytes() } else { 0 };
        let mut neighbours = self.neighbours(can_be);
        // As little as possible of the memory on the GPU leaves.
        neighbours.sort_by_key(|ids| ids.iter().map(|id| bytes_here(&self.all[id])).sum::<u64>());
        stock.tries().find_map(|mut stock| {
            let mut plans = Vec::new();
            for gone in &neighbours {
                let before = stock;
                let plan = self.plan(gone.clone(), |bytes| stock.cut(bytes, largest));
                plans.extend((stock != before).then_some(plan));
            }
            stock.enough().map(|as_it_is| Fit { plans, as_it_is })
        })
    }

    /// Carries out a cut whose extents are all on the host. `room` takes room in the pool for extents that hold zeros: they have none,
    /// and need it if they are cut together with extents that have some. None if the pool has not enough.
    pub fn cut_to_fit(
        &mut self,
        fit: Fit,
        slab: u64,
        mut room: impl FnMut(u64) -> Option<Vec<Run>>,
    ) -> Option<Vec<Recut>> {
        for plan in &fit.plans {
            let has_room = |extent: &Extent| extent.backing.as_ref().is_some_and(|backing| !backing.runs.is_empty());
            if !plan.gone.iter().any(|id| has_room(&self.all[id])) {
                continue;
            }
            for id in &plan.gone {
                if !has_room(&self.all[id]) {
                    let runs = room(self.all[id].class.bytes())?;
                    self.change(*id, |extent| extent.backing.as_mut().map(|backing| backing.runs = runs));
                }
            }
        }
        Some(fit.plans.into_iter().map(|plan| self.cut(plan, slab)).collect())
    }

    /// Finds extents that lie side by side and are alike. Extents for which `alike` gives none are left out.
    fn neighbours<T: PartialEq>(&self, alike: impl Fn(ExtentId, &Extent) -> Option<T>) -> Vec<Vec<ExtentId>> {
        let mut neighbours: Vec<Vec<ExtentId>> = Vec::new();
        let mut last: Option<(u64, u64, T)> = None;
        for id in self.by_address.values() {
            let extent = &self.all[id];
            let Some(known) = alike(*id, extent) else {
                last = None;
                continue;
            };
            let end = extent.at + extent.class.bytes();
            match (&last, neighbours.last_mut()) {
                (Some((start, before, same)), Some(list))
                    if *before == extent.at && *same == known && end - start <= MOST =>
                {
                    list.push(*id);
                    last = Some((*start, end, known));
                }
                _ => {
                    neighbours.push(vec![*id]);
                    last = Some((extent.at, end, known));
                }
            }
        }
        neighbours
    }

    fn plan(&self, gone: Vec<ExtentId>, mut cut: impl FnMut(u64) -> Vec<SizeClass>) -> Plan {
        let old = gone.iter().map(|id| &self.all[id]);
        let used: Vec<bool> = old.flat_map(|extent| (0..extent.pages()).map(|page| !extent.is_spare(page))).collect();
        let mut cuts: Vec<(Range<usize>, SizeClass)> = Vec::new();
        for part in super::extent::parts(used.iter().copied()) {
            let mut at = (part.start / PAGE) as usize;
            for class in cut(part.end - part.start) {
                let end = at + (class.bytes() / PAGE) as usize;
                cuts.push((at..end, class));
                at = end;
            }
        }
        Plan { gone, used, cuts }
    }

    fn cut(&mut self, Plan { gone, used, cuts }: Plan, slab: u64) -> Recut {
        let old: Vec<(ExtentId, Extent)> = gone.iter().filter_map(|id| Some((*id, self.take_out(*id)?))).collect();
        let start = old.first().map_or(0, |(_, extent)| extent.at);
        let whole = Whole::of(&old, slab);
        let freed = whole.runs_of(used.iter().map(|used| !used));
        let let_go = old.iter().filter_map(|(_, extent)| extent.kept).collect();
        let mut recut = Recut { gone, now: Vec::new(), freed, let_go };
        for (pages, class) in cuts {
            let at = start + pages.start as u64 * PAGE;
            let parts = whole.parts_of(&old, &pages);
            let made_of = parts.iter().map(|part| old[*part].0).collect();
            let id = self.enter(whole.extent(&old, &parts, at, class, pages));
            recut.now.push((id, at, class, made_of));
        }
        recut
    }
}

impl Fit {
    /// The extents that it cuts.
    pub fn cuts(&self) -> impl Iterator<Item = ExtentId> {
        self.plans.iter().flat_map(|plan| &plan.gone).copied()
    }
}

impl Extent {
    /// The properties by which it can be cut, if it is on the host with its contents and can be cut.
    fn known(&self) -> Option<Known> {
        let backing = self.backing.as_ref().filter(|backing| backing.current)?;
        let is_away = self.state == ExtentState::Host && !self.immovable && !self.shared && self.left_behind.is_none();
        is_away.then_some(Known {
            room: !backing.runs.is_empty(),
            contents: self.contents.is_some(),
            pages: !backing.pages.is_empty(),
        })
    }
}

/// A page of unknown contents in the pool: it differs from every page that a scan finds.
pub(super) const UNKNOWN: Page = Page { digest: [u64::MAX; 2], zero: false };

/// Neighbours on the host, taken as one, page by page.
struct Whole {
    slab: u64,
    /// The place of each page in the pool.
    runs: Vec<u64>,
    /// The known facts about each page of the backing, and of the contents; empty if there are none.
    backing: Vec<Page>,
    contents: Vec<Page>,
    /// The end of each extent's pages.
    ends: Vec<usize>,
}

impl Whole {
    fn of(old: &[(ExtentId, Extent)], slab: u64) -> Self {
        let mut whole = Self { slab, runs: Vec::new(), backing: Vec::new(), contents: Vec::new(), ends: Vec::new() };
        let is_known = |extent: &Extent| extent.backing.as_ref().is_some_and(|backing| !backing.pages.is_empty());
        let is_any_known = old.iter().any(|(_, extent)| is_known(extent));
        let are_all_looked_at = old.iter().all(|(_, extent)| extent.contents.is_some());
        for (_, extent) in old {
            let end = whole.ends.last().unwrap_or(&0) + extent.pages();
            let backing = extent.backing.iter();
            for run in backing.clone().flat_map(|backing| &backing.runs) {
                whole.runs.extend((0..run.bytes / PAGE).map(|page| run.at + page * PAGE));
            }
            whole.backing.extend(backing.flat_map(|backing| &backing.pages));
            if is_any_known {
                whole.backing.resize(end, UNKNOWN);
            }
            let contents = extent.contents.iter().filter(|_| are_all_looked_at);
            whole.contents.extend(contents.flat_map(|contents| &contents.pages));
            whole.ends.push(end);
        }
        whole
    }

    /// The pool's runs of these pages.
    fn runs_of(&self, wanted: impl Iterator<Item = bool>) -> Vec<Run> {
        let pages = self.runs.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(at, _)| *at);
        let mut runs: Vec<Run> = Vec::new();
        for at in pages {
            match runs.last_mut() {
                Some(last) if last.at + last.bytes == at && !at.is_multiple_of(self.slab) => last.bytes += PAGE,
                _ => runs.push(Run { at, bytes: PAGE }),
            }
        }
        runs
    }

    /// Finds the old extents that have some of these pages.
    fn parts_of(&self, old: &[(ExtentId, Extent)], pages: &Range<usize>) -> Vec<usize> {
        let overlaps = |at: &usize| {
            let end = self.ends[*at];
            end - old[*at].1.pages() < pages.end && pages.start < end
        };
        (0..old.len()).filter(overlaps).collect()
    }

    fn extent(
        &self,
        old: &[(ExtentId, Extent)],
        parts: &[usize],
        at: u64,
        class: SizeClass,
        pages: Range<usize>,
    ) -> Extent {
        let some = |known: &[Page]| known.get(pages.clone()).map_or(Vec::new(), <[Page]>::to_vec);
        let runs = self.runs_of((0..self.runs.len()).map(|page| pages.contains(&page)));
        let contents = (!self.contents.is_empty()).then(|| {
            let mut pointers = Some(Vec::new());
            for extent in parts.iter().map(|part| &old[*part].1) {
                match (&mut pointers, extent.pointers()) {
                    (Some(all), Some(some)) => all.extend_from_slice(some),
                    _ => pointers = None,
                }
            }
            if let Some(all) = &mut pointers {
                all.sort_unstable();
                all.dedup();
            }
            Contents { pages: some(&self.contents), pointers }
        });
        Extent {
            at,
            class,
            state: ExtentState::Host,
            backing: Some(Backing { runs, pages: some(&self.backing), before: Vec::new(), current: true }),
            contents,
            dirty: parts.iter().map(|part| old[*part].1.dirty).max().unwrap_or(0),
            immovable: false,
            shared: false,
            spare: Vec::new(),
            zero: parts.iter().all(|part| old[*part].1.zero),
            left_behind: None,
            kept: None,
        }
    }
}
