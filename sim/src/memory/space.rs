//! The address space of the device: which addresses are reserved, what is mapped at them, and which
//! host memory the device can reach.
//!
//! One space per process, for all its contexts, as with unified addressing. A device address is a
//! number inside a reservation where the host has nothing. This file is bookkeeping only; the
//! memory itself is touched in `traffic.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::allocations::Allocations;
use super::bus::Piece;
use super::phys::{GRANULARITY, Phys};
use crate::errors::{Outcome, Status};
use crate::mapping::{HostPages, Reserved};
use crate::settings::MOST_GPUS;

/// The accesses that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Read,
    ReadWrite,
}

impl Access {
    /// As `CUmemAccess_flags` has it.
    pub(crate) fn flags(self) -> u64 {
        match self {
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite => 3,
        }
    }
}

/// A handle mapped whole at an address.
pub(crate) struct Mapping {
    pub(crate) phys: Arc<Phys>,
    /// The GPU that it counts as memory of: its own, or that of the context in which another process's was opened.
    pub(crate) home: usize,
    /// The access of each GPU to memory that the program mapped itself, or that is a pool's. For that of `cuMemAlloc` see
    /// [`super::view::View`].
    pub(crate) access: [Access; MOST_GPUS],
    /// The program's number for the handle; 0 for memory that the driver mapped itself.
    pub(crate) handle: u64,
    /// True if it is a pool's: then there is something only where an allocation is ([`Table::leases`]).
    pub(crate) pooled: bool,
    pub(crate) buffer_id: u64,
    /// True if the program is told that the host waits for copies and fills of what it has mapped itself: it does not.
    pub(crate) synchronous: bool,
}

impl Mapping {
    /// The access of a GPU without the leave of another one's context.
    pub(crate) fn access_of(&self, ordinal: usize) -> Access {
        match self.handle {
            0 if !self.pooled && self.home == ordinal => Access::ReadWrite,
            0 if !self.pooled => Access::None,
            _ => self.access[ordinal],
        }
    }
}

/// Portable and device-mapped, as every pinned range is with unified addressing.
pub(crate) const ALWAYS_MAPPED: u32 = 3;

/// Host memory that the device reaches at the host's own address.
pub(crate) struct HostRange {
    pub(crate) bytes: u64,
    /// As given to `cuMemHostAlloc` or `cuMemHostRegister`.
    pub(crate) flags: u32,
    /// The context it was made in.
    pub(crate) context: u64,
    pub(crate) buffer_id: u64,
    /// Ours, or the program's own that it registered.
    pub(crate) pages: Option<HostPages>,
    /// True if it is `cuMemAllocManaged` memory.
    pub(crate) managed: bool,
    /// True if the host waits for copies and fills of it that no stream was named for.
    pub(crate) synchronous: bool,
}

/// Everything that has an address. Reached through [`Space`]'s lock.
#[derive(Default)]
pub(crate) struct Table {
    /// By start address. The flag is true if the program reserved it itself.
    reservations: BTreeMap<u64, (Reserved, bool)>,
    mappings: BTreeMap<u64, Mapping>,
    pub(crate) hosts: BTreeMap<u64, HostRange>,
    pub(crate) allocations: Allocations,
    /// The pools' memory that is allocated as far as the device has come, from where and how many bytes.
    pub(crate) leases: BTreeMap<u64, u64>,
    /// True if kernels reach all pages of the program.
    pub(crate) reaches_pages: bool,
    last_buffer_id: u64,
}

/// The address space of a process's devices, for all of them.
#[derive(Default)]
pub(crate) struct Space {
    table: RwLock<Table>,
}

impl Space {
    /// Creates an empty space. With `reaches_pages`, kernels reach all pages of the program.
    pub(crate) fn new(reaches_pages: bool) -> Space {
        Space { table: RwLock::new(Table { reaches_pages, ..Table::default() }) }
    }

