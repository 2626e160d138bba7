//! The tenant's extents: which address each has, and mapping and unmapping them.
//!
//! The coordinator says *which* extent; the address is ours to know. An extent's handle is imported, mapped (access is
//! given later, when the contents are there) and let go of at once: the mapping keeps the memory, and unmapping gives it up. So a process never holds
//! memory that it does not have mapped.

use core::ffi::c_void;
use core::ops::Range;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUdeviceptr, CUmemAccessDesc,
    CUmemLocation, CUresult,
};
use baton_contract::memory::SizeClass;
use baton_contract::messages::ExtentId;

use super::layout::ExtentLayout;
use crate::driver::api;
use crate::link::requests::Requests;

#[derive(Clone, Copy, Debug)]
struct Extent {
    address: CUdeviceptr,
    class: SizeClass,
    mapped: bool,
    /// The coordinator knows that it has to stay where it is.
    immovable: bool,
    /// The other GPUs that have access: a bit for each.
    exposed: u64,
}

#[derive(Debug, Default)]
struct Table {
    all: HashMap<ExtentId, Extent>,
    by_address: BTreeMap<CUdeviceptr, ExtentId>,
}

impl Table {
    fn get(&self, id: &ExtentId) -> Option<&Extent> {
        self.all.get(id)
    }

    fn get_mut(&mut self, id: &ExtentId) -> Option<&mut Extent> {
        self.all.get_mut(id)
    }

    fn layout(&self, id: &ExtentId) -> Option<ExtentLayout> {
        let extent = self.get(id)?;
        Some(ExtentLayout { id: *id, addresses: extent.addresses(), is_mapped: extent.mapped })
    }

    fn insert(&mut self, id: ExtentId, address: CUdeviceptr, class: SizeClass) {
        self.by_address.insert(address, id);
        self.all.insert(id, Extent { address, class, mapped: false, immovable: false, exposed: 0 });
    }

    fn remove(&mut self, id: &ExtentId) -> Option<Extent> {
        let extent = self.all.remove(id)?;
        self.by_address.remove(&extent.address);
        Some(extent)
    }
}

impl Extent {
    fn addresses(&self) -> Range<CUdeviceptr> {
        self.address..self.address + self.class.bytes()
    }
}

/// All extents of this process. The lock is never held while the driver is called.
#[derive(Debug, Default)]
pub(crate) struct Extents(Mutex<Table>);

impl Extents {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new extent at an address.
    pub(crate) fn add(&self, id: ExtentId, address: CUdeviceptr, class: SizeClass) {
        self.lock().insert(id, address, class);
    }

    /// An extent that is no more.
    pub(crate) fn remove(&self, ids: &[ExtentId]) {
        let mut extents = self.lock();
        for id in ids {
            extents.remove(id);
        }
    }

    /// Memory without frames is cut anew. Says where those extents were that are gone.
    pub(crate) fn recut(
        &self,
        gone: &[ExtentId],
        now: &[(ExtentId, CUdeviceptr, SizeClass)],
    ) -> Vec<Range<CUdeviceptr>> {
        let mut extents = self.lock();
        let gone = gone.iter().filter_map(|id| extents.remove(id)).map(|extent| extent.addresses()).collect();
        now.iter().for_each(|(id, address, class)| extents.insert(*id, *address, *class));
        gone
    }

    /// The extents that lie in a range of addresses, wholly or in part, in order.
    pub(super) fn within(&self, at: CUdeviceptr, bytes: u64) -> Vec<ExtentLayout> {
        let extents = self.lock();
        let before = extents.by_address.range(..at).next_back();
        let all = before.into_iter().chain(extents.by_address.range(at..at.saturating_add(bytes)));
        all.filter_map(|(_, id)| extents.layout(id)).filter(|extent| at < extent.addresses.end).collect()
    }

    /// All of them, in order of address.
    pub(super) fn layout(&self) -> Vec<ExtentLayout> {
        self.within(0, CUdeviceptr::MAX)
    }

    /// Whether all memory of this process is there.
    pub(crate) fn all_mapped(&self) -> bool {
        self.lock().all.values().all(|extent| extent.mapped)
    }

    /// Puts memory behind extents, without access: whoever touches it faults.
    pub(crate) fn place(&self, ids: &[ExtentId], handles: Vec<OwnedFd>) -> Result<(), CUresult> {
        let places = self.places(ids)?;
        places.iter().zip(handles).try_for_each(|(extent, handle)| map_one(*extent, &handle))
    }

    /// Takes memory away again that was put behind some of these extents.
    pub(crate) fn take_away(&self, ids: &[ExtentId]) {
        for id in ids {
            // Where there is none the driver says so.
            let _ = self.unmap(core::slice::from_ref(id));
        }
    }

