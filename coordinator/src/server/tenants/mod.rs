//! Who the tenants are: their processes, connections and pages, and what each of them has.

pub(super) mod activity;
pub(super) mod connection;
pub(super) mod container;
mod descriptors;
pub(super) mod guests;
pub(super) mod index;
pub(super) mod memory;
pub(super) mod peer;
pub(super) mod preemption;
pub(super) mod process;
pub(super) mod shared;
pub(super) mod signs;
pub(super) mod slice;
pub(super) mod table;
pub(super) mod tenant;
pub(super) mod turn;
