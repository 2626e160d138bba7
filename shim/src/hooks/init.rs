//! `cuInit`: from here on a forked copy of this process cannot use CUDA, and is left alone.

use core::ffi::c_uint;

use baton_contract::cuda::{CUDA_SUCCESS, CUresult};

use crate::driver::in_use;

type Init = unsafe extern "C-unwind" fn(c_uint) -> CUresult;

pub(super) unsafe fn init(original: Init, flags: c_uint) -> CUresult {
    in_use::begin();
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(flags) };
    if answer == CUDA_SUCCESS {
        in_use::initialised();
    }
    answer
}
