//! Baton's decisions, and their rules. Pure: the caller brings events and the time, and carries out the decisions.
//!
//! - [`arbiter`]: who may run. [`scheduler`]: the same for tenants that share memory, which run together. [`bursts`]: when work is taken off the GPU for others beside it.
//! - [`in_flight`]: how much is queued on the GPU for that.
//! - [`planner`], [`first_use`]: in which order and groups memory comes in.

pub mod arbiter;
pub mod bursts;
pub mod first_use;
pub mod in_flight;
pub mod planner;
pub mod scheduler;
