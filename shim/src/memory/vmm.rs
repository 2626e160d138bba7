//! The program's own handles of memory, and its mappings of them: this module makes the driver's calls for the books in
//! [`super::mappings`].
//!
//! A caller that changes them has a [`MappingGuard`], and all memory is here: then the driver's mappings are those of the program.

use core::ffi::c_int;
use std::os::fd::{AsFd as _, OwnedFd};

use baton_contract::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OPERATING_SYSTEM,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUresult,
};
use baton_contract::memory::Unmanaged;
use baton_contract::messages::ExtentId;

use super::access::{Access, give};
use super::extents::check;
use super::ipc::Exported;
use super::mappings::{Gone, HandleNumber, Home, Mapping, Memory, Properties, Reach};
use super::sealed::{self, Sealed};
use super::space::{self, GivenUp, NoMemory, Space, know_reservation};
use super::unmanaged;
use crate::driver::api;
use crate::gate::{MappingGuard, Passage};
use crate::link::Link;
use crate::link::requests::Requests;
use crate::sys::cancel;

/// The mapping of a handle of ours that an address lies in.
pub(crate) fn mapping(address: CUdeviceptr) -> Option<Mapping> {
    with_mapping(address).map(|(_, mapping)| mapping)
}

/// The same, with the memory that it is a mapping of.
pub(crate) fn with_mapping(address: CUdeviceptr) -> Option<(&'static Space, Mapping)> {
    space::all().find_map(|space| Some((space, space.extents.lock().mappings.find(address).copied()?)))
}

/// True if the program has any such handle or mapping.
pub(crate) fn has_handles() -> bool {
    space::all().any(|space| space.extents.lock().mappings.is_any())
}

/// True if a range has a part of such a mapping, but not the rest.
pub(crate) fn cuts_mapping(at: CUdeviceptr, bytes: u64) -> bool {
    space::all().any(|space| space.extents.lock().mappings.is_cut(at, bytes))
}

/// Unmaps a range by `call`. It may hold mappings of ours, all of them whole, of several GPUs' memory.
pub(crate) fn unmap(at: CUdeviceptr, bytes: u64, _: &MappingGuard, call: impl FnOnce() -> CUresult) -> CUresult {
    let begin = |space: &'static Space| (space, space.extents.lock().mappings.begin_unmap(at, bytes));
    let going: Vec<(&Space, Vec<Mapping>)> = space::all().map(begin).collect();
    let answer = call();
    if answer != CUDA_SUCCESS {
        going.into_iter().for_each(|(space, going)| space.extents.lock().mappings.stay_mapped(going));
        return answer;
    }
    let end = |(space, going): &(&Space, Vec<Mapping>)| {
        let gone = space.extents.lock().mappings.on_unmapped(going);
        match space.end(gone) {
            CUDA_SUCCESS => space.end_unreachable(),
            answer => answer,
        }
    };
    // All of them end, even if the driver refuses one.
    going.iter().map(end).fold(CUDA_SUCCESS, |first, answer| if first == CUDA_SUCCESS { answer } else { first })
}

/// Reads these GPUs' access to the mappings in a range from the driver, after the program has set it.
pub(crate) fn access_changed(at: CUdeviceptr, bytes: u64, list: &[CUmemAccessDesc], _: &MappingGuard) {
    space::all().for_each(|space| space.access_changed(at, bytes, list));
}

impl Space {
    /// Makes a handle of new memory.
    pub(crate) fn create(
        &self,
        passage: &Passage,
        requests: &Requests,
        bytes: u64,
        properties: Properties,
    ) -> Result<HandleNumber, NoMemory> {
        let full = NoMemory::Answer(CUDA_ERROR_OUT_OF_MEMORY);
        let at = self.extents.lock().mappings.take_home(bytes).ok_or(full)?;
        let acquired = self.with_guard(passage, || self.acquire_at(requests, at, bytes));
        let mappings = &mut self.extents.lock().mappings;
        acquired.inspect_err(|_| mappings.give_home_back(Home { at, bytes }))?;
        Ok(mappings.add(at, bytes, properties))
    }

