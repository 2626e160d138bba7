//! The GPU's memory: physical handles, the addresses they are mapped at, allocations over both, and
//! the traffic of copies, fills and kernels through all of it.

pub(crate) mod allocations;
pub(crate) mod bus;
pub(crate) mod phys;
pub(crate) mod space;
pub(crate) mod team;
pub(crate) mod traffic;
pub(crate) mod view;
