//! Finds the GPU that a call is for, in programs that use several.
//!
//! Only processes that have contexts on several GPUs pay for the question.

use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUstream};

use crate::driver::api::{self, Handle};
use crate::sys::process;
use crate::work::{contexts, leaving};

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

/// A bit for each GPU that this process has taken.
pub(crate) fn taken() -> u64 {
    TAKEN.load(Ordering::Acquire)
}

/// True if this process uses other GPUs than the shared one.
pub(crate) fn is_any() -> bool {
    SHARED.load(Ordering::Relaxed) != NONE
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
    if !known || device == shared {
        return None;
    }
    know(api::current_context(), device);
    Some(device)
}

/// Enters a context into the books, if it was made before this process had joined: work that is queued there from now on is waited for.
/// Work that was queued before accesses no memory of ours.
fn know(context: Handle, device: CUdevice) {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    if LAST.load(Ordering::Acquire) == context {
        return;
    }
    if contexts::id_of(context).is_none() {
        leaving::adopt(context, device);
    }
    // Another thread may only go on when it is in the books.
    LAST.store(context, Ordering::Release);
}

/// The GPU of a call, and the GPU of the stream that it puts its work into; `None` for the shared GPU. They may differ: a copy can be put
/// into a stream of any GPU.
pub(super) fn current_and_of(shared: CUdevice, stream: CUstream) -> (Option<CUdevice>, Option<CUdevice>) {
    let current = other_than(shared);
    let of_stream = contexts::device_of_stream(stream.addr()).or_else(|| {
        // SAFETY: of the program's own call.
        let (context, device) = unsafe { api::place_of_stream(stream) }?;
        know(context, device);
        // It was made before this process had joined, too.
        api::within(context, || contexts::add_stream(stream.addr(), true));
        Some(device)
    });
    (current, of_stream.map_or(current, |device| (device != shared).then_some(device)))
}