    /// The table, to look at. Copies and kernels hold it for a piece at a time, so that nothing is
    /// unmapped under them, and a change waits for a piece only.
    pub(crate) fn look(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table, to change.
    pub(crate) fn change(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// An id that no other allocation ever has.
    pub(crate) fn next_buffer_id(&mut self) -> u64 {
        self.last_buffer_id += 1;
        self.last_buffer_id
    }

    /// Reserves addresses; `by_program` ones can be freed and mapped by the program.
    pub(crate) fn reserve(&mut self, bytes: u64, alignment: u64, wish: u64, by_program: bool) -> Outcome<u64> {
        let reserved = Reserved::anywhere(bytes, alignment, wish).map_err(|_| Status::OUT_OF_MEMORY)?;
        let start = reserved.start();
        self.reservations.insert(start, (reserved, by_program));
        Ok(start)
    }

    /// Takes a reservation made elsewhere into the table.
    pub(crate) fn adopt(&mut self, reserved: Reserved) -> u64 {
        let start = reserved.start();
        self.reservations.insert(start, (reserved, false));
        start
    }

    /// Ends a reservation of the program's, whole and empty.
    pub(crate) fn unreserve(&mut self, start: u64, bytes: u64) -> Outcome {
        let (reserved, by_program) = self.reservations.get(&start).ok_or(Status::INVALID_VALUE)?;
        if !by_program || reserved.length() != bytes || self.any_mapping(start, bytes) {
            return Err(Status::INVALID_VALUE);
        }
        self.reservations.remove(&start);
        Ok(())
    }

    /// Ends a reservation of the driver's own.
    pub(crate) fn drop_reservation(&mut self, start: u64) {
        self.reservations.remove(&start);
    }

    /// Maps memory of the driver's own, whole, into a reservation of its own.
    pub(crate) fn map_own(&mut self, start: u64, phys: Phys) -> Outcome {
        self.map(start, Arc::new(phys), 0, false)
    }

    /// Maps memory that is allocated in streams' order, whole, into a reservation of the driver's own.
    pub(crate) fn map_in_order(&mut self, start: u64, phys: Phys, access: [Access; MOST_GPUS]) -> Outcome {
        self.map(start, Arc::new(phys), 0, true)?;
        if let Some(mapping) = self.mappings.get_mut(&start) {
            mapping.access = access;
        }
        Ok(())
    }

    /// Has memory of the driver's own that is mapped from here count as memory of this GPU.
    pub(crate) fn opens_on(&mut self, start: u64, ordinal: usize) {
        if let Some(mapping) = self.mappings.get_mut(&start) {
            mapping.home = ordinal;
        }
    }

    /// How many bytes of a pool's memory are allocated from an address on, as far as the device has come.
    pub(crate) fn leased(&self, at: u64) -> Option<u64> {
        let (start, bytes) = self.leases.range(..=at).next_back()?;
        (at - start < *bytes).then(|| bytes - (at - start))
    }

    /// Maps a handle into the program's reservations, whole; it may lie across the border of two that are side
    /// by side. Nothing may touch it before access is set.
    pub(crate) fn map_for_program(&mut self, start: u64, phys: Arc<Phys>, handle: u64) -> Outcome {
        if !self.is_program_reserved(start, phys.bytes()) {
            return Err(Status::INVALID_VALUE);
        }
        self.map(start, phys, handle, false)
    }

    fn map(&mut self, start: u64, phys: Arc<Phys>, handle: u64, pooled: bool) -> Outcome {
        if !start.is_multiple_of(GRANULARITY) || self.any_mapping(start, phys.bytes()) {
            return Err(Status::INVALID_VALUE);
        }
        let buffer_id = self.next_buffer_id();
        let (home, access) = (phys.gpu().ordinal(), [Access::None; MOST_GPUS]);
        self.mappings.insert(start, Mapping { phys, home, access, handle, pooled, buffer_id, synchronous: false });
        Ok(())
    }

    /// Unmaps all handles of a range, which must hold them whole; there may be none.
    pub(crate) fn unmap(&mut self, start: u64, bytes: u64) -> Outcome<Vec<Mapping>> {
        let end = start.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let cut_before = self.mapping(start).is_some_and(|(base, _)| base < start);
        let inside = self.mappings.range(start..end);
        let cut_after = inside.last().is_some_and(|(base, last)| base + last.phys.bytes() > end);
        if cut_before || cut_after {
            return Err(Status::INVALID_VALUE);
        }
        let starts: Vec<u64> = self.mappings.range(start..end).map(|(start, _)| *start).collect();
        Ok(starts.iter().filter_map(|start| self.mappings.remove(start)).collect())
    }

    /// The same for the program, whose range begins in a reservation of its own and may go on behind it, but
    /// not over memory that the driver mapped.
    pub(crate) fn unmap_for_program(&mut self, start: u64, bytes: u64) -> Outcome<Vec<Mapping>> {
        let end = start.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let ours = self.mappings.range(start..end).any(|(_, mapping)| mapping.handle == 0);
        if bytes == 0 || ours || !matches!(self.reservation(start), Some((_, _, true))) {
            return Err(Status::INVALID_VALUE);
        }
        self.unmap(start, bytes)
    }

    /// Sets what a GPU may do with the handles of a range, which must begin and end with whole ones. Behind a hole
    /// nothing is set, and the answer is success all the same (measured).
    pub(crate) fn set_access(&mut self, start: u64, bytes: u64, ordinal: usize, access: Access) -> Outcome {
        let end = start.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let is_end = |(at, mapping): (&u64, &Mapping)| at + mapping.phys.bytes() == end;
        if !self.mappings.range(start..end).next_back().is_some_and(is_end) {
            return Err(Status::INVALID_VALUE);
        }
        let mut next = start;
        let before_the_hole = self.mappings.range(start..end).map_while(|(at, mapping)| {
            let follows = *at == next;
            next = at + mapping.phys.bytes();
            follows.then_some(*at)
        });
        for start in before_the_hole.collect::<Vec<_>>() {
            if let Some(mapping) = self.mappings.get_mut(&start) {
                mapping.access[ordinal] = access;
            }
        }
        Ok(())
    }

    /// The mapping an address is in, and where that starts.
    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.phys.bytes()).then_some((*start, mapping))
    }

