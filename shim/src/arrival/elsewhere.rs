//! Finds the GPU that a call is for, in programs that use several.
//!
//! Only processes that have contexts on several GPUs pay for the question.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUstream};

use crate::driver::api;
use crate::sys::process;
use crate::work::contexts;

/// A bit for each GPU that this process has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// The GPU that is shared, once there are others too; none until then.
static SHARED: AtomicI32 = AtomicI32::new(NONE);
const NONE: CUdevice = -1;

/// Notes that this process takes a GPU, or has joined the coordinator of one.
pub(crate) fn note(taken: CUdevice, shared: Option<CUdevice>) {
    let all = TAKEN.fetch_or(api::bit(taken), Ordering::AcqRel) | api::bit(taken);
    if let Some(shared) = shared
        && all & !api::bit(shared) != 0
    {
        SHARED.store(shared, Ordering::Release);
    }
}

/// The shared GPU, if this process uses others too. A forked copy of such a process uses none.
#[inline(always)]
pub(super) fn shared() -> Option<CUdevice> {
    match SHARED.load(Ordering::Relaxed) {
        NONE => None,
        shared => (!process::settle_if_bare()).then_some(shared),
    }
}

/// The current GPU, if it is not the shared one.
#[inline(always)]
pub(crate) fn current() -> Option<CUdevice> {
    other_than(shared()?)
}

#[cold]
fn other_than(shared: CUdevice) -> Option<CUdevice> {
    let mut device = shared;
    // SAFETY: an out-parameter.
    let known = unsafe { api::current_device(&mut device) } == CUDA_SUCCESS;
    (known && device != shared).then_some(device)
}

/// The GPU of a call, and the GPU of the stream that it puts its work into; `None` for the shared GPU. They may differ: a copy can be put
/// into a stream of any GPU.
pub(super) fn current_and_of(shared: CUdevice, stream: CUstream) -> (Option<CUdevice>, Option<CUdevice>) {
    let current = other_than(shared);
    // SAFETY: of the program's own call.
    let of_stream = contexts::device_of_stream(stream.addr()).or_else(|| unsafe { api::device_of_stream(stream) });
    (current, of_stream.map_or(current, |device| (device != shared).then_some(device)))
}
