//! The GPU's memory: physical handles, the addresses they are mapped at, allocations over both, and
//! the traffic of copies, fills and kernels through all of it.
//!
//! | file | what it does |
//! |---|---|
//! | `phys` | a physical handle |
//! | `space` | addresses: reserved, mapped, accessible |
//! | `allocations` | the program's allocations, by address |
//! | `allocate` | `cuMemAlloc`: addresses and physical memory together |
//! | `view` | the address space as one of the GPUs sees it |
//! | `traffic` | the one place that touches the device's memory |
//! | `team` | multicast objects |
//! | `bus` | memory that other devices reach |

mod allocate;
pub(crate) mod allocations;
pub(crate) mod bus;
pub(crate) mod phys;
pub(crate) mod space;
pub(crate) mod team;
pub(crate) mod traffic;
pub(crate) mod view;
