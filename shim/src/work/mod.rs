//! The program's work on the GPU: its amount, and its end.
//!
//! - [`aside`]: the thread for tasks that no call may wait for.
//! - [`contexts`]: the program's contexts and streams, and how they are asked about while others make and destroy them.
//! - [`leaving`]: contexts that may be ending, and the proof that one has.
//! - [`mark`]: a place behind queued work, which tells whether everything before it has ended.
//! - [`capture`]: streams that begin to capture: from then on they cannot be asked.
//! - [`drain`](mod@drain): tells when everything has ended.
//! - [`limit`]: keeps little in flight while another tenant waits for the GPU.
//! - [`frees`]: memory that is freed when work has ended. [`pools`]: memory that is allocated and freed in streams' order.
//! - [`reading`]: reads device memory.
//!
//! Nothing in here waits in the driver, or queues work in a stream that orders others; the exception is a wait that the program allows a
//! pool to put into the allocating stream.

mod aside;
pub(crate) mod capture;
pub(crate) mod contexts;
pub(crate) mod drain;
pub(crate) mod frees;
pub(crate) mod idle;
pub(crate) mod leaving;
pub(crate) mod limit;
pub(crate) mod mark;
pub(crate) mod pools;
pub(crate) mod reading;
