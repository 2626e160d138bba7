//! Residency: the tenants' memory on the GPU. It covers memory that leaves, memory that arrives, and both ahead of need.
//!
//! Each file uses only those before it: `recut`, `leaving`, `evict`, `take`, `compact`, `fit`, `arrive`, `swap_in`, `ahead`, `prefetch`,
//! `free`, `reports`.

use std::collections::{HashMap, VecDeque};

use baton_contract::messages::ExtentId;

use super::ground::Ground;
use super::transfer::Rest;
use crate::device::digest::Page;
use crate::device::wake::Waker;
use baton_books::arena::FrameId;
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

/// A unit that is swapped in for the baton, with all memory of its tenants.
#[derive(Debug)]
pub(super) struct SwapIn {
    pub(super) unit: TenantId,
    /// The memory that comes now, once that is planned.
    pub(super) now: Option<Coming>,
    /// Extents of its tenants that leave, or have left, so that they can be recut with the memory that comes.
    pub(super) leaves: HashMap<TenantId, Vec<ExtentId>>,
}

/// A tenant's memory that is coming in.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) tenant: TenantId,
    /// Extents that are not on their way yet, in groups.
    pub(super) left: VecDeque<Vec<ExtentId>>,
    /// The number of extents of each class that come in frames used as they are ([`super::fit`]).
    pub(super) as_it_is: PerClass,
}

impl SwapIn {
    pub(super) fn new(unit: TenantId) -> Self {
        Self { unit, now: None, leaves: HashMap::new() }
    }
}

/// Progress of the copies ahead of need for a program that rests.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) tenant: TenantId,
    pub(super) rest: Rest,
    /// Extents that have not been scanned.
    pub(super) left: VecDeque<ExtentId>,
    /// Scanned extents that differ from their last copy.
    pub(super) changed: VecDeque<(ExtentId, FrameId, Vec<Page>)>,
}

/// The swap-in under way, and the copies ahead of need.
pub(super) struct Residency {
    pub(super) waker: Waker,
    pub(super) swap_in: Option<SwapIn>,
    pub(super) ahead: Option<Ahead>,
}

impl Residency {
    /// Creates a residency with no work under way. `waker` wakes the server for the next step.
    pub(super) fn new(waker: Waker) -> Self {
        Self { waker, swap_in: None, ahead: None }
    }

    /// Starts to swap a unit in. Only one unit is swapped in at a time: if another one is asked for, the first goes back to
    /// waiting.
    pub(super) fn swap_in(&mut self, unit: TenantId) {
        self.swap_in = Some(SwapIn::new(unit));
    }

    /// The unit that is being swapped in.
    pub(super) fn swapping_in(&self) -> Option<TenantId> {
        self.swap_in.as_ref().map(|swap_in| swap_in.unit)
    }

    /// True if memory is coming in for a tenant.
    pub(super) fn brings_in(&self, ground: &Ground<'_>, id: TenantId) -> bool {
        self.swapping_in().is_some_and(|unit| ground.arbiter.are_united(unit, id))
    }

    /// Ends a swap-in that is complete or given up.
    pub(super) fn end_swap_in(&mut self, ground: &Ground<'_>, id: TenantId) {
        self.swap_in.take_if(|swap_in| ground.arbiter.are_united(swap_in.unit, id));
    }
}
