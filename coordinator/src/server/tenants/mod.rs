//! The tenants: their processes, connections and pages, and the state of each.
//!
//! | file | what it does |
//! |---|---|
//! | `tenant` | one tenant, as the server knows it |
//! | `table` | all tenants: messages to each, and sums over all |
//! | `index` | counts and orders of all tenants, kept up as each changes |
//! | `connection` | reaches a tenant: its process, sockets and pages |
//! | `peer` | one socket, which never makes the server wait |
//! | `descriptors` | handles descriptors from peers, which may be of anything |
//! | `facts` | a tenant, as the keeper has it |
//! | `seats` | the gangs' members on this GPU |
//! | `process` | knows a process by a descriptor |
//! | `container` | reads the container and pod of a process from its control group |
//! | `guests` | counts the resources and quotas of users other than the coordinator's and root |
//! | `shared` | the pages that a tenant and the server share |
//! | `activity` | the activity pages of domains |
//! | `signs` | signs of life |
//! | `memory` | a tenant's memory, and its orders about it |
//! | `turn` | a tenant's turn |
//! | `preemption` | the stages of taking a tenant off the GPU |
//! | `off` | the memory of a tenant that is taken off the GPU |
//! | `limits` | time limits of tenants |
//! | `slice` | a tenant's time slice on the GPU |

pub(super) mod activity;
pub(super) mod connection;
pub(super) mod container;
mod descriptors;
pub(super) mod facts;
pub(super) mod guests;
pub(super) mod index;
pub(super) mod limits;
pub(super) mod memory;
mod off;
pub(super) mod peer;
pub(super) mod preemption;
pub(super) mod process;
pub(super) mod seats;
pub(super) mod shared;
pub(super) mod signs;
pub(super) mod slice;
pub(super) mod table;
pub(super) mod tenant;
pub(super) mod turn;
