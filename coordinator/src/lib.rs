//! The coordinator of a GPU: it owns the memory, and decides which programs run.
//!
//! - [`device`]: the driver, and the threads that wait for it.
//! - [`server`]: the loop that owns all state, and its parts.
//! - [`keeper`]: the process that starts it, and holds what the next one needs.
//! - [`endpoint`]: the coordinator's place. [`records`]: the files that it leaves behind.

pub mod device;
pub mod endpoint;
pub mod keeper;
mod random;
pub mod records;
pub mod server;

/// The format of the table that says where all memory is. A coordinator of another one cannot follow.
pub use baton_books::table::VERSION as TABLE_FORMAT;
