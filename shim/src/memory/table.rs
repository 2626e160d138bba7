//! The program's allocations, and the memory behind them. Pure: maps nothing and makes no requests.
//!
//! ```text
//! large    2 MiB multiples
//! small    512-byte blocks of **shared** 2 MiB, which many have together
//! pooled   a pool's, which has books of its own
//! opened   another process's, opened by its handle
//! freeing  freed, while work that was queued before may still use it
//! cached   freed, still mapped: the next allocation of the same size gets it back
//! ```

use core::ops::Range;
use std::collections::BTreeMap;

use baton_contract::cuda::CUdeviceptr;
use baton_contract::memory::GRANULE;

use super::order::StreamNumber;
use super::pools::PoolNumber;
use super::window::Window;

/// Up to this size, allocations share extents.
pub(crate) const SMALL: u64 = 1 << 20;
/// The alignment of allocations' addresses, as in the driver.
const BLOCK: u64 = 512;

/// The facts about an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The size that the program asked for.
    pub(crate) bytes: u64,
    /// The context that it belongs to; 0 if it belongs to none.
    pub(crate) context: usize,
    /// The program's handle of the pool that it is from; 0 if it is from none.
    pub(crate) pool: usize,
    /// Its number, which is never reused, like the driver's.
    pub(crate) number: u64,
    /// Another process has allocated it, and this one has opened it.
    pub(crate) is_opened: bool,
    /// The host waits for copies and fills of it that name no stream (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`).
    pub(crate) is_synchronous: bool,
}

/// The owner of an allocation's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// The allocation itself, in whole 2 MiB.
    Own,
    /// Several allocations, which share it.
    Shared,
    /// A pool; with the stream that it was allocated for, if another stream may have yet to reach an earlier free of the memory.
    Pool(PoolNumber, Option<StreamNumber>),
    /// Another process.
    Opened(Opened),
}

/// The key by which the exporting and the opening process mean the same allocation.
pub(crate) type Key = [u8; 16];

/// An allocation that this process has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opened {
    key: Key,
    /// The address and the size, in bytes, of the extents that it lies in.
    at: CUdeviceptr,
    bytes: u64,
    /// The number of times that it was opened and not closed.
    times: u32,
}

impl Allocation {
    fn new(facts: Facts, home: Home) -> Self {
        Self { facts, home, has_escaped: false, is_exported: false }
    }

    /// Bytes that it takes of its home.
    fn taken(&self) -> u64 {
        self.facts.bytes.next_multiple_of(if self.home == Home::Own { GRANULE } else { BLOCK })
    }
}

/// A pool's memory that the program has freed.
#[derive(Debug)]
pub(crate) struct Pooled {
    pub(crate) pool: PoolNumber,
    /// The stream that it was allocated for, if another stream may have yet to reach an earlier free of the memory.
    pub(crate) behind: Option<StreamNumber>,
    /// The size that the program asked for, and the bytes that it takes.
    pub(crate) asked: u64,
    pub(crate) bytes: u64,
    /// Others may access it for ever: it is not reused.
    pub(crate) has_escaped: bool,
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) facts: Facts,
    home: Home,
    /// Others may access its memory for ever, even after its addresses are freed.
    has_escaped: bool,
    /// Other processes may have it open, even after it is freed.
    is_exported: bool,
}

/// An allocation that the program has just freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) number: u64,
    /// The coordinator has to be told that it can no longer be opened.
    pub(crate) is_exported: bool,
}

/// Memory that is no longer needed: to be unmapped and given back, or kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// Its address.
    pub(crate) at: CUdeviceptr,
    /// Its size.
    pub(crate) bytes: u64,
    /// True if another allocation may get it.
    pub(crate) is_reusable: bool,
}

impl Released {
    /// Memory of a pool, at addresses that only the pool uses again.
    pub(crate) fn of_pool(range: &Range<CUdeviceptr>) -> Self {
        Self { at: range.start, bytes: range.end - range.start, is_reusable: false }
    }
}

