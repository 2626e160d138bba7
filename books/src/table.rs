//! The table: all that a coordinator which takes over has to know of memory, in flat records that outlive the one before.
//!
//! There is a record for each frame and for each 2 MiB of the host pool. A record names its tenant and the address there, not an extent:
//! memory can be cut into other extents without a change here. Every extent's contents are in one place that the records name at every
//! instant:
//!
//! | record of its frame | its contents are |
//! |---|---|
//! | *here* | in the frame |
//! | not *here*, or none | in the pool, as its pages' records say; zeros where a page is *zero*, or has no record |
//!
//! Each change is one store of a record's first word. A record that gets another owner or address is written before the records first, and
//! counts from there until it is whole. A [`Scribe`] writes pages before the
//! frame that depends on them: a copy's pages are there before the frame is no longer *here*.

#[cfg(test)]
mod explored;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{ExtentId, HeldExtent, Mapping};

use crate::arena::FrameId;
use crate::extents::{Extent, ExtentState, Extents, InPool, Where};
use crate::pool::Run;

/// The first word of every table.
const MAGIC: u64 = u64::from_le_bytes(*b"BatonTab");
/// The format of the records.
pub const VERSION: u64 = 1;
/// Words before the records: magic, version, frames, pages, the size of a slab, and the record that is being written.
const HEADER: usize = 8;
/// The record that is being written: its number and one, and its words.
const JOURNAL: usize = 5;
/// Words of a record: address and flags, and the tenant.
const RECORD: usize = 2;

/// A record is in use.
const USED: u64 = 1;
/// The contents are in the frame.
const HERE: u64 = 2;
/// The page is zeros, whatever the pool holds there.
const ZERO: u64 = 2;
/// The place of a frame's size among the flags.
const CLASS: u32 = 4;

/// The reason why a table is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is not a table, or is cut short.
    NoTable,
    /// It has another format.
    Version(u64),
}

/// The size of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The most frames.
    pub frames: usize,
    /// Pages of 2 MiB in the pool.
    pub pages: usize,
    /// The size of a slab of the pool, in bytes: no run crosses a slab's end.
    pub slab: u64,
}

impl Size {
    /// The words that such a table takes.
    pub fn words(self) -> usize {
        HEADER + RECORD * (self.frames + self.pages)
    }
}

/// A frame's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFrame {
    /// The frame.
    pub frame: FrameId,
    /// Its size.
    pub class: SizeClass,
    /// True if it has the contents.
    pub here: bool,
}

/// The records, in memory that another process can read when this one has ended.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub struct Table<W> {
    words: W,
    size: Size,
}

impl<W: AsRef<[AtomicU64]>> Table<W> {
    /// Makes an empty table in memory that is zero.
    ///
    /// # Errors
    ///
    /// When there are too few words.
    pub fn make(words: W, size: Size) -> Result<Self, Unusable> {
        let all = words.as_ref();
        if all.len() < size.words() {
            return Err(Unusable::NoTable);
        }
        let header = [MAGIC, VERSION, size.frames as u64, size.pages as u64, size.slab];
        // The magic comes last: a table is whole, or none.
        header.iter().zip(all).rev().for_each(|(value, word)| word.store(*value, Ordering::Release));
        Ok(Self { words, size })
    }

    /// Opens a table that another coordinator has left.
    ///
    /// # Errors
    ///
    /// When it is no table of this format.
    pub fn open(words: W) -> Result<Self, Unusable> {
        let all = words.as_ref();
        let header: Vec<u64> = all.iter().take(HEADER).map(|word| word.load(Ordering::Acquire)).collect();
        let [MAGIC, version, frames, pages, slab, ..] = header[..] else { return Err(Unusable::NoTable) };
        if version != VERSION {
            return Err(Unusable::Version(version));
        }
        let size = Size { frames: frames as usize, pages: pages as usize, slab };
        if all.len() < size.words() || slab == 0 {
            return Err(Unusable::NoTable);
        }
        Ok(Self { words, size })
    }

