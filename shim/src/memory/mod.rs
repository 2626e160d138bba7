//! The program's device memory: allocations at addresses that never change, whatever moves behind them.
//!
//! ```text
//! cuMemAlloc ── hooks ── space ── table (what the program has)
//!                          │ ├─── window (addresses)
//!                          │ └─── extents (mapping)
//!                          └ session ── coordinator (frames)
//! ```
//!
//! - [`space`]: gives and takes allocations.
//! - [`table`], [`window`], [`extents`]: the books behind it.
//! - [`unmanaged`]: memory that is not virtualised, counted.

pub(crate) mod extents;
pub(crate) mod space;
pub(crate) mod table;
pub(crate) mod unmanaged;
mod window;