/// All allocations of the process.
#[derive(Debug)]
pub(crate) struct Table {
    allocations: BTreeMap<CUdeviceptr, Allocation>,
    freeing: BTreeMap<CUdeviceptr, Allocation>,
    /// Addresses of shared memory, 2 MiB each, and true if any part was exported: then all of it counts as exported. `free` has the free
    /// blocks of all of it.
    shared: BTreeMap<CUdeviceptr, bool>,
    free: Window,
    cached: Vec<Released>,
    /// Bytes that live allocations and shared memory take.
    taken: u64,
    /// The number of allocations so far.
    numbers: u64,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            allocations: BTreeMap::new(),
            freeing: BTreeMap::new(),
            shared: BTreeMap::new(),
            free: Window::of_units(GRANULE),
            cached: Vec::new(),
            taken: 0,
            numbers: 0,
        }
    }
}

/// The first number: far from those that the driver gives to its own memory.
const FIRST_NUMBER: u64 = 1 << 40;

impl Table {
    /// Bytes that the program's memory takes.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// A number for new memory, which is never reused.
    pub(super) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        FIRST_NUMBER + self.numbers
    }

    /// Allocates a place in shared memory.
    pub(crate) fn take_small(&mut self, bytes: u64, context: usize) -> Option<CUdeviceptr> {
        let size = bytes.next_multiple_of(BLOCK);
        let at = self.free.take(size)?;
        let number = self.next_number();
        let facts = Facts { bytes, context, pool: 0, number, is_opened: false, is_synchronous: false };
        self.allocations.insert(at, Allocation::new(facts, Home::Shared));
        Some(at)
    }

    /// Adds new memory to share, 2 MiB.
    pub(crate) fn add_shared(&mut self, at: CUdeviceptr) {
        self.free.give_back(at, GRANULE);
        self.shared.insert(at, false);
        self.taken += GRANULE;
    }

    /// Adds an allocation with memory of its own.
    pub(crate) fn add_large(&mut self, memory: &Released, bytes: u64, context: usize) {
        self.taken += memory.bytes;
        let number = self.next_number();
        let facts = Facts { bytes, context, pool: 0, number, is_opened: false, is_synchronous: false };
        self.allocations.insert(memory.at, Allocation::new(facts, Home::Own));
    }

    /// Adds an allocation of a pool, which the program knows by `handle`.
    pub(crate) fn add_pooled(
        &mut self,
        at: CUdeviceptr,
        bytes: u64,
        (pool, handle): (PoolNumber, usize),
        behind: Option<StreamNumber>,
    ) {
        let number = self.next_number();
        let facts = Facts { bytes, context: 0, pool: handle, number, is_opened: false, is_synchronous: false };
        self.allocations.insert(at, Allocation::new(facts, Home::Pool(pool, behind)));
    }

    /// Adds an allocation of another process, which lies in `memory` from `at` on.
    pub(crate) fn add_opened(&mut self, key: Key, memory: &Released, at: CUdeviceptr, bytes: u64, context: usize) {
        let number = self.next_number();
        let facts = Facts { bytes, context, pool: 0, number, is_opened: true, is_synchronous: false };
        let opened = Opened { key, at: memory.at, bytes: memory.bytes, times: 1 };
        self.allocations.insert(at, Allocation::new(facts, Home::Opened(opened)));
    }

    /// Opens another process's allocation once more, and returns its address; `None` if it is not open.
    pub(crate) fn open_again(&mut self, key: &Key) -> Option<CUdeviceptr> {
        self.allocations.iter_mut().find_map(|(at, allocation)| match &mut allocation.home {
            Home::Opened(opened) if opened.key == *key => {
                opened.times += 1;
                Some(*at)
            }
            _ => None,
        })
    }

    fn opened(&mut self, at: CUdeviceptr) -> Option<&mut Opened> {
        match &mut self.allocations.get_mut(&at)?.home {
            Home::Opened(opened) => Some(opened),
            _ => None,
        }
    }

    /// Closes an opened allocation once, unless that is the last time: then it stays as it is, for [`Self::begin_close`]. Returns true if
    /// it was closed; `None` if no opened allocation begins here.
    pub(crate) fn close_one_of_several(&mut self, at: CUdeviceptr) -> Option<bool> {
        let opened = self.opened(at)?;
        let are_several = opened.times > 1;
        opened.times -= u32::from(are_several);
        Some(are_several)
    }

    /// Closes an opened allocation once. If that was the last time, it stays where it is until [`Self::finish`], and this returns its
    /// number. `None` if no opened allocation begins here.
    pub(crate) fn begin_close(&mut self, at: CUdeviceptr) -> Option<Option<u64>> {
        if self.close_one_of_several(at)? {
            return Some(None);
        }
        Some(self.let_go(at).map(|freed| freed.number))
    }

    /// Removes an allocation of a pool that is freed. `None` if there is none here.
    pub(crate) fn remove_pooled(&mut self, at: CUdeviceptr) -> Option<Pooled> {
        let allocation = self.allocations.get(&at)?;
        let Home::Pool(pool, behind) = allocation.home else { return None };
        let (asked, bytes, has_escaped) = (allocation.facts.bytes, allocation.taken(), allocation.has_escaped);
        self.allocations.remove(&at);
        Some(Pooled { pool, behind, asked, bytes, has_escaped })
    }

    /// Adds bytes that pools have gained.
    pub(crate) fn add_taken(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// Subtracts bytes that pools have given up.
    pub(crate) fn subtract_taken(&mut self, bytes: u64) {
        self.taken -= bytes;
    }

    /// Takes lately freed memory of exactly this size.
    pub(crate) fn take_cached(&mut self, bytes: u64) -> Option<Released> {
        let at = self.cached.iter().rposition(|memory| memory.bytes == bytes)?;
        Some(self.cached.remove(at))
    }

    /// Keeps freed memory. Returns the memory that has to go for it, the oldest first, so that no more than `limit` is kept.
    pub(crate) fn keep(&mut self, memory: Released, limit: u64) -> Vec<Released> {
        if !memory.is_reusable {
            return vec![memory];
        }
        self.cached.push(memory);
        let mut kept: u64 = self.cached.iter().map(|memory| memory.bytes).sum();
        let too_many = self.cached.iter().take_while(|memory| {
            let over = kept > limit;
            kept -= memory.bytes;
            over
        });
        let count = too_many.count();
        self.cached.drain(..count).collect()
    }

    /// Takes all kept memory, to be given back.
    pub(crate) fn take_all_cached(&mut self) -> Vec<Released> {
        std::mem::take(&mut self.cached)
    }

    /// The allocation that begins here.
    pub(crate) fn get(&self, at: CUdeviceptr) -> Option<&Allocation> {
        self.allocations.get(&at)
    }

    /// The allocation that this address lies in.
    pub(crate) fn find(&self, address: CUdeviceptr) -> Option<(CUdeviceptr, &Allocation)> {
        let (at, allocation) = self.allocations.range(..=address).next_back()?;
        (address < at + allocation.facts.bytes).then_some((*at, allocation))
    }

    /// Marks the allocation at an address as exported, if it is one of `cuMemAlloc`. Returns its start and its facts.
    pub(crate) fn export(&mut self, address: CUdeviceptr) -> Option<(CUdeviceptr, Facts)> {
        let (at, allocation) = self.allocations.range_mut(..=address).next_back()?;
        if address >= at + allocation.facts.bytes {
            return None;
        }
        match allocation.home {
            Home::Own => {}
            Home::Shared => *self.shared.range_mut(..=address).next_back()?.1 = true,
            Home::Pool(..) | Home::Opened(_) => return None,
        }
        allocation.is_exported = true;
        Some((*at, allocation.facts))
    }

    /// Begins to free an allocation, which stays where it is until [`Self::finish`]: earlier work may use it. `None` if there is none
    /// here, or if it is an opened one, which is closed instead.
    pub(crate) fn begin_free(&mut self, at: CUdeviceptr) -> Option<Freed> {
        self.allocations.get(&at).filter(|allocation| !allocation.facts.is_opened)?;
        self.let_go(at)
    }

    /// Begins to free any allocation that begins here, even an opened one.
    pub(crate) fn let_go(&mut self, at: CUdeviceptr) -> Option<Freed> {
        let allocation = self.allocations.remove(&at)?;
        let freed = Freed { number: allocation.facts.number, is_exported: allocation.is_exported };
        self.freeing.insert(at, allocation);
        Some(freed)
    }

    /// True if an allocation that began here is being freed.
    pub(crate) fn is_freeing(&self, at: CUdeviceptr) -> bool {
        self.freeing.get(&at).is_some_and(|freed| !freed.facts.is_opened)
    }

    /// Ends a free once the allocation is unused. Returns the memory that is no longer needed.
    pub(crate) fn finish(&mut self, at: CUdeviceptr, number: u64) -> Option<Released> {
        self.freeing.get(&at).filter(|freed| freed.facts.number == number)?;
        let allocation = self.freeing.remove(&at)?;
        let bytes = allocation.taken();
        match allocation.home {
            Home::Own => {
                self.taken -= bytes;
                let is_reusable = !allocation.has_escaped && !allocation.is_exported;
                return Some(Released { at, bytes, is_reusable });
            }
            Home::Opened(Opened { at, bytes, .. }) => return Some(Released { at, bytes, is_reusable: false }),
            Home::Shared | Home::Pool(..) => {}
        }
        if allocation.has_escaped {
            // Its part of the shared memory is unused from here on.
            return None;
        }
        let (base, bytes) = self.free.give_back(at, bytes);
        if bytes != GRANULE {
            return None;
        }
        self.free.withdraw(base);
        self.taken -= GRANULE;
        let was_exported = self.shared.remove(&base)?;
        Some(Released { at: base, bytes: GRANULE, is_reusable: !was_exported })
    }

    /// Marks the allocation at this address as accessible to others for ever. Returns the address and the size of the memory concerned.
    pub(crate) fn let_escape(&mut self, address: CUdeviceptr) -> Option<(CUdeviceptr, u64)> {
        let (at, allocation) = self.allocations.range_mut(..=address).next_back()?;
        if address >= at + allocation.facts.bytes {
            return None;
        }
        let memory = match allocation.home {
            Home::Own | Home::Pool(..) => (*at, allocation.taken()),
            Home::Shared => (*self.shared.range(..=address).next_back()?.0, GRANULE),
            Home::Opened(Opened { at, bytes, .. }) => (at, bytes),
        };
        allocation.has_escaped = true;
        Some(memory)
    }

    /// Makes the host wait for copies and fills of the allocation at this address, or stop doing so. False if there is none.
    pub(crate) fn set_synchronous(&mut self, address: CUdeviceptr, is_synchronous: bool) -> bool {
        let found = self.allocations.range_mut(..=address).next_back();
        let Some((_, allocation)) = found.filter(|(at, one)| address < **at + one.facts.bytes) else { return false };
        allocation.facts.is_synchronous = is_synchronous;
        true
    }

    /// All memory that calls wait for as a whole: address and size. Unused memory of pools is not included.
    pub(crate) fn places(&self) -> impl Iterator<Item = (CUdeviceptr, u64)> {
        let all = self.allocations.iter().chain(&self.freeing);
        let large = all.filter(|(_, allocation)| allocation.home != Home::Shared);
        let large = large.map(|(at, allocation)| (*at, allocation.taken()));
        let shared = self.shared.keys().map(|at| (*at, GRANULE));
        let cached = self.cached.iter().map(|memory| (memory.at, memory.bytes));
        large.chain(shared).chain(cached)
    }

    /// The allocations of a context, including those that are being freed, and the opened ones.
    pub(crate) fn of_context(&self, context: usize) -> Vec<(CUdeviceptr, u64)> {
        let all = self.allocations.iter().chain(&self.freeing);
        all.filter(|(_, a)| a.facts.context == context).map(|(at, a)| (*at, a.facts.number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(at: u64, bytes: u64) -> Released {
        Released { at, bytes, is_reusable: true }
    }

    fn remove(table: &mut Table, at: u64) -> Option<Released> {
        let number = table.begin_free(at).expect("there is one").number;
        assert_eq!(table.finish(at, number + 1), None, "not the one that was meant");
        table.finish(at, number)
    }

    #[test]
    fn small_allocations_share_memory_until_the_last_is_gone() {
        let mut table = Table::default();
        assert_eq!(table.take_small(100, 1), None);
        table.add_shared(GRANULE);
        let (a, b) = (table.take_small(100, 1).expect("room"), table.take_small(513, 2).expect("room"));
        assert_eq!((a, b), (GRANULE, GRANULE + 512));
        assert_eq!(table.taken(), GRANULE);
        assert_eq!(table.find(b + 512).map(|(at, found)| (at, found.facts.bytes)), Some((b, 513)));
        assert!(table.find(b + 513).is_none(), "behind what was asked for");
        assert_eq!(table.of_context(2).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [b]);
        assert_eq!(remove(&mut table, a), None);
        assert_eq!(table.begin_free(a), None, "freed twice");
        assert_eq!(remove(&mut table, b), Some(memory(GRANULE, GRANULE)));
        assert_eq!(table.taken(), 0);
    }

    #[test]
    fn freed_memory_is_kept_up_to_the_limit_and_found_by_its_size() {
        let mut table = Table::default();
        let sizes = [4, 2, 8].map(|n| n * GRANULE);
        let gone: Vec<_> = sizes.iter().flat_map(|bytes| table.keep(memory(*bytes, *bytes), 10 * GRANULE)).collect();
        assert_eq!(gone, [memory(sizes[0], sizes[0])]);
        assert_eq!(table.take_cached(sizes[1]), Some(memory(sizes[1], sizes[1])));
        assert_eq!(table.take_cached(sizes[1]), None);
        assert_eq!(table.keep(memory(0, 11 * GRANULE), 10 * GRANULE).len(), 2, "too large to be kept at all");
    }

    #[test]
    fn a_large_allocation_gives_its_memory_back() {
        let mut table = Table::default();
        table.add_large(&memory(GRANULE, 2 * GRANULE), GRANULE + 1, 7);
        assert_eq!(table.taken(), 2 * GRANULE);
        assert_eq!(table.find(2 * GRANULE).map(|(at, _)| at), Some(GRANULE));
        assert!(table.find(2 * GRANULE + 1).is_none());
        let number = table.begin_free(GRANULE).expect("there is one").number;
        assert!(table.get(GRANULE).is_none());
        assert_eq!((table.taken(), table.places().count()), (2 * GRANULE, 1), "work may still use it");
        assert_eq!(table.finish(GRANULE, number), Some(memory(GRANULE, 2 * GRANULE)));
        assert_eq!((table.taken(), table.places().count()), (0, 0));
    }

    #[test]
    fn an_allocation_of_a_pool_is_known_and_its_memory_is_the_pools() {
        let mut table = Table::default();
        table.add_pooled(3 * BLOCK, 513, (PoolNumber::for_tests(4), 99), None);
        assert_eq!(table.find(3 * BLOCK + 512).map(|(at, found)| (at, found.facts.pool)), Some((3 * BLOCK, 99)));
        assert!(table.find(3 * BLOCK + 513).is_none());
        assert_eq!((table.taken(), table.places().collect::<Vec<_>>()), (0, vec![(3 * BLOCK, 2 * BLOCK)]));
        assert_eq!(table.let_escape(3 * BLOCK), Some((3 * BLOCK, 2 * BLOCK)));
        let freed = table.remove_pooled(3 * BLOCK).expect("there is one");
        assert_eq!((freed.asked, freed.bytes, freed.has_escaped), (513, 2 * BLOCK, true));
        assert!(table.remove_pooled(3 * BLOCK).is_none());
    }

    #[test]
    fn memory_that_others_may_reach_is_given_to_nobody_else() {
        let mut table = Table::default();
        table.add_large(&memory(GRANULE, 2 * GRANULE), 2 * GRANULE, 7);
        table.add_shared(8 * GRANULE);
        let small = table.take_small(512, 7).expect("room");
        assert_eq!(table.let_escape(2 * GRANULE), Some((GRANULE, 2 * GRANULE)));
        assert_eq!(table.let_escape(small + 511), Some((8 * GRANULE, GRANULE)));
        assert_eq!(table.let_escape(small + 512), None, "behind its end");
        let freed = remove(&mut table, GRANULE).expect("an allocation of its own");
        assert_eq!(table.keep(freed.clone(), 1 << 40), [freed], "it is not kept for the next one");
        assert_eq!(remove(&mut table, small), None);
        assert_ne!(table.take_small(512, 7), Some(small));
    }

    #[test]
    fn what_was_exported_is_said_when_it_is_freed_and_not_kept_for_the_next() {
        let mut table = Table::default();
        table.add_large(&memory(GRANULE, 2 * GRANULE), 2 * GRANULE - 1, 7);
        table.add_shared(8 * GRANULE);
        let (small, other) = (table.take_small(512, 7).expect("room"), table.take_small(512, 7).expect("room"));
        table.add_pooled(20 * GRANULE, 513, (PoolNumber::for_tests(4), 99), None);
        for (address, exported) in [
            (GRANULE, Some(GRANULE)),
            (3 * GRANULE - 2, Some(GRANULE)),
            (3 * GRANULE - 1, None),
            (small + 511, Some(small)),
            (20 * GRANULE, None),
            (0, None),
        ] {
            assert_eq!(table.export(address).map(|(at, _)| at), exported, "{address}");
        }
        let freed = table.begin_free(GRANULE).expect("there is one");
        assert!(freed.is_exported && table.export(GRANULE).is_none());
        let released = table.finish(GRANULE, freed.number).expect("an allocation of its own");
        assert!(!released.is_reusable);
        assert!(!table.begin_free(other).expect("there is one").is_exported, "only its neighbour was");
        assert_eq!(remove(&mut table, small), None, "work may still use the other");
        let number = table.freeing[&other].facts.number;
        let released = table.finish(other, number).expect("the last of them");
        assert_eq!(released, Released { at: 8 * GRANULE, bytes: GRANULE, is_reusable: false });
        assert_eq!(table.taken(), 0);
    }

    #[test]
    fn what_was_opened_is_closed_as_often_and_is_nobodys_to_free() {
        let mut table = Table::default();
        let (key, extents) = ([3; 16], memory(GRANULE, 8 * GRANULE));
        let at = 3 * GRANULE + 512;
        assert_eq!(table.open_again(&key), None);
        table.add_opened(key, &extents, at, 600, 7);
        assert_eq!((table.open_again(&key), table.open_again(&[4; 16])), (Some(at), None));
        let found = table.find(at + 599).expect("it is ours").1.facts;
        assert!(found.is_opened && table.find(at + 600).is_none());
        assert_eq!((table.taken(), table.places().collect::<Vec<_>>()), (0, vec![(at, 1024)]));
        assert_eq!((table.begin_free(at), table.export(at).is_none()), (None, true));
        assert_eq!(table.let_escape(at + 599), Some((GRANULE, 8 * GRANULE)), "all extents that it lies in");
        assert_eq!((table.begin_close(at + 1), table.begin_close(GRANULE)), (None, None), "not where it begins");
        assert_eq!(table.begin_close(at), Some(None), "it was opened twice");
        assert_eq!(table.close_one_of_several(at), Some(false));
        assert_eq!(table.begin_close(at), Some(Some(found.number)));
        assert_eq!((table.begin_close(at), table.open_again(&key), table.is_freeing(at)), (None, None, false));
        assert_eq!(table.of_context(7), [(at, found.number)]);
        let released = Released { is_reusable: false, ..extents };
        assert_eq!(table.finish(at, found.number), Some(released));
        assert_eq!((table.taken(), table.places().count()), (0, 0));
    }

    #[test]
    fn a_context_takes_with_it_what_was_opened_in_it() {
        let mut table = Table::default();
        table.add_opened([3; 16], &memory(GRANULE, GRANULE), GRANULE, 512, 7);
        table.open_again(&[3; 16]);
        let freed = table.let_go(GRANULE).expect("there is one");
        assert!(!freed.is_exported && table.finish(GRANULE, freed.number).is_some());
        assert_eq!(table.begin_close(GRANULE), None);
    }
}
