//! The arena's books: they list all frames and the holder of each. Pure: the code here makes and moves nothing itself.
//!
//! A **frame** is a physical piece of GPU memory of one [`SizeClass`]. A free frame is *clean* if it was overwritten since a tenant
//! had it, or was found to hold zeros; otherwise it is *dirty*. A dirty frame may be *kept*: it holds an extent's contents, and
//! the extent can have it back as it is until another extent needs it. All frames together never exceed the
//! capacity, which can shrink: contexts and code live beside the arena. When a class runs out, free
//! frames of other classes are exchanged for it ([`Arena::surplus`]). This does not fragment the device's
//! memory, because it comes in 2 MiB pages anyway.
//!
//! A frame stays with its **owner**, a user or a tenant: an earlier holder may have kept it mapped, and would see the next
//! holder's writes. To serve another owner, the frame is given back to the driver, like a frame of another class, and a new one is made.
//!
//! A frame that was taken from an unresponsive tenant is **held** there: the tenant still has it mapped, so its memory would not
//! return to the device. Other tenants can have the frame as it is; it is not exchanged until the first tenant has unmapped it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use baton_contract::memory::SizeClass;

use super::sizes::PerClass;

/// Bytes of the smallest class that are kept ready: allocations of up to 2 MiB are the most frequent.
const READY_BYTES: u64 = 16 << 20;
/// The arena keeps at most one in this many of its bytes ready.
const READY_PART: u64 = 64;

/// A frame's number. Numbers of frames that were released are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// Proof that a frame was kept and still holds the same contents. No two keepsakes are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepsake(u64);

/// The user or tenant that may reuse a frame. A frame that one of an owner's tenants has had goes to no other owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u64);

impl Owner {
    /// The owner of a frame that no tenant has had yet.
    const NONE: Self = Self(0);

    /// All programs of a user; without a number, those of the coordinator's own user and of root.
    pub fn of_user(guest: Option<u32>) -> Self {
        Self(guest.map_or(1, |user| 2 + u64::from(user)))
    }

    /// One tenant alone.
    pub fn of_tenant(number: u32) -> Self {
        Self(1 << 40 | u64::from(number))
    }
}

/// Free frames of a class: held frames come first, then the order is by owner.
type Frames = BTreeSet<(Hold, Owner, FrameId)>;

/// A held frame is still mapped by a tenant that has lost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Held,
    No,
}

/// The present use of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Free and overwritten.
    Clean,
    /// Free, with a tenant's bytes in it.
    Dirty,
    /// As dirty, but its former tenant may want it back.
    Kept(Keepsake),
    /// Being overwritten.
    Scrubbing,
    /// A tenant has it.
    Lent,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    class: SizeClass,
    owner: Owner,
    now: Use,
    /// The number of tenants that have lost the frame and still have it mapped.
    held: u32,
}

impl Frame {
    fn hold(self) -> Hold {
        if self.held > 0 { Hold::Held } else { Hold::No }
    }
}

/// The books.
#[derive(Debug)]
pub struct Arena {
    configured: u64,
    capacity: u64,
    frames: Vec<Option<Frame>>,
    /// Numbers of released frames.
    unused: Vec<FrameId>,
    clean: [Frames; SizeClass::ALL.len()],
    dirty: [Frames; SizeClass::ALL.len()],
    kept: [Frames; SizeClass::ALL.len()],
    last_kept: u64,
    scrubbing: BTreeMap<(SizeClass, Owner, Hold), usize>,
    bytes: Bytes,
}

/// Sums over all frames, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Free and overwritten.
    pub clean: u64,
    /// Free, with a tenant's bytes in it; kept frames too.
    pub dirty: u64,
    /// Being overwritten.
    pub scrubbing: u64,
    /// With tenants.
    pub lent: u64,
    /// Out of the books, but not yet free to the driver.
    pub leaving: u64,
}

impl Bytes {
    /// All frames, and those that are leaving.
    pub fn all(self) -> u64 {
        self.free() + self.lent + self.leaving
    }

