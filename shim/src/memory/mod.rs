//! The program's device memory: allocations at addresses that never change, whatever moves behind them.
//!
//! ```text
//! cuMemAlloc ── hooks ── space ── table (what the program has)
//!                          │ ├─── window (addresses)
//!                          │ └─── extents (mapping)
//!                          └ session ── coordinator (frames)
//! ```
//!
//! - [`hooks`]: the driver's names, and when a call is the driver's own business after all.
//! - [`space`]: gives and takes allocations.
//! - [`table`], [`window`], [`extents`]: the books behind it.
//! - [`pinned`]: memory that is not virtualised, counted.

pub(crate) mod extents;
pub(crate) mod hooks;
pub(crate) mod pinned;
pub(crate) mod space;
mod table;
mod window;
