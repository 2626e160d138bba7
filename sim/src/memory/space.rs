//! The address space of the device: which addresses are reserved, what is mapped at them, and which
//! host memory the device can reach.
//!
//! One space per process, for all its contexts, as with unified addressing. A device address is a
//! number inside a reservation where the host has nothing. This file is bookkeeping only; the
//! memory itself is touched in `traffic.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::allocations::Allocations;
use super::phys::{GRANULARITY, Phys};
use crate::errors::{Outcome, Status};
use crate::mapping::{HostPages, Reserved};

/// What a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Read,
    ReadWrite,
}

/// A handle mapped whole at an address.
pub(crate) struct Mapping {
    pub(crate) phys: Arc<Phys>,
    pub(crate) access: Access,
}

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
    /// Whether it is `cuMemAllocManaged` memory.
    pub(crate) managed: bool,
}

/// Everything that has an address. Reached through [`Space`]'s lock.
#[derive(Default)]
pub(crate) struct Table {
    /// By start address. The flag: whether the program reserved it itself.
    reservations: BTreeMap<u64, (Reserved, bool)>,
    mappings: BTreeMap<u64, Mapping>,
    pub(crate) hosts: BTreeMap<u64, HostRange>,
    pub(crate) allocations: Allocations,
    last_buffer_id: u64,
}

/// The device's address space.
#[derive(Default)]
pub(crate) struct Space {
    table: RwLock<Table>,
}

impl Space {
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

    /// Maps a handle, whole. Nothing may touch it before access is set.
    pub(crate) fn map(&mut self, start: u64, phys: Arc<Phys>, access: Access) -> Outcome {
        let bytes = phys.bytes();
        let reservation = self.reservation_of(start, bytes).ok_or(Status::INVALID_VALUE)?;
        if !start.is_multiple_of(GRANULARITY) || self.any_mapping(start, bytes) {
            return Err(Status::INVALID_VALUE);
        }
        debug_assert!(reservation.0.start() <= start);
        self.mappings.insert(start, Mapping { phys, access });
        Ok(())
    }

    /// Maps into a reservation of the program's.
    pub(crate) fn map_for_program(&mut self, start: u64, phys: Arc<Phys>) -> Outcome {
        match self.reservation_of(start, phys.bytes()) {
            Some((_, true)) => self.map(start, phys, Access::None),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    /// Unmaps all handles of a range, which must hold them whole; there may be none.
    pub(crate) fn unmap(&mut self, start: u64, bytes: u64) -> Outcome<Vec<Arc<Phys>>> {
        let end = start.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let cut_before = self.mapping(start).is_some_and(|(base, _)| base < start);
        let inside = self.mappings.range(start..end);
        let cut_after = inside.last().is_some_and(|(base, last)| base + last.phys.bytes() > end);
        if cut_before || cut_after {
            return Err(Status::INVALID_VALUE);
        }
        let mut rest = self.mappings.split_off(&start);
        let mut after = rest.split_off(&end);
        self.mappings.append(&mut after);
        Ok(rest.into_values().map(|mapping| mapping.phys).collect())
    }

    /// Sets what is allowed with all handles of a range, which must hold them whole and be full of them.
    pub(crate) fn set_access(&mut self, start: u64, bytes: u64, access: Access) -> Outcome {
        for start in self.covering(start, bytes).ok_or(Status::INVALID_VALUE)? {
            if let Some(mapping) = self.mappings.get_mut(&start) {
                mapping.access = access;
            }
        }
        Ok(())
    }

    /// The mapping an address is in, and where that starts.
    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.phys.bytes()).then_some((*start, mapping))
    }

    /// The host range an address is in, and where that starts.
    pub(crate) fn host(&self, address: u64) -> Option<(u64, &HostRange)> {
        let (start, range) = self.hosts.range(..=address).next_back()?;
        (address - start < range.bytes).then_some((*start, range))
    }

    /// The reservation an address is in, and whether it is the program's own.
    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, u64, bool)> {
        let (start, (reserved, own)) = self.reservations.range(..=address).next_back()?;
        (address - start < reserved.length()).then_some((*start, reserved.length(), *own))
    }

    /// Whether a range is inside one reservation of the program's.
    pub(crate) fn is_program_reserved(&self, start: u64, bytes: u64) -> bool {
        matches!(self.reservation_of(start, bytes), Some((_, true)))
    }

    /// Whether the program itself mapped this address (and not `cuMemAlloc`).
    pub(crate) fn is_program_mapped(&self, address: u64) -> bool {
        self.mapping(address).is_some() && matches!(self.reservation(address), Some((_, _, true)))
    }

    /// Whether a copy or fill by the driver may touch all of a device range: inside one allocation, or
    /// over handles mapped side by side with enough access, or inside one host range.
    pub(crate) fn is_whole(&self, start: u64, bytes: u64, write: bool) -> bool {
        let Some(end) = start.checked_add(bytes) else { return false };
        if let Some((base, allocation)) = self.allocations.find(start) {
            return end <= base + allocation.bytes;
        }
        if let Some((base, range)) = self.host(start) {
            return end <= base + range.bytes;
        }
        let mut at = start;
        loop {
            let Some((base, mapping)) = self.mapping(at) else { return false };
            if !self.is_program_mapped(at) || !allows(mapping.access, write) {
                return false;
            }
            at = base + mapping.phys.bytes();
            if at >= end {
                return true;
            }
        }
    }

    fn reservation_of(&self, start: u64, bytes: u64) -> Option<&(Reserved, bool)> {
        let (base, entry) = self.reservations.range(..=start).next_back()?;
        let offset = start - base;
        (offset.checked_add(bytes)? <= entry.0.length()).then_some(entry)
    }

    fn any_mapping(&self, start: u64, bytes: u64) -> bool {
        self.mapping(start).is_some() || self.mappings.range(start..start.saturating_add(bytes)).next().is_some()
    }

    /// The starts of the mappings that fill a range exactly, none cut at either end.
    fn covering(&self, start: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = start.checked_add(bytes)?;
        let mut starts = Vec::new();
        let mut at = start;
        while at < end {
            let mapping = self.mappings.get(&at)?;
            starts.push(at);
            at += mapping.phys.bytes();
        }
        (at == end && !starts.is_empty()).then_some(starts)
    }
}

/// Whether an access is enough.
pub(crate) fn allows(access: Access, write: bool) -> bool {
    match access {
        Access::None => false,
        Access::Read => !write,
        Access::ReadWrite => true,
    }
}
