//! The gangs' members on this GPU.

use std::collections::{BTreeMap, BTreeSet};

use baton_policy::arbiter::TenantId;
use baton_policy::gangs::GangId;

/// The gangs that have members on this GPU.
#[derive(Debug, Default)]
pub(in crate::server) struct Seats {
    pub(in crate::server) of: BTreeMap<GangId, Seat>,
    /// Tenants that another coordinator has had and that are not of their gangs again yet. The machine counts on them.
    pub(in crate::server) expected: BTreeMap<TenantId, GangId>,
    /// The number of claims so far.
    claims: u64,
}

/// A gang's members on this GPU, which are a unit.
#[derive(Debug, Default)]
pub(in crate::server) struct Seat {
    pub(in crate::server) members: BTreeSet<TenantId>,
    /// The number of the last claim.
    pub(in crate::server) claim: u64,
    /// Its memory was here then, and the machine was told.
    pub(in crate::server) is_ready: bool,
    /// It may be let in.
    pub(in crate::server) is_admitted: bool,
}

impl Seats {
    /// True if tenants of a gang are to be of it again.
    pub(in crate::server) fn expects(&self, gang: GangId) -> bool {
        self.expected.values().any(|other| *other == gang)
    }

    /// A number that no claim has had.
    pub(in crate::server) fn next_claim(&mut self) -> u64 {
        self.claims += 1;
        self.claims
    }
}
