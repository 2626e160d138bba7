//! Whether mappings can be changed while our work is paused.
//!
//! To change them the driver may need what a thread of the program holds inside of it while it waits for work, and work that is
//! paused does not end. If that were found out with memory that the program uses, its work could not be let go on: its
//! memory might be half gone. So the first that is unmapped after a pause is a piece that nobody uses.

use baton_contract::cuda::{
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CUdevice, CUdeviceptr, CUmemAllocationProp,
    CUmemLocation, CUresult,
};
use baton_contract::memory::GRANULE;

use crate::memory::extents::{check, give_access};
use crate::real;

/// The piece: memory of the GPU that is not the coordinator's.
pub(super) struct Probe {
    device: CUdevice,
    address: CUdeviceptr,
    memory: u64,
    mapped: bool,
}

impl Probe {
    /// None if there is nothing left for it.
    pub(super) fn new(device: CUdevice) -> Option<Self> {
        let bytes = GRANULE as usize;
        let properties = CUmemAllocationProp {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            handle_types: 0,
            location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            windows: core::ptr::null_mut(),
            flags: [0; 8],
        };
        let (mut address, mut memory) = (0, 0);
        // SAFETY: out-parameters, and a structure of cuda.h's layout that lives over the call.
        unsafe {
            check(real::create(&mut memory, bytes, &properties, 0)).ok()?;
            if check(real::reserve(&mut address, bytes, bytes, 0, 0)).is_err() {
                real::release(memory);
                return None;
            }
        }
        Some(Self { device, address, memory, mapped: false })
    }

    /// Maps the piece, if it is not mapped: then there is less to do when our work is paused.
    pub(super) fn make_ready(&mut self) -> Result<(), CUresult> {
        if !self.mapped {
            // SAFETY: addresses that were reserved for this, where nothing is mapped.
            check(unsafe { real::map(self.address, GRANULE as usize, 0, self.memory, 0) })?;
            self.mapped = true;
            give_access(self.device, self.address, GRANULE)?;
        }
        Ok(())
    }

    /// Unmaps it.
    pub(super) fn carry_out(&mut self) -> Result<(), CUresult> {
        self.make_ready()?;
        self.mapped = false;
        // SAFETY: mapped as a whole, and nobody knows the address.
        check(unsafe { real::unmap(self.address, GRANULE as usize) })
    }
}
