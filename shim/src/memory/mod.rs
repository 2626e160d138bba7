//! The program's device memory: allocations at addresses that never change, even when their memory moves.
//!
//! ```text
//! space ── table (the program's allocations)
//!  │ ├─── window (addresses)
//!  │ └─── extents (mapping)
//!  └ link ── coordinator (frames)
//! ```
//!
//! - [`space`]: allocates and frees memory. [`bounds`]: checks that calls stay within allocations.
//! - [`table`], `window`, [`extents`]: the books behind it. [`layout`]: the books as seen by calls that wait for memory.
//! - `vmm`: the program's own handles and mappings. [`mappings`]: the books of those.
//! - [`pools`]: memory that is allocated in streams' order. `room`: a pool's memory and its free parts. [`order`]: the streams that come
//!   after each free.
//! - [`ipc`]: memory that processes let each other open.
//! - [`access`]: the GPUs that have access. `immovable`: memory that others can access, and which may have to stay.
//! - [`unmanaged`]: memory that is not virtualised, counted.

pub(crate) mod access;
pub(crate) mod bounds;
pub(crate) mod extents;
mod immovable;
pub(crate) mod ipc;
pub(crate) mod layout;
pub(crate) mod mappings;
pub(crate) mod order;
pub(crate) mod pools;
pub(crate) mod reported;
mod room;
pub(crate) mod sealed;
pub(crate) mod space;
mod spare;
pub(crate) mod table;
pub(crate) mod unmanaged;
pub(crate) mod vmm;
mod window;
