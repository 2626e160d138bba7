//! The session: this process as a tenant of a coordinator.
//!
//! It begins when the program first takes a GPU that is shared: with its first context there, or with device memory before
//! that, at the latest with the first hooked call that finds a context. It ends with the process. A program that only asks
//! what GPUs there are has none, nor has one without a coordinator, and everything passes through. A forked child has
//! none: CUDA does not work there either.
//!
//! - `tenant`: what this process is then. `joining`: when. `connect`: finds the coordinator and greets it.
//! - `refuse`: ends a program that has to share the GPU and cannot.
//! - `control`: the thread that does what the coordinator says. `idle`: whether the program has been quiet.
//! - `corun`: where this program stands when it runs at the same time as others. `requests`: when its requests end.
//! - `consolidation`: memory that becomes one piece because it is exported.
//! - `probe`: whether that can be done while our work is paused.
//! - `fork`: what a forked child must not keep.

mod connect;
mod consolidation;
mod control;
mod corun;
mod fork;
mod idle;
mod joining;
mod probe;
mod refuse;
mod requests;
mod rest;
mod tenant;

pub(crate) use joining::{Of, attend, join, of, total_of};
pub(crate) use tenant::{Session, get};
