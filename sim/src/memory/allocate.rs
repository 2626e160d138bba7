//! `cuMemAlloc`: addresses and physical memory together.
//!
//! Small allocations share a block of one granule; larger ones have handles of their own. The memory
//! that a block gives out again is not cleared, as on the device.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::allocations::{Allocation, Block, Lent};
use super::phys::{GRANULARITY, Phys};
use super::space::{Mapping, Space, Table};
use crate::errors::{Outcome, Status};
use crate::gpu_file::Gpu;
use crate::mapping::Reserved;
use crate::shared_file::IpcHandle;

/// Every allocation's address is a multiple of this.
const ALIGNMENT: u64 = 512;

/// From this size on an allocation has a handle of its own.
const OWN_HANDLE: u64 = GRANULARITY / 2;

impl Space {
    /// Allocates; `low` asks for an address below 4 GiB, for the calls whose addresses have 32 bits.
    pub(crate) fn allocate(&self, gpu: &'static Gpu, bytes: u64, context: u64, low: bool) -> Outcome<u64> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let needed = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Status::OUT_OF_MEMORY)?;
        if needed >= OWN_HANDLE {
            let whole = bytes.checked_next_multiple_of(GRANULARITY);
            let whole = whole.filter(|whole| *whole <= gpu.memory());
            let phys = Phys::create(gpu, whole.ok_or(Status::OUT_OF_MEMORY)?, false)?;
            let start = self.change().place(phys, low)?;
            self.change().enter(start, bytes, context, None);
            return Ok(start);
        }
        let ordinal = gpu.ordinal();
        if let Some(start) = self.change().take_from_block(needed, bytes, context, ordinal, low) {
            return Ok(start);
        }
        let phys = Phys::create(gpu, GRANULARITY, false)?;
        let mut table = self.change();
        let block = table.place(phys, low)?;
        let free = BTreeMap::from([(0, GRANULARITY)]);
        table.allocations.blocks.insert(block, Block { ordinal, low, free });
        table.take_from_block(needed, bytes, context, ordinal, low).ok_or(Status::OUT_OF_MEMORY)
    }

    /// Maps another process's memory, of which an allocation is in a context from now on. The memory counts as that of the context's GPU
    /// (`ordinal`), whichever it is on (`bench/results/driver_facts.json`, E12).
    pub(crate) fn open(&self, phys: Phys, handle: IpcHandle, context: u64, ordinal: usize) -> Outcome<u64> {
        let [offset, bytes, ..] = handle.words;
        let mut table = self.change();
        let base = table.place(phys, false)?;
        table.opens_on(base, ordinal);
        let start = base + offset;
        table.enter(start, bytes, context, None);
        if let Some(one) = table.allocations.live.get_mut(&start) {
            one.opened = Some((handle, 1));
        }
        Ok(start)
    }

    /// Closes what was opened here, as often as it was.
    pub(crate) fn close(&self, start: u64) -> Outcome {
        let mut table = self.change();
        let opened = table.allocations.live.get_mut(&start).and_then(|one| one.opened.as_mut());
        let (_, times) = opened.ok_or(Status::INVALID_VALUE)?;
        *times -= 1;
        if *times > 0 {
            return Ok(());
        }
        table.allocations.live.remove(&start);
        let gone = table.unmap_whole(start)?;
        drop(table);
        drop(gone);
        Ok(())
    }

    /// Frees the allocation that starts here.
    pub(crate) fn free(&self, start: u64) -> Outcome {
        let mut table = self.change();
        let allocation = table.allocations.live.remove(&start).ok_or(Status::INVALID_VALUE)?;
        let gone = match allocation.block {
            _ if allocation.opened.is_some() => table.unmap_whole(start)?,
            None => {
                let whole = allocation.bytes.next_multiple_of(GRANULARITY);
                let gone = table.unmap(start, whole)?;
                table.drop_reservation(start);
                gone
            }
            Some(block) => table.give_to_block(block, start - block, allocation.bytes)?,
        };
        // The memory goes back to the GPU when the table is not locked any more.
        drop(table);
        drop(gone);
        Ok(())
    }
}

impl Table {
    fn place(&mut self, phys: Phys, low: bool) -> Outcome<u64> {
        let bytes = phys.bytes();
        let start = if low { self.adopt(reserve_low(bytes)?) } else { self.reserve(bytes, GRANULARITY, 0, false)? };
        self.map_own(start, phys)?;
        Ok(start)
    }

    /// Unmaps what is mapped around an address, and ends its reservation.
    fn unmap_whole(&mut self, address: u64) -> Outcome<Vec<Mapping>> {
        let (base, mapping) = self.mapping(address).ok_or(Status::INVALID_VALUE)?;
        let bytes = mapping.phys.bytes();
        let gone = self.unmap(base, bytes)?;
        self.drop_reservation(base);
        Ok(gone)
    }

