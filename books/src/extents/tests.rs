use std::collections::HashMap;
use std::ops::Range;

use proptest::prelude::*;

use super::extent::{OFTEN_DIRTY, parts};
use super::*;
use crate::arena::Arena;
use crate::sizes::{Stock, bytes_of, count};

const CLASS: SizeClass = SizeClass::ALL[1];

fn page(digest: u64) -> Page {
    Page { digest: [digest, 0], zero: digest == 0 }
}

fn extent(before: Option<&[u64]>, now: Option<&[u64]>) -> Extent {
    let pages = |digests: &[u64]| digests.iter().map(|digest| page(*digest)).collect::<Vec<_>>();
    let backing = |before| Backing { runs: Vec::new(), pages: pages(before), before: Vec::new(), current: false };
    Extent {
        at: 0,
        class: CLASS,
        state: ExtentState::Host,
        backing: before.map(backing),
        contents: now.map(|now| Contents { pages: pages(now), pointers: None }),
        dirty: 0,
        immovable: false,
        shared: false,
        spare: Vec::new(),
        left_behind: None,
        zero: false,
        kept: None,
    }
}

fn copied(extent: &Extent, scans: bool) -> Option<Vec<Range<u64>>> {
    match extent.copies(scans) {
        Copies::Unknown => None,
        Copies::Nothing => Some(Vec::new()),
        Copies::Parts(parts) => Some(parts),
    }
}

#[test]
fn only_what_changed_and_is_not_zero_is_copied() {
    let all = 0..4 * PAGE;
    assert_eq!(copied(&extent(None, Some(&[1, 2, 3, 4])), true), Some([all.clone()].to_vec()));
    assert_eq!(copied(&extent(Some(&[1, 2, 3, 4]), Some(&[1, 2, 3, 4])), true), Some(vec![]));
    let some = extent(Some(&[1, 2, 3, 4]), Some(&[9, 2, 8, 7]));
    assert_eq!(copied(&some, true), Some(vec![0..PAGE, 2 * PAGE..4 * PAGE]));
    assert_eq!(copied(&extent(Some(&[1, 2, 3, 4]), Some(&[0, 0, 3, 0])), true), Some(vec![]));
    assert_eq!(copied(&some, false), Some([all.clone()].to_vec()));
    assert_eq!(copied(&extent(Some(&[]), Some(&[1, 0, 3, 0])), true), Some(vec![0..PAGE, 2 * PAGE..3 * PAGE]));
}

#[test]
fn a_place_in_the_pool_saves_most_while_nothing_has_changed_and_least_where_all_changes_often() {
    let mut one = extent(Some(&[1, 2, 3, 4]), None);
    let changed = one.saved_by_backing();
    one.backing.as_mut().expect("it has one").current = true;
    assert!(one.saved_by_backing() > changed);
    one.dirty = OFTEN_DIRTY;
    assert!(one.saved_by_backing() < changed);
}

#[test]
fn what_was_dirty_often_is_not_scanned_first() {
    let mut often = extent(Some(&[1, 2, 3, 4]), None);
    assert_eq!(copied(&often, true), None);
    for n in 0..OFTEN_DIRTY {
        assert_eq!(often.dirty, n);
        often.contents = Some(Contents { pages: [5, 6, 7, 4].map(page).to_vec(), pointers: None });
        often.count_changes();
        often.contents = None;
    }
    assert_eq!(copied(&often, true), Some(parts(std::iter::repeat_n(true, 4))));
    often.contents = Some(Contents { pages: [1, 2, 3, 5].map(page).to_vec(), pointers: None });
    often.count_changes();
    assert_eq!(often.dirty, 0, "and trusted again as soon as it keeps");
}

#[test]
fn zeros_are_not_copied_in() {
    let arrival = extent(Some(&[0, 1, 2, 0]), None).arrival();
    assert_eq!(arrival.copied.len(), 1);
    assert_eq!(arrival.copied[0], PAGE..3 * PAGE);
    assert_eq!(arrival.zeros, [0..PAGE, 3 * PAGE..4 * PAGE]);
}