    /// All frames that tenants do not have.
    pub fn free(self) -> u64 {
        self.clean + self.dirty + self.scrubbing
    }

    fn of(&mut self, now: Use) -> &mut u64 {
        match now {
            Use::Clean => &mut self.clean,
            Use::Dirty | Use::Kept(_) => &mut self.dirty,
            Use::Scrubbing => &mut self.scrubbing,
            Use::Lent => &mut self.lent,
        }
    }
}

/// Finds a frame of a class in one of these lists that has this hold and this owner.
fn first_of(list: &[Frames], class: SizeClass, hold: Hold, owner: Owner) -> Option<FrameId> {
    let all = (hold, owner, FrameId(0))..=(hold, owner, FrameId(u32::MAX));
    list[class.index()].range(all).next().map(|(_, _, id)| *id)
}

/// Finds a frame of a class that an owner may have: one of its own, or else one that no tenant has had. A held frame goes first,
/// because few owners can have it and it cannot be exchanged.
fn first(list: &[Frames], class: SizeClass, owner: Owner) -> Option<FrameId> {
    let of = |(hold, owner)| first_of(list, class, hold, owner);
    // A frame that no tenant has had is not held.
    [(Hold::Held, owner), (Hold::No, owner), (Hold::No, Owner::NONE)].into_iter().find_map(of)
}

/// Finds the first frame of a list that is not held.
fn removable(list: &Frames) -> Option<FrameId> {
    list.range((Hold::No, Owner::NONE, FrameId(0))..).next().map(|(_, _, id)| *id)
}

impl Arena {
    /// An arena without frames yet.
    pub fn new(capacity: u64) -> Self {
        Self {
            configured: capacity,
            capacity,
            frames: Vec::new(),
            unused: Vec::new(),
            clean: Default::default(),
            dirty: Default::default(),
            kept: Default::default(),
            last_kept: 0,
            scrubbing: BTreeMap::new(),
            bytes: Bytes::default(),
        }
    }

    /// The most that all frames together may take, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The capacity that the user asked for, in bytes.
    pub fn configured(&self) -> u64 {
        self.configured
    }