    /// Its size.
    pub fn size(&self) -> Size {
        self.size
    }

    fn record(&self, number: usize) -> Option<(&AtomicU64, &AtomicU64)> {
        let at = HEADER + RECORD * number;
        let words = self.words.as_ref();
        Some((words.get(at)?, words.get(at + 1)?))
    }

    /// The number of a frame's record.
    fn frame(&self, frame: FrameId) -> Option<usize> {
        Some(frame.0 as usize).filter(|frame| *frame < self.size.frames)
    }

    /// The number of the record of a page of the pool.
    fn page(&self, page: u64) -> Option<usize> {
        let page = usize::try_from(page).ok().filter(|page| *page < self.size.pages)?;
        Some(self.size.frames + page)
    }

    /// The words of a record.
    fn read_record(&self, number: usize) -> Option<(u64, u64)> {
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        match self.words.as_ref().get(JOURNAL..HEADER)? {
            [journal, first, tenant] if load(journal) == number as u64 + 1 => Some((load(first), load(tenant))),
            _ => self.record(number).map(|(first, tenant)| (load(first), load(tenant))),
        }
    }

    /// Writes a record as a whole, or only its flags if the tenant and the address stay.
    fn write(&self, number: Option<usize>, owner: u32, value: u64) {
        let Some((number, (first, tenant))) = number.and_then(|number| Some((number, self.record(number)?))) else {
            return;
        };
        let (before, by) = (first.load(Ordering::Relaxed), tenant.load(Ordering::Relaxed));
        let is_its = before & USED != 0 && by == u64::from(owner);
        if is_its && before == value {
            return;
        }
        let stays = is_its && (before ^ value) & !(GRANULE - 1) == 0;
        let journal = self.words.as_ref().get(JOURNAL..HEADER).filter(|_| !stays);
        if let Some([number_there, first_there, tenant_there]) = journal {
            store(first_there, value);
            store(tenant_there, owner.into());
            store(number_there, number as u64 + 1);
            store(tenant, owner.into());
            store(first, value);
            store(number_there, 0);
        } else {
            store(first, value);
        }
    }

    /// Completes the record that was being written when another coordinator died.
    fn complete(&self) {
        if let Some([journal, first, tenant]) = self.words.as_ref().get(JOURNAL..HEADER)
            && let Some(number) = (journal.load(Ordering::Acquire) as usize).checked_sub(1)
        {
            if let Some(record) = self.record(number) {
                store(record.1, tenant.load(Ordering::Acquire));
                store(record.0, first.load(Ordering::Acquire));
            }
            store(journal, 0);
        }
    }

    fn clear(&self, number: Option<usize>) {
        if let Some((first, _)) = number.and_then(|number| self.record(number)) {
            store(first, 0);
        }
    }

    /// Everything that the records say.
    pub fn read(&self) -> Found {
        let mut found = Found { slab: self.size.slab, ..Found::default() };
        let used = |number: usize| {
            let (value, tenant) = self.read_record(number)?;
            (value & USED != 0).then_some(((tenant as u32, value & !(GRANULE - 1)), value))
        };
        for number in 0..self.size.frames {
            let frame = FrameId(number as u32);
            if let Some((place, value)) = self.frame(frame).and_then(used)
                && let Some(class) = SizeClass::of_index((value >> CLASS & 0xf) as usize)
            {
                found.frames.insert(place, InFrame { frame, class, here: value & HERE != 0 });
            }
        }
        for page in 0..self.size.pages as u64 {
            if let Some((place, value)) = self.page(page).and_then(used) {
                let before = found.pages.insert(place, (page * GRANULE, value & ZERO != 0));
                found.stale.extend(before.map(|(offset, _)| offset));
            }
        }
        found
    }
}

