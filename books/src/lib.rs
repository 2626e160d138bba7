//! The books of all memory and its holders. Pure: nothing here calls the driver or the system.
//!
//! - [`ledger`]: every byte of the GPU. [`arena`]: its frames. [`pool`]: the host's bytes. [`extents`]: one tenant's memory, and
//!   its place.
//! - [`reservations`]: memory kept for programs that have declared their need. [`sizes`]: numbers of pieces of each size.
//! - [`table`]: where all memory is, in records that outlive the coordinator.

pub mod arena;
pub mod extents;
pub mod ledger;
pub mod pool;
pub mod reservations;
pub mod sharing;
pub mod sizes;
pub mod table;
