//! `libsimcuda.so`: a CUDA driver without a GPU.
//!
//! It carries programs of the CUDA *driver API*: contexts, memory with its virtual addresses, copies,
//! streams, events, PTX modules, launches, graphs. It refuses what it cannot do as a driver that lacks the
//! feature would. Kernels are the built-in ones of `kernels/`, chosen by the name of their PTX entry;
//! launching another answers `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! A call's way: an export in `api/` (one row per entry point: names, versions, parameters) → `door.rs`
//! (is the driver initialised; a panic is no crash of the program) → the row's function, which reads
//! its arguments through `border.rs` and finds objects by handle (`registry.rs`) → `exec/submit.rs`, if it is
//! work for a stream → a stream's thread runs the operation (`exec/op.rs`) → `memory/traffic.rs`, the one
//! place that touches the device's memory. `engine.rs` decides how long a copy or a kernel takes.
//!
//! No files use each other in a circle. From the ground up: the GPU (`gpu_file/`, `engine.rs`, `memory/`), streams and events
//! (`exec/`), pools, contexts (`exec/context.rs`), kernels and modules, operations (`exec/op.rs`), graphs, the driver with all its
//! objects (`state.rs`), captures and submission, the calls. So a lower file keeps as an opaque value what belongs to a higher
//! one: a stream its work (`Work`), its context and its capture, an allocation the lease of a pool, a kernel its
//! context (`Machine`).
//!
//! Nothing runs before `cuInit`. Settings are environment variables, described in `settings.rs`; `gpu_file/` has the part of the
//! simulated GPU that several processes share.
#![deny(unsafe_code)]
// The tables of exports are read row by row.
#![recursion_limit = "256"]

mod api;
mod border;
mod device;
mod door;
mod engine;
mod errors;
mod exec;
mod gpu_file;
mod graph;
mod kernels;
mod mapping;
mod memory;
mod module;
mod pool;
mod registry;
mod settings;
mod shared_file;
mod state;
mod visible;
