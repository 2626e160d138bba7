//! Every state that a tenant, its memory, the copies and the table can come to together, for small sizes; and a coordinator that dies in
//! each of them, also between any two stores to the table.
//!
//! The next one is to find the contents of every page in one place, no frame or page of the pool for two extents, and nothing that waits
//! for an event which does not come. It goes on from there, and may die too.
//!
//! The order of what a coordinator does is that of `server/memory`: stores to the table before messages to the tenant and copies that
//! begin; and copies that have ended before the stores which say so.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;

use super::*;
use crate::extents::{Copies, Half, Holds, OFTEN_DIRTY, Page};

const TENANT: u32 = 3;
const AT: u64 = 1 << 40;

thread_local! {
    /// The stores to tables since they were taken last: addresses and values.
    static STORES: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Notes a store to a table.
pub(super) fn stored(word: &AtomicU64, value: u64) {
    STORES.with_borrow_mut(|stores| stores.push((std::ptr::from_ref(word).addr(), value)));
}

/// Takes the stores since the last call.
pub(super) fn take_stores() -> Vec<(usize, u64)> {
    STORES.take()
}

/// Words that another coordinator finds.
#[derive(Debug)]
struct Words(Vec<AtomicU64>);

impl AsRef<[AtomicU64]> for Words {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Clone for Words {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))).collect())
    }
}

/// The contents of a page: zeros, the number of a write, or what is worth nothing.
type Contents = u8;
const ZEROS: Contents = 0;
const AT_FIRST: Contents = 0xfe;
const WORTHLESS: Contents = 0xff;

