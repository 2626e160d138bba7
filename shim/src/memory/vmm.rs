//! The program's own handles of memory, and its mappings of them: what [`super::mappings`] has in its books is done here.
//!
//! Whoever changes them has a [`MappingGuard`], and all memory is here: then what the driver has mapped is what the program has mapped.

use core::ffi::c_int;
use std::os::fd::OwnedFd;

use baton_contract::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr,
    CUmemAllocationProp, CUresult,
};
use baton_contract::messages::ExtentId;

use super::mappings::{Gone, HandleNumber, Mapping, Properties};
use super::space::{GivenUp, NoMemory, Space, give_to_coordinator, widen_window};
use crate::gate::{MappingGuard, Passage};
use crate::link::requests::Requests;

impl Space {
    /// A handle of new memory. If it is to be one that can be exported, it is a single frame.
    pub(crate) fn create(
        &self,
        passage: &Passage,
        requests: &Requests,
        bytes: u64,
        properties: Properties,
    ) -> Result<HandleNumber, NoMemory> {
        let full = NoMemory::Answer(CUDA_ERROR_OUT_OF_MEMORY);
        let home = self.extents.lock().mappings.take_home(bytes).ok_or(full)?;
        let memory = Gone { home, bytes };
        let acquired = self.with_guard(passage, || self.acquire_at(requests, home, bytes));
        acquired.inspect_err(|_| self.extents.lock().mappings.give_home_back(memory))?;
        if properties.0.handle_types != 0 && self.extents_of(memory).len() > 1 {
            // Not several that would have to become one when it is exported.
            return Err(self
                .with_guard(passage, || Ok(self.end(Some(memory))))
                .map_or_else(|error| error, |_| NoMemory::Alone));
        }
        Ok(self.extents.lock().mappings.add(home, bytes, properties))
    }

    /// Whether the program has any such handle or mapping.
    pub(crate) fn has_handles(&self) -> bool {
        self.extents.lock().mappings.taken() != 0
    }

    /// A handle's size, and what it was made with.
    pub(crate) fn handle(&self, handle: HandleNumber) -> Option<(u64, CUmemAllocationProp)> {
        let extents = self.extents.lock();
        Some((extents.mappings.home_of(handle)?.bytes, extents.mappings.properties(handle)?))
    }

    /// The mapping of a handle that an address lies in.
    pub(crate) fn mapping(&self, address: CUdeviceptr) -> Option<Mapping> {
        self.extents.lock().mappings.find(address).copied()
    }

    /// Whether a range has any part of such a mapping.
    pub(crate) fn has_mapped(&self, at: CUdeviceptr, bytes: u64) -> bool {
        self.extents.lock().mappings.within(at, bytes).next().is_some()
    }

    /// Whether a range has a part of such a mapping without the rest.
    pub(crate) fn cuts_mapping(&self, at: CUdeviceptr, bytes: u64) -> bool {
        self.extents.lock().mappings.is_cut(at, bytes)
    }

    /// The handle that is mapped here, held once more.
    pub(crate) fn retain(&self, address: CUdeviceptr) -> Option<HandleNumber> {
        self.extents.lock().mappings.retain(address)
    }

    /// A handle is held once less.
    pub(crate) fn release_handle(&self, handle: HandleNumber, _: &MappingGuard) -> CUresult {
        let released = self.extents.lock().mappings.release(handle);
        released.map_or_else(|answer| answer, |gone| self.end(gone))
    }

    /// Maps a handle at addresses of the program's, where nobody has access yet.
    pub(crate) fn map_handle(&self, handle: HandleNumber, at: CUdeviceptr, _: &MappingGuard) -> Result<(), CUresult> {
        let number = self.lock().table.next_number();
        let memory = {
            let mappings = &mut self.extents.lock().mappings;
            let memory = mappings.home_of(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if at.checked_add(memory.bytes).is_none() || !mappings.begin_map(handle, at) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            memory
        };
        let mapped = self.extents.map_also(memory.home, memory.bytes, at);
        if let Err(answer) = mapped {
            let gone = self.extents.lock().mappings.not_mapped(handle, at);
            self.end(gone);
            return Err(answer);
        }
        widen_window(at, memory.bytes);
        self.extents.lock().mappings.mapped(handle, at, number);
        Ok(())
    }

    /// The driver unmaps a range by `call`, in which there may be mappings of ours, all of them whole.
    pub(crate) fn unmap(
        &self,
        at: CUdeviceptr,
        bytes: u64,
        _: &MappingGuard,
        call: impl FnOnce() -> CUresult,
    ) -> CUresult {
        let going = self.extents.lock().mappings.begin_unmap(at, bytes);
        let answer = call();
        let mut extents = self.extents.lock();
        if answer != CUDA_SUCCESS {
            extents.mappings.stay_mapped(going);
            return answer;
        }
        let gone = extents.mappings.unmapped(&going);
        drop(extents);
        self.end(gone)
    }

    /// How the shared GPU may use mappings from now on, as the driver knows already.
    pub(crate) fn set_access(&self, at: CUdeviceptr, bytes: u64, access: c_int) {
        self.extents.lock().mappings.set_access(at, bytes, access);
    }

    /// Others are about to reach the mappings in a range: what is there stays where it is from then on.
    pub(crate) fn make_mappings_stay(
        &self,
        requests: &Requests,
        at: CUdeviceptr,
        bytes: u64,
        _: &MappingGuard,
    ) -> Result<(), CUresult> {
        let homes: Vec<Gone> = {
            let extents = self.extents.lock();
            extents.mappings.within(at, bytes).filter_map(|found| extents.mappings.home_of(found.handle)).collect()
        };
        let extents: Vec<ExtentId> = homes.into_iter().flat_map(|home| self.extents_of(home)).collect();
        if self.extents.are_to_stay(&extents, requests)? { Ok(()) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
    }

    /// A descriptor by which other processes can have a handle's memory, which stays where it is from then on.
    pub(crate) fn export(
        &self,
        requests: &Requests,
        handle: HandleNumber,
        _: &MappingGuard,
    ) -> Result<OwnedFd, CUresult> {
        let home = self.extents.lock().mappings.home_of(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let extents = self.extents_of(home);
        if extents.len() > 1 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if !self.extents.are_to_stay(&extents, requests)? {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // What can be exported is exported by whoever made it.
        let frames = requests.frames(&extents).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        frames.into_iter().next().ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn extents_of(&self, memory: Gone) -> Vec<ExtentId> {
        self.extents.within(memory.home, memory.bytes).into_iter().map(|extent| extent.id).collect()
    }

    /// Gives memory back that no handle has any more, and no mapping.
    fn end(&self, gone: impl IntoIterator<Item = Gone>) -> CUresult {
        for memory in gone {
            let extents = self.extents_of(memory);
            if let Err(answer) = self.extents.unmap(&extents) {
                return answer;
            }
            self.extents.remove(&extents);
            give_to_coordinator(GivenUp::Extents(extents));
            self.extents.lock().mappings.give_home_back(memory);
        }
        CUDA_SUCCESS
    }
}
