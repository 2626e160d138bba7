//! What the driver does for the server, on threads of its own where it takes time.
//!
//! - [`gpu`]: the GPU's memory; [`error`]: why it did not do what was asked. [`mover`]: copies. [`slabs`]: the host pool's memory. [`digest`]: what is in memory.
//! - [`preemptor`]: taking work off the GPU, with what the driver offers for that ([`pauser`]). [`holders`]: who else has memory of it. [`lookout`]: looks for them.
//! - [`wake`]: how these threads tell the server that they are done.

pub mod digest;
pub mod error;
pub mod gpu;
pub mod holders;
pub mod lookout;
pub mod mover;
pub mod pauser;
pub mod preemptor;
pub mod slabs;
pub mod wake;
