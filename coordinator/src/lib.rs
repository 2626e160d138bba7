//! Behind the `baton` command: its parts as a library, so that tests and other tools can use them.
//!
//! - [`install`]: where Baton's own files lie.
//! - [`driver`]: which CUDA driver programs will run on.
//! - [`bench`](mod@bench): measures what it costs programs to share a GPU.
//! - [`demo`]: runs programs that do not fit the GPU together, alone and sharing it, and compares results.
//!
//! - [`cli`]: the commands. [`endpoint`]: where a coordinator is found.
//!
//! The coordinator itself:
//!
//! - [`server`]: the loop that owns all state, and what it is made of.
//! - [`arbiter`]: who may run. [`arena`], [`pool`]: the books of device and host memory. All three are pure.
//! - [`planner`], [`first_use`]: in which order and groups memory comes in. Pure too.
//! - [`holders`]: who else has memory of the GPU.
//! - [`gpu`], [`mover`], [`slabs`], [`preemptor`]: the driver, copies, the host pool's memory, and taking work off the
//!   GPU.

pub mod arbiter;
pub mod arena;
pub mod bench;
pub mod bursts;
pub mod cli;
pub mod demo;
pub mod digest;
pub mod driver;
pub mod endpoint;
pub mod first_use;
pub mod gpu;
pub mod holders;
pub mod install;
pub mod mover;
pub mod planner;
pub mod pool;
pub mod preemptor;
mod scene;
pub mod server;
pub mod slabs;
pub mod wake;
