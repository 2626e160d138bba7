//! Memory that processes let each other open, by handles (`cuIpcGetMemHandle`, `cuIpcOpenMemHandle`).
//!
//! A handle of memory of ours is none of the driver's: it says by which key the coordinator knows an allocation, and whose that is.
//! Who opens it is lent extents as for an allocation of its own, with the other tenant's frames behind them. From then on the
//! coordinator has both on the GPU at the same time, and has their extents mapped and unmapped together. So the memory goes on
//! moving, and for all others here what was opened is an allocation like any other.

use core::ops::Range;

use baton_contract::cuda::{CUDA_ERROR_INVALID_VALUE, CUdeviceptr, CUresult};
use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{ExtentId, IPC_HANDLE};

use super::space::{NoMemory, Space, give_to_coordinator};
use super::table::{Key, Released};
use crate::gate::{MappingGuard, Passage};
use crate::link::Link;
use crate::link::requests::{Attached, Requests};

/// What our handles begin with. The driver's begin with numbers of a process.
const MAGIC: [u8; 8] = *b"BatonMem";

/// What a handle of ours says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exported {
    /// The tenant whose memory it is.
    pub(crate) exporter: u32,
    /// By which the coordinator knows it.
    key: Key,
    /// The allocation's size, as its program asked for it: so much room is needed for it.
    bytes: u64,
}

impl Exported {
    /// The handle: the same for the same allocation.
    pub(crate) fn encode(&self) -> [u8; IPC_HANDLE] {
        let mut handle = [0; IPC_HANDLE];
        handle[..8].copy_from_slice(&MAGIC);
        handle[8..12].copy_from_slice(&self.exporter.to_ne_bytes());
        handle[12..28].copy_from_slice(&self.key);
        handle[28..36].copy_from_slice(&self.bytes.to_ne_bytes());
        handle
    }

    /// What a handle says; none if it is not of ours.
    pub(crate) fn decode(handle: &[u8; IPC_HANDLE]) -> Option<Self> {
        let rest = handle.strip_prefix(&MAGIC)?;
        let (exporter, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (bytes, _) = rest.split_first_chunk()?;
        Some(Self { exporter: u32::from_ne_bytes(*exporter), key: *key, bytes: u64::from_ne_bytes(*bytes) })
    }

    /// How many addresses its extents need at most: the first and the last may be of other allocations too.
    fn room(&self) -> Option<u64> {
        let largest = SizeClass::ALL.iter().map(|class| class.bytes()).max()?;
        self.bytes.checked_next_multiple_of(GRANULE)?.checked_add(2 * largest)
    }
}

impl Space {
    /// Other processes are to be able to open the allocation that an address lies in, which is here. An error if it is none, or not
    /// the program's to export.
    pub(crate) fn export_allocation(
        &self,
        link: &Link,
        address: CUdeviceptr,
        _: &MappingGuard,
    ) -> Result<Exported, CUresult> {
        let (at, found) = self.lock().table.export(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Without a coordinator nobody could open it.
        let key = link.requests.export(at, found.bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if self.get(at).is_none_or(|now| now.number != found.number) {
            // Another thread has freed it, and may have said so before this was asked.
            link.requests.unexport(at);
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Exported { exporter: link.tenant, key, bytes: found.bytes })
    }

    /// Opens what another tenant has exported, and says where it is.
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
        self.with_guard(passage, || self.attach(requests, exported, at..at + bytes, context))
            .inspect_err(|_| self.lock().give_addresses_back(at, bytes))
    }

    /// The same at addresses that nobody has. On an error they are still nobody's.
    fn attach(
        &self,
        requests: &Requests,
        exported: &Exported,
        area: Range<CUdeviceptr>,
        context: usize,
    ) -> Result<CUdeviceptr, NoMemory> {
        let Attached { lent, offset, bytes } =
            self.ask(|| requests.attach(exported.exporter, exported.key, area.start))?;
        let size: u64 = lent.extents.iter().map(|(_, class)| class.bytes()).sum();
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= size);
        if !is_inside || bytes != exported.bytes || size >= area.end - area.start {
            // Somebody has written to the handle.
            let ids: Vec<ExtentId> = lent.extents.iter().map(|(id, _)| *id).collect();
            requests.free(ids);
            return Err(NoMemory::Answer(CUDA_ERROR_INVALID_VALUE));
        }
        self.map_lent(requests, area.start, lent)?;
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
            let _ = self.release(vec![memory], give_to_coordinator);
        }
        Ok(known.unwrap_or(area.start + offset))
    }

    /// What was opened is closed once, if it is open more than once. Says whether that is done; none if nothing that begins here
    /// is open.
    pub(crate) fn close_one_of_several(&self, at: CUdeviceptr) -> Option<bool> {
        self.lock().table.close_one_of_several(at)
    }

    /// What was opened is closed once. If that was the last time, its memory stays until [`Self::finish_free`], and this gives its
    /// number. None if nothing that begins here is open.
    pub(crate) fn begin_close(&self, at: CUdeviceptr) -> Option<Option<u64>> {
        self.lock().table.begin_close(at)
    }

    /// An event is about to be opened, which another tenant may have exported: from then on the coordinator has both of them on the
    /// GPU at the same time.
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
        fn a_handle_says_what_was_put_into_it(exporter: u32, key: [u8; 16], bytes: u64) {
            let exported = Exported { exporter, key, bytes };
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
        let exported = Exported { exporter: 7, key: [9; 16], bytes: 4 << 20 };
        assert_eq!(exported.encode(), exported.encode());
        assert!(exported.encode()[36..].iter().all(|byte| *byte == 0));
        let other = Exported { key: [8; 16], ..exported };
        assert_ne!(exported.encode(), other.encode());
    }

    #[test]
    fn there_is_room_for_whatever_lies_before_and_behind() {
        let room = |bytes| Exported { exporter: 0, key: [0; 16], bytes }.room();
        assert_eq!(room(1), Some(GRANULE + (1 << 30)));
        assert_eq!((room(u64::MAX), room(u64::MAX - (1 << 29))), (None, None));
    }
}
