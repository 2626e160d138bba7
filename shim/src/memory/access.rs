//! The access of GPUs to memory that is mapped.

use core::ffi::c_int;

use baton_contract::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_LOCATION_TYPE_DEVICE, CUDA_SUCCESS,
    CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemLocation, CUresult,
};

use crate::driver::api::{self, bit};

/// The GPUs that have access (`CUmemAccess_flags`): a bit for each in its kind. None, at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Access {
    /// They may only read.
    readers: u64,
    /// They may read and write.
    writers: u64,
}

/// `CU_MEM_ACCESS_FLAGS_PROT_READ`
const READ: c_int = 1;

impl Access {
    /// These GPUs may read and write.
    pub(crate) fn of(writers: u64) -> Self {
        Self { readers: 0, writers }
    }

    /// Sets the kind of access that a GPU has.
    pub(super) fn set(&mut self, device: CUdevice, flags: c_int) {
        let bit_if = |so: bool| if so { bit(device) } else { 0 };
        self.readers = self.readers & !bit(device) | bit_if(flags == READ);
        self.writers = self.writers & !bit(device) | bit_if(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }

    /// The kind of access that a GPU has.
    pub(crate) fn flags(self, device: CUdevice) -> c_int {
        match () {
            () if self.writers & bit(device) != 0 => CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            () if self.readers & bit(device) != 0 => READ,
            () => CU_MEM_ACCESS_FLAGS_PROT_NONE,
        }
    }

    /// The GPUs that have any.
    pub(super) fn gpus(self) -> impl Iterator<Item = CUdevice> {
        (0..u64::BITS as CUdevice).filter(move |device| self.flags(*device) != CU_MEM_ACCESS_FLAGS_PROT_NONE)
    }

    /// The same without all other GPUs.
    pub(super) fn only(self, device: CUdevice) -> Self {
        Self { readers: self.readers & bit(device), writers: self.writers & bit(device) }
    }
}

/// Gives access to a range that is mapped. One call for all GPUs takes less time than one for each (`bench/results/driver_facts.json`, E9).
pub(crate) fn give(at: CUdeviceptr, bytes: u64, access: Access) -> Result<(), CUresult> {
    let of_device = |device| CUmemAccessDesc {
        location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        flags: access.flags(device),
    };
    let list: Vec<CUmemAccessDesc> = access.gpus().map(of_device).collect();
    if list.is_empty() {
        return Ok(());
    }
    // SAFETY: structures of cuda.h's layout; a range that is not mapped is the driver's to refuse.
    match unsafe { api::set_access(at, bytes as usize, list.as_ptr(), list.len()) } {
        CUDA_SUCCESS => Ok(()),
        answer => Err(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_the_kind_of_access_that_was_set_last() {
        let mut access = Access::of(1);
        access.set(2, READ);
        assert_eq!([0, 1, 2].map(|device| access.flags(device)), [3, 0, 1]);
        access.set(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        access.set(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        assert_eq!([0, 1, 2].map(|device| access.flags(device)), [0, 0, 3]);
        assert_eq!(access.only(0), Access::default());
    }
}
