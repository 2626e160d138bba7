//! Other tenants can have all the memory of an unresponsive tenant, or a stated bound less, for all sizes of its pieces and all
//! ways in which their own memory is cut.

use proptest::prelude::*;

use super::*;
use crate::arena::{Arena, Owner};
use crate::sizes::{AtHand, PerClass, bytes_of, count};

/// A piece of an unresponsive tenant's memory.
#[derive(Clone, Copy, Debug)]
enum Piece {
    /// It can be copied out.
    There,
    /// It was copied out, and is still mapped.
    Held,
    /// It stays where it is.
    Pinned,
}

/// A piece of a waiter's memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    class: SizeClass,
    /// In a frame that can be exchanged.
    is_here: bool,
    /// It holds nothing but zeros, for which there is no room in the pool.
    is_zero: bool,
    /// It lies beside the one before.
    is_beside: bool,
}

fn class(classes: usize) -> impl Strategy<Value = SizeClass> {
    prop::sample::select(&SizeClass::ALL[..classes])
}

/// Pieces of so many sizes, the smallest seldom where there are others.
fn pieces(classes: usize) -> impl Strategy<Value = Vec<(SizeClass, Piece)>> {
    let how = prop_oneof![6 => Just(Piece::There), 2 => Just(Piece::Held), 1 => Just(Piece::Pinned)];
    let class = prop_oneof![4 => Just(SizeClass::ALL[classes - 1]), 1 => class(classes)];
    prop::collection::vec((class, how), 0..60)
}

fn part() -> impl Strategy<Value = Part> {
    let odds = |part| prop::bool::weighted(part);
    (class(4), odds(0.5), odds(0.2), odds(0.97)).prop_map(|(class, is_here, is_zero, is_beside)| Part {
        class,
        is_here,
        is_zero,
        is_beside,
    })
}

/// The books of an arena with such pieces, and of a waiter's extents.
struct Books {
    arena: Arena,
    /// The unresponsive tenant's pieces there.
    there: PerClass,
    waiter: Extents,
}

const LARGEST: SizeClass = SizeClass::ALL[3];
const SLAB: u64 = 64 << 20;
/// The longest part that is cut as one.
const MOST: u64 = 512 << 20;

fn page(zero: bool) -> Page {
    Page { digest: [u64::from(!zero), 0], zero }
}

fn owner() -> Owner {
    Owner::of_user(None)
}

impl Books {
    fn new(pieces: &[(SizeClass, Piece)], parts: &[Part], free: u64) -> Self {
        let here = parts.iter().filter(|part| part.is_here).map(|part| part.class.bytes()).sum::<u64>();
        let all = pieces.iter().map(|(class, _)| class.bytes()).sum::<u64>();
        let mut arena = Arena::new(all + here + free);
        let (mut there, mut waiter) = (PerClass::default(), Extents::default());
        for (class, piece) in pieces {
            let frame = arena.add_lent(*class);
            arena.belongs_to(frame, owner());
            match piece {
                Piece::There => there[class.index()] += 1,
                Piece::Held => {
                    arena.hold(frame);
                    arena.give_back(frame);
                }
                Piece::Pinned => {}
            }
        }
        let mut at = 0;
        for part in parts {
            at += if part.is_beside { 0 } else { PAGE };
            let frame = arena.add_lent(part.class);
            let id = waiter.add(at, part.class, frame);
            waiter.on_scanned(id, vec![page(part.is_zero); (part.class.bytes() / PAGE) as usize], Some(Vec::new()));
            at += part.class.bytes();
            let mut books = Self { arena, there, waiter };
            if !part.is_here {
                books.leave(id);
            }
            Self { arena, there, waiter } = books;
        }
        Self { arena, there, waiter }
    }

    /// Moves an extent of the waiter to the host.
    fn leave(&mut self, id: ExtentId) {
        let extent = self.waiter.get(id).expect("it is there");
        let runs = (!extent.was_zero()).then_some(Run { at: extent.at(), bytes: extent.class().bytes() });
        let frame = self.waiter.leave(id, Some(runs.into_iter().collect()), true).expect("it is resident");
        assert!(self.waiter.on_left(id, Half::Unmapped, false).is_some());
        self.arena.give_back(frame);
        // It can be exchanged.
        assert!(self.arena.take_this(frame));
        self.arena.remove_lent(frame);
    }