#[test]
fn a_frame_that_a_scan_has_found_to_be_zero_is_left_as_one_of_zeros() {
    let zero = || Page { digest: [0, 0], zero: true };
    let left = |pages: Vec<Page>, is_seen: bool| {
        let mut extents = Extents::default();
        let id = extents.add(0, CLASS, FrameId(1));
        if is_seen {
            extents.on_scanned(id, pages, Some(Vec::new()));
        }
        extents.leave(id, Some(Vec::new()), true);
        extents.on_left(id, Half::Unmapped, false)
    };
    let all = || (0..4).map(|_| zero()).collect::<Vec<_>>();
    assert_eq!(left(all(), true), Some((FrameId(1), Holds::Zeros)));
    assert_eq!(left(all(), false), Some((FrameId(1), Holds::Contents)), "nobody has looked");
    let but_one = [zero(), zero(), page(3), zero()].to_vec();
    assert_eq!(left(but_one, true), Some((FrameId(1), Holds::Contents)));
}

#[test]
fn what_is_spare_is_not_in_the_pool_and_comes_back_as_zeros() {
    let mut extents = Extents::default();
    let id = extents.add(0, CLASS, FrameId(1));
    assert!(extents.set_spare(PAGE, PAGE, true));
    let digests = || [1, 2, 3, 4].map(page).to_vec();
    extents.on_scanned(id, digests(), Some(Vec::new()));
    let rest = vec![0..PAGE, 2 * PAGE..4 * PAGE];
    assert_eq!(copied(extents.get(id).expect("it is there"), true), Some(rest.clone()));
    extents.leave(id, Some(vec![Run { at: 0, bytes: CLASS.bytes() }]), false);
    assert_eq!(extents.on_left(id, Half::Copied, false), None);
    assert_eq!(extents.on_left(id, Half::Unmapped, false), Some((FrameId(1), Holds::Contents)));
    let arrival = extents.get(id).expect("it is there").arrival();
    let spare: Vec<_> = std::iter::once(PAGE..2 * PAGE).collect();
    assert_eq!((arrival.copied, &arrival.zeros), (rest, &spare));
    // It is used again, and happens to hold the same contents.
    assert!(extents.reserve(id, FrameId(2), Holds::Nothing) && extents.arrive(id).is_some());
    assert_eq!(extents.on_arrived(id), Arrived::Map);
    extents.on_mapped(id, true);
    assert!(extents.set_spare(PAGE, PAGE, false));
    extents.on_scanned(id, digests(), Some(Vec::new()));
    assert_eq!(copied(extents.get(id).expect("it is there"), true), Some(spare));
}

/// An event of the extent at this place, sensible or not.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add(usize),
    Remove,
    Leave {
        nothing: bool,
    },
    GiveUpReserved,
    Left(Half),
    Reserve,
    Arrive,
    Arrived,
    Mapped(bool),
    Lose,
    SendAgain,
    Delivered,
    MakeImmovable,
    GiveUpBacking,
    Scanned(bool),
    MayChange,
    /// The page at this place among those of two extents, and the given number of pages after it.
    Spare {
        page: u64,
        pages: u64,
        spare: bool,
    },
    Recut(usize),
    /// Cut at least so many bytes into so many pieces of each of two sizes.
    Fit([usize; 2], u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0usize..3).prop_map(Step::Add),
        Just(Step::Remove),
        any::<bool>().prop_map(|nothing| Step::Leave { nothing }),
        Just(Step::GiveUpReserved),
        prop_oneof![Just(Step::Left(Half::Copied)), Just(Step::Left(Half::Unmapped))],
        Just(Step::Reserve),
        Just(Step::Arrive),
        Just(Step::Arrived),
        any::<bool>().prop_map(Step::Mapped),
        Just(Step::Lose),
        Just(Step::SendAgain),
        Just(Step::Delivered),
        Just(Step::MakeImmovable),
        Just(Step::GiveUpBacking),
        any::<bool>().prop_map(Step::Scanned),
        Just(Step::MayChange),
        (0u64..24, 1u64..12, any::<bool>()).prop_map(|(page, pages, spare)| Step::Spare { page, pages, spare }),
        (1usize..4).prop_map(Step::Recut),
        ([0usize..20, 0usize..6], 1u64..40).prop_map(|(pieces, pages)| Step::Fit(pieces, pages * PAGE)),
    ]
}