    /// The place of a handle's memory, its size, and the properties it was made with.
    pub(crate) fn handle(&self, handle: HandleNumber) -> Option<(Memory, u64, CUmemAllocationProp)> {
        self.extents.lock().mappings.get(handle)
    }

    /// Adds a hold on the handle that is mapped here.
    pub(crate) fn retain(&self, address: CUdeviceptr) -> Option<HandleNumber> {
        self.extents.lock().mappings.retain(address)
    }

    /// Removes a hold on a handle.
    pub(crate) fn release_handle(&self, handle: HandleNumber, _: &MappingGuard) -> CUresult {
        let released = self.extents.lock().mappings.release(handle);
        match released.map_or_else(|answer| answer, |gone| self.end(gone)) {
            CUDA_SUCCESS => self.end_unreachable(),
            answer => answer,
        }
    }

    /// Maps a handle at addresses of the program's. No GPU has access there yet.
    pub(crate) fn map_handle(&self, handle: HandleNumber, at: CUdeviceptr, _: &MappingGuard) -> Result<(), CUresult> {
        let number = self.lock().table.next_number();
        let memory = {
            let mappings = &mut self.extents.lock().mappings;
            let (memory, bytes, _) = mappings.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if at.checked_add(bytes).is_none() || !mappings.begin_map(handle, at) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            (memory, bytes)
        };
        let mapped = match memory {
            (Memory::AtHome(home), bytes) => self.extents.map_also(home, bytes, at),
            // SAFETY: the program's own addresses, which the driver refuses if they are not; a handle that we hold.
            (Memory::InOnePiece(piece), bytes) => check(unsafe { api::map(at, bytes as usize, 0, piece, 0) }),
        };
        if let Err(answer) = mapped {
            let gone = self.extents.lock().mappings.not_mapped(handle, at);
            self.end(gone);
            return Err(answer);
        }
        know_reservation(at, memory.1);
        self.extents.lock().mappings.on_mapped(handle, at, number);
        Ok(())
    }

    /// Reads these GPUs' access to the mappings in a range from the driver, after the program has set it: the driver may have done so for
    /// some of them. All of the memory is here.
    fn access_changed(&self, at: CUdeviceptr, bytes: u64, list: &[CUmemAccessDesc]) {
        let places: Vec<CUdeviceptr> =
            self.extents.lock().mappings.within(at, bytes).map(|mapping| mapping.at).collect();
        let locations = || list.iter().map(|one| one.location).filter(|one| one.kind == CU_MEM_LOCATION_TYPE_DEVICE);
        for (place, location) in places.iter().flat_map(|place| locations().map(move |location| (*place, location))) {
            let mut flags = 0;
            // SAFETY: two structures of ours; an address that the driver refuses if nothing is mapped there.
            if unsafe { api::get_access(&mut flags, &location, place) } == CUDA_SUCCESS {
                self.extents.lock().mappings.set_access(place, location.id, flags as c_int);
            }
        }
    }

    /// Handles that are mapped in a range, could be exported by the driver, and are in several pieces.
    pub(crate) fn exportable_in_pieces(&self, at: CUdeviceptr, bytes: u64) -> Vec<HandleNumber> {
        let found: Vec<(HandleNumber, Home)> = {
            let mappings = &self.extents.lock().mappings;
            // Others have shared memory in its pieces: it stays in those.
            let can_be_one = |mapping: &&Mapping| mapping.handle_types != 0 && !mappings.is_shared(mapping.handle);
            let exportable = mappings.within(at, bytes).filter(can_be_one);
            exportable.filter_map(|mapping| Some((mapping.handle, mappings.home_of(mapping.handle)?))).collect()
        };
        let in_pieces = |(_, home): &(HandleNumber, Home)| self.extents_of(*home).len() > 1;
        found.into_iter().filter(in_pieces).map(|(handle, _)| handle).collect()
    }

