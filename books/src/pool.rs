//! The host pool's books: they list the blocks that hold evicted memory. Pure: the code here owns offsets, not bytes.
//!
//! The pool is one line of bytes, made of slabs of equal size that become usable one after the other. Evicted
//! memory is stored in **runs** of it. A run never crosses from one slab into the next, because a
//! copy may not: each slab is pinned by itself. Runs are as long as possible, since long copies are fast.

use std::collections::{BTreeMap, BTreeSet};

use baton_contract::memory::GRANULE;

/// A piece of the pool, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Its beginning.
    pub at: u64,
    /// Its length.
    pub bytes: u64,
}

/// The books.
#[derive(Debug)]
pub struct Pool {
    bytes: u64,
    slab: u64,
    ready: u64,
    used: u64,
    /// Free runs by start; neighbours within a slab are one run.
    free: BTreeMap<u64, u64>,
    /// The slabs that are ready, by their numbers.
    there: BTreeSet<u64>,
    /// Pages in use of slabs that are not.
    early: BTreeSet<u64>,
}

impl Pool {
    /// Creates a pool of this many bytes, of which none is ready.
    ///
    /// # Panics
    ///
    /// If a slab is no multiple of 2 MiB: our own mistake.
    pub fn new(bytes: u64, slab: u64) -> Self {
        assert!(slab > 0 && slab.is_multiple_of(GRANULE), "slabs hold whole blocks");
        Self {
            bytes: bytes / slab * slab,
            slab,
            ready: 0,
            used: 0,
            free: BTreeMap::new(),
            there: BTreeSet::new(),
            early: BTreeSet::new(),
        }
    }

    /// The bytes that it can hold once all its slabs are ready.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that it can hold now.
    pub fn ready(&self) -> u64 {
        self.ready
    }

    /// The bytes that it holds.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The number of slabs that are ready.
    pub fn slabs(&self) -> u64 {
        self.ready / self.slab
    }

    /// Notes that a slab has become usable.
    pub fn slab_ready(&mut self, number: u64) {
        self.ready += self.slab;
        self.there.insert(number);
        self.insert(Run { at: number * self.slab, bytes: self.slab });
        let early: Vec<u64> = self.early.extract_if(number * self.slab..(number + 1) * self.slab, |_| true).collect();
        early.into_iter().for_each(|page| self.take_page(page));
    }

    /// True if pages are in use of slabs that are not ready.
    pub fn awaits_pages(&self) -> bool {
        !self.early.is_empty()
    }

    /// True if more slabs are yet to become usable.
    pub fn is_growing(&self) -> bool {
        self.ready < self.bytes
    }

    /// Notes that no further slab will become usable.
    pub fn no_more(&mut self) {
        self.bytes = self.ready;
    }

