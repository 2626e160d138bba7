//! What the driver does for the server, on threads of its own where it takes time.
//!
//! - [`gpu`]: the GPU's memory. [`mover`]: copies. [`slabs`]: the host pool's memory. [`digest`]: what is in memory.
//! - [`preemptor`]: taking work off the GPU. [`holders`]: who else has memory of it. [`lookout`]: looks for them.
//! - [`wake`]: how these threads tell the server that they are done.

pub mod digest;
pub mod gpu;
pub mod holders;
pub mod lookout;
pub mod mover;
pub mod preemptor;
pub mod slabs;
pub mod wake;