    /// Makes the memory of the mappings in a range stay where it is, because others are about to access it.
    pub(crate) fn make_mappings_stay(
        &self,
        requests: &Requests,
        (at, bytes): (CUdeviceptr, u64),
        reach: Reach,
        _: &MappingGuard,
    ) -> Result<(), CUresult> {
        let homes: Vec<Home> = {
            let mut extents = self.extents.lock();
            if reach == Reach::Past {
                extents.mappings.let_reach_past(at, bytes);
            }
            extents.mappings.within(at, bytes).filter_map(|found| extents.mappings.home_of(found.handle)).collect()
        };
        let extents: Vec<ExtentId> = homes.into_iter().flat_map(|home| self.extents_of(home)).collect();
        if self.extents.are_to_stay(&extents, requests)? { Ok(()) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
    }

    /// Lets other processes import a handle's memory, which goes on moving, and returns a descriptor by which they do.
    pub(crate) fn export(&self, link: &Link, handle: HandleNumber) -> Result<OwnedFd, CUresult> {
        let (home, (_, _, properties)) = {
            let mappings = &self.extents.lock().mappings;
            // Memory is exported by the process that made it (measured: error 1 otherwise).
            let home = mappings.home_of(handle).filter(|_| !mappings.is_imported(handle));
            home.zip(mappings.get(handle)).ok_or(CUDA_ERROR_INVALID_VALUE)?
        };
        // Without a coordinator no other process could import it.
        let key = link.requests.export(home.at, home.bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if !self.extents.lock().mappings.on_exported(handle, key) {
            // Another thread has released it, or moved it into one piece.
            link.requests.unexport(home.at);
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let again = self.extents.lock().mappings.watch_of(handle).and_then(|watch| sealed::again(watch.as_fd()).ok());
        if let Some(descriptor) = again {
            return Ok(descriptor);
        }
        let exported = self.exported(link, key, home.bytes)?;
        let made = Sealed::of(exported, &properties).descriptors();
        let (descriptor, watch) = made.map_err(|_| CUDA_ERROR_OPERATING_SYSTEM)?;
        if let Some(watch) = watch {
            self.extents.lock().mappings.watch(handle, watch);
        }
        Ok(descriptor)
    }

    /// Gives back memory that the program no longer has a handle of, if nobody has a descriptor of it any more.
    pub(super) fn end_unreachable(&self) -> CUresult {
        let _uncancelled = cancel::Off::begin();
        let left = self.extents.lock().mappings.left_to_others();
        let is_had = |handle: &HandleNumber| {
            let watch = self.extents.lock().mappings.watch_of(*handle).and_then(|watch| watch.try_clone().ok());
            watch.is_none_or(|watch| sealed::is_had(watch.as_fd()) != Some(false))
        };
        let unneeded = left.into_iter().filter(|handle| !is_had(handle));
        let gone: Vec<Gone> = unneeded.filter_map(|handle| self.extents.lock().mappings.end_left(handle)).collect();
        self.end(gone)
    }

    /// Makes a handle of memory that another process has exported, or this one.
    pub(crate) fn import(
        &self,
        passage: &Passage,
        requests: &Requests,
        sealed: &Sealed,
    ) -> Result<HandleNumber, NoMemory> {
        let Exported { key, bytes, .. } = sealed.exported;
        self.with_guard(passage, || {
            // Also if another thread imports it at the same time: until that is over, the coordinator has this one try again.
            let known = self.extents.lock().mappings.import_again(&key);
            if let Some(handle) = known {
                return Ok(handle);
            }
            let full = NoMemory::Answer(CUDA_ERROR_OUT_OF_MEMORY);
            let at = self.extents.lock().mappings.take_home(bytes).ok_or(full)?;
            let home = Home { at, bytes };
            let attached = self.attach(requests, &sealed.exported, &(at..at + bytes), true);
            let mappings = &mut self.extents.lock().mappings;
            attached.inspect_err(|_| mappings.give_home_back(home))?;
            Ok(mappings.add_imported(home, Properties(sealed.properties(self.device)), key))
        })
    }

    /// Returns a descriptor of the driver's by which other processes can have a handle's memory, which stays where it is from then on. `None` if it is in
    /// several pieces, or cannot stay where it is: then it has to [become one piece](Self::consolidate) elsewhere first.
    pub(crate) fn export_in_place(
        &self,
        requests: &Requests,
        handle: HandleNumber,
        _: &MappingGuard,
    ) -> Result<Option<OwnedFd>, CUresult> {
        let home = self.extents.lock().mappings.home_of(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let extents = self.extents_of(home);
        if extents.len() > 1 {
            return Ok(None);
        }
        if !self.extents.are_to_stay(&extents, requests)? {
            return Ok(None);
        }
        // Exportable memory is exported by the process that made it.
        let frames = requests.frames(&extents).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Some(frames.into_iter().next().ok_or(CUDA_ERROR_INVALID_VALUE)?))
    }

    /// True if a handle's memory is here, or the handle has gone.
    pub(crate) fn is_here(&self, handle: HandleNumber) -> bool {
        let home = self.extents.lock().mappings.home_of(handle);
        home.is_none_or(|home| self.is_all_mapped(&(home.at..home.at + home.bytes)))
    }

    /// The address by which the coordinator knows a handle's memory, and its size. `None` if it is in one piece, other processes have it, or
    /// others access it past its mappings.
    pub(crate) fn home(&self, handle: HandleNumber) -> Option<(CUdeviceptr, u64)> {
        let mappings = &self.extents.lock().mappings;
        let stays = |handle| mappings.is_reached_past(handle) || mappings.is_shared(handle);
        let home = mappings.home_of(handle).filter(|_| !stays(handle))?;
        Some((home.at, home.bytes))
    }

    /// Replaces a handle's memory by `piece`, which has the same size and contents, and gives up its extents. The gate is closed, and
    /// nothing runs. On an error all is as before.
    pub(crate) fn consolidate(
        &self,
        handle: HandleNumber,
        at: CUdeviceptr,
        piece: u64,
        mut tell: impl FnMut(GivenUp<'_>),
    ) -> Result<(), CUresult> {
        // The program may have released it meanwhile, or let others access it where it is.
        let (_, bytes) = self.home(handle).filter(|home| home.0 == at).ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        let places = self.extents.lock().mappings.mappings_of(handle);
        self.extents.lock().mappings.leave_home(handle, piece);
        unmanaged::keep(self.device, Unmanaged::Exported, handle, bytes, 0);
        for place in places {
            // From here on nothing can be undone: if the driver refuses now, the program loses the mapping.
            // SAFETY: mapped there, in pieces; nothing runs that could use it.
            let mapped = unsafe {
                api::unmap(place.at, bytes as usize);
                check(api::map(place.at, bytes as usize, 0, piece, 0))
            };
            if mapped.is_ok() && place.access != Access::default() {
                let _ = give(place.at, bytes, place.access);
            }
        }
        // On an error the memory stays in use, mapped nowhere, until the process ends.
        let _ = self.end_home(Home { at, bytes }, &mut tell);
        Ok(())
    }

    fn extents_of(&self, home: Home) -> Vec<ExtentId> {
        self.extents.within(home.at, home.bytes).into_iter().map(|extent| extent.id.1).collect()
    }

    /// Gives back memory without a handle or a mapping.
    fn end(&self, gone: impl IntoIterator<Item = Gone>) -> CUresult {
        let end = |Gone { number, memory, bytes, is_exported }| match memory {
            Memory::AtHome(at) => {
                if is_exported {
                    self.unexport(at);
                }
                self.end_home(Home { at, bytes }, &mut |given_up| self.give_to_coordinator(given_up))
            }
            // SAFETY: held since it was made, and mapped nowhere.
            Memory::InOnePiece(piece) => check(unmanaged::remove(number, || unsafe { api::release(piece) })),
        };
        gone.into_iter().try_for_each(end).map_or_else(|answer| answer, |()| CUDA_SUCCESS)
    }

    fn end_home(&self, home: Home, tell: &mut impl FnMut(GivenUp<'_>)) -> Result<(), CUresult> {
        let extents = self.extents_of(home);
        self.extents.discard(&extents)?;
        tell(GivenUp::Extents(extents));
        self.extents.lock().mappings.give_home_back(home);
        Ok(())
    }
}
