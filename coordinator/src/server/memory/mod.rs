//! Memory: its owners, and how it comes and goes.
//!
//! Three floors, each of which knows only those below it, and a thin front:
//!
//! | file | contents |
//! |---|---|
//! | **`ground`** | the owners of memory itself, passed to the floors above |
//! | `frames`, `host` | the arena and the pool on the host: free, new and dirty memory |
//! | `transfer` | copies under way |
//! | `scan` | contents of memory: changed pages, zero pages, pointers |
//! | `departed` | memory of tenants that have ended |
//! | `returned` | memory of tenants that another coordinator has had |
//! | `room` | the memory available to each tenant |
//! | `commands` | commands to lanes and tenants |
//! | `delivery` | frames that do not reach a tenant at its limit of descriptors |
//! | `sharing` | memory that several tenants have |
//! | `reattached` | the same, when tenants come back from another coordinator |
//! | `consolidate` | memory that becomes one piece, because other processes are to reach it |
//! | **`residency`** | memory that leaves and memory that arrives |
//! | `recut`, `fit` | memory is cut into as few extents as possible, or into the sizes at hand |
//! | `leaving`, `evict` | memory that leaves, and the choice of its tenants |
//! | `take` | memory that is taken without asking from an unresponsive tenant |
//! | `compact`, `free` | memory that is spare, or freed |
//! | `arrive`, `swap_in` | memory that arrives; how a tenant comes in: order, groups, running meanwhile |
//! | `ahead`, `prefetch` | copies out, and memory brought in, ahead of need |
//! | `reports` | the end of copies, and tenants' reports about their mappings |
//! | **`claims`** | tenants that wait for memory |
//! | `allocate` | the check that a tenant may have more memory, and the frames for it |
//! | `beside` | memory outside the arena: the ledger's leases, contexts |
//! | `immovable` | memory that others can reach, and which stays |
//! | `offers`, `quotas` | the offer shown to each tenant, and the quotas of a guest's programs |
//! | `obstacle` | the obstacle to the memory that a tenant waits for |
//!
//! [`Memory`] is all of it. Each caller gets a [`Handle`], with everything else needed for the answer: the tenants, to send them
//! commands; the arbiter, only to read whose turn it is. Events that other modules have to act upon come back as a [`MemoryEvent`].

mod ahead;
mod allocate;
mod arrive;
mod breach;
mod claims;
mod commands;
mod compact;
mod consolidate;
mod delivery;
mod departed;
mod events;
mod evict;
mod facade;
mod fit;
mod frames;
mod free;
mod ground;
mod host;
mod immovable;
mod leases;
mod leaving;
mod movable;
mod obstacle;
mod offers;
mod outside;
mod prefetch;
mod quotas;
mod reattached;
mod recut;
mod reports;
mod residency;
mod returned;
mod room;
mod scan;
mod scans;
mod sharing;
mod swap_in;
mod take;
mod transfer;

pub(super) use self::breach::MemoryBreach;
pub(super) use self::departed::Remains;
pub(super) use self::events::MemoryEvent;
pub(super) use self::evict::Evicted;
pub(super) use self::facade::{Handle, Memory};
pub(super) use self::obstacle::Obstacle;
pub(super) use self::prefetch::Fetched;
pub(super) use self::sharing::Attaching;
