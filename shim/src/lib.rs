//! `libbaton.so`: stands between a CUDA program and the driver.
//!
//! When preloaded, this library is the one that the loader hands out as `libcuda.so.1`. Every call of the program comes in through an
//! **export** (one of the driver's names) and leaves towards the real driver:
//!
//! ```text
//! program ── cuLaunchKernel ──> export ─ slot ──> the driver's own           (most names)
//!                                          └────> hook ── gate ──> driver    (names in hooks/table.rs)
//!                                          └────> trace ──> either           (only with BATON_TRACE)
//! program ── cuGetProcAddress ─> procaddress ──> asks the driver, answers with our export of that name
//! program ── dlopen("libcuda.so") ─> dlopen ──> the same exports
//! ```
//!
//! With its first context the process becomes a tenant of a coordinator, if there is one:
//!
//! ```text
//! hooks ── arrival ── gate                                           (calls that touch device memory)
//!   ├───── memory ─── link ── socket ──> the coordinator             (allocations)
//!   └───── work            session ── control loop ── gate, mappings (its commands)
//! ```
//!
//! The folders are floors: each uses only those above it here, and no files use each other in a circle (`floors.rs`).
//!
//! - `sys`: our needs of the system. `driver`: the real one, and our own calls of it. `link`: the coordinator's client.
//! - `gate`: holds calls back. `memory`: the program's allocations. `work`: knows the queued work.
//! - `channels`: the work of this process that can be taken off the GPU; sees the driver's `ioctl`s go by.
//! - `arrival`: running while memory is still on its way. `session`: joining, and following the coordinator's commands.
//! - `hooks`: the handling of each call. `exports`: the names that programs call.
//!
//! Nothing happens before the first call: slots start at stubs that find the driver (`driver`) and
//! the hook, and fill themselves in (`exports::symbols`). A program that never calls CUDA gets no thread, no
//! allocation, no message. Only the user's settings are put aside when the library is loaded (`sys::environment`).
//!
//! # Safety
//!
//! Unsafe code is here because the neighbours are C: the exported functions trust their callers as
//! the driver trusts them, and pass every argument on as it came. Our own rules are: a function
//! pointer is only made from a symbol whose C signature the hook table spells; out-parameters are
//! only written by the driver, or after a null check; nothing panics across the border.

// The exported names are the driver's.
#![allow(non_upper_case_globals, non_snake_case, reason = "names are the driver's own, so that a search finds them")]

mod arrival;
mod channels;
mod driver;
mod exports;
mod gate;
mod hooks;
mod link;
mod memory;
mod session;
mod sys;
mod work;

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod floors;
#[cfg(test)]
mod signatures;