/// Slabs of the pool, in bytes.
const SLAB: u64 = 64 * PAGE;

/// The places in the pool of all pages on the host, by address, without spare ones; and the known facts about each.
fn on_host(extents: &Extents) -> BTreeMap<u64, (u64, Option<Page>, Option<Page>)> {
    let mut pages = BTreeMap::new();
    for (_, extent) in extents.iter().filter(|(_, extent)| extent.state == ExtentState::Host) {
        // Steps that make no sense lose it.
        let Some(backing) = &extent.backing else { continue };
        let places = backing.runs.iter().flat_map(|run| (run.at..run.at + run.bytes).step_by(PAGE as usize));
        for (page, place) in places.enumerate().filter(|(page, _)| !extent.is_spare(*page)) {
            let contents = extent.contents.as_ref().map(|contents| contents.pages[page]);
            pages.insert(extent.at + page as u64 * PAGE, (place, backing.pages.get(page).copied(), contents));
        }
    }
    pages
}

impl Extents {
    fn recounted(&self) -> Counts {
        self.all.values().fold(Counts::default(), |sum, extent| sum.plus(&Counts::of(extent)))
    }
}

proptest! {
    #[test]
    fn counts_are_what_a_recount_finds(steps in prop::collection::vec((step(), 0usize..6), 0..200)) {
        let mut extents = Extents::default();
        let (mut frames, mut lent) = (0, 0usize);
        let (mut next_address, mut next_run) = (0, 0);
        // The extent whose contents are in each frame.
        let mut complete = HashMap::new();
        let keepsake = {
            let mut arena = Arena::new(1 << 30);
            let frame = arena.add_lent(CLASS);
            arena.keep(frame)
        };
        let mut run = |bytes: u64| {
            next_run += bytes;
            Run { at: next_run - bytes, bytes }
        };
        let mut frame = || {
            frames += 1;
            FrameId(frames)
        };
        for (step, at) in steps {
            let id = extents.iter().map(|(id, _)| id).nth(at).unwrap_or(ExtentId(0));
            let had = extents.get(id).and_then(|extent| extent.state().frame());
            match step {
                Step::Add(class) => {
                    // Most extents lie beside each other.
                    next_address += if at == 0 { PAGE } else { 0 };
                    extents.add(next_address, SizeClass::ALL[class], frame());
                    next_address += SizeClass::ALL[class].bytes();
                    lent += 1;
                }
                Step::Remove => lent -= usize::from(extents.remove(id).is_some()),
                Step::Leave { nothing } => {
                    let new = extents.get(id).filter(|extent| extent.runs().is_none()).map(|extent| extent.pages());
                    let new = new.map(|pages| (0..pages).map(|_| run(PAGE)).collect());
                    let left = extents.leave(id, new, nothing);
                    prop_assert!(left.is_none() || left == had);
                    complete.extend(left.map(|frame| (frame, id)));
                }
                Step::GiveUpReserved => drop(extents.give_up_reserved(id)),
                Step::Left(half) => {
                    let free = extents.on_left(id, half, false);
                    lent -= usize::from(free.is_some());
                    if let Some((frame, holds)) = free {
                        prop_assert_eq!(Some(frame), had);
                        let whole = holds != Holds::Nothing;
                        prop_assert!(!whole || complete.get(&frame) == Some(&id), "all that it held is there");
                        if holds == Holds::Contents {
                            extents.on_kept(id, frame, keepsake);
                        }
                    }
                }
                Step::Reserve => {
                    let kept = extents.get(id).and_then(Extent::kept).filter(|_| at % 2 == 0);
                    prop_assert!(kept.is_none_or(|(frame, _)| complete.get(&frame) == Some(&id)));
                    let holds = [Holds::Nothing, Holds::Zeros][at % 3 % 2];
                    let (frame, holds) = kept.map_or_else(|| (frame(), holds), |(frame, _)| (frame, Holds::Contents));
                    lent += usize::from(extents.reserve(id, frame, holds));
                }
                Step::Arrive => {
                    let arriving = extents.arrive(id).map(|(frame, _)| frame);
                    prop_assert!(arriving.is_none() || arriving == had);
                }
                Step::Arrived => drop(extents.on_arrived(id)),
                Step::Mapped(may_write) => extents.on_mapped(id, may_write),
                Step::Lose => extents.lose(id),
                Step::SendAgain => drop(extents.send_again(2)),
                Step::Delivered => extents.on_delivered(id),
                Step::MakeImmovable => drop(extents.make_immovable(id)),
                Step::GiveUpBacking => drop(extents.give_up_backing(id)),
                Step::Scanned(all) => {
                    let pages = extents.get(id).map_or(0, Extent::pages);
                    extents.on_scanned(id, vec![page(at as u64); pages], all.then(Vec::new));
                }
                Step::MayChange => extents.may_change(),
                Step::Spare { page, pages, spare } => {
                    let start = extents.get(id).map_or(0, |extent| extent.at) + page * PAGE;
                    let before = extents.counts().spare;
                    let done = extents.set_spare(start, pages * PAGE, spare);
                    let bytes = if done { pages * PAGE } else { 0 };
                    let expected = if spare { before + bytes } else { before - bytes };
                    prop_assert_eq!(extents.counts().spare, expected);
                }
                Step::Recut(largest) => {
                    let (before, count) = (on_host(&extents), extents.len());
                    let spare = extents.counts().spare;
                    let largest = SizeClass::ALL[largest];
                    let recuts = extents.recut(largest, SLAB);
                    prop_assert_eq!(on_host(&extents), before, "what is used is where it was");
                    let mut freed = 0;
                    for recut in recuts {
                        prop_assert!(recut.gone.iter().all(|id| extents.get(*id).is_none()));
                        prop_assert!(recut.now.len() < recut.gone.len() || !recut.freed.is_empty());
                        freed += recut.freed.iter().map(|run| run.bytes).sum::<u64>();
                        for (id, at, class, made_of) in &recut.now {
                            let extent = extents.get(*id).expect("it is there");
                            prop_assert_eq!((extent.at, extent.class), (*at, *class));
                            prop_assert!(*class <= largest && !made_of.is_empty());
                            let runs = extent.runs().expect("its contents are in the pool");
                            prop_assert_eq!(runs.iter().map(|run| run.bytes).sum::<u64>(), class.bytes());
                            prop_assert!(runs.iter().all(|run| run.at / SLAB == (run.at + run.bytes - 1) / SLAB));
                        }
                    }
                    prop_assert_eq!(extents.counts().spare, spare - freed, "what was spare of it is no more");
                    prop_assert!(freed > 0 || extents.len() <= count);
                }
                Step::Fit([small, large], lacking) => {
                    let (before, spare) = (on_host(&extents), extents.counts().spare);
                    let stock = Stock::new([small, large, 0, 0, 0, 0], lacking);
                    let Some(fit) = extents.fit(stock, SizeClass::ALL[3], |_, _| false) else { continue };
                    let taken = fit.as_it_is;
                    prop_assert!(bytes_of(&taken) >= lacking && taken[0] <= small && taken[1] <= large);
                    let room = |bytes| Some((0..bytes / PAGE).map(|_| run(PAGE)).collect());
                    let recuts = extents.cut_to_fit(fit, SLAB, room).expect("there is room");
                    let after = on_host(&extents);
                    for (at, (place, page, contents)) in before {
                        let now = after.get(&at).copied();
                        prop_assert_eq!(now.map(|now| now.0), Some(place), "what is used is where it was");
                        let knows_what_it_knew = |now: &(u64, Option<Page>, Option<Page>)| {
                            let page = now.1 == page || page.is_none() && now.1 == Some(super::recut::UNKNOWN);
                            page && (now.2 == contents || now.2.is_none())
                        };
                        prop_assert!(now.as_ref().is_some_and(knows_what_it_knew));
                    }
                    let freed: u64 = recuts.iter().flat_map(|recut| &recut.freed).map(|run| run.bytes).sum();
                    prop_assert!(freed <= spare - extents.counts().spare, "what was spare of it is no more");
                    let now = count(recuts.iter().flat_map(|recut| &recut.now).map(|(_, _, class, _)| *class));
                    prop_assert!(now.iter().zip(taken).all(|(now, taken)| *now >= taken));
                }
            }
            for (id, extent) in extents.iter().filter(|(_, extent)| !extent.state().is_resident()) {
                let looked_at = extent.frame_of_contents();
                prop_assert!(looked_at.is_none_or(|frame| complete.get(&frame) == Some(&id)), "nobody looks at another frame");
            }
            prop_assert!(extents.by_address.len() == extents.len());
            let ends: Vec<_> = extents.by_address.iter().map(|(at, id)| (*at, at + extents.all[id].class.bytes())).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "no two lie in the same place");
            prop_assert_eq!(*extents.counts(), extents.recounted());
            // No request loses a frame or makes one up.
            let with_frames = extents.iter().filter(|(_, extent)| extent.state().frame().is_some()).count();
            prop_assert_eq!(with_frames, lent);
            let mut all: Vec<_> = extents.iter().filter_map(|(_, extent)| extent.state().frame()).collect();
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), lent);
        }
    }
}

