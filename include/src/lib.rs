//! The contract of Baton's parts with the CUDA driver and with each other.
//!
//! - [`cuda`]: the driver API's types and codes, spelled with integers only.
//! - [`settings`]: the names of the environment variables that a user may set.
//! - [`messages`], [`wire`], [`page`], [`link`]: the messages between tenants and the coordinator as types, as bytes, in shared memory,
//!   and over a socket.
//! - [`class`](mod@class), [`scheduling`], [`memory`], [`socket_path`]: words that both sides use.
//! - [`resource_manager`]: the way in which NVIDIA's driver takes a process's work off the GPU.
//! - [`SYMBOLS_CUDA`], [`SIGNATURES`] and [`SYMBOLS_BEYOND`]: the driver's entry points, as data.

extern crate alloc;

pub mod class;
pub mod cuda;
pub mod link;
pub mod memory;
pub mod messages;
pub mod page;
pub mod resource_manager;
pub mod scheduling;
pub mod settings;
pub mod socket_path;
pub mod text;
pub mod wire;

/// The entry points of `cuda.h` as of CUDA 13.5, as JSON rows `[base, twin, version, symbol]`, made by `symbols/remake.py`.
///
/// `base` is the name a program asks `cuGetProcAddress` for, `twin` is empty, `"_ptds"` or `"_ptsz"`
/// (the per-thread default stream variants), `version` the first CUDA version with this symbol.
pub const SYMBOLS_CUDA: &str = include_str!("../symbols/cuda.json");

/// The parameters of those entry points, as JSON rows `[symbol, parameter, parameter, …]`, made by `symbols/remake.py`.
///
/// A parameter is its C type; after a void pointer comes the parameter's name.
pub const SIGNATURES: &str = include_str!("../symbols/signatures.json");

/// The symbols that drivers export beyond that header, as JSON rows `[symbol, kind, drivers]`.
///
/// `kind` is `"function"` or `"data"`; `drivers` lists the versions it was seen in with `nm -D`.
pub const SYMBOLS_BEYOND: &str = include_str!("../symbols/beyond.json");
