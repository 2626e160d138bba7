//! What the program has queued on the GPU: when it has ended, and how much of it there is.
//!
//! - [`registry`]: the program's contexts and streams, and which of them capture.
//! - [`drain`](fn@drain): whether everything has ended.
//! - [`queue`]: keeps the queue short while somebody waits.
//! - [`hooks`]: the driver's names by which contexts, streams and captures come and go.

pub(crate) mod drain;
pub(crate) mod queue;
pub(crate) mod registry;

use baton_contract::cuda::CUDA_SUCCESS;

use crate::driver::api;

pub(crate) use drain::{drain, drain_context, looks_idle};

/// Whether some stream of the program may be capturing.
pub(crate) fn is_capturing() -> bool {
    registry::REGISTRY.is_capturing()
}

/// The thread's context.
pub(crate) fn current() -> usize {
    crate::hooks::work::current()
}

/// Does something in a context, if that still works.
pub(crate) fn within<T>(context: usize, what: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: a context of the program's, which the driver refuses if it is gone.
    if unsafe { api::push(drain::handle(context)) } != CUDA_SUCCESS {
        return None;
    }
    let done = what();
    let mut popped = core::ptr::null_mut();
    // SAFETY: an out-parameter.
    unsafe { api::pop(&mut popped) };
    Some(done)
}

/// In a forked child.
pub(crate) fn start_anew() {
    registry::REGISTRY.start_anew();
}