/// Adds an extent that is in the pool, and has left this frame.
fn left(extents: &mut Extents) -> ExtentId {
    let id = extents.add(0, CLASS, FrameId(1));
    let runs = vec![Run { at: 0, bytes: CLASS.bytes() }];
    assert_eq!(extents.leave(id, Some(runs), true), Some(FrameId(1)));
    id
}

#[test]
fn a_frame_is_free_when_the_last_who_shares_it_has_unmapped_it() {
    let mut extents = Extents::default();
    let id = left(&mut extents);
    assert_eq!(extents.on_left(id, Half::Unmapped, true), None, "another one has it mapped");
    assert_eq!(extents.on_left(id, Half::LetGo, false), Some((FrameId(1), Holds::Contents)));
}

#[test]
fn one_that_is_adopted_is_where_it_was() {
    let (mut theirs, mut own) = (Extents::default(), Extents::default());
    let number = |own: &mut Extents| own.borrow_number();
    let state = |own: &Extents, id| own.get(id).map(Extent::state);

    let id = theirs.add(0, CLASS, FrameId(1));
    let (mapped, away) = (number(&mut own), number(&mut own));
    let entry = theirs.remove(id).expect("it is mapped");
    assert_eq!(own.adopt(mapped, (7 * CLASS.bytes(), Place::Mapped), entry, false), None);
    assert_eq!(state(&own, mapped), Some(ExtentState::Resident { frame: FrameId(1) }));
    assert_eq!(own.within(7 * CLASS.bytes(), 1).count(), 1);

    let id = theirs.add(0, CLASS, FrameId(2));
    let entry = theirs.remove(id).expect("it is mapped");
    assert_eq!(own.adopt(away, (8 * CLASS.bytes(), Place::Away), entry, false), None);
    assert_eq!(state(&own, away), Some(ExtentState::Mapping { frame: FrameId(2) }), "it is told to map it");
    own.lose(away);
    assert_eq!(state(&own, away), Some(ExtentState::Mapping { frame: FrameId(2) }), "nothing else has its contents");

    for held in [false, true] {
        let mut theirs = Extents::default();
        left(&mut theirs);
        let entry = theirs.into_all().next().expect("there is one").1;
        let id = number(&mut own);
        let at = (if held { 20 } else { 10 }) * CLASS.bytes();
        let spare = own.adopt(id, (at, Place::Away), entry, held);
        assert_eq!(spare, (!held).then_some(FrameId(1)));
        if held {
            assert_eq!(own.on_left(id, Half::LetGo, false), Some((FrameId(1), Holds::Contents)));
        }
        assert_eq!(state(&own, id), Some(ExtentState::Host));
        assert_eq!(own.counts().away, if held { 2 } else { 1 } * CLASS.bytes());
    }
}

#[test]
fn what_its_owner_has_freed_of_one_that_is_shared_is_copied_all_the_same() {
    let mut extents = Extents::default();
    let id = extents.add(0, CLASS, FrameId(1));
    assert!(extents.set_spare(0, PAGE, true));
    let copied = |extents: &Extents| extents.get(id).and_then(|extent| copied(extent, false));
    let (rest, all) = (PAGE..CLASS.bytes(), 0..CLASS.bytes());
    assert_eq!(copied(&extents), Some([rest].to_vec()));
    extents.set_shared(id, true);
    assert_eq!(copied(&extents), Some([all].to_vec()));
}