/// The contents of a table, by tenant and address.
#[derive(Clone, Debug, Default)]
pub struct Found {
    slab: u64,
    frames: HashMap<(u32, u64), InFrame>,
    /// Offsets in the pool.
    pages: HashMap<(u32, u64), (u64, bool)>,
    /// Offsets of pages whose place others of [`Self::pages`] have.
    stale: Vec<u64>,
}

impl Found {
    /// Pages, by their offsets, that were being replaced when the coordinator died: two records name one place, and the contents are in
    /// the frame.
    pub fn stale(&self) -> &[u64] {
        &self.stale
    }

    /// The frames that some tenant had.
    pub fn frames(&self) -> impl Iterator<Item = (u32, FrameId)> {
        self.frames.iter().map(|((tenant, _), one)| (*tenant, one.frame))
    }

    /// The pages of the pool that some tenant had, by their offsets.
    pub fn pages(&self) -> impl Iterator<Item = (u32, u64)> {
        self.pages.iter().map(|((tenant, _), (offset, _))| (*tenant, *offset))
    }

    /// Finds a tenant's extent. The tenant is right about its mappings, and the table about copies. `was_taken`: memory was taken from this
    /// tenant without asking, so that it may still have frames mapped that others got since.
    pub fn find(&self, tenant: u32, held: &HeldExtent, was_taken: bool) -> Where {
        let frame = self.frames.get(&(tenant, held.at)).filter(|one| one.class == held.class);
        let in_pool = || self.in_pool(tenant, held);
        match (frame, held.mapping) {
            (Some(InFrame { frame, here: true, .. }), mapping) => match mapping {
                Mapping::Mapped => Where::Resident(*frame),
                Mapping::Prepared => Where::ToBeMapped(*frame),
                Mapping::Away => Where::ToBeCopied(*frame, in_pool().unwrap_or_default().runs),
            },
            (Some(InFrame { frame, here: false, .. }), Mapping::Mapped) => {
                in_pool().map_or(Where::Lost, |pool| Where::ToBeUnmapped(*frame, pool))
            }
            // The prepared frame may be another one, or was not taken back yet.
            (Some(InFrame { here: false, .. }), Mapping::Prepared) | (None, Mapping::Mapped | Mapping::Prepared)
                if was_taken =>
            {
                in_pool().map_or(Where::Lost, Where::LeftBehind)
            }
            (Some(InFrame { frame, here: false, .. }), Mapping::Prepared) => {
                in_pool().map_or(Where::Lost, |pool| Where::Reserved(*frame, pool))
            }
            (_, Mapping::Away) => in_pool().map_or(Where::Lost, Where::Host),
            (None, Mapping::Mapped | Mapping::Prepared) => Where::Lost,
        }
    }

    /// True if a tenant has any memory.
    pub fn has_any(&self, tenant: u32) -> bool {
        self.frames().any(|(one, _)| one == tenant) || self.pages().any(|(one, _)| one == tenant)
    }

    /// The frame that a tenant has for an extent, and that does not have its contents.
    pub fn spare_frame(&self, tenant: u32, held: &HeldExtent) -> Option<FrameId> {
        let frame = self.frames.get(&(tenant, held.at)).filter(|one| one.class == held.class && !one.here);
        frame.map(|one| one.frame)
    }

    /// True if anything of an extent of this tenant's is known: a frame, or a page in the pool.
    pub fn has(&self, tenant: u32, at: u64) -> bool {
        self.frames.contains_key(&(tenant, at)) || self.pages.contains_key(&(tenant, at))
    }

    /// Has an extent of the first tenant, at its address there, be the second's, at its address there.
    pub fn pass_on(&mut self, (from, at): (u32, u64), (to, there): (u32, u64), class: SizeClass) {
        if let Some(frame) = self.frames.remove(&(from, at)) {
            self.frames.entry((to, there)).or_insert(frame);
        }
        for offset in (0..class.bytes()).step_by(GRANULE as usize) {
            if let Some(page) = self.pages.remove(&(from, at + offset)) {
                self.pages.entry((to, there + offset)).or_insert(page);
            }
        }
    }

