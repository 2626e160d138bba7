//! Numbers of extents or frames of each size class, such as those that are missing or on the way.

use baton_contract::memory::SizeClass;

/// A number for each size class, in the order of [`SizeClass::ALL`].
pub type PerClass = [usize; SizeClass::ALL.len()];

/// The size of these numbers of pieces of each class, in bytes.
pub fn bytes_of(counts: &PerClass) -> u64 {
    SizeClass::ALL.iter().map(|class| class.bytes() * counts[class.index()] as u64).sum()
}

/// Counts these by class.
pub fn count(classes: impl IntoIterator<Item = SizeClass>) -> PerClass {
    let mut counts = PerClass::default();
    classes.into_iter().for_each(|class| counts[class.index()] += 1);
    counts
}

/// The number of small pieces that make up at least this many bytes.
pub fn at_least(bytes: u64) -> PerClass {
    let mut counts = PerClass::default();
    counts[0] = bytes.div_ceil(SizeClass::ALL[0].bytes()) as usize;
    counts
}

/// Subtracts pieces of this class that come from the missing ones, from their own class or else by their bytes.
pub fn subtract(missing: &mut PerClass, class: SizeClass, count: usize) {
    let same = &mut missing[class.index()];
    let of_class = count.min(*same);
    *same -= of_class;
    for _ in of_class..count {
        if !subtract_bytes(missing, class.bytes()) {
            return;
        }
    }
}

/// Returns true if anything was missing.
fn subtract_bytes(missing: &mut PerClass, mut bytes: u64) -> bool {
    let before = bytes;
    // The largest goes first: the rest is wanted in small pieces.
    for other in SizeClass::ALL.into_iter().rev() {
        let count = &mut missing[other.index()];
        let covered = (bytes / other.bytes()).min(*count as u64);
        *count -= covered as usize;
        bytes -= covered * other.bytes();
    }
    if bytes > 0
        && let Some(larger) = SizeClass::ALL.into_iter().find(|other| missing[other.index()] > 0)
    {
        // Only larger pieces are still missing: the rest of one of them stays missing.
        missing[larger.index()] -= 1;
        for piece in SizeClass::cut(larger.bytes() - bytes, larger) {
            missing[piece.index()] += 1;
        }
        return true;
    }
    bytes < before
}

/// The memory at hand for a tenant that needs some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtHand {
    /// Memory available in any size, in bytes.
    pub any: u64,
    /// Further pieces of each class, which can only be used whole.
    pub as_it_is: PerClass,
}

impl AtHand {
    /// Returns the number of needed pieces of each class to take whole, so that the memory of any size covers all the others. If the needed
    /// memory has to be cut anew for that, the error holds the pieces to cut it into.
    pub fn share(&self, needed: &PerClass) -> Result<PerClass, Stock> {
        let lacking = bytes_of(needed).saturating_sub(self.any);
        let (mut share, mut left) = (PerClass::default(), lacking);
        for class in SizeClass::ALL.into_iter().rev() {
            let has = self.as_it_is[class.index()].min(needed[class.index()]);
            let count = has.min(left.div_ceil(class.bytes()) as usize);
            share[class.index()] = count;
            left = left.saturating_sub(class.bytes() * count as u64);
        }
        if left == 0 { Ok(share) } else { Err(Stock::new(self.as_it_is, lacking)) }
    }
}

/// Pieces that can only be used whole. They are taken until they make up a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    pieces: PerClass,
    taken: PerClass,
    lacking: u64,
}

impl Stock {
    /// Creates a stock with this number of pieces of each class, of which `lacking` bytes have to be taken.
    pub fn new(pieces: PerClass, lacking: u64) -> Self {
        Self { pieces, taken: PerClass::default(), lacking }
    }

