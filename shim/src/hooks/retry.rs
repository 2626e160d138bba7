//! Calls that need an unknown amount of GPU memory beside the arena: room is made for them.

use std::time::Duration;

use baton_contract::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUresult};

use crate::arrival::{self, Needs, gpus};
use crate::driver::api::Handle;
use crate::link::Link;
use crate::link::requests::Unserved;
use crate::memory::unmanaged;
use crate::session::{self, Session};
use crate::sys::thread;

/// Bytes that are freed after a call has found no memory. Less on a small GPU.
const ROOM_BYTES: u64 = 128 << 20;

/// The pause between two requests of a thread, which repeats them until its program has left the GPU, or has it to itself.
pub(super) const AGAIN: Duration = Duration::from_millis(1);

/// Calls the driver for a context on a GPU: with room for it beside the arena, so that the arena can shrink; with more if that was not
/// enough. The coordinator measures the memory that it takes.
pub(super) fn with_room(device: CUdevice, call: impl Fn() -> CUresult) -> CUresult {
    let Some(session) = session::of(device) else { return call() };
    let link = session.link;
    let _ = link.requests.room_for_context(false);
    let mut answer = call();
    if answer == CUDA_ERROR_OUT_OF_MEMORY {
        // Running tenants may have the memory, and can make way when the GPU is this tenant's. The room stays this tenant's after that.
        if gpus::are_several() {
            gpus::begin_work_on(device);
        }
        while let Ok(passage) = arrival::pass_here(|| Needs::Nothing)
            && let Err(Unserved::TryAgain) = link.requests.room_for_context(true)
            && passage.outside(|| thread::sleep(AGAIN)).is_ok()
        {}
        answer = call();
    }
    link.context_made(answer == CUDA_SUCCESS);
    answer
}

/// Called when a context of a shared GPU has gone, with everything that was made in it.
pub(super) fn context_gone(link: &Link, context: Handle) {
    unmanaged::context_gone(context);
    link.context_gone();
}

/// Makes a call of the driver that may need memory beside the arena: if there was none, makes room and calls once more.
pub(super) fn retried(call: impl FnMut() -> CUresult) -> CUresult {
    retried_on(session::current(), call)
}

/// The same for memory of the GPU of this session.
pub(super) fn retried_on(session: Option<&Session>, mut call: impl FnMut() -> CUresult) -> CUresult {
    match call() {
        CUDA_ERROR_OUT_OF_MEMORY if let Some(session) = session => {
            session.link.requests.room(ROOM_BYTES.min(session.link.total() / 16));
            call()
        }
        answer => answer,
    }
}
