//! The driver's work for the server, on threads of its own where it takes time.
//!
//! - [`gpu`]: the GPU's memory; [`error`]: the driver's errors. [`mover`]: copies. [`slabs`]: the host pool's memory. [`digest`]: scans
//!   of memory.
//! - [`preemptor`]: taking work off the GPU, by the driver's means ([`pauser`]); [`pauses`]: that of programs on several GPUs. [`holders`]: other processes with memory of the GPU.
//!   [`lookout`]: scans for them.
//! - [`wake`]: wakes the server when these threads are done. [`words`]: memory that outlives the coordinator.

pub mod digest;
pub mod error;
pub mod gpu;
pub mod holders;
pub mod lookout;
pub mod mover;
pub mod pauser;
pub mod pauses;
pub mod preemptor;
pub mod slabs;
pub mod wake;
pub mod words;
