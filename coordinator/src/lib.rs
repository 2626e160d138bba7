//! The coordinator of a GPU: owns its memory, and decides who runs.
//!
//! - [`device`]: the driver, and the threads that wait for it.
//! - [`server`]: the loop that owns all state, and what it is made of.
//! - [`endpoint`]: where it is found. [`records`]: what it leaves behind.

pub mod device;
pub mod endpoint;
pub mod records;
pub mod server;
