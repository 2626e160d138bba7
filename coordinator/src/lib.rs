//! Behind the `baton` command: its parts as a library, so that tests and other tools can use them.
//!
//! - [`install`]: where Baton's own files lie.
//! - [`driver`]: which CUDA driver programs will run on.
//! - [`demo`]: runs example programs bare and under Baton and compares what they compute.

pub mod demo;
pub mod driver;
pub mod install;
