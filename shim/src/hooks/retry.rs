//! Calls that need memory of the GPU beside the arena: room is made for them.

use baton_contract::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUresult};

use crate::link;

/// What a context takes: asked for before one is made, so that the arena can shrink. Less on a small GPU.
pub(super) const CONTEXT_BYTES: u64 = 640 << 20;

/// Calls the driver with room for `bytes` beside the arena; once more if that was not enough.
pub(super) fn with_room(bytes: u64, call: impl Fn() -> CUresult) -> CUresult {
    let Some(link) = link::get() else { return call() };
    let bytes = bytes.min(link.total() / 16);
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
pub(super) fn retried(call: impl Fn() -> CUresult) -> CUresult {
    match (call(), link::get()) {
        (CUDA_ERROR_OUT_OF_MEMORY, Some(link)) => {
            link.requests.room((128 << 20).min(link.total() / 16));
            call()
        }
        (answer, _) => answer,
    }
}
