//! Claims: who needs frames, in the order they came.

use std::collections::VecDeque;
use std::time::Instant;

use baton_contract::memory::SizeClass;
use baton_contract::messages::Answer;

use super::ground::Ground;
use super::leases::Leases;
use super::residency::Residency;
use baton_books::arena::FrameId;
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

/// What a tenant asks for.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) tenant: TenantId,
    /// The address at which it is to lie.
    pub(super) at: u64,
    pub(super) left: VecDeque<SizeClass>,
    pub(super) got: Vec<(SizeClass, FrameId)>,
    /// So many of each class are to be frames that are had as they are ([`super::fit`]).
    pub(super) as_it_is: PerClass,
    pub(super) asked: Instant,
}

impl Allocation {
    /// What has yet to come, in bytes.
    pub(super) fn left(&self) -> u64 {
        self.left.iter().map(|class| class.bytes()).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.left() + self.got.iter().map(|(class, _)| class.bytes()).sum::<u64>()
    }
}

/// What somebody needs beside the arena.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// So much at least, and so much is welcome; it keeps it until it gives it back.
    Lease { least: u64, welcome: u64 },
    /// What a context takes, or twice that.
    Context { again: bool },
    /// So much for a moment.
    Room { bytes: u64 },
}

impl Need {
    /// Whether somebody can ask again later: not who is in the middle of a call.
    pub(super) fn can_wait(self) -> bool {
        !matches!(self, Self::Room { .. })
    }
}

/// Somebody who needs frames.
#[derive(Debug)]
pub(super) enum Claim {
    /// A new allocation.
    Allocate(Allocation),
    /// Memory beside the arena.
    Beside { tenant: TenantId, need: Need },
}

impl Claim {
    /// Whose it is.
    pub(super) fn tenant(&self) -> TenantId {
        match self {
            Self::Allocate(Allocation { tenant, .. }) | Self::Beside { tenant, .. } => *tenant,
        }
    }

    /// What of the arena it is about to take.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Allocate(allocation) => allocation.bytes(),
            Self::Beside { .. } => 0,
        }
    }
}

/// Whether a claim was served.
#[derive(PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Waits,
}

/// What depends on all tenants together, of what is shown to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) capacity: u64,
    pub(super) immovable: u64,
    pub(super) grantable: u64,
}

/// Those who wait for memory, and what they have beside the arena.
pub(super) struct Claims {
    pub(super) queue: VecDeque<Claim>,
    pub(super) leases: Leases,
    /// What was last shown to tenants.
    pub(super) shown: Option<Shown>,
}

impl Claims {
    /// Nobody waits yet.
    pub(super) fn new(leases: Leases) -> Self {
        Self { queue: VecDeque::new(), leases, shown: None }
    }

    /// Bytes that all tenants have, and that they have asked for.
    pub(super) fn wanted_bytes(&self, ground: &Ground<'_>) -> u64 {
        ground.tenants.totals().bytes + self.queue.iter().map(Claim::bytes).sum::<u64>()
    }

    /// Drops the claims of a tenant that is told to leave the GPU. It cannot leave while it waits for memory, and others may wait
    /// for its memory: it asks again when it has the GPU to itself.
    pub(super) fn turn_away(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        let is_its = |claim: &Claim| match claim {
            Claim::Allocate(allocation) => allocation.tenant == id,
            Claim::Beside { tenant, need } => *tenant == id && need.can_wait(),
        };
        let Some(at) = self.queue.iter().position(is_its) else { return };
        if let Some(Claim::Allocate(allocation)) = self.queue.remove(at) {
            allocation.got.into_iter().for_each(|(_, frame)| ground.store.frames.give_back(frame));
        }
        ground.tenants.answer(id, &Answer::TryAgain, &[]);
    }

    /// Drops the claims of a tenant whose connection has ended.
    pub(super) fn drop_claims(&mut self, ground: &mut Ground<'_>, residency: &mut Residency, id: TenantId) {
        let mut kept = VecDeque::new();
        for claim in std::mem::take(&mut self.queue) {
            match claim {
                Claim::Allocate(allocation) if allocation.tenant == id => {
                    allocation.got.into_iter().for_each(|(_, frame)| ground.store.frames.give_back(frame));
                }
                Claim::Beside { tenant, .. } if tenant == id => {}
                other => kept.push_back(other),
            }
        }
        self.queue = kept;
        if !ground.arbiter.is_united(id) {
            residency.end_swap_in(ground, id);
        }
    }

    /// How much memory a tenant has asked for and has yet to get.
    pub(super) fn claimed_by(&self, id: TenantId) -> Option<u64> {
        self.queue.iter().find_map(|claim| match claim {
            Claim::Allocate(allocation) if claim.tenant() == id => Some(allocation.left()),
            Claim::Beside { tenant, .. } if *tenant == id => Some(0),
            _ => None,
        })
    }

    /// True if a tenant has asked for memory and waits for it.
    pub(super) fn is_asked_by(&self, id: TenantId) -> bool {
        self.claimed_by(id).is_some()
    }
}
