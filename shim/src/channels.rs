//! What of this process can be taken off the GPU, wherever it is in its work.
//!
//! The coordinator is told at the start; it pauses and resumes. We resume ourselves only when there is no coordinator
//! any more.

use core::ffi::{c_uint, c_void};
use std::ffi::CStr;

use baton_contract::cuda::{CUDA_SUCCESS, CUresult};
use baton_contract::messages::Channels;

use crate::driver;

/// The simulated driver's own functions for it.
#[derive(Clone, Copy)]
struct Simulated {
    process: c_uint,
    resume: unsafe extern "C" fn(c_uint) -> CUresult,
}

/// What can be paused, and how to resume it.
#[derive(Clone, Copy)]
pub(crate) struct Own(Simulated);

impl Own {
    /// Finds out, after `cuInit`; none if this driver offers nothing.
    pub(crate) fn find() -> Option<Self> {
        type Get = unsafe extern "C" fn(*mut c_uint) -> CUresult;
        type Resume = unsafe extern "C" fn(c_uint) -> CUresult;
        let symbol = |name: &CStr| driver::get()?.symbol(name);
        let (get, resume) = (symbol(c"simcudaGetProcess")?, symbol(c"simcudaResumeProcess")?);
        // SAFETY: the simulated driver gives these names these signatures, and no other driver has them.
        let (get, resume) = unsafe {
            (core::mem::transmute::<*mut c_void, Get>(get), core::mem::transmute::<*mut c_void, Resume>(resume))
        };
        let mut process = 0;
        // SAFETY: an out-parameter.
        (unsafe { get(&mut process) } == CUDA_SUCCESS).then_some(Self(Simulated { process, resume }))
    }

    /// As the coordinator is told.
    pub(crate) fn told(self) -> Channels {
        Channels::Simulated { process: self.0.process }
    }

    /// Lets our work go on, whoever paused it.
    pub(crate) fn resume(self) -> bool {
        // SAFETY: our own number.
        unsafe { (self.0.resume)(self.0.process) == CUDA_SUCCESS }
    }
}
