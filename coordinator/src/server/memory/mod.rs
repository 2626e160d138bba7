//! Memory: whose is what, and how it comes and goes.
//!
//! | file | what it does |
//! |---|---|
//! | `allocate` | whether a tenant may have so much more, and frames for it |
//! | `frames` | free ones, new ones, dirty ones |
//! | `evict` | memory that leaves |
//! | `swap_in` | how a tenant comes in: order, groups, running meanwhile |
//! | `prefetch` | what is done before anybody asks |
//! | `scan` | what memory holds: what has changed, what is zero, what points where |
//! | `transfer` | copies under way, and what tenants are told to do with their mappings |
//! | `delivery` | frames that do not reach a tenant at its limit of descriptors |
//! | `immovable` | memory that others can reach, and which stays |
//! | `departed` | memory of tenants that have ended |

pub(super) mod allocate;
pub(super) mod delivery;
pub(super) mod departed;
mod evict;
pub(super) mod frames;
mod immovable;
mod prefetch;
pub(super) mod scan;
pub(super) mod swap_in;
pub(super) mod transfer;
