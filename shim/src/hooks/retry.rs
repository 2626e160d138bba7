//! Calls that need memory of the GPU beside the arena: room is made for them.

use baton_contract::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUresult};

use crate::{link, session};

/// What a context takes. Less on a small GPU.
const CONTEXT_BYTES: u64 = 640 << 20;

/// Calls the driver for a context on a GPU: with room for it beside the arena, so that the arena can shrink; with more if that
/// was not enough.
pub(super) fn with_room(device: CUdevice, call: impl Fn() -> CUresult) -> CUresult {
    let Some(session) = session::get().filter(|session| session.device == device) else { return call() };
    let link = session.link;
    let bytes = CONTEXT_BYTES.min(link.total() / 16);
    link.requests.room(bytes);
    match call() {
        CUDA_ERROR_OUT_OF_MEMORY => {
            link.requests.room(bytes * 2);
            call()
        }
        answer => answer,
    }
}

/// Calls the driver for something that may need memory beside the arena: if there was none, makes room and
/// calls once more.
pub(super) fn retried(mut call: impl FnMut() -> CUresult) -> CUresult {
    match (call(), link::get()) {
        (CUDA_ERROR_OUT_OF_MEMORY, Some(link)) => {
            link.requests.room((128 << 20).min(link.total() / 16));
            call()
        }
        (answer, _) => answer,
    }
}
