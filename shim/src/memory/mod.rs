//! The program's device memory: allocations at addresses that never change, whatever moves behind them.
//!
//! ```text
//! space ── table (what the program has)
//!  │ ├─── window (addresses)
//!  │ └─── extents (mapping)
//!  └ link ── coordinator (frames)
//! ```
//!
//! - [`space`]: gives and takes allocations. [`bounds`]: whether calls stay within them.
//! - [`table`], `window`, [`extents`]: the books behind it. [`layout`]: as those see it who wait for memory.
//! - `vmm`: the program's own handles and mappings. [`mappings`]: the books of those.
//! - [`pools`]: memory that is allocated in streams' order. `room`: what of a pool nobody has. [`order`]: which streams come after which frees.
//! - [`ipc`]: memory that processes let each other open.
//! - `immovable`: memory that others can reach, and which stays.
//! - [`unmanaged`]: memory that is not virtualised, counted.

pub(crate) mod bounds;
pub(crate) mod extents;
mod immovable;
pub(crate) mod ipc;
pub(crate) mod layout;
pub(crate) mod mappings;
pub(crate) mod order;
pub(crate) mod pools;
mod room;
pub(crate) mod space;
mod spare;
pub(crate) mod table;
pub(crate) mod told;
pub(crate) mod unmanaged;
mod vmm;
mod window;
