//! Claims: the requests for frames, in the order they came.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use baton_contract::memory::SizeClass;
use baton_contract::messages::Answer;

use super::ground::Ground;
use super::leases::Leases;
use super::residency::Residency;
use baton_books::arena::FrameId;
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

/// A claim for which nothing has come in this time is sent back: a tenant cannot close its gate while it waits.
const STUCK: Duration = Duration::from_secs(5);
/// The same in the middle of a call, which may fail because of that.
const STUCK_IN_A_CALL: Duration = Duration::from_secs(60);

/// An allocation that a tenant asks for.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) tenant: TenantId,
    /// The address of the allocation.
    pub(super) at: u64,
    pub(super) left: VecDeque<SizeClass>,
    pub(super) got: Vec<(SizeClass, FrameId)>,
    /// The number of frames of each class that are to be used as they are ([`super::fit`]).
    pub(super) as_it_is: PerClass,
    pub(super) asked: Instant,
}

impl Allocation {
    /// Bytes that have yet to come.
    pub(super) fn left(&self) -> u64 {
        self.left.iter().map(|class| class.bytes()).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.left() + self.got.iter().map(|(class, _)| class.bytes()).sum::<u64>()
    }
}

/// A tenant's need for memory beside the arena.
#[derive(Clone, Copy, Debug)]
pub(super) enum Need {
    /// A lease of at least `least` bytes, with `welcome` bytes wanted. The tenant keeps it until it gives it back.
    Lease { least: u64, welcome: u64 },
    /// The bytes that a context takes, or twice that.
    Context { again: bool },
    /// Room for a moment.
    Room { bytes: u64 },
}

impl Need {
    /// True if the tenant can ask again later: it cannot in the middle of a call.
    pub(super) fn can_wait(self) -> bool {
        !matches!(self, Self::Room { .. })
    }
}

/// A tenant's claim to frames.
#[derive(Debug)]
pub(super) enum Claim {
    /// A new allocation.
    Allocate(Allocation),
    /// Memory beside the arena.
    Outside { tenant: TenantId, need: Need },
}

impl Claim {
    /// The tenant that has this claim.
    pub(super) fn tenant(&self) -> TenantId {
        match self {
            Self::Allocate(Allocation { tenant, .. }) | Self::Outside { tenant, .. } => *tenant,
        }
    }

    /// The time after which it is sent back if nothing comes.
    fn patience(&self) -> Duration {
        if self.can_wait() { STUCK } else { STUCK_IN_A_CALL }
    }

    /// True if the tenant can ask again later.
    fn can_wait(&self) -> bool {
        match self {
            Self::Allocate(_) => true,
            Self::Outside { need, .. } => need.can_wait(),
        }
    }

    /// Bytes of the arena that have yet to come.
    fn left(&self) -> u64 {
        match self {
            Self::Allocate(allocation) => allocation.left(),
            Self::Outside { .. } => 0,
        }
    }

    /// Has the tenant ask again, outside its gate. In the middle of a call it gets nothing instead.
    fn send_back(self, ground: &mut Ground<'_>) {
        let answer = if self.can_wait() { Answer::TryAgain } else { Answer::UnmanagedMemory { bytes: 0 } };
        ground.tenants.answer(self.tenant(), &answer, &[]);
        if let Self::Allocate(Allocation { got, .. }) = self {
            got.into_iter().for_each(|(_, frame)| ground.store.frames.give_back(frame));
        }
    }

    /// Bytes of the arena that the claim is about to take.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Allocate(allocation) => allocation.bytes(),
            Self::Outside { .. } => 0,
        }
    }
}

/// Result of serving a claim.
#[derive(PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Waits,
}

/// The first claim, which waits, and the time since which nothing has come for it.
#[derive(Debug)]
struct Stall {
    tenant: TenantId,
    /// The least that was left to come, was lent, and was in the arena since the claim waits.
    least: [u64; 3],
    since: Instant,
}

/// The part of each tenant's offer that depends on all tenants together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) capacity: u64,
    pub(super) immovable: u64,
    pub(super) grantable: u64,
}

/// The tenants that wait for memory, and the tenants' leases beside the arena.
pub(super) struct Claims {
    pub(super) queue: VecDeque<Claim>,
    stall: Option<Stall>,
    pub(super) leases: Leases,
    /// The values last shown to tenants.
    pub(super) shown: Option<Shown>,
}

