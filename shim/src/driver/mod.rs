//! The real driver: where it is, what it is called, what stands in for what it lacks, and the calls that we make ourselves.

pub(crate) mod api;
pub(crate) mod family;
pub(crate) mod find;
pub(crate) mod functions;
pub(crate) mod in_use;
pub(crate) mod ld_cache;
pub(crate) mod missing;
pub(crate) mod symbols;
