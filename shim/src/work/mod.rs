//! What the program has queued on the GPU: when it has ended, and how much of it there is.
//!
//! - [`registry`]: the program's contexts and streams, and which of them capture.
//! - [`drain`](fn@drain): whether everything has ended.
//! - [`queue`]: keeps the queue short while somebody waits.
//! - [`hooks`]: the driver's names by which contexts, streams and captures come and go.

mod drain;
pub(crate) mod hooks;
pub(crate) mod queue;
mod registry;

pub(crate) use drain::drain;
pub(crate) use hooks::retried;

/// Whether some stream of the program may be capturing.
pub(crate) fn is_capturing() -> bool {
    registry::REGISTRY.is_capturing()
}

/// In a forked child.
pub(crate) fn start_anew() {
    registry::REGISTRY.start_anew();
}
