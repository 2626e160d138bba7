//! Finds the GPU that a call is for, in programs that use several.
//!
//! Only processes that have contexts on several GPUs pay for the question.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUstream};

use crate::driver::api::{self, Handle};
use crate::gate;
use crate::memory::space;
use crate::sys::process;
use crate::work::{contexts, leaving};

/// A bit for each GPU that this process has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// There are several, and one of them is shared.
static ARE_SEVERAL: AtomicBool = AtomicBool::new(false);
/// A bit for each GPU that this process is at work on. If it is shared, it is this process's turn there when the gate is open.
static AT_WORK_ON: AtomicU64 = AtomicU64::new(0);

/// Notes that this process takes a GPU, before it does; and if that is shared.
pub(crate) fn note(taken: CUdevice, is_shared: bool) {
    let all = TAKEN.fetch_or(api::bit(taken), Ordering::AcqRel) | api::bit(taken);
    if all & !api::bit(taken) != 0 && (is_shared || space::all().next().is_some()) {
        ARE_SEVERAL.store(true, Ordering::Release);
    }
}

/// A bit for each GPU that this process has taken.
pub(crate) fn taken() -> u64 {
    TAKEN.load(Ordering::Acquire)
}

/// True if this process uses a GPU that is not shared.
pub(crate) fn are_any_not_shared() -> bool {
    space::all().fold(taken(), |left, space| left & !api::bit(space.device)) != 0
}

/// Notes that this process is at work on a GPU from now on.
pub(crate) fn works_on(device: CUdevice) {
    AT_WORK_ON.fetch_or(api::bit(device), Ordering::AcqRel);
}

/// True if this process is at work on a GPU. Otherwise it has not had a turn there yet, if it is shared.
pub(crate) fn is_at_work_on(device: CUdevice) -> bool {
    AT_WORK_ON.load(Ordering::Acquire) & api::bit(device) != 0
}

/// True if this process has taken several GPUs, of which one is shared. A forked copy of such a process uses none.
#[inline(always)]
pub(crate) fn are_several() -> bool {
    ARE_SEVERAL.load(Ordering::Relaxed) && !process::settle_if_bare()
}

/// The GPU of the current context; `None` if there is no context.
pub(crate) fn current() -> Option<CUdevice> {
    let mut device = -1;
    // SAFETY: an out-parameter.
    let known = unsafe { api::current_device(&mut device) } == CUDA_SUCCESS;
    if known {
        know(api::current_context(), device);
    }
    known.then_some(device)
}

/// Called before work or memory of a call on a GPU: this process is at work there from now on. Returns when it has had a turn there, unless
/// that GPU is not shared.
pub(crate) fn begin_work_on(device: CUdevice) {
    if !is_at_work_on(device) {
        gate::begin_work_on(device);
    }
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

/// The GPU of the stream that a call puts its work into: not always the current one.
pub(crate) fn of_stream(stream: CUstream) -> Option<CUdevice> {
    contexts::device_of_stream(stream.addr()).or_else(|| {
        // SAFETY: of the program's own call.
        let (context, device) = unsafe { api::place_of_stream(stream) }?;
        know(context, device);
        // It was made before this process had joined, too.
        api::within(context, || contexts::add_stream(stream.addr(), true));
        Some(device)
    })
}
