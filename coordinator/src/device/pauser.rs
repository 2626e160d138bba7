//! The driver's ways of taking work off the GPU.

use std::ffi::c_uint;

use baton_contract::cuda::CUresult;
use libloading::Library;

use crate::device::error::{GpuError, check};

/// The means that this GPU's driver offers.
#[derive(Clone, Copy, Debug)]
pub struct Pauser {
    pub(super) gpu: [u8; 16],
    pub(super) simulated: Option<Simulated>,
}

/// The simulated driver's own functions for this.
#[derive(Clone, Copy, Debug)]
pub(super) struct Simulated {
    pub(super) pause: unsafe extern "C" fn(c_uint) -> CUresult,
    pub(super) resume: unsafe extern "C" fn(c_uint) -> CUresult,
    pub(super) set_slice: unsafe extern "C" fn(c_uint, u64) -> CUresult,
    pub(super) process_id: unsafe extern "C" fn(c_uint, *mut c_uint) -> CUresult,
}

impl Simulated {
    /// An error if this is another driver.
    fn find(driver: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: the simulated driver gives these names these signatures, and no other driver has them.
        unsafe {
            Ok(Self {
                pause: *driver.get(b"simcudaPauseProcess")?,
                resume: *driver.get(b"simcudaResumeProcess")?,
                set_slice: *driver.get(b"simcudaSetTimeSlice")?,
                process_id: *driver.get(b"simcudaGetProcessId")?,
            })
        }
    }

    /// The process with this number. `None` if there is none, or it cannot be seen from here.
    pub(super) fn pid(self, process: u32) -> Result<Option<i32>, GpuError> {
        let mut found = 0;
        // SAFETY: any number may be asked for; a place for the answer.
        check("simcudaGetProcessId", unsafe { (self.process_id)(process, &mut found) })?;
        Ok(i32::try_from(found).ok().filter(|pid| *pid != 0))
    }
}

impl Pauser {
    /// Makes one for a GPU, with the means that its driver offers.
    pub fn of(gpu: [u8; 16], driver: &Library) -> Self {
        Self { gpu, simulated: Simulated::find(driver).ok() }
    }
}
