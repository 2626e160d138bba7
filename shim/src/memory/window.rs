//! Addresses for allocations, from a reserved window: given out for an allocation's life, used again after.

use std::collections::BTreeMap;

/// Free addresses, as ranges by start.
#[derive(Debug, Default)]
pub(crate) struct Window {
    free: BTreeMap<u64, u64>,
}

impl Window {
    /// More addresses to give out: a range that is reserved.
    pub(crate) fn add(&mut self, at: u64, bytes: u64) {
        self.give_back(at, bytes);
    }

    /// A range of so many bytes, the lowest that is free.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&at, &length) = self.free.iter().find(|(_, length)| **length >= bytes)?;
        self.free.remove(&at);
        if length > bytes {
            self.free.insert(at + bytes, length - bytes);
        }
        Some(at)
    }

    /// A range that nobody uses any more.
    pub(crate) fn give_back(&mut self, mut at: u64, mut bytes: u64) {
        if let Some((&before, &length)) = self.free.range(..at).next_back()
            && before + length == at
        {
            self.free.remove(&before);
            (at, bytes) = (before, length + bytes);
        }
        if let Some(length) = self.free.remove(&(at + bytes)) {
            bytes += length;
        }
        self.free.insert(at, bytes);
    }

    /// Whether all of a range is free: how a shared extent finds that nobody is left in it.
    pub(crate) fn is_all(&self, at: u64, bytes: u64) -> bool {
        self.free.get(&at) == Some(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_given_back_in_any_order_become_one_again() {
        let mut window = Window::default();
        window.add(1000, 100);
        let ranges: Vec<u64> = (0..10).map(|_| window.take(10).expect("room")).collect();
        assert_eq!(ranges, (0..10).map(|n| 1000 + 10 * n).collect::<Vec<_>>());
        assert_eq!(window.take(1), None);
        for at in [3, 1, 2, 9, 0, 4, 8, 5, 7, 6] {
            window.give_back(ranges[at], 10);
        }
        assert!(window.is_all(1000, 100));
        assert_eq!(window.take(100), Some(1000));
    }
}
