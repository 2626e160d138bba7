//! Calls for another GPU: they are as without Baton, unless they name memory of ours.
//!
//! Only processes that have contexts on several GPUs pay for asking which of them a call is for.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};

use crate::driver::api;

/// A bit for each GPU that this process has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// The GPU that is shared, once there are others too; none until then.
static SHARED: AtomicI32 = AtomicI32::new(NONE);
const NONE: CUdevice = -1;

/// This process takes a GPU, or has joined the coordinator of one.
pub(crate) fn note(taken: CUdevice, shared: Option<CUdevice>) {
    let bit = |device: CUdevice| 1u64 << (device as u32 % u64::BITS);
    let all = TAKEN.fetch_or(bit(taken), Ordering::AcqRel) | bit(taken);
    if let Some(shared) = shared
        && all & !bit(shared) != 0
    {
        SHARED.store(shared, Ordering::Release);
    }
}

/// The GPU of this call, if it is not the shared one.
#[inline(always)]
pub(super) fn device() -> Option<CUdevice> {
    match SHARED.load(Ordering::Relaxed) {
        NONE => None,
        shared => other_than(shared),
    }
}

#[cold]
fn other_than(shared: CUdevice) -> Option<CUdevice> {
    let mut device = shared;
    // SAFETY: an out-parameter.
    let known = unsafe { api::current_device(&mut device) } == CUDA_SUCCESS;
    (known && device != shared).then_some(device)
}
