//! Baton's decisions, and their rules. Pure: the caller brings events and the time, and carries out the decisions.
//!
//! - [`arbiter`]: the tenant that may run. [`scheduler`]: the same for tenants that share memory, which run together.
//!   [`gangs`]: the same for tenants on several GPUs.
//!   [`bursts`]: the times at which work is taken off the GPU for others beside it.
//! - [`in_flight`]: the amount of work queued on the GPU for that.
//! - [`planner`], [`first_use`], [`arrival`]: the order and the groups in which memory comes in.
//! - [`placement`]: the GPU for a program that may use any.
//! - [`victims`]: the memory that leaves for it. [`prefetch`]: the memory that comes before its tenant's turn.

pub mod arbiter;
pub mod arrival;
pub mod bursts;
#[cfg(test)]
mod dice;
pub mod first_use;
pub mod gangs;
pub mod in_flight;
pub mod placement;
pub mod planner;
pub mod prefetch;
pub mod scheduler;
pub mod victims;
