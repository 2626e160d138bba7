//! Tells whether the driver is in use in this process: before `cuInit` it refuses every call itself, and so it does in a forked copy of a
//! process that has called `cuInit`.

use core::ffi::c_int;

use baton_contract::cuda::CUDA_SUCCESS;

use super::{api, functions};
use crate::sys::process;

/// Called before the driver is initialised. All of its functions are found now: a forked copy of this process needs them, and cannot
/// search for them.
pub(crate) fn begin() {
    // This may be a copy for which no handlers ran.
    process::settle();
    functions::find_all();
}

/// Called after the driver was initialised.
pub(crate) fn initialised() {
    process::initialised();
}

/// True if hooks have nothing to do, because the driver refuses every call.
#[inline(always)]
pub(crate) fn is_refusing() -> bool {
    !process::is_initialised() && is_refusing_for_all_that_is_known()
}

#[cold]
fn is_refusing_for_all_that_is_known() -> bool {
    if process::settle_if_bare() {
        return true;
    }
    let mut count: c_int = 0;
    // SAFETY: an out-parameter.
    if unsafe { api::device_count(&mut count) } != CUDA_SUCCESS {
        return true;
    }
    // The driver was initialised in a way that we did not see.
    begin();
    initialised();
    false
}
