//! Residency: whose memory is on the GPU. What leaves, what arrives, and what is done of both ahead of need.
//!
//! Each file uses only those before it: `recut`, `leaving`, `evict`, `take`, `compact`, `fit`, `arrive`, `swap_in`, `ahead`, `prefetch`, `free`,
//! `reports`.

use std::collections::{HashMap, VecDeque};

use baton_contract::messages::ExtentId;

use super::ground::Ground;
use super::transfer::Rest;
use crate::device::digest::Page;
use crate::device::wake::Waker;
use baton_books::arena::FrameId;
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

/// A unit that comes in: all that its tenants have, for the baton.
#[derive(Debug)]
pub(super) struct SwapIn {
    pub(super) unit: TenantId,
    /// What comes now, once that is planned.
    pub(super) now: Option<Coming>,
    /// Extents of its tenants that leave, or have left, so that they can be cut anew with what comes.
    pub(super) leaves: HashMap<TenantId, Vec<ExtentId>>,
}

/// A tenant's memory that comes.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) tenant: TenantId,
    /// What is not on its way yet, in groups.
    pub(super) left: VecDeque<Vec<ExtentId>>,
    /// So many of each class come in frames that are had as they are ([`super::fit`]).
    pub(super) as_it_is: PerClass,
}

impl SwapIn {
    pub(super) fn new(unit: TenantId) -> Self {
        Self { unit, now: None, leaves: HashMap::new() }
    }
}

/// How far it is with a program that rests.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) tenant: TenantId,
    pub(super) rest: Rest,
    /// What has not been looked at.
    pub(super) left: VecDeque<ExtentId>,
    /// What was looked at and differs from its last copy.
    pub(super) changed: VecDeque<(ExtentId, FrameId, Vec<Page>)>,
}

/// What is brought in, for whom, and what is copied ahead of need.
pub(super) struct Residency {
    pub(super) waker: Waker,
    pub(super) swap_in: Option<SwapIn>,
    pub(super) ahead: Option<Ahead>,
}

impl Residency {
    /// Nothing is under way. `waker` has the server look again.
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
    pub(super) fn end_swap_in(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        self.swap_in.take_if(|swap_in| ground.arbiter.are_united(swap_in.unit, id));
    }
}
