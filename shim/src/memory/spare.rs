//! Parts of extents that the program has freed while it goes on using the rest. They stay mapped, because an extent is mapped as a whole,
//! and are reused before new memory is asked for. When the extent next leaves the GPU, they are forgotten. Pure.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

/// A range of addresses.
type Addresses = Range<u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    bytes: u64,
    /// True if another allocation may get it.
    is_reusable: bool,
}

/// All such parts. None crosses the end of an extent.
#[derive(Debug, Default)]
pub(super) struct Spare {
    parts: BTreeMap<u64, Part>,
    /// Size and address of those that another allocation may get.
    by_size: BTreeSet<(u64, u64)>,
}

impl Spare {
    fn insert(&mut self, at: u64, part: Part) {
        self.parts.insert(at, part);
        if part.is_reusable {
            self.by_size.insert((part.bytes, at));
        }
    }

    fn remove(&mut self, at: u64) -> Option<Part> {
        let part = self.parts.remove(&at)?;
        self.by_size.remove(&(part.bytes, at));
        Some(part)
    }

    /// Adds a part of an extent that the program has freed.
    pub(super) fn add(&mut self, freed: Addresses, extent: &Addresses, is_reusable: bool) {
        let (mut at, mut bytes) = (freed.start, freed.end - freed.start);
        let is_same = |part: &Part| part.is_reusable == is_reusable;
        if let Some((&before, part)) = self.parts.range(extent.start..at).next_back()
            && before + part.bytes == at
            && is_same(part)
        {
            bytes += part.bytes;
            at = before;
            self.remove(before);
        }
        if freed.end < extent.end
            && let Some(part) = self.parts.get(&freed.end).copied().filter(is_same)
        {
            bytes += part.bytes;
            self.remove(freed.end);
        }
        self.insert(at, Part { bytes, is_reusable });
    }

    /// Bytes of an extent that are spare.
    pub(super) fn bytes_of(&self, extent: &Addresses) -> u64 {
        self.parts.range(extent.clone()).map(|(_, part)| part.bytes).sum()
    }

    /// Address and size of each part.
    pub(super) fn parts(&self) -> Vec<(u64, u64)> {
        self.parts.iter().map(|(at, part)| (*at, part.bytes)).collect()
    }

    /// Forgets the spare parts of an extent that has gone, and returns them.
    pub(super) fn forget(&mut self, extent: &Addresses) -> Vec<(u64, u64)> {
        let parts: Vec<(u64, u64)> = self.parts.range(extent.clone()).map(|(at, part)| (*at, part.bytes)).collect();
        for (at, _) in &parts {
            self.remove(*at);
        }
        parts
    }

    /// Takes memory for another allocation from the smallest part that is large enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (length, at) = *self.by_size.range((bytes, 0)..).next()?;
        self.remove(at);
        if length > bytes {
            self.insert(at + bytes, Part { bytes: length - bytes, is_reusable: true });
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Addresses = 100..200;

    #[test]
    fn parts_of_an_extent_become_one_and_those_of_two_do_not() {
        let mut spare = Spare::default();
        for freed in [120..130, 140..150, 130..140] {
            spare.add(freed, &EXTENT, true);
        }
        spare.add(190..200, &EXTENT, true);
        spare.add(200..220, &(200..300), true);
        assert_eq!((spare.bytes_of(&EXTENT), spare.bytes_of(&(200..300))), (40, 20));
        assert_eq!(spare.take(30), Some(120));
        assert_eq!(spare.take(30), None, "no allocation lies in two of them");
        assert_eq!(spare.take(15), Some(200));
        assert_eq!(spare.take(5), Some(215), "of the smallest that is large enough");
        assert_eq!(spare.forget(&EXTENT), [(190, 10)]);
        assert_eq!(spare.take(1), None);
    }

    #[test]
    fn what_others_may_reach_counts_and_is_given_to_nobody() {
        let mut spare = Spare::default();
        spare.add(100..120, &EXTENT, false);
        spare.add(120..140, &EXTENT, true);
        assert_eq!(spare.bytes_of(&EXTENT), 40);
        assert_eq!(spare.take(21), None);
        assert_eq!(spare.take(20), Some(120));
        assert_eq!(spare.take(1), None);
        assert_eq!(spare.forget(&EXTENT), [(100, 20)]);
    }
}