    /// An extent's place in the pool. None if only a part of it is there, which is never so.
    fn in_pool(&self, tenant: u32, held: &HeldExtent) -> Option<InPool> {
        let pages = (0..held.class.bytes() / GRANULE).map(|page| held.at + page * GRANULE);
        let found: Vec<(u64, bool)> = pages.clone().filter_map(|at| self.pages.get(&(tenant, at)).copied()).collect();
        if found.is_empty() {
            return Some(InPool { runs: Vec::new(), zeros: vec![true; pages.count()] });
        }
        if found.len() < pages.count() {
            return None;
        }
        let mut runs: Vec<Run> = Vec::new();
        for (at, _) in &found {
            match runs.last_mut() {
                Some(last) if last.at + last.bytes == *at && last.at / self.slab == *at / self.slab => {
                    last.bytes += GRANULE;
                }
                _ => runs.push(Run { at: *at, bytes: GRANULE }),
            }
        }
        Some(InPool { runs, zeros: found.iter().map(|(_, zero)| *zero).collect() })
    }
}

/// The record of an extent, as it was last written.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
struct Noted {
    frame: Option<FrameId>,
    runs: Vec<Run>,
}

/// Writes each change of extents to a table.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub struct Scribe<W> {
    table: Table<W>,
    noted: HashMap<(u32, ExtentId), Noted>,
}

impl<W: AsRef<[AtomicU64]>> Scribe<W> {
    /// A scribe for a table of which no extent is known yet.
    pub fn new(table: Table<W>) -> Self {
        table.complete();
        Self { table, noted: HashMap::new() }
    }

    /// The table.
    pub fn table(&self) -> &Table<W> {
        &self.table
    }

    /// Writes all that has changed of a tenant's extents since the last call.
    pub fn note_touched(&mut self, tenant: u32, extents: &mut Extents) {
        self.note_touched_but(tenant, extents, &[]);
    }

    /// The same, but these parts of the pool keep their records, although no extent has them any more: the tenant has yet to hear that. Until
    /// it has, it would have an extent of which only a part is found.
    pub fn note_touched_but(&mut self, tenant: u32, extents: &mut Extents, unheard: &[Run]) {
        let touched = extents.take_touched();
        let changed: Vec<_> = touched.into_iter().map(|id| (id, extents.get(id))).collect();
        self.note(tenant, &changed, unheard);
    }

    /// Writes all that has changed of a tenant's extents at once; one that is none is gone. What one of them gives to another is never
    /// without a record.
    fn note(&mut self, tenant: u32, changed: &[(ExtentId, Option<&Extent>)], unheard: &[Run]) {
        let (mut lost_runs, mut lost_frames) = (Vec::new(), Vec::new());
        for (id, extent) in changed {
            let Some(extent) = extent else {
                if let Some(noted) = self.noted.remove(&(tenant, *id)) {
                    lost_runs.extend(noted.runs);
                    lost_frames.extend(noted.frame);
                }
                continue;
            };
            let (frame, runs) = (frame_of(extent), extent.runs().unwrap_or_default());
            // The pages first: a frame that has the contents no more relies on them.
            self.write_pages(tenant, extent, runs);
            self.write_frame(tenant, extent, frame);
            let noted = self.noted.entry((tenant, *id)).or_default();
            if noted.runs != runs {
                lost_runs.extend(std::mem::replace(&mut noted.runs, runs.to_vec()));
            }
            let frame = frame.map(|(frame, _)| frame);
            if noted.frame != frame {
                lost_frames.extend(std::mem::replace(&mut noted.frame, frame));
            }
        }
        let present = || changed.iter().filter_map(|(_, extent)| *extent);
        if !lost_frames.is_empty() {
            let kept: HashSet<FrameId> = present().filter_map(|one| Some(frame_of(one)?.0)).collect();
            lost_frames.iter().filter(|frame| !kept.contains(frame)).for_each(|frame| {
                self.table.clear(self.table.frame(*frame));
            });
        }
        if !lost_runs.is_empty() {
            let runs = present().map(|one| one.runs().unwrap_or_default()).chain([unheard]);
            let kept: HashSet<u64> = runs.flat_map(pages).collect();
            pages(&lost_runs).filter(|page| !kept.contains(page)).for_each(|page| {
                self.table.clear(self.table.page(page));
            });
        }
    }