    /// Cuts this many bytes into pieces of the stock as long as bytes are lacking, the largest that fit first, and the rest into pieces
    /// that are no larger than `largest`.
    pub fn cut(&mut self, bytes: u64, largest: SizeClass) -> Vec<SizeClass> {
        let (mut cut, mut left) = (Vec::new(), bytes);
        for class in SizeClass::ALL.into_iter().rev() {
            let most = (self.pieces[class.index()] as u64).min(left / class.bytes());
            let count = most.min(self.lacking.div_ceil(class.bytes())) as usize;
            cut.extend(std::iter::repeat_n(class, count));
            self.pieces[class.index()] -= count;
            self.taken[class.index()] += count;
            let bytes = class.bytes() * count as u64;
            left -= bytes;
            self.lacking = self.lacking.saturating_sub(bytes);
        }
        cut.extend(SizeClass::cut(left, largest));
        cut
    }

    /// The number of pieces of each class that were taken, if they are enough.
    pub fn enough(&self) -> Option<PerClass> {
        (self.lacking == 0).then_some(self.taken)
    }

    /// The stocks to try one after the other: the whole stock, then without its largest pieces, which may have left a rest.
    pub fn tries(self) -> impl Iterator<Item = Self> {
        (1..=SizeClass::ALL.len()).rev().map(move |classes| self.of_the_smallest(classes))
    }

    fn of_the_smallest(mut self, classes: usize) -> Self {
        self.pieces[classes..].fill(0);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_can_be_had_as_it_is_cut_is_not_cut_anew() {
        let needed = count(SizeClass::cut(106 * MIB, SizeClass::ALL[3]));
        let share = |any, as_it_is| AtHand { any: any * MIB, as_it_is }.share(&needed);
        assert_eq!(share(106, [0; 6]), Ok([0; 6]), "in any size");
        assert_eq!(share(10, [0, 0, 0, 3, 0, 0]), Ok([0, 0, 0, 3, 0, 0]), "in these sizes");
        assert_eq!(share(80, [9, 0, 0, 3, 0, 0]), Ok([0, 0, 0, 1, 0, 0]), "as much as has to be");
        assert!(share(10, [100, 0, 0, 2, 0, 0]).is_err());
    }

    #[test]
    fn what_leaves_a_rest_is_tried_without_the_largest_pieces() {
        let stock = Stock::new([0, 0, 2, 1, 0, 0], 40 * MIB);
        let found = stock.tries().find_map(|mut stock| {
            let sizes = stock.cut(40 * MIB, SizeClass::ALL[1]);
            Some((sizes, stock.enough()?))
        });
        assert_eq!(found, Some((vec![SizeClass::ALL[2]; 2], [0, 0, 2, 0, 0, 0])));
    }

    proptest! {
        #[test]
        fn no_more_is_taken_as_it_is_than_there_is_and_the_rest_can_be_had_in_any_size(
            pieces in 1u64..300,
            any in 0u64..300,
            as_it_is in prop::array::uniform6(0usize..40),
            largest in prop::sample::select(&SizeClass::ALL[..]),
        ) {
            let (bytes, any) = (pieces * SizeClass::ALL[0].bytes(), any * SizeClass::ALL[0].bytes());
            let needed = count(SizeClass::cut(bytes, largest));
            let has_room = |sizes: &PerClass, share: PerClass| {
                let others: PerClass = std::array::from_fn(|class| sizes[class] - share[class]);
                let is_there = share.iter().zip(as_it_is).all(|(share, has)| *share <= has);
                is_there && bytes_of(&others) <= any
            };
            match (AtHand { any, as_it_is }).share(&needed) {
                Ok(share) => prop_assert!(has_room(&needed, share)),
                Err(stock) => for mut stock in stock.tries() {
                    let sizes = count(stock.cut(bytes, largest));
                    prop_assert_eq!(bytes_of(&sizes), bytes);
                    prop_assert!(stock.enough().is_none_or(|share| has_room(&sizes, share)));
                },
            }
        }

        #[test]
        fn what_comes_is_subtracted_from_what_is_missing(
            missing in prop::array::uniform6(0usize..4),
            coming in prop::collection::vec((prop::sample::select(&SizeClass::ALL[..]), 1usize..4), 0..20),
        ) {
            let mut left: PerClass = missing;
            for (class, count) in coming {
                let before = bytes_of(&left);
                subtract(&mut left, class, count);
                let all = class.bytes() * count as u64;
                prop_assert_eq!(bytes_of(&left), before.saturating_sub(all), "{:?} {:?} {}", missing, class, count);
            }
        }
    }
}