impl Claims {
    /// Creates the claims; no tenant waits yet.
    pub(super) fn new(leases: Leases) -> Self {
        Self { queue: VecDeque::new(), stall: None, leases, shown: None }
    }

    /// Serves claims, until one waits.
    pub(super) fn serve(&mut self, ground: &mut Ground<'_>, residency: &mut Residency) {
        while let Some(claim) = self.queue.pop_front() {
            let progress = match claim {
                Claim::Allocate(allocation) => self.serve_allocation(ground, residency, allocation),
                Claim::Outside { tenant, need } => self.serve_outside(ground, residency, tenant, need),
            };
            if progress == Progress::Waits && !self.send_back_if_stuck(ground) {
                return;
            }
        }
        self.stall = None;
    }

    /// Sends the first claim back if it has waited for long and nothing has come.
    fn send_back_if_stuck(&mut self, ground: &mut Ground<'_>) -> bool {
        let Some(claim) = self.queue.front() else { return false };
        let bytes = ground.store.frames.arena().bytes();
        let (tenant, now) = (claim.tenant(), [claim.left(), bytes.lent, bytes.all()]);
        let comes =
            |stall: &Stall| stall.tenant != tenant || stall.least.iter().zip(now).any(|(least, now)| now < *least);
        if self.stall.as_ref().is_none_or(comes) {
            let before = self.stall.take().filter(|stall| stall.tenant == tenant);
            let least = before.map_or(now, |stall| std::array::from_fn(|at| stall.least[at].min(now[at])));
            self.stall = Some(Stall { tenant, least, since: Instant::now() });
        }
        if self.is_stuck_at().is_none_or(|at| Instant::now() < at) {
            return false;
        }
        if let Some(name) = ground.tenants.get(tenant).map(|tenant| tenant.name.clone()) {
            let what = ground.what_is_coming().unwrap_or("programs are to part");
            baton_messages::warn!(claim_is_stuck(name, what));
        }
        self.stall = None;
        if let Some(claim) = self.queue.pop_front() {
            claim.send_back(ground);
        }
        true
    }

    /// The time at which the first claim has waited for too long.
    pub(super) fn is_stuck_at(&self) -> Option<Instant> {
        Some(self.stall.as_ref()?.since + self.queue.front()?.patience())
    }

    /// Bytes that all tenants have, and that they have asked for.
    pub(super) fn wanted_bytes(&self, ground: &Ground<'_>) -> u64 {
        ground.tenants.totals().bytes + self.claimed_bytes()
    }

    /// Bytes of the arena that claims are about to take.
    pub(super) fn claimed_bytes(&self) -> u64 {
        self.queue.iter().map(Claim::bytes).sum()
    }

    /// Drops the claims of a tenant that is told to leave the GPU. It cannot leave while it waits for memory, and others may wait
    /// for its memory: it asks again when it has the GPU to itself.
    pub(super) fn turn_away(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        let at = self.queue.iter().position(|claim| claim.tenant() == id && claim.can_wait());
        if let Some(claim) = at.and_then(|at| self.queue.remove(at)) {
            claim.send_back(ground);
        }
    }

    /// Drops the claims of a tenant whose connection has ended.
    pub(super) fn drop_claims(&mut self, ground: &mut Ground<'_>, residency: &mut Residency, id: TenantId) {
        let mut kept = VecDeque::new();
        for claim in std::mem::take(&mut self.queue) {
            match claim {
                Claim::Allocate(allocation) if allocation.tenant == id => {
                    allocation.got.into_iter().for_each(|(_, frame)| ground.store.frames.give_back(frame));
                }
                Claim::Outside { tenant, .. } if tenant == id => {}
                other => kept.push_back(other),
            }
        }
        self.queue = kept;
        if !ground.arbiter.is_united(id) {
            residency.end_swap_in(ground, id);
        }
    }

    /// Bytes that a tenant has asked for and has yet to get.
    pub(super) fn claimed_by(&self, id: TenantId) -> Option<u64> {
        self.queue.iter().find_map(|claim| match claim {
            Claim::Allocate(allocation) if claim.tenant() == id => Some(allocation.left()),
            Claim::Outside { tenant, .. } if *tenant == id => Some(0),
            _ => None,
        })
    }

    /// True if a tenant has asked for memory and waits for it.
    pub(super) fn is_asked_by(&self, id: TenantId) -> bool {
        self.claimed_by(id).is_some()
    }
}
