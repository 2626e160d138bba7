//! The program's allocations, by address: bookkeeping only.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::errors::{Outcome, Status};
use crate::shared_file::IpcHandle;

/// Memory that was allocated in a stream's order, as its maker knows it.
pub(crate) trait Lent: Any + Send + Sync {
    /// Its address.
    fn start(&self) -> u64;
}

/// One allocation.
#[derive(Default)]
pub(crate) struct Allocation {
    /// As asked for.
    pub(crate) bytes: u64,
    /// The context it was made in and dies with; 0: none, it is a pool's.
    pub(crate) context: u64,
    pub(crate) buffer_id: u64,
    /// True if the host waits for copies and fills of it that no stream was named for.
    pub(crate) synchronous: bool,
    /// True if `cuMemFreeAsync` has taken it: it goes when the stream comes to that.
    pub(super) leaving: bool,
    /// The shared block it is in, if it has no handle of its own.
    pub(super) block: Option<u64>,
    /// If it is another process's, opened by its handle: that handle, and how often.
    pub(crate) opened: Option<(IpcHandle, u32)>,
    /// If it was allocated in a stream's order.
    pub(crate) lent: Option<Arc<dyn Lent>>,
    /// If it is a graph's: the ordinal of its GPU. It is known as long as the graph, and has a lease from a launch to a free.
    pub(crate) slot: Option<usize>,
}

/// A granule that small allocations share: its free parts, by offset.
pub(super) struct Block {
    /// The GPU whose memory it is.
    pub(super) ordinal: usize,
    /// True if its addresses are below 4 GiB.
    pub(super) low: bool,
    pub(super) free: BTreeMap<u64, u64>,
}

impl Allocation {
    /// True if `cuMemFreeAsync` has taken it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// True if the program has it: it has a graph's allocation only after a launch.
    pub(crate) fn is_somebodys(&self) -> bool {
        self.slot.is_none() || self.lent.is_some()
    }
}

/// All allocations, by address.
#[derive(Default)]
pub(crate) struct Allocations {
    pub(super) live: BTreeMap<u64, Allocation>,
    pub(super) blocks: BTreeMap<u64, Block>,
}

impl Allocations {
    /// The allocation an address is in, and where that starts.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.live.range(..=address).next_back()?;
        (address - start < allocation.bytes).then_some((*start, allocation))
    }

    /// The same, to be changed.
    pub(crate) fn find_mut(&mut self, address: u64) -> Option<&mut Allocation> {
        let (start, allocation) = self.live.range_mut(..=address).next_back()?;
        (address - start < allocation.bytes).then_some(allocation)
    }

    /// The allocation that starts at an address.
    pub(crate) fn starting_at(&self, address: u64) -> Option<&Allocation> {
        self.live.get(&address)
    }

    /// Marks the allocation of `cuMemAlloc` that starts at an address as being freed.
    pub(crate) fn leave(&mut self, address: u64) -> Outcome {
        let may = |one: &&mut Allocation| !one.leaving && one.context != 0 && one.opened.is_none();
        let staying = self.live.get_mut(&address).filter(may);
        staying.ok_or(Status::INVALID_VALUE)?.leaving = true;
        Ok(())
    }

    /// The program frees memory that was allocated in a stream's order: it is unknown from now on, whatever the device has still
    /// to do.
    pub(crate) fn take_lent(&mut self, address: u64) -> Outcome<Arc<dyn Lent>> {
        let allocation = self.live.get_mut(&address).ok_or(Status::INVALID_VALUE)?;
        let lent = allocation.lent.take().ok_or(Status::INVALID_VALUE)?;
        if allocation.slot.is_none() {
            self.live.remove(&address);
        }
        Ok(lent)
    }

    /// A launch allocates memory of a graph's once more.
    pub(crate) fn renew(&mut self, lent: Arc<dyn Lent>) {
        if let Some(allocation) = self.live.get_mut(&lent.start()) {
            allocation.lent = Some(lent);
        }
    }

    /// Forgets memory of a graph that is gone.
    pub(crate) fn forget_slot(&mut self, start: u64) {
        self.live.remove(&start);
    }

    /// Opens what this process has open already; where it is.
    pub(crate) fn open_again(&mut self, handle: &IpcHandle) -> Option<u64> {
        self.live.iter_mut().find_map(|(start, one)| match &mut one.opened {
            Some((known, times)) if known == handle => {
                *times += 1;
                Some(*start)
            }
            _ => None,
        })
    }

    /// The starts of all allocations made in a context.
    pub(crate) fn of_context(&self, context: u64) -> Vec<u64> {
        let of = self.live.iter().filter(|(_, allocation)| allocation.context == context);
        of.map(|(start, _)| *start).collect()
    }
}
