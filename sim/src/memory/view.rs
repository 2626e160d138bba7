//! The address space as kernels and copies on one of the GPUs reach it.
//!
//! Memory that the program mapped itself is in the reach of the GPUs that it gave access to, also for copies.
//! Memory of `cuMemAlloc` is in the reach of the kernels on its own GPU, of those in contexts that were given access to its context, and of all copies: the
//! driver takes those through the host where there is no other way. A pool's memory is in the reach of the GPUs that its pool is.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use super::space::{Access, Mapping, Space, Table, allows};
use crate::gpu_file::Gpu;
use crate::gpu_file::pausing::AtWork;

/// The contexts on other GPUs whose allocations a context can reach, by their ids.
#[derive(Default)]
pub(crate) struct Peers(RwLock<BTreeSet<u64>>);

impl Peers {
    /// Adds one. Returns true if it is new.
    pub(crate) fn add(&self, context: u64) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(context)
    }

    /// Takes one away. Returns true if it was there.
    pub(crate) fn remove(&self, context: u64) -> bool {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&context)
    }

    fn has(&self, context: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&context)
    }
}

/// The work that touches memory.
#[derive(Clone, Copy)]
pub(crate) enum Who<'a> {
    /// The kernels and fills of a context with these peers.
    Kernels(&'a Peers),
    /// The driver's copies.
    Copies,
    /// Those of which the program says on which GPU each end is: the target's and the source's ordinal.
    Between([usize; 2]),
}

/// The space as work on a GPU sees it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    space: &'a Space,
    gpu: &'static Gpu,
    who: Who<'a>,
}

/// The table, held by work that touches memory: not while the process is paused on that GPU.
pub(super) struct Working<'a> {
    table: RwLockReadGuard<'a, Table>,
    _access: AtWork<'a>,
}

impl Deref for Working<'_> {
    type Target = Table;
    fn deref(&self) -> &Table {
        &self.table
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(space: &'a Space, gpu: &'static Gpu, who: Who<'a>) -> View<'a> {
        View { space, gpu, who }
    }

    /// The GPU that it is seen from.
    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The table, to look at.
    pub(crate) fn look(&self) -> RwLockReadGuard<'a, Table> {
        self.space.look()
    }

    /// The table, to touch memory by it.
    pub(super) fn at_work(&self) -> Working<'a> {
        // In this order: a paused process holds no lock, so that its memory can be mapped and unmapped.
        let access = self.gpu.at_work();
        Working { table: self.space.look(), _access: access }
    }

    /// True if a kernel or a fill sees it.
    pub(super) fn is_of_kernels(&self) -> bool {
        matches!(self.who, Who::Kernels(_))
    }

    /// True if it is seen from that GPU.
    fn is_on(&self, ordinal: usize) -> bool {
        self.gpu.ordinal() == ordinal
    }

    /// The access to an address that is in a mapping.
    pub(crate) fn access(&self, table: &Table, at: u64, mapping: &Mapping) -> Access {
        self.access_from(self.gpu.ordinal(), table, at, mapping)
    }

    /// The same to read, or to write.
    pub(super) fn access_for(&self, write: bool, table: &Table, at: u64, mapping: &Mapping) -> Access {
        match self.who {
            Who::Between([target, source]) => self.access_from(if write { target } else { source }, table, at, mapping),
            _ => self.access(table, at, mapping),
        }
    }

    fn access_from(&self, ordinal: usize, table: &Table, at: u64, mapping: &Mapping) -> Access {
        let own = mapping.access_of(ordinal);
        match self.who {
            _ if mapping.handle != 0 || mapping.pooled || own != Access::None => own,
            Who::Copies | Who::Between(_) => Access::ReadWrite,
            Who::Kernels(peers) => match table.allocations.find(at) {
                Some((_, allocation)) if peers.has(allocation.context) => Access::ReadWrite,
                _ => Access::None,
            },
        }
    }
}

impl Table {
    /// True if a copy or fill by the driver may touch all of a device range, seen like this: inside one allocation, or
    /// over handles mapped side by side with enough access, or inside one host range.
    pub(crate) fn is_whole(&self, seen: &View<'_>, start: u64, bytes: u64, write: bool) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let is_allowed = |at, mapping| allows(seen.access_for(write, self, at, mapping), write);
        if let Some((base, allocation)) = self.allocations.find(start) {
            let is_reached = match self.mapping(start) {
                Some((_, mapping)) => is_allowed(start, mapping),
                // A graph's, which has no memory before its first launch.
                None => allocation.slot.is_some_and(|ordinal| seen.is_on(ordinal)),
            };
            return is_reached && end <= base + allocation.bytes;
        }
        if let Some((base, range)) = self.host(start) {
            return end <= base + range.bytes;
        }
        let mut at = start;
        loop {
            let Some((base, mapping)) = self.program_mapping(at) else { return false };
            if !is_allowed(at, mapping) {
                return false;
            }
            at = base + mapping.phys.bytes();
            if at >= end {
                return true;
            }
        }
    }
}