    /// Takes room for this many bytes (a multiple of 2 MiB). If there is not enough, it takes none.
    pub fn take(&mut self, bytes: u64) -> Option<Vec<Run>> {
        if self.ready - self.used < bytes {
            return None;
        }
        self.used += bytes;
        // The shortest run that is long enough leaves the long ones whole.
        let fitting = self.free.iter().filter(|(_, length)| **length >= bytes).min_by_key(|(_, length)| **length);
        if let Some((&at, &length)) = fitting {
            self.cut(at, length, bytes);
            return Some(vec![Run { at, bytes }]);
        }
        let mut runs = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let (&at, &length) = self.free.iter().max_by_key(|(_, length)| **length).expect("there is enough in all");
            let bytes = length.min(left);
            self.cut(at, length, bytes);
            runs.push(Run { at, bytes });
            left -= bytes;
        }
        Some(runs)
    }

    /// Takes this very page of 2 MiB, which is free, or in a slab that is yet to become usable.
    pub fn take_page(&mut self, at: u64) {
        if !self.there.contains(&(at / self.slab)) {
            self.early.insert(at);
            return;
        }
        let Some((&start, &length)) = self.free.range(..=at).next_back() else { return };
        if start + length < at + GRANULE {
            return;
        }
        self.free.remove(&start);
        if start < at {
            self.free.insert(start, at - start);
        }
        if start + length > at + GRANULE {
            self.free.insert(at + GRANULE, start + length - at - GRANULE);
        }
        self.used += GRANULE;
    }

    /// Gives runs back.
    pub fn give_back(&mut self, runs: Vec<Run>) {
        for run in runs {
            if !self.there.contains(&(run.at / self.slab)) {
                self.early.retain(|page| !(run.at..run.at + run.bytes).contains(page));
                continue;
            }
            self.used -= run.bytes;
            self.insert(run);
        }
    }

    fn cut(&mut self, at: u64, length: u64, bytes: u64) {
        self.free.remove(&at);
        if length > bytes {
            self.free.insert(at + bytes, length - bytes);
        }
    }

    fn insert(&mut self, Run { mut at, mut bytes }: Run) {
        if let Some((&before, &length)) = self.free.range(..at).next_back()
            && before + length == at
            && before / self.slab == at / self.slab
        {
            self.free.remove(&before);
            (at, bytes) = (before, length + bytes);
        }
        if (at + bytes).is_multiple_of(self.slab) {
            // The next run, if there is one, lies in another slab.
        } else if let Some(length) = self.free.remove(&(at + bytes)) {
            bytes += length;
        }
        self.free.insert(at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A program of another coordinator ends before its part of the pool is there.
    #[test]
    fn a_page_that_is_given_back_before_its_slab_is_ready_is_free_then_and_others_are_not() {
        let mut pool = Pool::new(8 * GRANULE, 4 * GRANULE);
        let page = |number: u64| Run { at: number * GRANULE, bytes: GRANULE };
        pool.slab_ready(1);
        (0..6).for_each(|number| pool.take_page(page(number).at));
        pool.give_back(vec![page(1)]);
        assert!(pool.awaits_pages());
        pool.slab_ready(0);
        assert_eq!((pool.awaits_pages(), pool.used()), (false, 5 * GRANULE));
        assert_eq!(pool.take(GRANULE), Some(vec![page(1)]));
        assert_eq!(pool.take(2 * GRANULE), Some(vec![Run { at: 6 * GRANULE, bytes: 2 * GRANULE }]));
        assert_eq!(pool.take(GRANULE), None);
    }

    proptest! {
        #[test]
        fn runs_never_overlap_or_cross_a_slab_and_all_come_back(
            steps in prop::collection::vec((any::<bool>(), 1u64..20, any::<prop::sample::Index>()), 0..200)
        ) {
            let slab = 16 * GRANULE;
            let mut pool = Pool::new(4 * slab + GRANULE, slab);
            prop_assert_eq!(pool.bytes(), 4 * slab);
            (0..4).for_each(|number| pool.slab_ready(number));
            let mut held: Vec<Vec<Run>> = Vec::new();
            for (take, granules, which) in steps {
                if take {
                    let free = pool.ready() - pool.used();
                    let taken = pool.take(granules * GRANULE);
                    prop_assert_eq!(taken.is_some(), free >= granules * GRANULE);
                    held.extend(taken);
                } else if !held.is_empty() {
                    let at = which.index(held.len());
                    pool.give_back(held.swap_remove(at));
                }
                let mut runs: Vec<Run> = held.iter().flatten().copied().collect();
                runs.sort();
                prop_assert!(runs.windows(2).all(|pair| pair[0].at + pair[0].bytes <= pair[1].at));
                prop_assert!(runs.iter().all(|run| run.at / slab == (run.at + run.bytes - 1) / slab));
                prop_assert_eq!(pool.used(), runs.iter().map(|run| run.bytes).sum::<u64>());
            }
            held.into_iter().for_each(|runs| pool.give_back(runs));
            prop_assert_eq!(pool.free.len(), 4, "whole slabs again: {:?}", pool.free);
        }
    }
}
