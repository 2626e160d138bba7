//! The tenant's extents: the address of each, and mapping and unmapping them.
//!
//! The coordinator names an extent; only this process knows its address. An allocation's extents are mapped at their addresses. Those of a
//! handle that the program has made are mapped where it maps the handle ([`super::mappings`]).
//!
//! An extent's frame is imported, mapped (access is given later, when the contents are there) and released at once: the mapping keeps the
//! memory, and unmapping gives it up. So a process never holds memory that it has not mapped. The exception is memory that the program may
//! map at any time: its frames are held while they are here.

use core::ffi::c_void;
use core::ops::Range;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{
    CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice,
    CUdeviceptr, CUresult,
};
use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, HeldExtent, Mapping};

use super::access::{Access, give};
use super::layout::ExtentLayout;
use super::mappings::{Mappings, Place, is_home};
use crate::driver::api;
use crate::link::requests::{Requests, Unserved};

#[derive(Clone, Copy, Debug)]
struct Extent {
    address: CUdeviceptr,
    class: SizeClass,
    /// Memory lies there, with or without access.
    prepared: bool,
    /// A thread of the program was lent it, and is mapping it.
    lent: bool,
    mapped: bool,
    /// A thread of the program gives it up, and is unmapping it.
    given_up: bool,
    /// The coordinator knows that the extent has to stay where it is.
    immovable: bool,
    /// The other GPUs that have access: a bit for each.
    exposed: u64,
    /// The driver's handle of the frame that we hold; 0 if none.
    held: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    device: CUdevice,
    all: HashMap<ExtentId, Extent>,
    by_address: BTreeMap<CUdeviceptr, ExtentId>,
    /// The program's own handles and mappings.
    pub(super) mappings: Mappings,
}