    /// Makes host memory that the device reaches.
    pub(crate) fn add_host(&mut self, context: u64, bytes: usize, flags: u32, managed: bool) -> Outcome<u64> {
        let pages = HostPages::map(bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
        let start = pages.start() as u64;
        let buffer_id = self.next_buffer_id();
        let (bytes, pages) = (bytes as u64, Some(pages));
        let range = HostRange { bytes, flags, context, buffer_id, pages, managed, synchronous: managed };
        self.hosts.insert(start, range);
        Ok(start)
    }

    /// The host range an address is in, and where that starts.
    pub(crate) fn host(&self, address: u64) -> Option<(u64, &HostRange)> {
        let (start, range) = self.hosts.range(..=address).next_back()?;
        (address - start < range.bytes).then_some((*start, range))
    }

    /// True if the host waits for copies and fills of what is at an address that no stream was named for.
    pub(crate) fn is_synchronous(&self, address: u64) -> bool {
        let allocated = self.allocations.find(address).map(|(_, one)| one.synchronous);
        allocated.or_else(|| self.host(address).map(|(_, range)| range.synchronous)).unwrap_or(false)
    }

    /// Has it so, or not. False if nothing is there that can be.
    pub(crate) fn set_synchronous(&mut self, address: u64, synchronous: bool) -> bool {
        if let Some(one) = self.allocations.find_mut(address).filter(|one| one.is_somebodys()) {
            one.synchronous = synchronous;
            return true;
        }
        let host = self.hosts.range_mut(..=address).next_back();
        if let Some((_, range)) = host.filter(|(start, range)| address - **start < range.bytes) {
            range.synchronous = synchronous;
            return true;
        }
        let mapping = self.mappings.range_mut(..=address).next_back();
        let Some((_, mapping)) = mapping.filter(|(start, mapping)| address - **start < mapping.phys.bytes()) else {
            return false;
        };
        mapping.synchronous = synchronous;
        true
    }

    /// The reservation an address is in, and whether it is the program's own.
    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, u64, bool)> {
        let (start, (reserved, own)) = self.reservations.range(..=address).next_back()?;
        (address - start < reserved.length()).then_some((*start, reserved.length(), *own))
    }

    /// True if a range is inside reservations of the program's that are side by side.
    pub(crate) fn is_program_reserved(&self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        let mut at = start;
        while at < end {
            let Some((base, length, true)) = self.reservation(at) else { return false };
            at = base + length;
        }
        true
    }

    /// The mapping an address is in, and where that starts, if the program itself mapped it (and not
    /// `cuMemAlloc`).
    pub(crate) fn program_mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        self.mapping(address).filter(|(_, mapping)| mapping.handle != 0)
    }

    /// The parts of handles that are behind a range.
    pub(crate) fn pieces(&self, start: u64, bytes: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = start;
        while let Some((base, mapping)) = self.mapping(at).filter(|_| at < start + bytes) {
            let skipped = at - base;
            let length = (mapping.phys.bytes() - skipped).min(start + bytes - at);
            pieces.push((mapping.phys.clone(), skipped as usize, length as usize));
            at += length;
        }
        pieces
    }

    fn any_mapping(&self, start: u64, bytes: u64) -> bool {
        self.mapping(start).is_some() || self.mappings.range(start..start.saturating_add(bytes)).next().is_some()
    }
}

/// True if an access is enough.
pub(crate) fn allows(access: Access, write: bool) -> bool {
    match access {
        Access::None => false,
        Access::Read => !write,
        Access::ReadWrite => true,
    }
}
