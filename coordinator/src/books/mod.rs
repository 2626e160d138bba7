//! Who has which memory. Pure: nothing here calls the driver or the system.
//!
//! - [`arena`]: the GPU's frames. [`pool`]: the host's bytes.

pub mod arena;
pub mod pool;
