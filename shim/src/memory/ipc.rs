//! Memory that processes share by handles (`cuIpcGetMemHandle`, `cuIpcOpenMemHandle`).
//!
//! A handle of memory of ours is not one of the driver's: it holds the coordinator's key of an allocation, and the tenant that has it. A
//! process that opens it is lent extents as for an allocation of its own, with the other tenant's frames behind them. From then on the
//! coordinator has both tenants on the GPU at the same time, and has their extents mapped and unmapped together. So the memory still
//! moves, and to the rest of the shim an opened allocation is like any other.

use core::ops::Range;

use baton_contract::cuda::{CUDA_ERROR_INVALID_VALUE, CUdeviceptr, CUresult};
use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{ExtentId, IPC_HANDLE};

use super::space::{NoMemory, Space};
use super::table::{Key, Released};
use crate::driver::api;
use crate::gate::{MappingGuard, Passage};
use crate::link::Link;
use crate::link::requests::{Attached, Requests};

/// The first bytes of our handles. The driver's handles begin with numbers of a process.
const MAGIC: [u8; 8] = *b"BatonMem";

/// The contents of one of our handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exported {
    /// The UUID of the GPU that has it.
    pub(crate) gpu: [u8; 16],
    /// The tenant whose memory it is.
    pub(crate) exporter: u32,
    /// The coordinator's key of the allocation.
    pub(crate) key: Key,
    /// The allocation's size, as its program asked for it: it needs as much room.
    pub(super) bytes: u64,
}

impl Exported {
    /// The handle: always the same for an allocation.
    pub(crate) fn encode(&self) -> [u8; IPC_HANDLE] {
        let mut handle = [0; IPC_HANDLE];
        handle[..8].copy_from_slice(&MAGIC);
        handle[8..12].copy_from_slice(&self.exporter.to_ne_bytes());
        handle[12..28].copy_from_slice(&self.key);
        handle[28..36].copy_from_slice(&self.bytes.to_ne_bytes());
        handle[36..52].copy_from_slice(&self.gpu);
        handle
    }

