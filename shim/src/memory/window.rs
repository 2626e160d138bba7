//! Free addresses, as ranges: given out for an allocation's life, and reused after it. The time of every operation grows with the
//! logarithm of the number of ranges.

use std::collections::{BTreeMap, BTreeSet};

/// Free addresses.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Sizes by start.
    free: BTreeMap<u64, u64>,
    /// Size and start of the same ranges.
    by_size: BTreeSet<(u64, u64)>,
    /// Ranges are joined only within units of this size, if it is set.
    unit: Option<u64>,
}

impl Window {
    /// A window whose ranges never cross a multiple of `unit`.
    pub(crate) fn of_units(unit: u64) -> Self {
        Self { unit: Some(unit), ..Self::default() }
    }

    fn insert(&mut self, at: u64, bytes: u64) {
        self.free.insert(at, bytes);
        self.by_size.insert((bytes, at));
    }

    fn remove(&mut self, at: u64) -> Option<u64> {
        let bytes = self.free.remove(&at)?;
        self.by_size.remove(&(bytes, at));
        Some(bytes)
    }

    fn is_one(&self, a: u64, b: u64) -> bool {
        self.unit.is_none_or(|unit| a / unit == b / unit)
    }

    /// Takes a range of so many bytes: the lowest of the smallest ranges that are large enough.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (length, at) = *self.by_size.range((bytes, 0)..).next()?;
        self.remove(at);
        if length > bytes {
            self.insert(at + bytes, length - bytes);
        }
        Some(at)
    }

    /// Gives back an unused or new range. Returns the range that it is part of now.
    pub(crate) fn give_back(&mut self, mut at: u64, mut bytes: u64) -> (u64, u64) {
        if let Some((&before, &length)) = self.free.range(..at).next_back()
            && before + length == at
            && self.is_one(before, at)
        {
            self.remove(before);
            (at, bytes) = (before, length + bytes);
        }
        if self.is_one(at, at + bytes)
            && let Some(length) = self.remove(at + bytes)
        {
            bytes += length;
        }
        self.insert(at, bytes);
        (at, bytes)
    }

    /// Takes a part of the free range that holds it.
    pub(crate) fn take_at(&mut self, at: u64, bytes: u64) {
        let Some((start, length)) = self.containing(at) else { return };
        self.remove(start);
        if start < at {
            self.insert(start, at - start);
        }
        if at + bytes < start + length {
            self.insert(at + bytes, start + length - at - bytes);
        }
    }

    /// The free range that an address lies in: start and size.
    pub(crate) fn containing(&self, address: u64) -> Option<(u64, u64)> {
        let (start, bytes) = self.free.range(..=address).next_back()?;
        (address < start + bytes).then_some((*start, *bytes))
    }

    /// All free ranges of at least so many bytes, the smallest first: start and size.
    pub(crate) fn no_smaller_than(&self, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        self.by_size.range((bytes, 0)..).map(|(bytes, at)| (*at, *bytes))
    }

    /// All free ranges in order of address: start and size.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter().map(|(at, bytes)| (*at, *bytes))
    }

    /// Removes a free range, so that it is never given out.
    pub(crate) fn withdraw(&mut self, at: u64) {
        self.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_given_back_in_any_order_become_one_again() {
        let mut window = Window::default();
        window.give_back(1000, 100);
        let ranges: Vec<u64> = (0..10).map(|_| window.take(10).expect("room")).collect();
        assert_eq!(ranges, (0..10).map(|n| 1000 + 10 * n).collect::<Vec<_>>());
        assert_eq!(window.take(1), None);
        let whole: Vec<bool> = [3, 1, 2, 9, 0, 4, 8, 5, 7, 6]
            .into_iter()
            .map(|at| window.give_back(ranges[at], 10) == (1000, 100))
            .collect();
        assert_eq!(whole.iter().position(|is| *is), Some(9));
        assert_eq!(window.take(100), Some(1000));
    }

    #[test]
    fn a_part_can_be_taken_out_of_the_middle() {
        let mut window = Window::default();
        window.give_back(100, 100);
        window.take_at(130, 20);
        assert_eq!(window.ranges().collect::<Vec<_>>(), [(100, 30), (150, 50)]);
        assert_eq!((window.containing(129), window.containing(130)), (Some((100, 30)), None));
        assert_eq!(window.no_smaller_than(31).collect::<Vec<_>>(), [(150, 50)]);
        window.take_at(150, 50);
        window.take_at(100, 10);
        assert_eq!(window.ranges().collect::<Vec<_>>(), [(110, 20)]);
    }

    #[test]
    fn neighbours_of_different_units_stay_apart() {
        let mut window = Window::of_units(100);
        assert_eq!(window.give_back(100, 100), (100, 100));
        assert_eq!(window.give_back(200, 50), (200, 50));
        assert_eq!(window.give_back(0, 100), (0, 100));
        assert_eq!(window.take(101), None);
        assert_eq!(window.take(60), Some(0), "the lowest of those that fit equally well");
        assert_eq!(window.take(40), Some(60), "the one that fits best");
        window.withdraw(100);
        assert_eq!(window.take(51), None);
    }
}
