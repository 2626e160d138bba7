//! Memory on the host has no frames, so that it can be cut into extents anew: neighbours become one, because mapping costs by the
//! handle, and what the tenant has freed meanwhile is no more. Or they become what there are frames for.

use std::ops::Range;

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, MAX_RECUT};

use super::extent::{Backing, Contents, Extent, ExtentState, PAGE, Page};
use super::{Extents, Run};
use crate::arena::{FrameId, Keepsake};
use crate::sizes::{PerClass, Stock};

/// How extents are cut into pieces that are had as they are.
#[derive(Debug)]
pub struct Fit {
    plans: Vec<Plan>,
    /// How many pieces of each class are to be had so.
    pub as_it_is: PerClass,
}

/// So much is cut at a time at most, in bytes.
const MOST: u64 = 512 << 20;
const _: () = assert!(MOST / PAGE <= MAX_RECUT as u64, "one message tells of it");

/// What was cut anew.
#[derive(Debug, Default)]
pub struct Recut {
    /// Extents that are no more.
    pub gone: Vec<ExtentId>,
    /// Those that take their place, with address and size, and what they are made of.
    pub now: Vec<(ExtentId, u64, SizeClass, Vec<ExtentId>)>,
    /// What is no longer needed of the pool.
    pub freed: Vec<Run>,
    /// Frames that were kept for those that are no more.
    pub let_go: Vec<(FrameId, Keepsake)>,
}

/// What extents on the host have to have in common to become one.
#[derive(PartialEq, Eq)]
struct Known {
    /// Whether it has room in the pool: what holds zeros only has none.
    room: bool,
    contents: bool,
    pages: bool,
}

/// Extents that lie side by side, and how they are to be cut: which of their pages are used, and the pieces that these become.
#[derive(Debug)]
struct Plan {
    gone: Vec<ExtentId>,
    used: Vec<bool>,
    cuts: Vec<(Range<usize>, SizeClass)>,
}

impl Extents {
    /// Cuts what is on the host into as few extents as possible, none larger than `largest`, without what is spare. Those that are
    /// larger already stay as they are if all of them is used. No run of the pool crosses from one `slab` into the next.
    pub fn recut(&mut self, largest: SizeClass, slab: u64) -> Vec<Recut> {
        let is_wanted = |extent: &Extent| extent.class <= largest || !extent.spare.is_empty();
        let neighbours = self.neighbours(|_, extent| extent.known().filter(|_| is_wanted(extent)));
        let plans =
            neighbours.into_iter().map(|gone| self.plan(gone, |bytes| SizeClass::cut(bytes, largest).collect()));
        let is_worth_it = |plan: &Plan| plan.cuts.len() < plan.gone.len() || plan.used.contains(&false);
        let plans: Vec<Plan> = plans.filter(is_worth_it).collect();
        plans.into_iter().map(|plan| self.cut(plan, slab)).collect()
    }

    /// How as much of it becomes pieces of the stock as has to; what is cut with that becomes as few extents as possible, none larger
    /// than `largest`. None if that is not enough. What is not on the host can be cut too if it `may_leave`, and has to have left before.
    pub fn fit(&self, stock: Stock, largest: SizeClass, may_leave: impl Fn(ExtentId, &Extent) -> bool) -> Option<Fit> {
        let can_be = |id, extent: &Extent| {
            let can_leave = extent.is_here() && !extent.immovable && !extent.shared && extent.left_behind.is_none();
            (extent.known().is_some() || can_leave && may_leave(id, extent)).then_some(())
        };
        let bytes_here = |extent: &Extent| if extent.is_here() { extent.class.bytes() } else { 0 };
        let mut neighbours = self.neighbours(can_be);
        // Of what is here as little as possible leaves.
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

    /// Cuts it so, if all of it is on the host. `room` gives some of the pool: what holds zeros has none, and needs it where it is cut
    /// with what has. None if there is not enough.
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

    /// Extents that lie side by side and are alike; not those of which `alike` says nothing.
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
    /// How much is known of its contents, if it is on the host with them and can be cut.
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

/// A page of which nothing is known but that it is in the pool: whatever it is found to hold is something else.
pub(super) const UNKNOWN: Page = Page { digest: [u64::MAX; 2], zero: false };

/// Neighbours on the host as if they were one, page by page.
struct Whole {
    slab: u64,
    /// Where each page is in the pool.
    runs: Vec<u64>,
    /// What is known of each page of the backing, and of the contents; empty if nothing.
    backing: Vec<Page>,
    contents: Vec<Page>,
    /// Where the pages of each extent end.
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

    /// Which of the old ones have some of these pages.
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
