//! Memory: whose is what, and how it comes and goes.
//!
//! Three floors, each of which knows only those below it, and a thin front:
//!
//! | file | what it does |
//! |---|---|
//! | **`ground`** | the owners of memory itself, which the floors above are passed |
//! | `frames`, `host` | the arena and the pool on the host: free, new and dirty memory |
//! | `transfer` | copies under way |
//! | `scan` | what memory holds: what has changed, what is zero, what points where |
//! | `departed` | memory of tenants that have ended |
//! | `room` | how much memory there is, for whom |
//! | `commands` | what lanes and tenants are told to do |
//! | `delivery` | frames that do not reach a tenant at its limit of descriptors |
//! | `sharing` | memory that several tenants have |
//! | `consolidate` | memory that becomes one piece, because other processes are to have it |
//! | **`residency`** | what leaves and what arrives |
//! | `recut`, `fit` | memory is cut into as few extents as possible, or into the sizes at hand |
//! | `leaving`, `evict` | memory that leaves; whose |
//! | `take` | memory that is taken without asking from a tenant that does not answer |
//! | `compact`, `free` | memory that is spare, or freed |
//! | `arrive`, `swap_in` | memory that arrives; how a tenant comes in: order, groups, running meanwhile |
//! | `ahead`, `prefetch` | copies out, and memory brought in, before anybody asks |
//! | `reports` | what the end of a copy means, and what tenants have done with their mappings |
//! | **`claims`** | who waits for memory |
//! | `allocate` | whether a tenant may have so much more, and frames for it |
//! | `beside` | memory outside the arena: the ledger's leases, contexts |
//! | `immovable` | memory that others can reach, and which stays |
//! | `offers`, `quotas` | what each tenant is shown, and what a guest's programs may have |
//! | `obstacle` | what memory that somebody waits for waits for itself |
//!
//! [`Memory`] is all of it. Whoever asks for something gets a [`Handle`], with all else that is needed for the answer: the tenants, to
//! tell them what to map; the arbiter, only to see whose turn it is. What others have to act upon comes back as a [`MemoryEvent`].

mod ahead;
mod allocate;
mod arrive;
mod beside;
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
mod prefetch;
mod quotas;
mod recut;
mod reports;
mod residency;
mod room;
mod scan;
mod scans;
mod sharing;
mod swap_in;
mod take;
mod transfer;

pub(super) use self::departed::Remains;
pub(super) use self::events::MemoryEvent;
pub(super) use self::evict::Evicted;
pub(super) use self::facade::{Handle, Memory};
pub(super) use self::obstacle::Obstacle;
pub(super) use self::prefetch::Fetched;
pub(super) use self::sharing::Attaching;