    /// The contents of a handle; `None` if it is not one of ours.
    pub(crate) fn decode(handle: &[u8; IPC_HANDLE]) -> Option<Self> {
        let rest = handle.strip_prefix(&MAGIC)?;
        let (exporter, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (gpu, _) = rest.split_first_chunk()?;
        let (exporter, bytes) = (u32::from_ne_bytes(*exporter), u64::from_ne_bytes(*bytes));
        Some(Self { gpu: *gpu, exporter, key: *key, bytes })
    }

    /// The most addresses that its extents need: the first and the last may also hold other allocations.
    fn room(&self) -> Option<u64> {
        let largest = SizeClass::ALL.iter().map(|class| class.bytes()).max()?;
        self.bytes.checked_next_multiple_of(GRANULE)?.checked_add(2 * largest)
    }
}

impl Space {
    /// Lets other processes open the allocation at an address; it is here. An error if there is none, or if the program may not export it.
    pub(crate) fn export_allocation(
        &self,
        link: &Link,
        address: CUdeviceptr,
        _: &MappingGuard,
    ) -> Result<Exported, CUresult> {
        let (at, found) = self.lock().table.export(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Without a coordinator no other process could open it.
        let key = link.requests.export(at, found.bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if self.get(at).is_none_or(|now| now.number != found.number) {
            // Another thread has freed it, and may have reported that before this request.
            link.requests.unexport(at);
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.exported(link, key, found.bytes)
    }

    /// A handle's contents, for memory of this process that others may open.
    pub(super) fn exported(&self, link: &Link, key: Key, bytes: u64) -> Result<Exported, CUresult> {
        let gpu = api::uuid(self.device).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        Ok(Exported { gpu, exporter: link.tenant, key, bytes })
    }

    /// Opens an allocation that another tenant has exported, and returns its address.
    pub(crate) fn open(
        &self,
        passage: &Passage,
        requests: &Requests,
        exported: &Exported,
        context: usize,
    ) -> Result<CUdeviceptr, NoMemory> {
        if let Some(at) = self.lock().table.open_again(&exported.key) {
            return Ok(at);
        }
        let bytes = exported.room().ok_or(NoMemory::Answer(CUDA_ERROR_INVALID_VALUE))?;
        let at = self.addresses(bytes).map_err(NoMemory::Answer)?;
        self.with_guard(passage, || self.open_at(requests, exported, at..at + bytes, context))
            .inspect_err(|_| self.lock().give_addresses_back(at, bytes))
    }

    /// Attaches memory that another process has exported at unused addresses. Returns its place among the extents that it lies in, which
    /// begin there, and their size. They are mapped, if they are here. On an error the addresses are still unused.
    pub(super) fn attach(
        &self,
        requests: &Requests,
        exported: &Exported,
        area: &Range<CUdeviceptr>,
        apart: bool,
    ) -> Result<(u64, u64), NoMemory> {
        let Attached { lent, offset, bytes, here } = self.ask(|| {
            let enter = |extents: &[(ExtentId, SizeClass)], here| self.extents.add(area.start, extents, here);
            requests.attach(exported.exporter, exported.key, area.start, apart, enter)
        })?;
        let size: u64 = lent.extents.iter().map(|(_, class)| class.bytes()).sum();
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size);
        if !is_inside || bytes != exported.bytes || size > area.end - area.start {
            // The handle was written to.
            let ids: Vec<ExtentId> = lent.extents.iter().map(|(id, _)| *id).collect();
            self.extents.remove(&ids);
            requests.free(ids);
            return Err(NoMemory::Answer(CUDA_ERROR_INVALID_VALUE));
        }
        if here {
            self.map_lent(requests, lent)?;
        }
        Ok((offset, size))
    }

    /// Opens an exported allocation at unused addresses. On an error they are still unused.
    fn open_at(
        &self,
        requests: &Requests,
        exported: &Exported,
        area: Range<CUdeviceptr>,
        context: usize,
    ) -> Result<CUdeviceptr, NoMemory> {
        let (bytes, (offset, size)) = (exported.bytes, self.attach(requests, exported, &area, false)?);
        let memory = Released { at: area.start, bytes: size, is_reusable: false };
        let known = {
            let mut books = self.lock();
            books.give_addresses_back(area.start + size, area.end - area.start - size);
            let known = books.table.open_again(&exported.key);
            if known.is_none() {
                books.table.add_opened(exported.key, &memory, area.start + offset, bytes, context);
            }
            known
        };
        if known.is_some() {
            // Another thread was faster, and the program is to have it once. A broken context keeps its memory until the process ends.
            let _ = self.release(vec![memory], |given_up| self.give_to_coordinator(given_up));
        }
        Ok(known.unwrap_or(area.start + offset))
    }

    /// Closes an opened allocation once, if it is open more than once. Returns true if that is done; `None` if no opened allocation begins
    /// here.
    pub(crate) fn close_one_of_several(&self, at: CUdeviceptr) -> Option<bool> {
        self.lock().table.close_one_of_several(at)
    }

    /// Closes an opened allocation once. If that was the last time, its memory stays until [`Self::finish_free`], and this returns its
    /// number. `None` if no opened allocation begins here.
    pub(crate) fn begin_close(&self, at: CUdeviceptr) -> Option<Option<u64>> {
        self.lock().table.begin_close(at)
    }

    /// Called before an event is opened that another tenant may have exported: from then on the coordinator has both tenants on the GPU at
    /// the same time.
    pub(crate) fn before_opening_event(
        &self,
        passage: &Passage,
        requests: &Requests,
        handle: &[u8; IPC_HANDLE],
    ) -> Result<(), NoMemory> {
        self.with_guard(passage, || requests.open_event(*handle).map_err(NoMemory::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_handle_says_what_was_put_into_it(gpu: [u8; 16], exporter: u32, key: [u8; 16], bytes: u64) {
            let exported = Exported { gpu, exporter, key, bytes };
            prop_assert_eq!(Exported::decode(&exported.encode()), Some(exported));
        }

        #[test]
        fn any_bytes_are_a_handle_of_ours_or_none(mut handle in prop::array::uniform32(any::<[u8; 2]>()), is_ours: bool) {
            if is_ours {
                handle[..4].copy_from_slice(MAGIC.as_chunks().0);
            }
            let handle: [u8; IPC_HANDLE] = handle.as_flattened().try_into().expect("as long");
            let decoded = Exported::decode(&handle);
            prop_assert_eq!(decoded.is_some(), handle.starts_with(&MAGIC));
            let room = decoded.and_then(|exported| exported.room());
            prop_assert!(room.is_none_or(|room| room.is_multiple_of(GRANULE)));
        }
    }

    #[test]
    fn the_same_allocation_has_the_same_handle_which_is_empty_behind_what_it_says() {
        let exported = Exported { gpu: [5; 16], exporter: 7, key: [9; 16], bytes: 4 << 20 };
        assert_eq!(exported.encode(), exported.encode());
        assert!(exported.encode()[52..].iter().all(|byte| *byte == 0));
        let other = Exported { key: [8; 16], ..exported };
        assert_ne!(exported.encode(), other.encode());
    }

    #[test]
    fn there_is_room_for_whatever_lies_before_and_behind() {
        let room = |bytes| Exported { gpu: [0; 16], exporter: 0, key: [0; 16], bytes }.room();
        assert_eq!(room(1), Some(GRANULE + (1 << 30)));
        assert_eq!((room(u64::MAX), room(u64::MAX - (1 << 29))), (None, None));
    }
}