    fn enter(&mut self, start: u64, bytes: u64, context: u64, block: Option<u64>) {
        let buffer_id = self.next_buffer_id();
        let allocation = Allocation { bytes, context, buffer_id, block, ..Allocation::default() };
        self.allocations.live.insert(start, allocation);
    }

    /// Enters memory of a graph's, on that GPU.
    pub(crate) fn enter_slot(&mut self, start: u64, bytes: u64, ordinal: usize) {
        let buffer_id = self.next_buffer_id();
        let allocation = Allocation { bytes, buffer_id, slot: Some(ordinal), ..Allocation::default() };
        self.allocations.live.insert(start, allocation);
    }

    /// Enters memory of a pool's.
    pub(crate) fn enter_lent(&mut self, lent: Arc<dyn Lent>, bytes: u64) {
        let (start, buffer_id) = (lent.start(), self.next_buffer_id());
        let allocation = Allocation { bytes, buffer_id, lent: Some(lent), ..Allocation::default() };
        self.allocations.live.insert(start, allocation);
    }

    fn take_from_block(&mut self, needed: u64, bytes: u64, context: u64, ordinal: usize, low: bool) -> Option<u64> {
        let (base, offset) = self.allocations.blocks.iter_mut().find_map(|(base, block)| {
            if block.low != low || block.ordinal != ordinal {
                return None;
            }
            let (offset, room) = block.free.iter().find(|(_, room)| **room >= needed).map(|(at, room)| (*at, *room))?;
            block.free.remove(&offset);
            if room > needed {
                block.free.insert(offset + needed, room - needed);
            }
            Some((*base, offset))
        })?;
        self.enter(base + offset, bytes, context, Some(base));
        Some(base + offset)
    }

    fn give_to_block(&mut self, base: u64, offset: u64, bytes: u64) -> Outcome<Vec<Mapping>> {
        let block = self.allocations.blocks.get_mut(&base).ok_or(Status::UNKNOWN)?;
        let mut start = offset;
        let mut end = offset + bytes.next_multiple_of(ALIGNMENT);
        if let Some((before, room)) = block.free.range(..start).next_back()
            && before + room == start
        {
            start = *before;
        }
        if let Some(room) = block.free.remove(&end) {
            end += room;
        }
        block.free.insert(start, end - start);
        if end - start < GRANULARITY {
            return Ok(Vec::new());
        }
        self.allocations.blocks.remove(&base);
        let gone = self.unmap(base, GRANULARITY)?;
        self.drop_reservation(base);
        Ok(gone)
    }
}

/// Addresses below 4 GiB, above what the host's programs use there.
fn reserve_low(bytes: u64) -> Outcome<Reserved> {
    let mut place = 0x8000_0000u64;
    while place + bytes <= 1 << 32 {
        if let Ok(reserved) = Reserved::exactly(place, bytes) {
            return Ok(reserved);
        }
        place += GRANULARITY;
    }
    Err(Status::OUT_OF_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> (&'static Gpu, Space) {
        (Box::leak(Box::new(Gpu::open(None, 16 << 20, None).unwrap())), Space::default())
    }

    #[test]
    fn small_allocations_share_a_granule_and_give_it_back_together() {
        let (gpu, space) = setup();
        let first = space.allocate(gpu, 1000, 1, false).unwrap();
        let second = space.allocate(gpu, 100, 1, false).unwrap();
        assert_eq!(second - first, 1024);
        assert_eq!(gpu.free(), 14 << 20);
        space.free(first).unwrap();
        assert_eq!(space.free(first), Err(Status::INVALID_VALUE));
        assert_eq!(space.allocate(gpu, 1024, 1, false).unwrap(), first);
        space.free(first).unwrap();
        space.free(second).unwrap();
        assert_eq!(gpu.free(), 16 << 20);
    }

    #[test]
    fn large_allocations_take_whole_granules_and_too_large_ones_nothing() {
        let (gpu, space) = setup();
        let start = space.allocate(gpu, (3 << 20) + 1, 1, false).unwrap();
        assert_eq!(gpu.free(), 12 << 20);
        assert_eq!(space.allocate(gpu, 13 << 20, 1, false), Err(Status::OUT_OF_MEMORY));
        assert_eq!(space.allocate(gpu, u64::MAX, 1, false), Err(Status::OUT_OF_MEMORY));
        assert_eq!(space.allocate(gpu, 0, 1, false), Err(Status::INVALID_VALUE));
        space.free(start).unwrap();
        assert_eq!(gpu.free(), 16 << 20);
    }

    #[test]
    fn an_old_call_gets_an_address_of_32_bits() {
        let (gpu, space) = setup();
        let start = space.allocate(gpu, 1 << 20, 1, true).unwrap();
        assert!(start + (1 << 20) <= 1 << 32);
    }
}