/// An extent, and where its frame is mapped or is to be.
#[derive(Debug)]
struct Placed {
    extent: Extent,
    at: Vec<Place>,
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
        Some(ExtentLayout { id: (self.device, *id), addresses: extent.addresses(), is_mapped: extent.mapped })
    }

    fn insert(&mut self, id: ExtentId, address: CUdeviceptr, class: SizeClass) {
        self.by_address.insert(address, id);
        self.all.insert(
            id,
            Extent {
                address,
                class,
                prepared: false,
                lent: false,
                given_up: false,
                mapped: false,
                immovable: false,
                exposed: 0,
                held: 0,
            },
        );
    }

    fn placed(&self, id: &ExtentId) -> Option<Placed> {
        let extent = *self.get(id)?;
        let at = match is_home(extent.address) {
            true => self.mappings.places_of(extent.address),
            false => vec![Place { at: extent.address, access: Access::default() }],
        };
        Some(Placed { extent, at })
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

/// All extents of this process on a GPU. The lock is never held while the driver is called.
#[derive(Debug)]
pub(crate) struct Extents {
    device: CUdevice,
    table: Mutex<Table>,
}

impl Extents {
    /// Those of a GPU: none yet.
    pub(super) fn of(device: CUdevice) -> Self {
        let (all, by_address, mappings) = (HashMap::new(), BTreeMap::new(), Mappings::of(device));
        Self { device, table: Mutex::new(Table { device, all, by_address, mappings }) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds extents that were lent, from an address on. The caller maps them.
    pub(crate) fn add(&self, mut at: CUdeviceptr, all: &[(ExtentId, SizeClass)], are_lent: bool) {
        let mut extents = self.lock();
        for (id, class) in all {
            extents.insert(*id, at, *class);
            extents.all.entry(*id).and_modify(|extent| extent.lent = are_lent);
            at += class.bytes();
        }
    }

    /// Removes extents that have gone.
    pub(crate) fn remove(&self, ids: &[ExtentId]) {
        let mut extents = self.lock();
        for id in ids {
            extents.remove(id);
        }
    }

    /// Replaces extents after memory without frames was cut anew. Returns the addresses of the removed extents.
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

    /// All extents, in order of address.
    pub(super) fn layout(&self) -> Vec<ExtentLayout> {
        self.within(0, CUdeviceptr::MAX)
    }

    /// All extents, as a coordinator that takes over is told.
    pub(crate) fn held(&self) -> Vec<HeldExtent> {
        let mapping = |extent: &Extent| match (extent.mapped || extent.lent, extent.prepared) {
            (true, _) => Mapping::Mapped,
            (false, true) => Mapping::Prepared,
            (false, false) => Mapping::Away,
        };
        let extents = self.lock();
        let held = extents.all.iter().map(|(id, extent)| HeldExtent {
            id: *id,
            at: extent.address,
            class: extent.class,
            mapping: mapping(extent),
        });
        held.collect()
    }

    /// True if all memory of this process is mapped.
    pub(crate) fn all_mapped(&self) -> bool {
        self.lock().all.values().all(|extent| extent.mapped)
    }

    /// Puts memory behind extents, without access: any use of it faults.
    pub(crate) fn place(&self, ids: &[ExtentId], handles: Vec<OwnedFd>) -> Result<(), CUresult> {
        let mut kept = self.kept(ids).into_iter().peekable();
        for (id, frame) in ids.iter().zip(handles) {
            let Some((id, placed)) = kept.next_if(|(kept, _)| kept == id) else { continue };
            let held = map_one(&placed, &frame)?;
            if let Some(extent) = self.lock().get_mut(&id) {
                (extent.held, extent.prepared) = (held, true);
            }
        }
        Ok(())
    }

    /// Unmaps extents that are no more when that is done. Until then they are mapped, as a coordinator that takes over is told: it must
    /// not put anything there.
    pub(crate) fn discard(&self, ids: &[ExtentId]) -> Result<(), CUresult> {
        let places = self.places(ids)?;
        self.set_given_up(ids, true);
        unmap_all(places).inspect_err(|_| self.set_given_up(ids, false))?;
        baton_faults::reach("program has unmapped", &"all");
        self.remove(ids);
        Ok(())
    }

    fn set_given_up(&self, ids: &[ExtentId], given_up: bool) {
        let mut extents = self.lock();
        for id in ids {
            if let Some(extent) = extents.get_mut(id) {
                extent.given_up = given_up;
            }
        }
    }

    /// Discards extents of which some may be without memory.
    pub(crate) fn discard_any(&self, ids: &[ExtentId]) {
        for id in ids {
            // For an extent without memory, the driver returns an error.
            let _ = self.discard(core::slice::from_ref(id));
        }
        self.remove(ids);
    }

    /// Gives access to extents that have memory; their contents are there. Those of an allocation are for their GPU, and for all `others`:
    /// the program itself decides which GPUs have access to its own mappings.
    pub(crate) fn map(&self, ids: &[ExtentId], others: u64) -> Result<(), CUresult> {
        let device = self.device;
        let (kept, mut places): (Vec<_>, Vec<_>) = self.kept(ids).into_iter().unzip();
        let of_allocations = |placed: &&mut Placed| !is_home(placed.extent.address);
        set_access(places.iter_mut().filter(of_allocations), Access::of(api::bit(device) | others));
        for Run { at, bytes, access } in runs(&places) {
            // If the GPUs cannot access each other, the driver reports that in its answers to the program's calls.
            let give_each = |gpu| match give(at, bytes, access.only(gpu)) {
                Err(answer) if gpu == device || answer == CUDA_ERROR_OUT_OF_MEMORY => Err(answer),
                _ => Ok(()),
            };
            match give(at, bytes, access) {
                Err(CUDA_ERROR_OUT_OF_MEMORY) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
                Err(_) => access.gpus().try_for_each(give_each)?,
                Ok(()) => {}
            }
        }
        self.set_mapped(&kept, Some(others));
        Ok(())
    }

    /// Those that the program has not given up, nor is about to, in this order. The coordinator may not know that yet: one that has taken memory without
    /// asking brings it back, and one that takes over knows what was so before.
    fn kept(&self, ids: &[ExtentId]) -> Vec<(ExtentId, Placed)> {
        let extents = self.lock();
        let known = ids.iter().filter_map(|id| Some((*id, extents.placed(id)?)));
        known.filter(|(_, placed)| !placed.extent.given_up).collect()
    }

    /// Unmaps extents, whose memory goes elsewhere. Those that the program gives up meanwhile it unmaps itself.
    pub(crate) fn unmap(&self, ids: &[ExtentId]) -> Result<(), CUresult> {
        let (kept, places): (Vec<_>, Vec<_>) = self.kept(ids).into_iter().unzip();
        self.set_mapped(&kept, None);
        unmap_all(places)
    }

    fn places(&self, ids: &[ExtentId]) -> Result<Vec<Placed>, CUresult> {
        let extents = self.lock();
        ids.iter().map(|id| extents.placed(id).ok_or(CUDA_ERROR_INVALID_VALUE)).collect()
    }

    /// Maps the memory of a home at another address too, without access. All of it is here.
    pub(super) fn map_also(&self, home: CUdeviceptr, bytes: u64, at: CUdeviceptr) -> Result<(), CUresult> {
        let frames: Vec<(u64, usize, u64)> = {
            let extents = self.lock();
            let within = extents.by_address.range(home..home + bytes).filter_map(|(_, id)| extents.get(id));
            within.map(|extent| (at + (extent.address - home), extent.class.bytes() as usize, extent.held)).collect()
        };
        for (n, (place, bytes, held)) in frames.iter().enumerate() {
            // SAFETY: the program's own addresses, which the driver refuses if they are not; a frame that we hold.
            if let Err(code) = check(unsafe { api::map(*place, *bytes, 0, *held, 0) }) {
                for (place, bytes, _) in &frames[..n] {
                    // SAFETY: just mapped.
                    unsafe { api::unmap(*place, *bytes) };
                }
                return Err(code);
            }
        }
        Ok(())
    }

    /// `exposed`: the other GPUs that have access, if they are mapped.
    fn set_mapped(&self, ids: &[ExtentId], exposed: Option<u64>) {
        let mut extents = self.lock();
        for id in ids {
            if let Some(extent) = extents.get_mut(id) {
                (extent.mapped, extent.lent) = (exposed.is_some(), false);
                extent.exposed = exposed.unwrap_or(0);
                if exposed.is_none() {
                    // Unmapping releases the frame.
                    (extent.held, extent.prepared) = (0, false);
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

    /// Tells the coordinator that these extents stay, because others are about to access them. False if some of them are not here.
    pub(super) fn are_to_stay(&self, ids: &[ExtentId], requests: &Requests) -> Result<bool, CUresult> {
        let moving: Vec<ExtentId> = {
            let extents = self.lock();
            let moves = |id: &&ExtentId| extents.get(id).is_none_or(|extent| !extent.immovable);
            ids.iter().filter(moves).copied().collect()
        };
        match if moving.is_empty() { Ok(true) } else { requests.make_immovable(&moving) } {
            // Without a coordinator nothing moves.
            Ok(true) | Err(Unserved::Gone) => {}
            Ok(false) => return Ok(false),
            Err(_) => return Err(CUDA_ERROR_DEVICE_UNAVAILABLE),
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
        let mut places = self.places(ids)?;
        // The program itself decides which GPUs have access to its own mappings.
        places.retain(|placed| !is_home(placed.extent.address));
        set_access(places.iter_mut(), Access::of(api::bit(device)));
        for Run { at, bytes, access } in runs(&places) {
            match give(at, bytes, access) {
                Err(CUDA_ERROR_OUT_OF_MEMORY) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
                // As in `map`.
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

pub(crate) fn check(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// Maps a frame wherever its extent is. Returns the driver's handle of it if that is to be held, else 0: the mapping keeps it.
fn map_one(placed: &Placed, frame: &OwnedFd) -> Result<u64, CUresult> {
    let descriptor = ptr::without_provenance_mut::<c_void>(frame.as_raw_fd() as usize);
    let bytes = placed.extent.class.bytes() as usize;
    let mut memory = 0;
    // SAFETY: a descriptor as the driver takes it, by value in the pointer; an out-parameter.
    check(unsafe { api::import(&mut memory, descriptor, api::POSIX_DESCRIPTOR) })?;
    // SAFETY: addresses where nothing is mapped, and the handle imported above.
    let mapped = placed.at.iter().try_for_each(|place| check(unsafe { api::map(place.at, bytes, 0, memory, 0) }));
    if mapped.is_ok() && is_home(placed.extent.address) {
        return Ok(memory);
    }
    // SAFETY: imported above.
    unsafe { api::release(memory) };
    mapped.map(|()| 0)
}

/// Has these GPUs get access wherever the memory is.
fn set_access<'a>(places: impl Iterator<Item = &'a mut Placed>, access: Access) {
    places.flat_map(|placed| &mut placed.at).for_each(|place| place.access = access);
}

/// Unmaps memory wherever it is, and thereby gives it up.
fn unmap_all(places: Vec<Placed>) -> Result<(), CUresult> {
    for Placed { extent, at } in places {
        for place in at {
            // SAFETY: mapped as a whole by `place`; the gate is closed or the program has freed it.
            check(unsafe { api::unmap(place.at, extent.class.bytes() as usize) })?;
        }
        if extent.held != 0 {
            // SAFETY: held since `place`, and only by this process.
            check(unsafe { api::release(extent.held) })?;
        }
    }
    Ok(())
}

/// A range of addresses to which one kind of access is given by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    at: CUdeviceptr,
    bytes: u64,
    access: Access,
}

/// Joins neighbours into one range: each call that sets access costs time. Leaves out places that get no access.
fn runs(places: &[Placed]) -> Vec<Run> {
    let all = places.iter().flat_map(|Placed { extent, at }| {
        let bytes = extent.class.bytes();
        at.iter().map(move |place| Run { at: place.at, bytes, access: place.access })
    });
    let mut ranges: Vec<Run> = all.filter(|run| run.access != Access::default()).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, first| {
        let follows = first.at + first.bytes == next.at && first.access == next.access;
        if follows {
            first.bytes += next.bytes;
        }
        follows
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_about_memory_that_the_program_has_given_up_change_nothing() {
        let extents = Extents::of(0);
        let [gone, goes] = [ExtentId(1), ExtentId(2)];
        extents.add(1 << 40, &[(goes, SizeClass::ALL[0])], true);
        extents.set_given_up(&[goes], true);
        let both = [gone, goes];
        assert_eq!((extents.map(&both, 0), extents.unmap(&both)), (Ok(()), Ok(())));
        assert_eq!(extents.place(&both, Vec::new()), Ok(()));
    }
}
