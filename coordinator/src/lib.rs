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
//! - [`policy`]: who may run, and in which order memory comes. [`books`]: who has which memory. Both are pure.
//! - [`device`]: the driver, and the threads that wait for it.
//! - [`server`]: the loop that owns all state, and what it is made of.

pub mod bench;
pub mod books;
pub mod cli;
pub mod demo;
pub mod device;
pub mod driver;
pub mod endpoint;
pub mod install;
pub mod policy;
mod scene;
pub mod server;