    fn write_pages(&self, tenant: u32, extent: &Extent, runs: &[Run]) {
        for (number, page) in pages(runs).enumerate() {
            let zero = if extent.comes_as_zeros(number) { ZERO } else { 0 };
            let at = extent.at() + number as u64 * GRANULE;
            self.table.write(self.table.page(page), tenant, at | USED | zero);
        }
    }

    fn write_frame(&self, tenant: u32, extent: &Extent, frame: Option<(FrameId, bool)>) {
        if let Some((frame, here)) = frame {
            let class = (extent.class().index() as u64) << CLASS;
            let value = extent.at() | USED | class | if here { HERE } else { 0 };
            self.table.write(self.table.frame(frame), tenant, value);
        }
    }

    /// Forgets frames, and pages of the pool by their offsets, that are in no extent's use.
    pub fn clear(&mut self, frames: &[FrameId], pages: &[u64]) {
        frames.iter().for_each(|frame| self.table.clear(self.table.frame(*frame)));
        pages.iter().for_each(|offset| self.table.clear(self.table.page(offset / GRANULE)));
    }

    /// Forgets an extent that its tenant does not have any more.
    pub fn gone(&mut self, tenant: u32, extent: ExtentId) {
        self.note(tenant, &[(extent, None)], &[]);
    }

    /// Has an extent of the first tenant be the second's from its next change on.
    pub fn pass_on(&mut self, from: (u32, ExtentId), to: (u32, ExtentId)) {
        if let Some(noted) = self.noted.remove(&from) {
            self.noted.insert(to, noted);
        }
    }

    /// Forgets all that the table says about a tenant.
    pub fn forget(&mut self, tenant: u32) {
        let of_it = self.noted.keys().filter(|(one, _)| *one == tenant);
        let gone: Vec<(ExtentId, Option<&Extent>)> = of_it.map(|(_, id)| (*id, None)).collect();
        self.note(tenant, &gone, &[]);
    }
}

/// A step at which everything is known, whatever comes next.
fn store(word: &AtomicU64, value: u64) {
    baton_faults::reach("coordinator writes", &"record");
    word.store(value, Ordering::Release);
    baton_faults::reach("coordinator wrote", &"record");
    #[cfg(test)]
    explored::stored(word, value);
}

/// The numbers of the pool's pages that runs consist of.
fn pages(runs: &[Run]) -> impl Iterator<Item = u64> {
    runs.iter().flat_map(|run| run.at / GRANULE..(run.at + run.bytes) / GRANULE)
}

