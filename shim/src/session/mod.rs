//! The sessions: this process as a tenant, of a coordinator for each GPU that it shares.
//!
//! A session begins when the program first takes a GPU that is shared: with its first context there, or with device memory before that, at
//! the latest with the first hooked call that finds a context. It ends with the process. A program that only asks for the list of GPUs has
//! none, nor has one without a coordinator, and all its calls pass through. A forked child has none: CUDA does not work there either.
//!
//! There is one gate. It is open when it is this program's turn on all the GPUs on which it is at work: those are a gang. On a GPU where it
//! has no more than a context, it waits for no turn.
//!
//! - `tenant`: this process as a tenant. `joining`: decides when it becomes one. `connect`: finds the coordinator and greets it. `gang`: the
//!   number that makes a gang of its GPUs.
//! - `refuse`: ends a program that has to share the GPU and cannot.
//! - `control`: the thread that follows the coordinators' commands. `idle`: tells how long the program has been quiet.
//! - `corun`: this program's state while it runs at the same time as others. `requests`: finds the end of its requests.
//! - `consolidation`: memory that becomes one piece because it is exported.
//! - `probe`: tests whether mappings can be changed while our work is paused.
//! - `fork`: closes the files that a forked child must not keep.

mod connect;
mod consolidation;
mod control;
mod corun;
mod fork;
mod gang;
mod idle;
mod joining;
mod probe;
mod refuse;
mod requests;
mod rest;
mod tenant;

pub(crate) use joining::{Relation, attend, join, join_for_memory, relation_to, total_of};
pub(crate) use tenant::{Session, all, at, current, is_any, of};
