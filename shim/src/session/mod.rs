//! The session: this process as a tenant of a coordinator.
//!
//! It begins when the program first takes a GPU that is shared: with its first context there, or with device memory before that, at the
//! latest with the first hooked call that finds a context. It ends with the process. A program that only asks for the list of GPUs has
//! none, nor has one without a coordinator, and all its calls pass through. A forked child has none: CUDA does not work there either.
//!
//! - `tenant`: this process as a tenant. `joining`: decides when it becomes one. `connect`: finds the coordinator and greets it.
//! - `refuse`: ends a program that has to share the GPU and cannot.
//! - `control`: the thread that follows the coordinator's commands. `idle`: tells how long the program has been quiet.
//! - `corun`: this program's state while it runs at the same time as others. `requests`: finds the end of its requests.
//! - `consolidation`: memory that becomes one piece because it is exported.
//! - `probe`: tests whether mappings can be changed while our work is paused.
//! - `fork`: closes the files that a forked child must not keep.

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