    /// Shrinks or grows the arena, never beyond the capacity that the user asked for. Frames stay: see [`Arena::surplus`].
    pub fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity.min(self.configured);
    }

    /// The largest size class in use. Small arenas are cut finer, so that swapping one piece for
    /// another never needs much of the arena.
    pub fn largest_class(&self) -> SizeClass {
        SizeClass::within(self.configured / 16)
    }

    /// Returns the sums of the frames' bytes by use. They are kept up to date, so nothing is counted here. After [`Arena::set_capacity`]
    /// they may exceed the capacity.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The number of frames.
    pub fn frames(&self) -> usize {
        self.frames.len() - self.unused.len()
    }

    /// Lends a free frame of this class. With `clean`, only a clean frame will do. Otherwise the caller overwrites the
    /// contents anyway, so a dirty frame goes first and a kept one last.
    pub fn take(&mut self, class: SizeClass, clean: bool, owner: Owner) -> Option<FrameId> {
        let id = self.pick(clean, |list| first(list, class, owner))?;
        self.change(id, Use::Lent);
        self.belongs_to(id, owner);
        Some(id)
    }

    /// Sets the owner of a lent frame.
    pub fn belongs_to(&mut self, id: FrameId, owner: Owner) {
        debug_assert_eq!(self.frame(id).now, Use::Lent);
        if let Some(frame) = &mut self.frames[id.0 as usize] {
            frame.owner = owner;
        }
    }

    /// Keeps a frame that its tenant no longer has, but may want back with its contents.
    pub fn keep(&mut self, id: FrameId) -> Keepsake {
        self.last_kept += 1;
        let keepsake = Keepsake(self.last_kept);
        self.change(id, Use::Kept(keepsake));
        keepsake
    }

    /// Lends a kept frame again. False if another extent has needed it since.
    pub fn take_kept(&mut self, id: FrameId, keepsake: Keepsake) -> bool {
        let frame = self.frames.get(id.0 as usize).copied().flatten();
        let is_kept = frame.is_some_and(|frame| frame.now == Use::Kept(keepsake));
        if is_kept {
            self.change(id, Use::Lent);
        }
        is_kept
    }

    /// Frees a kept frame that its tenant no longer wants back.
    pub fn let_go(&mut self, id: FrameId, keepsake: Keepsake) {
        if self.take_kept(id, keepsake) {
            self.give_back(id);
        }
    }

    /// True if a new frame of this class fits the capacity.
    pub fn fits(&self, class: SizeClass) -> bool {
        self.bytes.all() + class.bytes() <= self.capacity
    }

    /// True if it fits when the frames that are leaving have left, beside `promised` bytes of others.
    pub fn will_fit(&self, class: SizeClass, promised: u64) -> bool {
        self.bytes.all() - self.bytes.leaving + promised + class.bytes() <= self.capacity
    }

    /// Notes that a frame of so many bytes, which is out of the books, is not free to the driver before [`Arena::has_left`].
    pub fn is_leaving(&mut self, bytes: u64) {
        self.bytes.leaving += bytes;
    }

    /// Notes that such a frame's bytes are free to the driver.
    pub fn has_left(&mut self, bytes: u64) {
        self.bytes.leaving -= bytes;
    }

    /// Enters a new frame that no tenant has had, and lends it at once.
    pub fn add_lent(&mut self, class: SizeClass) -> FrameId {
        let frame = Some(Frame { class, owner: Owner::NONE, now: Use::Lent, held: 0 });
        self.bytes.lent += class.bytes();
        match self.unused.pop() {
            Some(id) => {
                self.frames[id.0 as usize] = frame;
                id
            }
            None => {
                self.frames.push(frame);
                FrameId(self.frames.len() as u32 - 1)
            }
        }
    }

    /// Enters the frames that another coordinator has left, as lent, each with the number and owner that it had there. There are no
    /// others yet.
    pub fn restore(&mut self, frames: &[(FrameId, SizeClass, Owner)]) {
        debug_assert!(self.frames.is_empty());
        let count = frames.iter().map(|(id, ..)| id.0 as usize + 1).max().unwrap_or(0);
        self.frames.resize(count, None);
        for (id, class, owner) in frames {
            self.frames[id.0 as usize] = Some(Frame { class: *class, owner: *owner, now: Use::Lent, held: 0 });
            self.bytes.lent += class.bytes();
        }
        let is_unused = |id: &FrameId| self.frames[id.0 as usize].is_none();
        self.unused = (0..count as u32).map(FrameId).filter(is_unused).collect();
    }

    /// Takes a lent frame out of the books, so that no other tenant gets it. Its number is free for another frame.
    pub fn remove_lent(&mut self, id: FrameId) {
        debug_assert_eq!(self.frame(id).now, Use::Lent);
        self.remove(id);
    }

    /// Frees a frame that its tenant no longer has.
    pub fn give_back(&mut self, id: FrameId) {
        self.change(id, Use::Dirty);
    }

    /// Frees a frame that is known to hold zeros.
    pub fn give_back_zeros(&mut self, id: FrameId) {
        self.change(id, Use::Clean);
    }

    /// Picks the next dirty frame to overwrite: one of this class that this owner may have, or any. The frame cannot be lent until
    /// [`Arena::on_scrubbed`].
    pub fn scrub_next(&mut self, wanted: Option<(SizeClass, Owner)>) -> Option<FrameId> {
        let id = match wanted {
            Some((class, owner)) => first(&self.dirty, class, owner),
            None => self.dirty.iter().rev().find_map(|dirty| Some(dirty.first()?.2)),
        }?;
        Some(self.begin_scrub(id))
    }

    /// Picks the next kept frame of this class to overwrite, for an owner that needs a clean one.
    pub fn scrub_kept(&mut self, class: SizeClass, owner: Owner) -> Option<FrameId> {
        let id = first(&self.kept, class, owner)?;
        Some(self.begin_scrub(id))
    }

    fn begin_scrub(&mut self, id: FrameId) -> FrameId {
        self.change(id, Use::Scrubbing);
        id
    }

    /// Counts the frames of a class that are being overwritten and that this owner may have.
    pub fn scrubbing(&self, class: SizeClass, owner: Owner) -> usize {
        let of = |owner, hold| self.scrubbing.get(&(class, owner, hold)).copied().unwrap_or(0);
        of(owner, Hold::Held) + of(owner, Hold::No) + of(Owner::NONE, Hold::No)
    }

    /// Counts the held frames among those.
    pub fn scrubbing_held(&self, class: SizeClass, owner: Owner) -> usize {
        self.scrubbing.get(&(class, owner, Hold::Held)).copied().unwrap_or(0)
    }

    /// Notes that a frame was overwritten.
    pub fn on_scrubbed(&mut self, id: FrameId) {
        self.change(id, Use::Clean);
    }

    /// Notes that a tenant has lost a frame and keeps it mapped.
    pub fn hold(&mut self, id: FrameId) {
        let frame = self.frame(id);
        self.set(id, Frame { held: frame.held + 1, ..frame });
    }

    /// Notes that such a tenant has unmapped the frame.
    pub fn unhold(&mut self, id: FrameId) {
        let frame = self.frame(id);
        self.set(id, Frame { held: frame.held - 1, ..frame });
    }

    /// True if a tenant that has lost the frame still has it mapped.
    pub fn is_held(&self, id: FrameId) -> bool {
        self.frame(id).held > 0
    }

    /// The free frames that are held: the number of each class that this owner may have, and the size of all held free frames,
    /// in bytes.
    pub fn free_but_held(&self, owner: Owner) -> (PerClass, u64) {
        let (mut counts, mut bytes) = (PerClass::default(), 0);
        let mut add = |class: SizeClass, of: Owner, count: usize| {
            counts[class.index()] += if of == owner { count } else { 0 };
            bytes += class.bytes() * count as u64;
        };
        for list in [&self.clean, &self.dirty, &self.kept] {
            for (class, list) in SizeClass::ALL.into_iter().zip(list) {
                list.range(..(Hold::No, Owner::NONE, FrameId(0))).for_each(|(_, of, _)| add(class, *of, 1));
            }
        }
        let held = self.scrubbing.iter().filter(|((.., hold), _)| *hold == Hold::Held);
        held.for_each(|((class, of, _), count)| add(*class, *of, *count));
        (counts, bytes)
    }

    /// Lends a free frame that is held; with `clean`, only a clean one.
    pub fn take_held(&mut self, class: SizeClass, clean: bool, owner: Owner) -> Option<FrameId> {
        let id = self.pick(clean, |list| first_of(list, class, Hold::Held, owner))?;
        self.change(id, Use::Lent);
        Some(id)
    }

    /// Picks a free frame by `of`. With `clean`, only a clean frame will do; otherwise the one with the least valuable contents goes first.
    fn pick(&self, clean: bool, of: impl Fn(&[Frames]) -> Option<FrameId>) -> Option<FrameId> {
        let lists = [&self.dirty, &self.clean, &self.kept];
        if clean { of(&self.clean) } else { lists.into_iter().find_map(|list| of(list)) }
    }

    /// Picks the next held frame to overwrite, for an owner that needs a clean one.
    pub fn scrub_held(&mut self, class: SizeClass, owner: Owner) -> Option<FrameId> {
        let of = |list| first_of(list, class, Hold::Held, owner);
        let id = of(&self.dirty).or(of(&self.kept))?;
        Some(self.begin_scrub(id))
    }

    /// Lends this very frame, if it is free.
    pub fn take_this(&mut self, id: FrameId) -> bool {
        let is_free = matches!(self.frame(id).now, Use::Clean | Use::Dirty | Use::Kept(_));
        if is_free {
            self.change(id, Use::Lent);
        }
        is_free
    }

    /// Removes a free frame to make room for others. Kept frames, which save a copy, go last; of each kind the
    /// largest goes first. The frame's number is free for another frame.
    pub fn remove_free(&mut self) -> Option<(FrameId, SizeClass)> {
        let last = |lists: &[Frames]| lists.iter().rev().find_map(removable);
        let id = self.pick(false, last)?;
        Some((id, self.remove(id)))
    }

    /// The number of free frames of a class.
    pub fn free(&self, class: SizeClass) -> usize {
        self.ready(class) + self.kept[class.index()].len()
    }

    /// True if a frame of the class is free that this owner may have.
    pub fn is_any_free_for(&self, class: SizeClass, owner: Owner) -> bool {
        [&self.clean, &self.dirty, &self.kept].into_iter().any(|list| first(list, class, owner).is_some())
            || self.scrubbing(class, owner) > 0
    }

    /// Counts the free frames of a class that are not kept: clean, dirty or being overwritten.
    fn ready(&self, class: SizeClass) -> usize {
        let scrubbing = self.scrubbing.range((class, Owner::NONE, Hold::Held)..=(class, Owner(u64::MAX), Hold::No));
        self.clean[class.index()].len()
            + self.dirty[class.index()].len()
            + scrubbing.map(|(_, count)| count).sum::<usize>()
    }

    /// The number of free frames of a class to keep ready, so that no tenant waits while a frame is made and overwritten: a
    /// few of the smallest class, and one of every other class that is small beside the arena.
    fn kept_ready(&self, class: SizeClass) -> usize {
        let part = self.configured / READY_PART;
        if class == SizeClass::ALL[0] {
            return (part.min(READY_BYTES) / class.bytes()).max(1) as usize;
        }
        // All of them together are less than twice the largest.
        usize::from(class <= self.largest_class() && class.bytes() * 2 <= part)
    }

    /// Finds a class with fewer free frames than should be kept ready, if one more frame of it fits.
    pub fn lacks_ready(&self) -> Option<SizeClass> {
        let lacks = |class: &SizeClass| self.ready(*class) < self.kept_ready(*class) && self.fits(*class);
        SizeClass::ALL.into_iter().find(lacks)
    }

    /// Takes a free frame of this class out of the books, a dirty one if there is one. Its number is free for another frame.
    pub fn remove_free_of(&mut self, class: SizeClass) -> Option<FrameId> {
        let id = self.pick(false, |list| removable(&list[class.index()]))?;
        self.remove(id);
        Some(id)
    }

    /// Takes a clean frame that is not held out of the books. Its number is free for another frame.
    pub fn withdraw(&mut self, id: FrameId) -> Option<FrameId> {
        (self.frame(id).now == Use::Clean && !self.is_held(id)).then(|| {
            self.remove(id);
            id
        })
    }

    /// Removes a free frame if the arena is above its capacity, or would be with another frame of `class`.
    pub fn surplus(&mut self, class: Option<SizeClass>) -> Option<(FrameId, SizeClass)> {
        let wanted = class.map_or(0, SizeClass::bytes);
        if self.bytes.all() + wanted <= self.capacity { None } else { self.remove_free() }
    }

    /// A frame's class.
    pub fn class(&self, id: FrameId) -> SizeClass {
        self.frame(id).class
    }

    /// Takes a frame out of the books.
    fn remove(&mut self, id: FrameId) -> SizeClass {
        let frame = self.frame(id);
        let Frame { class, now, .. } = frame;
        self.unlist(id, frame);
        *self.bytes.of(now) -= class.bytes();
        self.frames[id.0 as usize] = None;
        self.unused.push(id);
        class
    }

    fn frame(&self, id: FrameId) -> Frame {
        self.frames[id.0 as usize].expect("a frame's number is only held while the frame is in the books")
    }

    fn list(&mut self, now: Use, class: SizeClass) -> Option<&mut Frames> {
        let lists = match now {
            Use::Clean => &mut self.clean,
            Use::Dirty => &mut self.dirty,
            Use::Kept(_) => &mut self.kept,
            Use::Scrubbing | Use::Lent => return None,
        };
        Some(&mut lists[class.index()])
    }

    fn enlist(&mut self, id: FrameId, frame: Frame) {
        let Frame { class, owner, now, .. } = frame;
        if let Some(list) = self.list(now, class) {
            list.insert((frame.hold(), owner, id));
        } else if now == Use::Scrubbing {
            *self.scrubbing.entry((class, owner, frame.hold())).or_default() += 1;
        }
    }

    fn unlist(&mut self, id: FrameId, frame: Frame) {
        let Frame { class, owner, now, .. } = frame;
        if let Some(list) = self.list(now, class) {
            list.remove(&(frame.hold(), owner, id));
        } else if now == Use::Scrubbing
            && let Entry::Occupied(mut count) = self.scrubbing.entry((class, owner, frame.hold()))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn change(&mut self, id: FrameId, to: Use) {
        let frame = self.frame(id);
        *self.bytes.of(frame.now) -= frame.class.bytes();
        *self.bytes.of(to) += frame.class.bytes();
        self.set(id, Frame { now: to, ..frame });
    }

    /// Enters a frame's new state. Its class stays.
    fn set(&mut self, id: FrameId, now: Frame) {
        self.unlist(id, self.frame(id));
        self.enlist(id, now);
        self.frames[id.0 as usize] = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASSES: &[SizeClass] = &SizeClass::ALL;
    const OWNER: Owner = Owner(1);

    #[test]
    fn what_somebody_has_mapped_whose_it_is_no_more_is_neither_exchanged_nor_given_back() {
        let mut arena = Arena::new(2 * CLASSES[0].bytes());
        let (held, other) = (arena.add_lent(CLASSES[0]), arena.add_lent(CLASSES[0]));
        for frame in [held, other] {
            arena.belongs_to(frame, OWNER);
            arena.give_back(frame);
        }
        arena.hold(held);
        assert_eq!(arena.surplus(Some(CLASSES[0])), Some((other, CLASSES[0])));
        assert_eq!((arena.remove_free(), arena.remove_free_of(CLASSES[0])), (None, None));
        assert_eq!(arena.free_but_held(OWNER), ([1, 0, 0, 0, 0, 0], CLASSES[0].bytes()));
        assert_eq!(arena.free_but_held(Owner(2)), ([0; 6], CLASSES[0].bytes()));
        // Its owner gets it all the same.
        assert_eq!(arena.take(CLASSES[0], false, OWNER), Some(held));
        arena.give_back(held);
        let clean = arena.scrub_next(None).expect("it is dirty");
        arena.on_scrubbed(clean);
        assert_eq!((clean, arena.withdraw(clean)), (held, None));
        arena.unhold(held);
        assert_eq!(arena.withdraw(held), Some(held));
    }

    #[test]
    fn who_needs_a_clean_frame_gets_one_and_the_others_leave_it() {
        let mut arena = Arena::new(1 << 30);
        let (first, second) = (arena.add_lent(CLASSES[0]), arena.add_lent(CLASSES[0]));
        arena.give_back(first);
        arena.give_back(second);
        assert_eq!(arena.take(CLASSES[0], true, OWNER), None);
        let scrubbing = arena.scrub_next(None).expect("two are dirty");
        assert_eq!(arena.scrubbing(CLASSES[0], OWNER), 1);
        arena.on_scrubbed(scrubbing);
        assert!(arena.take(CLASSES[0], false, OWNER).is_some_and(|id| id != scrubbing));
        assert_eq!(arena.take(CLASSES[0], true, OWNER), Some(scrubbing));
        assert_eq!(arena.take(CLASSES[0], false, OWNER), None);
    }

    #[test]
    fn a_kept_frame_goes_back_as_it_is_unless_somebody_needed_it() {
        let class = CLASSES[0];
        let mut arena = Arena::new(1 << 30);
        let frames: Vec<FrameId> = (0..4).map(|_| arena.add_lent(class)).collect();
        let kept: Vec<Keepsake> = frames.iter().map(|frame| arena.keep(*frame)).collect();
        assert_eq!((arena.bytes().dirty, arena.free(class)), (4 * class.bytes(), 4));
        assert_eq!(arena.scrub_next(None), None, "nobody needs one overwritten");
        assert!(arena.take_kept(frames[0], kept[0]) && !arena.take_kept(frames[0], kept[0]));
        let again = arena.keep(frames[0]);
        arena.let_go(frames[0], kept[0]);
        assert_eq!(arena.scrub_next(None), None, "that was another time");
        assert!(!arena.take_kept(frames[0], kept[0]), "it may hold something else by now");
        // Free frames that are not kept go first.
        let plain = arena.add_lent(class);
        arena.give_back(plain);
        assert_eq!(arena.take(class, false, OWNER), Some(plain));
        assert_eq!(arena.scrub_next(Some((class, OWNER))), None);
        let needed = arena.scrub_kept(class, OWNER).expect("one for whoever needs a clean one");
        arena.on_scrubbed(needed);
        assert_eq!(arena.take(class, true, OWNER), Some(needed));
        let lent = arena.take(class, false, OWNER).expect("a kept one");
        let (gone, _) = arena.remove_free().expect("another");
        let left: Vec<FrameId> = frames.iter().copied().filter(|id| ![needed, lent, gone].contains(id)).collect();
        let keepsake =
            |id: FrameId| if id == frames[0] { again } else { kept[frames.iter().position(|one| *one == id).unwrap()] };
        for id in &frames {
            assert_eq!(arena.take_kept(*id, keepsake(*id)), left.contains(id));
        }
    }

    #[test]
    fn a_frame_that_one_has_had_is_lent_to_no_other_however_often_it_is_overwritten() {
        let class = CLASSES[0];
        let (one, other) = (Owner::of_user(Some(0)), Owner::of_user(None));
        assert!(one != other && Owner::of_tenant(0) != Owner::of_tenant(1) && Owner::of_tenant(0) != one);
        let mut arena = Arena::new(1 << 30);
        let made = arena.add_lent(class);
        arena.give_back(made);
        assert_eq!(arena.take(class, false, one), Some(made), "nobody has had it");
        arena.give_back(made);
        assert_eq!((arena.take(class, false, other), arena.is_any_free_for(class, other)), (None, false));
        assert_eq!(arena.scrub_next(Some((class, other))), None);
        let scrubbing = arena.scrub_next(None).expect("whoever has it next");
        assert_eq!((arena.scrubbing(class, one), arena.scrubbing(class, other)), (1, 0));
        arena.on_scrubbed(scrubbing);
        assert_eq!(arena.take(class, true, other), None);
        assert_eq!(arena.take(class, true, one), Some(made));
        arena.keep(made);
        assert_eq!((arena.take(class, false, other), arena.scrub_kept(class, other)), (None, None));
        assert_eq!(arena.remove_free(), Some((made, class)), "for another it goes");
        let next = arena.add_lent(class);
        arena.give_back(next);
        assert_eq!((next, arena.take(class, false, other)), (made, Some(next)), "the number is another frame's now");
    }

    /// Makes and overwrites the frames to keep ready, as the server does while no tenant needs anything.
    fn make_ready(arena: &mut Arena) {
        while let Some(class) = arena.lacks_ready() {
            let made = arena.add_lent(class);
            arena.give_back(made);
        }
        while let Some(dirty) = arena.scrub_next(None) {
            arena.on_scrubbed(dirty);
        }
    }

    #[test]
    fn a_new_allocation_finds_a_frame_that_was_overwritten_ahead_and_so_does_the_next() {
        for (capacity, ready) in [(64 << 20, 1), (512 << 20, 4), (130 << 30, 8)] {
            let mut arena = Arena::new(capacity);
            make_ready(&mut arena);
            let mut taken = 0;
            while arena.take(CLASSES[0], true, OWNER).is_some() {
                taken += 1;
            }
            assert_eq!(taken, ready);
            make_ready(&mut arena);
            assert!(arena.take(CLASSES[0], true, OWNER).is_some(), "those that went are replaced");
        }
    }

    #[test]
    fn what_is_kept_ready_is_a_small_part_of_the_arena_and_leaves_others_their_memory() {
        for capacity in [64 << 20, 512 << 20, 4 << 30, 16 << 30, 130 << 30] {
            let mut arena = Arena::new(capacity);
            make_ready(&mut arena);
            let most = (capacity / READY_PART).max(CLASSES[0].bytes()) + READY_BYTES;
            assert!(arena.bytes().clean <= most, "{} of {capacity}", arena.bytes().clean);
            // A full arena keeps nothing ready.
            while arena.fits(CLASSES[0]) {
                arena.add_lent(CLASSES[0]);
            }
            assert_eq!(arena.lacks_ready(), None);
            // Every free frame goes when a tenant needs its place.
            while arena.surplus(Some(CLASSES[0])).is_some() {
                while arena.fits(CLASSES[0]) {
                    arena.add_lent(CLASSES[0]);
                }
            }
            assert_eq!(arena.bytes().lent, arena.capacity());
        }
    }

    #[test]
    fn a_frame_that_leaves_takes_its_room_until_it_has_left() {
        let class = CLASSES[0];
        let mut arena = Arena::new(2 * class.bytes());
        let frames = [arena.add_lent(class), arena.add_lent(class)];
        arena.remove_lent(frames[0]);
        arena.is_leaving(class.bytes());
        assert!(!arena.fits(class) && arena.will_fit(class, 0) && !arena.will_fit(class, class.bytes()));
        arena.has_left(class.bytes());
        assert!(arena.fits(class));
    }

    #[test]
    fn a_small_arena_is_cut_into_small_frames() {
        assert_eq!(Arena::new(64 << 20).largest_class().bytes(), 2 << 20);
        assert_eq!(Arena::new(1 << 30).largest_class().bytes(), 32 << 20);
        assert_eq!(Arena::new(100 << 30).largest_class().bytes(), 512 << 20);
    }

    proptest! {
        #[test]
        fn the_books_balance_whatever_happens(steps in prop::collection::vec((0u8..9, 0usize..CLASSES.len(), any::<prop::sample::Index>()), 0..300)) {
            let mut arena = Arena::new(2 << 30);
            let (mut lent, mut scrubbing): (Vec<FrameId>, Vec<FrameId>) = (Vec::new(), Vec::new());
            let mut kept: Vec<(FrameId, Keepsake)> = Vec::new();
            for (step, class, which) in steps {
                let class = CLASSES[class];
                match step {
                    0 if arena.fits(class) => lent.push(arena.add_lent(class)),
                    1 => lent.extend(arena.take(class, which.index(2) == 0, OWNER)),
                    2 if !lent.is_empty() => arena.give_back(lent.swap_remove(which.index(lent.len()))),
                    3 => scrubbing.extend(arena.scrub_next(Some((class, OWNER))).or_else(|| arena.scrub_kept(class, OWNER))),
                    4 if !scrubbing.is_empty() => arena.on_scrubbed(scrubbing.swap_remove(which.index(scrubbing.len()))),
                    5 => drop(arena.surplus(Some(class))),
                    7 if !lent.is_empty() => {
                        let frame = lent.swap_remove(which.index(lent.len()));
                        kept.push((frame, arena.keep(frame)));
                    }
                    8 if !kept.is_empty() => {
                        let (frame, keepsake) = kept.swap_remove(which.index(kept.len()));
                        lent.extend(arena.take_kept(frame, keepsake).then_some(frame));
                    }
                    6 if !lent.is_empty() => arena.remove_lent(lent.swap_remove(which.index(lent.len()))),
                    _ => {}
                }
                let sum = |ids: &[FrameId]| ids.iter().map(|id| arena.class(*id).bytes()).sum::<u64>();
                prop_assert_eq!(arena.bytes().lent, sum(&lent));
                prop_assert_eq!(arena.bytes().scrubbing, sum(&scrubbing));
                prop_assert!(arena.bytes().all() <= arena.capacity());
                let mut ids: Vec<_> = lent.iter().chain(&scrubbing).collect();
                ids.sort();
                ids.dedup();
                prop_assert_eq!(ids.len(), lent.len() + scrubbing.len(), "a frame has one owner");
            }
        }
    }
}
