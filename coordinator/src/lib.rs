//! Behind the `baton` command: its parts as a library, so that tests and other tools can use them.
//!
//! - [`install`]: where Baton's own files lie.
//! - [`driver`]: which CUDA driver programs will run on.
//! - [`demo`]: runs programs that do not fit the GPU together, alone and sharing it, and compares results.
//!
//! - [`cli`]: the commands.
//!
//! The coordinator itself:
//!
//! - [`server`]: the loop that owns all state, and what it is made of.
//! - [`arbiter`]: who may run. [`arena`], [`pool`]: the books of device and host memory. All three are pure.
//! - [`gpu`], [`mover`], [`slabs`]: the driver, copies, and the host pool's memory.

pub mod arbiter;
pub mod arena;
pub mod cli;
pub mod demo;
pub mod driver;
pub mod gpu;
pub mod install;
pub mod mover;
pub mod pool;
pub mod server;
pub mod slabs;
pub mod wake;