    /// Gives access to extents that have memory; their contents are there.
    pub(crate) fn map(&self, device: CUdevice, ids: &[ExtentId]) -> Result<(), CUresult> {
        let places = self.places(ids)?;
        runs(&places).into_iter().try_for_each(|(at, bytes)| give_access(device, at, bytes))?;
        self.set_mapped(ids, true);
        Ok(())
    }

    /// Unmaps extents and thereby gives their memory up.
    pub(crate) fn unmap(&self, ids: &[ExtentId]) -> Result<(), CUresult> {
        let places = self.places(ids)?;
        self.set_mapped(ids, false);
        for extent in places {
            // SAFETY: mapped as a whole by `map`; the gate is closed or the program has freed it.
            check(unsafe { api::unmap(extent.address, extent.class.bytes() as usize) })?;
        }
        Ok(())
    }

    fn places(&self, ids: &[ExtentId]) -> Result<Vec<Extent>, CUresult> {
        let extents = self.lock();
        ids.iter().map(|id| extents.get(id).copied().ok_or(CUDA_ERROR_INVALID_VALUE)).collect()
    }

    fn set_mapped(&self, ids: &[ExtentId], mapped: bool) {
        let mut extents = self.lock();
        for id in ids {
            if let Some(extent) = extents.get_mut(id) {
                extent.mapped = mapped;
                if !mapped {
                    // Unmapping forgets who had access.
                    extent.exposed = 0;
                }
            }
        }
    }

    /// The extents that another GPU has no access to.
    pub(super) fn hidden_from(&self, device: CUdevice) -> Vec<ExtentId> {
        let extents = self.lock();
        let hidden = extents.all.iter().filter(|(_, extent)| extent.mapped && extent.exposed & api::bit(device) == 0);
        hidden.map(|(id, _)| *id).collect()
    }

    /// Others are about to reach these: the coordinator is told that they stay. False if some of them are not there.
    pub(super) fn are_to_stay(&self, ids: &[ExtentId], requests: &Requests) -> Result<bool, CUresult> {
        let moving: Vec<ExtentId> = {
            let extents = self.lock();
            let moves = |id: &&ExtentId| extents.get(id).is_none_or(|extent| !extent.immovable);
            ids.iter().filter(moves).copied().collect()
        };
        if !moving.is_empty() && !requests.make_immovable(&moving).map_err(|_| CUDA_ERROR_DEVICE_UNAVAILABLE)? {
            return Ok(false);
        }
        let mut extents = self.lock();
        for id in moving {
            if let Some(extent) = extents.get_mut(&id) {
                extent.immovable = true;
            }
        }
        Ok(true)
    }

    /// Gives another GPU access too.
    pub(super) fn expose(&self, ids: &[ExtentId], device: CUdevice) -> Result<(), CUresult> {
        let places = self.places(ids)?;
        for (at, bytes) in runs(&places) {
            match give_access(device, at, bytes) {
                Err(CUDA_ERROR_OUT_OF_MEMORY) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
                // Between GPUs that cannot reach each other, the driver's answers to the program's calls say so.
                _ => continue,
            }
        }
        let mut extents = self.lock();
        for id in ids {
            if let Some(extent) = extents.get_mut(id) {
                extent.exposed |= api::bit(device);
            }
        }
        Ok(())
    }
}

/// Gives access to a range that is mapped.
pub(crate) fn give_access(device: CUdevice, at: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
    let access = CUmemAccessDesc {
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: a structure of cuda.h's layout; a range that is not mapped is the driver's to refuse.
    check(unsafe { api::set_access(at, bytes as usize, &access, 1) })
}

pub(crate) fn check(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

fn map_one(extent: Extent, handle: &OwnedFd) -> Result<(), CUresult> {
    let descriptor = ptr::without_provenance_mut::<c_void>(handle.as_raw_fd() as usize);
    let mut memory = 0;
    // SAFETY: a descriptor as the driver takes it, by value in the pointer; an out-parameter.
    check(unsafe { api::import(&mut memory, descriptor, api::POSIX_DESCRIPTOR) })?;
    // SAFETY: addresses of our own window where nothing is mapped, and the handle imported above, which is
    // let go of whether it was mapped or not.
    unsafe {
        let mapped = api::map(extent.address, extent.class.bytes() as usize, 0, memory, 0);
        api::release(memory);
        check(mapped)
    }
}

/// Neighbours as one range: setting access costs a call each.
fn runs(extents: &[Extent]) -> Vec<(CUdeviceptr, u64)> {
    let mut ranges: Vec<(CUdeviceptr, u64)> = extents.iter().map(|e| (e.address, e.class.bytes())).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, first| {
        let follows = first.0 + first.1 == next.0;
        if follows {
            first.1 += next.1;
        }
        follows
    });
    ranges
}
