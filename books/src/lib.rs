//! Who has which memory. Pure: nothing here calls the driver or the system.
//!
//! - [`ledger`]: every byte of the GPU. [`arena`]: its frames. [`pool`]: the host's bytes. [`extents`]: one tenant's memory, and
//!   where it is.
//! - [`reservations`]: what is kept for those who have said what they need. [`sizes`]: how many pieces of which size.

pub mod arena;
pub mod extents;
pub mod ledger;
pub mod pool;
pub mod reservations;
pub mod sharing;
pub mod sizes;