/// The sizes, and how much happens at most.
#[derive(Clone, Copy)]
struct Bounds {
    extents: usize,
    /// Pages of an extent.
    class: SizeClass,
    frames: usize,
    /// The times that all extents fit the pool.
    rooms: usize,
    writes: u8,
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mapped {
    Away,
    Prepared(usize),
    Here(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Command {
    Prepare(usize, usize),
    Map(usize),
    Unmap(usize),
    Open,
    Close,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Done {
    Mapped(usize),
    Unmapped(usize),
    Closed,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// The tenant's steps.
    CarryOut,
    Write(usize, usize, bool),
    /// The coordinator's.
    Hear,
    Grant,
    Revoke,
    Scan(usize),
    Leave(usize),
    CopiedOut(usize),
    Reserve(usize),
    GiveUpReserved(usize),
    Arrive(usize),
    CopiedIn(usize),
    CopyAhead(usize),
    GiveUpRoom(usize),
}

/// Everything at one moment.
#[derive(Clone)]
struct World {
    bounds: Bounds,
    extents: Extents,
    ids: Vec<ExtentId>,
    scribe: Scribe<Words>,
    frames: Vec<Vec<Contents>>,
    pool: Vec<Contents>,
    /// The contents that the tenant would read.
    truth: Vec<Vec<Contents>>,
    mapped: Vec<Mapped>,
    inbox: VecDeque<Command>,
    outbox: VecDeque<Done>,
    /// The tenant's gate.
    is_open: bool,
    /// True as long as the coordinator has not heard that it is closed.
    may_be_open: bool,
    /// The parts of an extent that are being copied out.
    copies_out: BTreeMap<usize, Vec<Range<u64>>>,
    writes: u8,
    deaths: u8,
    /// No coordinator serves.
    is_dead: bool,
}

/// The steps of a coordinator after its stores.
#[derive(Default)]
struct After {
    tells: Vec<Command>,
    copies_out: Vec<(usize, Vec<Range<u64>>)>,
    copies_in: Vec<usize>,
}

impl World {
    fn new(bounds: Bounds) -> Self {
        let pages = (bounds.class.bytes() / GRANULE) as usize;
        let all = bounds.extents * bounds.rooms * pages;
        let size = Size { frames: bounds.frames, pages: all, slab: all as u64 * GRANULE };
        let words = Words((0..size.words()).map(|_| AtomicU64::new(0)).collect());
        let mut world = Self {
            bounds,
            extents: Extents::default(),
            ids: Vec::new(),
            scribe: Scribe::new(Table::make(words, size).expect("enough words")),
            frames: vec![vec![AT_FIRST; pages]; bounds.frames],
            pool: vec![WORTHLESS; all],
            truth: vec![vec![AT_FIRST; pages]; bounds.extents],
            mapped: (0..bounds.extents).map(Mapped::Here).collect(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            is_open: false,
            may_be_open: false,
            copies_out: BTreeMap::new(),
            writes: 0,
            deaths: 0,
            is_dead: false,
        };
        for extent in 0..bounds.extents {
            let (at, frame) = (world.at(extent), FrameId(extent as u32));
            let id = world.change(|all| all.add(at, bounds.class, frame));
            world.ids.push(id);
        }
        world
    }

    fn at(&self, extent: usize) -> u64 {
        AT + extent as u64 * self.bounds.class.bytes()
    }

    fn pages(&self) -> usize {
        self.truth[0].len()
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Extents) -> T) -> T {
        let result = change(&mut self.extents);
        self.scribe.note_touched(TENANT, &mut self.extents);
        result
    }

    fn extent(&self, extent: usize) -> &Extent {
        self.extents.get(self.ids[extent]).expect("it is never given up")
    }

    fn number(&self, id: ExtentId) -> usize {
        self.ids.iter().position(|one| *one == id).expect("one of these")
    }

    fn free_frame(&self) -> Option<usize> {
        let used: Vec<usize> =
            self.extents.iter().filter_map(|(_, extent)| Some(extent.state().frame()?.0 as usize)).collect();
        (0..self.bounds.frames).find(|frame| !used.contains(frame))
    }

    /// Room in the pool for an extent.
    fn room(&self) -> Option<Vec<Run>> {
        let used: HashSet<u64> =
            self.extents.iter().flat_map(|(_, extent)| pages(extent.runs().unwrap_or_default())).collect();
        let free: Vec<u64> =
            (0..self.pool.len() as u64).filter(|page| !used.contains(page)).take(self.pages()).collect();
        let enough = free.len() == self.pages();
        enough.then(|| free.into_iter().map(|page| Run { at: page * GRANULE, bytes: GRANULE }).collect())
    }

    /// The contents that a scan finds in a frame.
    fn scanned(&self, frame: FrameId) -> Vec<Page> {
        let page = |contents: &Contents| Page { digest: [u64::from(*contents); 2], zero: *contents == ZEROS };
        self.frames[frame.0 as usize].iter().map(page).collect()
    }

    /// Everything that can happen now, but for a death.
    fn possible(&self) -> Vec<Action> {
        let mut all = Vec::new();
        if !self.inbox.is_empty() {
            all.push(Action::CarryOut);
        }
        if !self.outbox.is_empty() {
            all.push(Action::Hear);
        }
        let leaves = |extent: usize| matches!(self.extent(extent).state(), ExtentState::Leaving { .. });
        if self.may_be_open {
            if !self.inbox.contains(&Command::Close) && !self.outbox.contains(&Done::Closed) {
                all.push(Action::Revoke);
            }
        } else if !(0..self.bounds.extents).any(leaves) {
            all.push(Action::Grant);
        }
        for number in 0..self.bounds.extents {
            let extent = self.extent(number);
            if self.is_open && matches!(self.mapped[number], Mapped::Here(_)) && self.writes < self.bounds.writes {
                for page in 0..self.pages() {
                    all.extend([Action::Write(number, page, false), Action::Write(number, page, true)]);
                }
            }
            match extent.state() {
                ExtentState::Resident { .. } => {
                    if !self.may_be_open && !extent.is_scanned() {
                        all.push(Action::Scan(number));
                    }
                    if !self.may_be_open && extent.copies(true) != Copies::Unknown {
                        all.push(Action::Leave(number));
                    }
                    if extent.runs().is_some() {
                        all.push(Action::GiveUpRoom(number));
                    }
                    all.push(Action::CopyAhead(number));
                }
                ExtentState::Leaving { .. } if self.copies_out.contains_key(&number) => {
                    all.push(Action::CopiedOut(number));
                }
                ExtentState::Host if self.free_frame().is_some() => all.push(Action::Reserve(number)),
                ExtentState::Reserved { .. } => all.extend([Action::Arrive(number), Action::GiveUpReserved(number)]),
                ExtentState::Arriving { .. } => all.push(Action::CopiedIn(number)),
                ExtentState::Leaving { .. } | ExtentState::Host | ExtentState::Mapping { .. } => {}
            }
        }
        all
    }

    /// A copy ends, before the coordinator acts upon that.
    fn before(&mut self, action: Action) {
        match action {
            Action::CopiedOut(number) => {
                let parts = self.copies_out.remove(&number).expect("it is under way");
                self.copy_out(number, &parts, |frame, page| frame[page]);
            }
            Action::CopiedIn(number) => {
                let frame = self.frame(number);
                self.frames[frame] = self.in_pool(number);
            }
            _ => {}
        }
    }

    fn frame(&self, number: usize) -> usize {
        self.extent(number).state().frame().expect("it has one").0 as usize
    }

    /// The contents with which an extent comes in.
    fn in_pool(&self, number: usize) -> Vec<Contents> {
        let extent = self.extent(number);
        let room: Vec<u64> = pages(extent.runs().unwrap_or_default()).collect();
        let of = |page: usize| match room.get(page) {
            Some(at) if !extent.comes_as_zeros(page) => self.pool[*at as usize],
            _ => ZEROS,
        };
        (0..self.pages()).map(of).collect()
    }

    fn copy_out(&mut self, number: usize, parts: &[Range<u64>], contents: impl Fn(&[Contents], usize) -> Contents) {
        let frame = self.frame(number);
        let room: Vec<u64> = pages(self.extent(number).runs().unwrap_or_default()).collect();
        for page in parts.iter().flat_map(|part| part.start / GRANULE..part.end / GRANULE) {
            let page = page as usize;
            self.pool[room[page] as usize] = contents(&self.frames[frame], page);
        }
    }

    /// The coordinator writes down a step. Returns what it does then.
    fn act(&mut self, action: Action) -> After {
        let mut after = After::default();
        match action {
            Action::CarryOut | Action::Write(..) => unreachable!("the tenant's"),
            Action::Hear => match self.outbox.pop_front().expect("an answer") {
                Done::Mapped(number) => {
                    let (id, may_write) = (self.ids[number], self.may_be_open);
                    self.change(|all| all.on_mapped(id, may_write));
                }
                Done::Unmapped(number) => {
                    let id = self.ids[number];
                    self.change(|all| all.on_left(id, Half::Unmapped, false));
                }
                Done::Closed => self.may_be_open = false,
            },
            Action::Grant => {
                self.change(Extents::may_change);
                self.may_be_open = true;
                after.tells.push(Command::Open);
            }
            Action::Revoke => after.tells.push(Command::Close),
            Action::Scan(number) => {
                let (id, pages) = (self.ids[number], self.scanned(FrameId(self.frame(number) as u32)));
                self.change(|all| all.on_scanned(id, pages, None));
            }
            Action::Leave(number) => self.leave(number, &mut after),
            Action::CopiedOut(number) => {
                let id = self.ids[number];
                self.change(|all| all.on_left(id, Half::Copied, false));
            }
            Action::Reserve(number) => {
                let (id, frame) = (self.ids[number], self.free_frame().expect("there is one"));
                if self.change(|all| all.reserve(id, FrameId(frame as u32), Holds::Nothing)) {
                    after.tells.push(Command::Prepare(number, frame));
                }
            }
            Action::GiveUpReserved(number) => {
                let id = self.ids[number];
                self.change(|all| all.give_up_reserved(id));
                after.tells.push(Command::Unmap(number));
            }
            Action::Arrive(number) => {
                let id = self.ids[number];
                if self.change(|all| all.arrive(id)).is_some() {
                    after.copies_in.push(number);
                }
            }
            Action::CopiedIn(number) => {
                let id = self.ids[number];
                self.change(|all| all.on_arrived(id));
                after.tells.push(Command::Map(number));
            }
            Action::CopyAhead(number) => self.copy_ahead(number),
            Action::GiveUpRoom(number) => {
                let id = self.ids[number];
                self.change(|all| all.give_up_backing(id));
            }
        }
        after
    }

    /// As `start_leaving` does.
    fn leave(&mut self, number: usize, after: &mut After) {
        let id = self.ids[number];
        let Copies::Parts(parts) = self.extent(number).copies(true) else {
            if self.extent(number).is_zero() {
                self.change(|all| all.give_up_backing(id));
            }
            let new = self.extent(number).runs().is_none().then(Vec::new);
            self.change(|all| all.leave(id, new, true));
            return after.tells.push(Command::Unmap(number));
        };
        let new = match self.extent(number).runs() {
            Some(runs) if !runs.is_empty() => None,
            _ => match self.room() {
                Some(room) => Some(room),
                None => return,
            },
        };
        self.change(|all| all.leave(id, new, false));
        after.copies_out.push((number, parts));
        after.tells.push(Command::Unmap(number));
    }

    /// Its contents of now, which may change at any time.
    fn copy_ahead(&mut self, number: usize) {
        let (id, frame) = (self.ids[number], FrameId(self.frame(number) as u32));
        let Some(room) = self.room() else { return };
        let found = self.scanned(frame);
        let contents = self.frames[frame.0 as usize].clone();
        pages(&room).zip(contents).for_each(|(page, contents)| self.pool[page as usize] = contents);
        self.change(|all| all.on_copied_ahead(id, frame, found, room));
    }

    /// The steps after the stores: copies begin, and may be torn from then on.
    fn after(&mut self, After { tells, copies_out, copies_in }: After) {
        for (number, parts) in copies_out {
            self.copy_out(number, &parts, |_, _| WORTHLESS);
            self.copies_out.insert(number, parts);
        }
        for number in copies_in {
            let frame = self.frame(number);
            self.frames[frame] = vec![WORTHLESS; self.pages()];
        }
        self.inbox.extend(tells);
    }

    fn carry_out(&mut self) {
        match self.inbox.pop_front() {
            Some(Command::Prepare(number, frame)) => self.mapped[number] = Mapped::Prepared(frame),
            Some(Command::Map(number)) => {
                let Mapped::Prepared(frame) = self.mapped[number] else { panic!("nothing to map: {self}") };
                self.mapped[number] = Mapped::Here(frame);
                self.outbox.push_back(Done::Mapped(number));
            }
            Some(Command::Unmap(number)) => {
                self.mapped[number] = Mapped::Away;
                self.outbox.push_back(Done::Unmapped(number));
            }
            Some(Command::Open) => self.is_open = true,
            Some(Command::Close) => {
                self.is_open = false;
                self.outbox.push_back(Done::Closed);
            }
            None => {}
        }
    }

    fn write(&mut self, number: usize, page: usize, zero: bool) {
        let Mapped::Here(frame) = self.mapped[number] else { return };
        self.writes += 1;
        let contents = if zero { ZEROS } else { self.writes };
        self.frames[frame][page] = contents;
        self.truth[number][page] = contents;
    }

    /// The worlds that follow this one.
    fn nexts(&self) -> Vec<Self> {
        if self.is_dead {
            self.check();
            return self.done(|next| next.find_all());
        }
        let mut all = Vec::new();
        for action in self.possible() {
            let mut before = self.clone();
            match action {
                Action::CarryOut => before.carry_out(),
                Action::Write(number, page, zero) => before.write(number, page, zero),
                _ => {
                    before.before(action);
                    all.extend(before.done(|next| next.act(action)));
                    continue;
                }
            }
            all.push(before);
        }
        all
    }

    /// The world in which a coordinator has done something; and those in which it has died after some of its stores.
    fn done(&self, act: impl FnOnce(&mut Self) -> After) -> Vec<Self> {
        let mut done = self.clone();
        take_stores();
        let start = done.scribe.table().words.0.as_ptr().addr();
        let after = act(&mut done);
        let stores = take_stores();
        assert_eq!(start, done.scribe.table().words.0.as_ptr().addr(), "the same table");
        let mut all = Vec::new();
        if self.deaths < self.bounds.deaths {
            for count in 0..=stores.len() {
                let mut dead = self.clone();
                for (address, value) in &stores[..count] {
                    let word = &dead.scribe.table().words.0[(address - start) / size_of::<AtomicU64>()];
                    word.store(*value, Ordering::Relaxed);
                }
                dead.die();
                all.push(dead);
            }
        }
        done.is_dead = false;
        done.after(after);
        all.push(done);
        all
    }

    /// The coordinator has died. The tenant does what it was told, and nobody hears that it has.
    fn die(&mut self) {
        while !self.inbox.is_empty() {
            self.carry_out();
        }
        self.outbox.clear();
        self.may_be_open = self.is_open;
        (self.copies_out, self.extents) = Default::default();
        self.deaths += 1;
        self.is_dead = true;
    }

    /// Forgets the contents of frames and pages that nobody has: they do not matter, or should not.
    fn forget(&mut self) {
        let found = self.scribe.table().read();
        let mut frames: HashSet<usize> = found.frames().map(|(_, frame)| frame.0 as usize).collect();
        let mut rooms: HashSet<u64> = found.pages().map(|(_, at)| at / GRANULE).collect();
        for (_, extent) in self.extents.iter() {
            frames.extend(extent.state().frame().map(|frame| frame.0 as usize));
            rooms.extend(pages(extent.runs().unwrap_or_default()));
        }
        for (frame, contents) in self.frames.iter_mut().enumerate().filter(|(frame, _)| !frames.contains(frame)) {
            let is_mapped = self.mapped.contains(&Mapped::Here(frame));
            assert!(!is_mapped, "frame {frame} is mapped, and nobody knows");
            contents.fill(WORTHLESS);
        }
        for (page, contents) in (0..).zip(&mut self.pool) {
            if !rooms.contains(&page) {
                *contents = WORTHLESS;
            }
        }
    }

    fn held(&self, number: usize) -> HeldExtent {
        let mapping = match self.mapped[number] {
            Mapped::Away => Mapping::Away,
            Mapped::Prepared(_) => Mapping::Prepared,
            Mapped::Here(_) => Mapping::Mapped,
        };
        HeldExtent { id: self.ids[number], at: self.at(number), class: self.bounds.class, mapping }
    }

    /// Everything is found in one place, and nothing twice.
    fn check(&self) {
        let found = self.scribe.table().read();
        let (mut frames, mut rooms) = (HashSet::new(), HashSet::new());
        for number in 0..self.bounds.extents {
            let place = found.find(TENANT, &self.held(number), false);
            let (frame, pool) = match &place {
                Where::Resident(frame) | Where::ToBeMapped(frame) | Where::ToBeCopied(frame, _) => (Some(*frame), None),
                Where::ToBeUnmapped(frame, pool) | Where::Reserved(frame, pool) => (Some(*frame), Some(pool)),
                Where::Host(pool) => (None, Some(pool)),
                Where::Lost | Where::LeftBehind(_) | Where::ToBeLetGo(..) => panic!("extent {number} is lost: {self}"),
            };
            let has = match self.mapped[number] {
                Mapped::Away => None,
                Mapped::Prepared(frame) | Mapped::Here(frame) => Some(frame),
            };
            assert!(has.is_none() || has == frame.map(|frame| frame.0 as usize), "another frame: {place:?}, {self}");
            let contents: Vec<Contents> = match (frame, pool) {
                (_, Some(pool)) => {
                    let at: Vec<u64> = pages(&pool.runs).collect();
                    let of = |(page, zero): (usize, &bool)| if *zero { ZEROS } else { self.pool[at[page] as usize] };
                    pool.zeros.iter().enumerate().map(of).collect()
                }
                (Some(frame), None) => self.frames[frame.0 as usize].clone(),
                (None, None) => unreachable!("it is somewhere"),
            };
            assert_eq!(contents, self.truth[number], "extent {number} at {place:?}: {self}");
            let room = match &place {
                Where::ToBeCopied(_, runs) => pages(runs).collect::<Vec<_>>(),
                _ => pool.map_or_else(Vec::new, |pool| pages(&pool.runs).collect()),
            };
            assert!(frame.is_none_or(|frame| frames.insert(frame)), "one frame for two: {self}");
            assert!(room.into_iter().all(|page| rooms.insert(page)), "one page for two: {self}");
        }
    }

    /// As `take_over` in `server/memory/returned.rs` does.
    fn find_all(&mut self) -> After {
        let mut after = After::default();
        let found = self.scribe.table().read();
        self.scribe.table().complete();
        self.scribe.noted.clear();
        let (mut frames, mut rooms, mut to_copy) = (HashSet::new(), HashSet::new(), Vec::new());
        for number in 0..self.bounds.extents {
            let held = self.held(number);
            let place = found.find(TENANT, &held, false);
            match &place {
                Where::ToBeMapped(_) => after.tells.push(Command::Map(number)),
                Where::ToBeUnmapped(..) => after.tells.push(Command::Unmap(number)),
                Where::ToBeCopied(_, runs) => {
                    to_copy.push((number, runs.clone()));
                    rooms.extend(pages(runs));
                }
                _ => {}
            }
            assert!(self.extents.restore(&held, place), "{self}");
            let extent = self.extents.get(held.id).expect("it was restored");
            frames.extend(extent.state().frame());
            rooms.extend(pages(extent.runs().unwrap_or_default()));
        }
        self.change(|_| ());
        let others: Vec<FrameId> = found.frames().map(|(_, frame)| frame).filter(|one| !frames.contains(one)).collect();
        let left = found.pages().map(|(_, at)| at).filter(|at| !rooms.contains(&(at / GRANULE)));
        let left: Vec<u64> = left.chain(found.stale().iter().copied()).collect();
        self.scribe.clear(&others, &left);
        assert_eq!(
            self.scribe.table().read().stale(),
            [0; 0],
            "a record of no use that the next one may believe: {self}"
        );
        for (number, runs) in to_copy {
            let runs = if runs.is_empty() { self.room().expect("one for each") } else { runs };
            let (id, all) = (self.ids[number], 0..self.bounds.class.bytes());
            self.change(|extents| extents.give_room(id, runs));
            after.copies_out.push((number, vec![all]));
        }
        after
    }

    /// All that is under way comes to an end, in which everything is where it should be.
    fn check_end(&self) {
        let mut end = self.clone();
        let mut steps = 0;
        while let Some(action) = end.possible().into_iter().find(|action| {
            matches!(action, Action::CarryOut | Action::Hear | Action::CopiedOut(_) | Action::CopiedIn(_))
        }) {
            steps += 1;
            assert!(steps < 100, "there is no end: {self}");
            match action {
                Action::CarryOut => end.carry_out(),
                _ => {
                    end.before(action);
                    let after = end.act(action);
                    end.after(after);
                }
            }
        }
        for number in 0..end.bounds.extents {
            let extent = end.extent(number);
            let contents: Vec<Contents> = match extent.state() {
                ExtentState::Resident { frame } => end.frames[frame.0 as usize].clone(),
                ExtentState::Host | ExtentState::Reserved { .. } => end.in_pool(number),
                state => panic!("extent {number} stays {state:?}: {self}"),
            };
            assert_eq!(contents, end.truth[number], "extent {number} in the end: {self}");
        }
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let extents: Vec<_> = self.extents.iter().map(|(id, extent)| (self.number(id), extent)).collect();
        let tenant = (&self.mapped, &self.inbox, &self.outbox, self.is_open, self.may_be_open);
        let contents = (&self.frames, &self.pool, &self.truth);
        write!(
            f,
            "{extents:?} {:?} {tenant:?} {contents:?} {} {} {}",
            self.copies_out, self.writes, self.deaths, self.is_dead
        )?;
        // Records without a use may have any address: a coordinator that takes over does not read it.
        self.scribe.table().words.0.iter().try_for_each(|word| write!(f, " {:x}", word.load(Ordering::Relaxed)))
    }
}

/// The words of a world, in which no count of changes goes on without an end: from some number on they all mean the same.
fn key(world: &str) -> String {
    const COUNT: &str = "dirty: ";
    let mut parts = world.split(COUNT);
    let mut key = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (count, rest) = part.split_once(',').unwrap_or((part, ""));
        let count: u8 = count.parse().expect("a number");
        key += &format!("{COUNT}{},{rest}", count.min(OFTEN_DIRTY));
    }
    key
}

/// Goes through all states. Returns their number, and that of those in which the coordinator is dead.
fn explore(bounds: Bounds) -> (usize, usize) {
    let mut seen = HashSet::new();
    let mut left = VecDeque::from([World::new(bounds)]);
    let mut dead = 0;
    while let Some(mut world) = left.pop_front() {
        world.forget();
        let mut hasher = DefaultHasher::new();
        key(&world.to_string()).hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        dead += usize::from(world.is_dead);
        if !world.is_dead {
            world.check_end();
        }
        left.extend(world.nexts());
    }
    (seen.len(), dead)
}

fn explore_all_of(bounds: Bounds) {
    let (states, dead) = explore(bounds);
    let Bounds { extents, class, .. } = bounds;
    println!("{extents} of {class:?}: {states} states, in {dead} of them the coordinator is dead");
    assert!(states > 1_000 && dead > 100);
}

#[test]
fn whatever_happens_the_next_one_finds_everything_in_one_place() {
    let small = Bounds { extents: 1, class: SizeClass::ALL[0], frames: 2, rooms: 2, writes: 2, deaths: 2 };
    explore_all_of(small);
    explore_all_of(Bounds { class: SizeClass::ALL[1], writes: 1, deaths: 1, ..small });
}

#[test]
#[ignore = "long: four minutes"]
fn whatever_happens_to_two_extents_the_next_one_finds_everything_in_one_place() {
    explore_all_of(Bounds { extents: 2, class: SizeClass::ALL[0], frames: 2, rooms: 2, writes: 1, deaths: 1 });
}

/// One event after the other, chosen at random, and a death now and then.
fn walk(bounds: Bounds, events: usize) -> (usize, usize) {
    let mut seed = 48u64;
    let mut below = |count: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % count
    };
    let mut world = World::new(bounds);
    let (mut deaths, mut most, mut most_later) = (0, 0, 0);
    for event in 0..events {
        world.forget();
        // The numbers of writes begin again: those of long ago are of no use any more.
        world.writes %= bounds.writes;
        let possible = world.possible();
        let action = possible[below(possible.len())];
        match action {
            Action::CarryOut => world.carry_out(),
            Action::Write(number, page, zero) => world.write(number, page, zero),
            _ => {
                world.before(action);
                world.deaths = if below(500) == 0 { 0 } else { bounds.deaths };
                let mut nexts = world.done(|next| next.act(action));
                world = nexts.swap_remove(if world.deaths == 0 { below(nexts.len()) } else { 0 });
            }
        }
        while world.is_dead {
            deaths += 1;
            world.check();
            world.deaths = bounds.deaths;
            world = world.done(World::find_all).pop().expect("it has taken over");
        }
        take_stores();
        if event % 100 == 0 {
            world.check_end();
            let size = world.to_string().len();
            let latest = if event < events / 10 { &mut most } else { &mut most_later };
            *latest = size.max(*latest);
            assert!(world.scribe.noted.len() <= bounds.extents, "records of what is gone: {world}");
        }
    }
    assert!(most_later < most + most / 4, "it grows: {most} letters describe it at first, then {most_later}");
    (deaths, most_later)
}

const MANY: Bounds = Bounds { extents: 5, class: SizeClass::ALL[1], frames: 6, rooms: 2, writes: 200, deaths: 1 };

#[test]
fn after_many_events_everything_is_in_one_place_and_nothing_has_grown() {
    let (deaths, _) = walk(MANY, 20_000);
    assert!(deaths > 10, "{deaths}");
}

#[test]
#[ignore = "long: some minutes"]
fn after_a_million_events_everything_is_in_one_place_and_nothing_has_grown() {
    println!("deaths, and letters that describe all of it: {:?}", walk(MANY, 1_000_000));
}