    fn at_hand(&self) -> AtHand {
        let (mut as_it_is, held) = self.arena.free_but_held(owner());
        as_it_is.iter_mut().zip(self.there).for_each(|(all, there)| *all += there);
        AtHand { any: self.arena.capacity() - self.arena.bytes().lent - held, as_it_is }
    }

    fn needed(&self) -> PerClass {
        let away = self.waiter.iter().filter(|(_, extent)| extent.state() == ExtentState::Host);
        count(away.map(|(_, extent)| extent.class()))
    }

    /// Cuts the memory that the waiter lacks as the server does. Returns the number of pieces that come as they are, if all can come, and
    /// the number of steps.
    fn fit(&mut self) -> (Option<PerClass>, usize) {
        let mut steps = 0;
        loop {
            steps += 1;
            let stock = match self.at_hand().share(&self.needed()) {
                Ok(share) => return (Some(share), steps),
                Err(stock) => stock,
            };
            let fit = self.waiter.fit(stock, LARGEST, |_, _| false);
            let Some(fit) = fit.or_else(|| self.waiter.fit(stock, LARGEST, |_, _| true)) else { return (None, steps) };
            let leaves: Vec<ExtentId> =
                fit.cuts().filter(|id| self.waiter.get(*id).is_some_and(Extent::is_here)).collect();
            // Rows are divided otherwise if some may leave, so that may help even if none does.
            if leaves.is_empty() {
                let share = fit.as_it_is;
                let room = |bytes| Some(vec![Run { at: 0, bytes }]);
                assert!(self.waiter.cut_to_fit(fit, SLAB, room).is_some());
                return (Some(share), steps);
            }
            leaves.into_iter().for_each(|id| self.leave(id));
        }
    }

    /// The lengths of the rows in which the waiter's memory lies, as it is cut, in bytes.
    fn rows(&self) -> Vec<u64> {
        let mut rows: Vec<(u64, u64)> = Vec::new();
        for id in self.waiter.by_address.values() {
            let extent = &self.waiter.all[id];
            let end = extent.at + extent.class.bytes();
            match rows.last_mut() {
                Some(last) if last.1 == extent.at && end - last.0 <= MOST => last.1 = end,
                _ => rows.push((extent.at, end)),
            }
        }
        rows.into_iter().map(|(start, end)| end - start).collect()
    }
}

proptest! {
    #[test]
    fn a_waiter_gets_all_that_it_needs_or_less_than_a_piece_of_each_row_is_missing(
        pieces in (1usize..=5).prop_flat_map(pieces),
        parts in prop::collection::vec(part(), 1..80),
        free in (0u64..60).prop_map(|pages| pages * PAGE),
    ) {
        let mut books = Books::new(&pieces, &parts, free);
        let (at_hand, rows) = (books.at_hand(), books.rows());
        let all: u64 = rows.iter().sum();
        let away = bytes_of(&books.needed());
        // The memory that is available in any size, with the waiter's own.
        let any = at_hand.any + all - away;
        let largest = SizeClass::ALL.iter().rev().find(|class| at_hand.as_it_is[class.index()] > 0);
        let rest = largest.map_or(0, |class| class.bytes() - PAGE);
        let most_left: u64 = rows.iter().map(|row| rest.min(*row)).sum();
        let (share, steps) = books.fit();
        prop_assert!(steps <= parts.len() + 1, "{} steps", steps);
        prop_assert_eq!(books.rows().iter().sum::<u64>(), all, "nothing is lost");
        match share {
            None => prop_assert!(
                all > any + bytes_of(&at_hand.as_it_is) || most_left > any,
                "{} of {} away, {:?}", away, all, at_hand
            ),
            Some(share) => {
                // The pieces that come as they are leave enough for all others, in any order.
                let (at_hand, needed) = (books.at_hand(), books.needed());
                prop_assert!(share.iter().zip(at_hand.as_it_is).all(|(share, has)| *share <= has));
                let others: PerClass = std::array::from_fn(|class| needed[class] - share[class]);
                prop_assert!(bytes_of(&others) <= at_hand.any, "{:?} of {:?}", others, at_hand);
            }
        }
    }
}