/// The frame that an extent's record is about, and true if its contents are there and nowhere else for certain.
fn frame_of(extent: &Extent) -> Option<(FrameId, bool)> {
    let here = match extent.state() {
        ExtentState::Host => return None,
        // It may be written to from the moment at which its tenant is told to map it.
        ExtentState::Resident { .. } | ExtentState::Mapping { .. } => true,
        ExtentState::Leaving { copied, .. } => !copied,
        ExtentState::Reserved { .. } | ExtentState::Arriving { .. } => false,
    };
    extent.state().frame().map(|frame| (frame, here))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::{Half, Holds};

    const TENANT: u32 = 7;
    const SIZE: Size = Size { frames: 16, pages: 64, slab: 16 * GRANULE };
    const AT: u64 = 1 << 40;

    fn words() -> Vec<AtomicU64> {
        (0..SIZE.words()).map(|_| AtomicU64::new(0)).collect()
    }

    /// A tenant's extents, and a scribe that writes down each change.
    struct Model {
        extents: Extents,
        scribe: Scribe<Vec<AtomicU64>>,
    }

    impl Model {
        fn new() -> Self {
            let table = Table::make(words(), SIZE).expect("enough words");
            Self { extents: Extents::default(), scribe: Scribe::new(table) }
        }

        fn change<T>(&mut self, change: impl FnOnce(&mut Extents) -> T) -> T {
            let result = change(&mut self.extents);
            self.scribe.note_touched(TENANT, &mut self.extents);
            result
        }

        /// The place that a coordinator finds which takes over now.
        fn found(&self, id: ExtentId, mapping: Mapping) -> Where {
            let extent = self.extents.get(id).expect("it is there");
            let held = HeldExtent { id, at: extent.at(), class: extent.class(), mapping };
            self.scribe.table().read().find(TENANT, &held, false)
        }
    }

    fn runs(at: u64, pages: u64) -> Vec<Run> {
        vec![Run { at: at * GRANULE, bytes: pages * GRANULE }]
    }

    #[test]
    fn a_table_is_found_again_and_nothing_else_is_taken_for_one() {
        let words = words();
        assert_eq!(Table::open(&words[..]).err(), Some(Unusable::NoTable), "nothing was written");
        Table::make(&words[..], SIZE).expect("enough words");
        assert_eq!(Table::open(&words[..]).map(|table| table.size()), Ok(SIZE));
        assert_eq!(Table::open(&words[..words.len() - 1]).err(), Some(Unusable::NoTable), "cut short");
        words[1].store(2, Ordering::Relaxed);
        assert_eq!(Table::open(&words[..]).err(), Some(Unusable::Version(2)));
    }

    /// A table of the first format, word for word: frame 2 has one tenant's extent, and four pages of the pool have another one's. Of that
    /// the first page is zeros.
    #[test]
    fn a_table_of_the_first_format_is_read() {
        let class = SizeClass::ALL[1];
        let slab = 8 * GRANULE;
        let header = [0x6261_546e_6f74_6142, 1, 3, 8, slab, 0, 0, 0];
        let frames = [[0, 0], [0, 0], [AT | 1 | 2 | 1 << 4, 7]];
        let there = AT + (1 << 30);
        let pages = (0..8).map(|page| match page {
            2..6 => [(there + (page - 2) * GRANULE) | 1 | if page == 2 { 2 } else { 0 }, 9],
            _ => [0, 0],
        });
        let words = header.into_iter().chain(frames.into_iter().chain(pages).flatten());
        let words: Vec<AtomicU64> = words.map(AtomicU64::new).collect();
        let table = Table::open(&words[..]).expect("this version reads it");
        assert_eq!(table.size(), Size { frames: 3, pages: 8, slab });
        let found = table.read();
        let held = |at, mapping| HeldExtent { id: ExtentId(1), at, class, mapping };
        assert_eq!(found.find(7, &held(AT, Mapping::Mapped), false), Where::Resident(FrameId(2)));
        let zeros = vec![true, false, false, false];
        let pool = InPool { runs: runs(2, 4), zeros };
        assert_eq!(found.find(9, &held(there, Mapping::Away), false), Where::Host(pool));
    }

    #[test]
    fn the_contents_are_in_one_place_that_is_known_at_every_instant() {
        let class = SizeClass::ALL[0];
        let (frame, other) = (FrameId(3), FrameId(5));
        let mut model = Model::new();
        let id = model.change(|all| all.add(AT, class, frame));
        assert_eq!(model.found(id, Mapping::Mapped), Where::Resident(frame));
        // It leaves. The frame counts until the copy has ended, whatever the tenant has unmapped by then.
        model.change(|all| all.leave(id, Some(runs(8, 1)), false));
        assert_eq!(model.found(id, Mapping::Mapped), Where::Resident(frame));
        assert_eq!(model.found(id, Mapping::Away), Where::ToBeCopied(frame, runs(8, 1)));
        model.change(|all| all.on_left(id, Half::Copied, false));
        let pool = InPool { runs: runs(8, 1), zeros: vec![false] };
        assert_eq!(model.found(id, Mapping::Mapped), Where::ToBeUnmapped(frame, pool.clone()));
        assert_eq!(model.found(id, Mapping::Away), Where::Host(pool.clone()));
        model.change(|all| all.on_left(id, Half::Unmapped, false));
        assert_eq!(model.found(id, Mapping::Away), Where::Host(pool.clone()));
        // It comes. The pool counts until the tenant is about to be told to map it.
        model.change(|all| all.reserve(id, other, Holds::Nothing));
        assert_eq!(model.found(id, Mapping::Away), Where::Host(pool.clone()));
        assert_eq!(model.found(id, Mapping::Prepared), Where::Reserved(other, pool.clone()));
        model.change(|all| all.arrive(id));
        assert_eq!(model.found(id, Mapping::Prepared), Where::Reserved(other, pool));
        model.change(|all| all.on_arrived(id));
        assert_eq!(model.found(id, Mapping::Prepared), Where::ToBeMapped(other));
        model.change(|all| all.on_mapped(id, true));
        assert_eq!(model.found(id, Mapping::Mapped), Where::Resident(other));
        model.change(|all| all.remove(id));
        let found = model.scribe.table().read();
        assert_eq!((found.frames().count(), found.pages().count()), (0, 0));
    }

    #[test]
    fn pages_of_zeros_are_zeros_whatever_the_pool_holds() {
        let class = SizeClass::ALL[1];
        let count = (class.bytes() / GRANULE) as usize;
        let mut model = Model::new();
        let id = model.change(|all| all.add(AT, class, FrameId(0)));
        let pages: Vec<_> =
            (0..count).map(|page| crate::extents::Page { digest: [page as u64; 2], zero: page == 1 }).collect();
        model.change(|all| all.on_scanned(id, pages, None));
        model.change(|all| all.leave(id, Some(runs(0, count as u64)), false));
        model.change(|all| all.on_left(id, Half::Unmapped, false));
        assert_eq!(model.found(id, Mapping::Away), Where::ToBeCopied(FrameId(0), runs(0, count as u64)));
        model.change(|all| all.on_left(id, Half::Copied, false));
        let zeros = (0..count).map(|page| page == 1).collect();
        assert_eq!(model.found(id, Mapping::Away), Where::Host(InPool { runs: runs(0, count as u64), zeros }));
    }

    #[test]
    fn memory_of_zeros_without_room_is_zeros() {
        let class = SizeClass::ALL[0];
        let mut model = Model::new();
        let id = model.change(|all| all.add(AT, class, FrameId(0)));
        let zero = crate::extents::Page { digest: [0, 0], zero: true };
        model.change(|all| all.on_scanned(id, vec![zero], None));
        model.change(|all| all.leave(id, Some(Vec::new()), true));
        model.change(|all| all.on_left(id, Half::Unmapped, false));
        assert_eq!(model.found(id, Mapping::Away), Where::Host(InPool { runs: Vec::new(), zeros: vec![true] }));
    }

    #[test]
    fn an_extent_that_is_handed_over_is_found_at_every_instant() {
        use crate::sharing::Place;
        let (heir, there, class) = (TENANT + 1, AT << 1, SizeClass::ALL[1]);
        let frame = FrameId(3);
        let words = words();
        let mut scribe = Scribe::new(Table::make(&words[..], SIZE).expect("enough words"));
        let mut own = Extents::default();
        let id = own.add(AT, class, frame);
        own.leave(id, Some(runs(8, class.bytes() / GRANULE)), false);
        own.on_left(id, Half::Copied, true);
        scribe.note_touched(TENANT, &mut own);
        let before: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        explored::take_stores();

        let (_, entry) = own.into_all().next().expect("it is there");
        let mut theirs = Extents::default();
        let number = theirs.borrow_number();
        scribe.pass_on((TENANT, id), (heir, number));
        assert_eq!(theirs.adopt(number, (there, Place::Mapped), entry, true), None);
        scribe.note_touched(heir, &mut theirs);
        scribe.forget(TENANT);

        let stores = explored::take_stores();
        let held = HeldExtent { id: number, at: there, class, mapping: Mapping::Mapped };
        let pool =
            InPool { runs: runs(8, class.bytes() / GRANULE), zeros: vec![false; (class.bytes() / GRANULE) as usize] };
        let place = |number: usize| {
            let words: Vec<AtomicU64> = before.iter().map(|word| AtomicU64::new(*word)).collect();
            for (address, value) in &stores[..number] {
                let at = (address - words_at(&scribe)) / size_of::<u64>();
                words[at].store(*value, Ordering::Relaxed);
            }
            let table = Table::open(words).expect("it is one");
            let mut found = table.read();
            found.pass_on((TENANT, AT), (heir, there), class);
            let first = found.find(heir, &held, false);
            // The next one completes what this one has begun.
            let mut found = Scribe::new(table).table().read();
            found.pass_on((TENANT, AT), (heir, there), class);
            assert_eq!(found.find(heir, &held, false), first, "after {number} stores");
            first
        };
        assert!(stores.len() > 3 * 6, "{stores:?}");
        for number in 0..=stores.len() {
            assert_eq!(place(number), Where::ToBeUnmapped(frame, pool.clone()), "after {number} stores");
        }
    }

    fn words_at(scribe: &Scribe<&[AtomicU64]>) -> usize {
        scribe.table.words.as_ptr().addr()
    }

    #[test]
    fn what_the_table_and_the_tenant_do_not_agree_about_is_lost() {
        let class = SizeClass::ALL[1];
        let model = Model::new();
        let held = |mapping| HeldExtent { id: ExtentId(1), at: AT, class, mapping };
        let table = model.scribe.table();
        assert_eq!(table.read().find(TENANT, &held(Mapping::Mapped), false), Where::Lost);
        let zeros = InPool { runs: Vec::new(), zeros: vec![true; (class.bytes() / GRANULE) as usize] };
        let behind = Where::LeftBehind(zeros.clone());
        for mapping in [Mapping::Mapped, Mapping::Prepared] {
            assert_eq!(table.read().find(TENANT, &held(mapping), true), behind, "another has its frame");
        }
        table.write(table.page(3), TENANT, AT | USED);
        assert_eq!(table.read().find(TENANT, &held(Mapping::Away), false), Where::Lost, "one page of several");
        assert_eq!(table.read().find(TENANT + 1, &held(Mapping::Away), false), Where::Host(zeros));
    }

    #[test]
    fn an_extent_is_restored_as_it_was_found_and_read_again() {
        let class = SizeClass::ALL[0];
        let pool = || InPool { runs: runs(4, 1), zeros: vec![false] };
        let frame = FrameId(2);
        let ways = [
            (Mapping::Mapped, Where::Resident(frame)),
            (Mapping::Prepared, Where::ToBeMapped(frame)),
            (Mapping::Away, Where::ToBeCopied(frame, Vec::new())),
            (Mapping::Mapped, Where::ToBeUnmapped(frame, pool())),
            (Mapping::Prepared, Where::Reserved(frame, pool())),
            (Mapping::Away, Where::Host(pool())),
        ];
        for (mapping, found) in ways {
            let mut model = Model::new();
            let held = HeldExtent { id: ExtentId(9), at: AT, class, mapping };
            assert!(model.change(|all| all.restore(&held, found.clone())));
            assert!(!model.change(|all| all.restore(&held, found.clone())), "it is there");
            assert_eq!(model.found(held.id, mapping), found);
        }
    }
}
