//! Taking tenants off the GPU in the middle, and putting them back.

mod deschedule;
mod preempt;
mod probe;
mod timeslice;
