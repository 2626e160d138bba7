//! How many extents or frames of each size class: what is missing, what is on the way.

use baton_contract::memory::SizeClass;

/// A number for each size class, in the order of [`SizeClass::ALL`].
pub type PerClass = [usize; SizeClass::ALL.len()];

/// What so many of each class take, in bytes.
pub fn bytes_of(counts: &PerClass) -> u64 {
    SizeClass::ALL.iter().map(|class| class.bytes() * counts[class.index()] as u64).sum()
}

/// How many of each class these are.
pub fn count(classes: impl IntoIterator<Item = SizeClass>) -> PerClass {
    let mut counts = PerClass::default();
    classes.into_iter().for_each(|class| counts[class.index()] += 1);
    counts
}

/// Small ones that make up at least so many bytes.
pub fn at_least(bytes: u64) -> PerClass {
    let mut counts = PerClass::default();
    counts[0] = bytes.div_ceil(SizeClass::ALL[0].bytes()) as usize;
    counts
}

/// So many of this class come: so many less are missing, of their class or else in bytes.
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

/// Says whether anything was missing.
fn subtract_bytes(missing: &mut PerClass, mut bytes: u64) -> bool {
    let before = bytes;
    // The largest first: what is left over is wanted in small pieces.
    for other in SizeClass::ALL.into_iter().rev() {
        let count = &mut missing[other.index()];
        let covered = (bytes / other.bytes()).min(*count as u64);
        *count -= covered as usize;
        bytes -= covered * other.bytes();
    }
    if bytes > 0
        && let Some(larger) = SizeClass::ALL.into_iter().find(|other| missing[other.index()] > 0)
    {
        // Only larger ones are still missing: one of those becomes the rest of it.
        missing[larger.index()] -= 1;
        for piece in SizeClass::cut(larger.bytes() - bytes, larger) {
            missing[piece.index()] += 1;
        }
        return true;
    }
    bytes < before
}

/// What there is for one who needs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtHand {
    /// In whatever sizes, in bytes.
    pub any: u64,
    /// Beside that, only as it is: so many pieces of each class.
    pub as_it_is: PerClass,
}

impl AtHand {
    /// What has to be taken as it is by one who needs so much. None if it can be had as it is cut.
    pub fn stock_for(&self, needed: &PerClass) -> Option<Stock> {
        let lacking = bytes_of(needed).saturating_sub(self.any);
        let mut fitting = *needed;
        fitting.iter_mut().zip(self.as_it_is).for_each(|(needed, has)| *needed = has.min(*needed));
        (lacking > bytes_of(&fitting)).then(|| Stock::new(self.as_it_is, lacking))
    }
}

/// Pieces to be taken as they are, until so many bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    pieces: PerClass,
    lacking: u64,
}

impl Stock {
    /// So many pieces of each class, of which so many bytes are to be taken.
    pub fn new(pieces: PerClass, lacking: u64) -> Self {
        Self { pieces, lacking }
    }

    /// Cuts so much into pieces of it as long as that is wanted, and the rest into pieces that are no larger than `largest`. These come
    /// first: whoever looks for them first finds what can be had in any size, and leaves none of that to the others.
    pub fn cut(&mut self, bytes: u64, largest: SizeClass) -> Vec<SizeClass> {
        let (mut taken, mut left) = (Vec::new(), bytes);
        for class in SizeClass::ALL.into_iter().rev() {
            let count = &mut self.pieces[class.index()];
            while *count > 0 && left >= class.bytes() && self.lacking > 0 {
                taken.push(class);
                *count -= 1;
                left -= class.bytes();
                self.lacking = self.lacking.saturating_sub(class.bytes());
            }
        }
        SizeClass::cut(left, largest).chain(taken).collect()
    }

    /// Whether enough was taken.
    pub fn is_enough(&self) -> bool {
        self.lacking == 0
    }

    /// What can be tried one after the other: all of it, then without the largest pieces, which may have left a rest.
    pub fn tries(self) -> impl Iterator<Item = Self> {
        (1..=SizeClass::ALL.len()).rev().map(move |classes| {
            let mut pieces = self.pieces;
            pieces[classes..].fill(0);
            Self { pieces, ..self }
        })
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
        let at_hand = |any, as_it_is| AtHand { any: any * MIB, as_it_is };
        assert_eq!(at_hand(106, [0; 6]).stock_for(&needed), None, "in any size");
        assert_eq!(at_hand(10, [0, 0, 0, 3, 0, 0]).stock_for(&needed), None, "in these sizes");
        assert!(at_hand(10, [100, 0, 0, 2, 0, 0]).stock_for(&needed).is_some());
    }

    #[test]
    fn what_leaves_a_rest_is_tried_without_the_largest_pieces() {
        let at_hand = AtHand { any: 0, as_it_is: [0, 0, 2, 1, 0, 0] };
        let needed = count(SizeClass::cut(40 * MIB, SizeClass::ALL[1]));
        let sizes = at_hand.stock_for(&needed).and_then(|stock| {
            stock.tries().find_map(|mut stock| {
                let sizes = stock.cut(40 * MIB, SizeClass::ALL[1]);
                stock.is_enough().then_some(sizes)
            })
        });
        assert_eq!(sizes, Some(vec![SizeClass::ALL[2]; 2]));
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
            let stock = AtHand { any, as_it_is }.stock_for(&needed);
            for mut stock in stock.into_iter().flat_map(Stock::tries) {
                let sizes = stock.cut(bytes, largest);
                prop_assert_eq!(sizes.iter().map(|class| class.bytes()).sum::<u64>(), bytes);
                let mut rest = count(sizes);
                rest.iter_mut().zip(as_it_is).for_each(|(count, has)| *count -= has.min(*count));
                prop_assert!(!stock.is_enough() || bytes_of(&rest) <= any, "{:?} are left", rest);
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
