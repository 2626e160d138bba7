//! Memory beside the arena: what does not move, and contexts. Whoever needs some asks before the driver does, and the arena gives
//! what is missing ([`Ledger`](baton_books::ledger::Ledger)).

use std::collections::HashMap;

use baton_contract::messages::{Answer, Request};
use baton_views::quota::Quota;

use super::allocate::{Claim, Progress};
use super::{Access, Memory};
use baton_books::ledger::{Account, Ledger, Lines, Reading, Verdict};
use baton_books::sizes::at_least;
use baton_policy::arbiter::TenantId;

/// What a context is taken to need before one was measured. Less on a small GPU.
const CONTEXT_BYTES: u64 = 640 << 20;
/// What is left for what nobody can foresee when the arena grows back. Less on a small GPU.
const RESERVE: u64 = 256 << 20;
/// On a small GPU, so small a part of it.
const SMALL_PART: u64 = 16;

/// What of its memory a GPU of this size keeps free for what nobody can foresee.
fn reserve(total: u64) -> u64 {
    RESERVE.min(total / SMALL_PART)
}

/// What a context is taken to need on a GPU of this size.
fn usual_context(total: u64) -> u64 {
    CONTEXT_BYTES.min(total / SMALL_PART)
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

/// Every byte of the GPU, and what contexts take.
pub(super) struct Leases {
    ledger: Ledger<TenantId>,
    /// What a context is taken to need, in bytes.
    context_bytes: u64,
    /// What was used and not in the books when room was made for a context that is being made.
    before_context: HashMap<TenantId, u64>,
}

impl Leases {
    /// Of a GPU of so many bytes, of which so many are our own.
    pub(super) fn new(total: u64, own: u64) -> Self {
        let context_bytes = usual_context(total);
        Self { ledger: Ledger::new(total, own), context_bytes, before_context: HashMap::new() }
    }

    /// What a tenant has beside the arena.
    pub(super) fn account(&self, id: TenantId) -> Account {
        self.ledger.account(id)
    }

    /// A tenant has ended.
    pub(super) fn remove(&mut self, id: TenantId) {
        self.ledger.remove(id);
        self.before_context.remove(&id);
    }
}

impl Memory {
    /// What the driver says now, and the arena's books.
    fn reading(&self) -> Reading {
        let bytes = self.frames.arena().bytes();
        Reading {
            // Without an answer nothing is to be had.
            free: self.frames.gpu().free_memory().unwrap_or(0),
            frames: bytes.all(),
            lent: bytes.lent,
            capacity: self.frames.arena().capacity(),
            headroom: self.rules.headroom,
        }
    }

    /// The first tenant is about to come.
    pub(in crate::server) fn nobody_is_here(&mut self) {
        let now = self.reading();
        self.leases.ledger.nobody_is_here(&now);
    }

    /// Every line of the ledger, by what the tenants have last said; and what the driver says now.
    pub(in crate::server) fn lines(&self) -> (Lines, Reading) {
        let now = self.reading();
        (self.leases.ledger.lines(&now), now)
    }

    /// What a tenant has beside the arena.
    pub(in crate::server) fn account(&self, id: TenantId) -> Account {
        self.leases.account(id)
    }

    /// Whether the arena is smaller than the user wanted.
    pub(super) fn is_squeezed(&self) -> bool {
        self.frames.arena().capacity() < self.frames.arena().configured()
    }

    /// Lets the arena grow back as far as there is memory that is nobody's, less a reserve.
    pub(super) fn unsqueeze(&mut self) {
        if self.is_squeezed() {
            self.grow(reserve(self.leases.ledger.total()));
        }
    }

    /// The same for somebody who would be refused otherwise: also into the reserve, and into what others have leased and do not use.
    /// Should they come to need it, their calls make room again.
    pub(super) fn unsqueeze_at_need(&mut self) {
        if self.is_squeezed()
            && let Ok(free) = self.frames.gpu().free_memory()
        {
            self.frames.set_capacity(self.frames.arena().capacity().max(self.frames.arena().bytes().all() + free));
        }
    }

    /// Whether so much is nobody's, and the reserve too.
    pub(super) fn is_room_left(&self, bytes: u64) -> bool {
        self.leases.ledger.room(&self.reading()) >= bytes + reserve(self.leases.ledger.total())
    }

    fn grow(&mut self, reserve: u64) {
        let could = self.leases.ledger.arena_could_be(&self.reading(), reserve);
        self.frames.set_capacity(self.frames.arena().capacity().max(could));
    }
}

impl Access<'_> {
    /// A tenant asks for memory beside the arena.
    pub(in crate::server) fn make_room(&mut self, tenant: TenantId, request: &Request) {
        let need = match *request {
            Request::UnmanagedMemory { least, bytes } => Need::Lease { least, welcome: bytes.max(least) },
            Request::Context { again } => Need::Context { again },
            Request::Room { bytes } => Need::Room { bytes },
            _ => return,
        };
        self.memory.claims.push_back(Claim::Beside { tenant, need });
    }

    /// What this tenant says that it uses.
    fn hear_of_unmanaged(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get(id) {
            self.memory.leases.ledger.say(id, tenant.connection.theirs.unmanaged());
        }
    }

    /// What each says. With many tenants this takes a while: it is for what happens rarely.
    pub(in crate::server) fn hear_of_all_unmanaged(&mut self) {
        for (id, tenant) in self.tenants.iter() {
            self.memory.leases.ledger.say(id, tenant.connection.theirs.unmanaged());
        }
    }

    pub(super) fn serve_beside(&mut self, id: TenantId, need: Need) -> Progress {
        self.hear_of_unmanaged(id);
        // Everybody's memory has to fit the arena, beside what cannot move of the others.
        let floor = self.least_capacity();
        let mut now = self.memory.reading();
        let most = self.memory.leases.ledger.could_give(&now, floor);
        let quota = self.leases_left(id);
        let (least, welcome) = match need {
            Need::Lease { least, .. } if least > quota => {
                self.met_leases(id, least, quota);
                self.tenants.answer(id, &Answer::UnmanagedMemory { bytes: 0 }, &[]);
                return Progress::Done;
            }
            Need::Lease { least, welcome } => (least, welcome.min(quota)),
            // It may take less than is thought.
            Need::Context { again } => {
                let bytes = self.memory.leases.context_bytes * if again { 2 } else { 1 };
                (bytes.min(most), bytes.min(most))
            }
            Need::Room { bytes } => (bytes.min(most), bytes.min(most)),
        };
        let granted = loop {
            match self.memory.leases.ledger.judge(&now, floor, least, welcome) {
                Verdict::Granted(bytes) => break bytes,
                Verdict::Denied => break 0,
                Verdict::Shrink(bytes) => {
                    let capacity = now.frames - bytes;
                    self.memory.frames.set_capacity(capacity.min(self.memory.frames.arena().capacity()));
                    if self.memory.frames.unmake_free() {
                        now = self.memory.reading();
                        continue;
                    }
                    self.evict(at_least(bytes), id);
                    let is_parting = !self.is_anything_coming() && self.part_corunners();
                    if self.is_anything_coming() || is_parting && need.can_wait() {
                        self.memory.claims.push_front(Claim::Beside { tenant: id, need });
                        return Progress::Waits;
                    }
                    // Whoever has it does not give it back.
                    break 0;
                }
            }
        };
        if granted == 0 && least > 0 {
            self.say_denied(id, need, least);
        }
        match need {
            Need::Lease { .. } => {
                self.memory.leases.ledger.lease(id, granted);
                self.tenants.meets_no_more(id, &[Quota::Leases]);
            }
            Need::Context { .. } => {
                self.memory.leases.ledger.promise_context(id, granted);
                self.hear_of_all_unmanaged();
                self.memory.leases.before_context.insert(id, self.memory.leases.ledger.unexplained(&now));
            }
            Need::Room { .. } => {}
        }
        // The arena can no longer make frames of it.
        let kept = if let Need::Room { .. } = need { granted } else { 0 };
        let left = self.memory.leases.ledger.arena_could_be(&now, kept).max(floor);
        self.memory.frames.set_capacity(left.min(self.memory.frames.arena().capacity()));
        self.show_offer(id);
        self.tenants.answer(id, &Answer::UnmanagedMemory { bytes: granted }, &[]);
        Progress::Done
    }

    fn say_denied(&self, id: TenantId, need: Need, bytes: u64) {
        if let Need::Lease { .. } = need
            && let Some(tenant) = self.tenants.get(id)
        {
            log::warn!("{} asked for {} MiB beside the arena, and nobody can give it", tenant.name, bytes >> 20);
        }
    }

    /// A tenant no longer needs so much of what it has leased.
    pub(in crate::server) fn unlease(&mut self, id: TenantId, bytes: u64) -> Result<(), String> {
        self.hear_of_unmanaged(id);
        if !self.memory.leases.ledger.unlease(id, bytes) {
            return Err(format!("it gave back {bytes} bytes beside the arena, which it has not leased"));
        }
        self.show_offer(id);
        Ok(())
    }

    /// A tenant has made the context for which it has asked for room, or could not.
    pub(in crate::server) fn context_made(&mut self, id: TenantId, made: bool) {
        let before = self.memory.leases.before_context.remove(&id);
        self.hear_of_all_unmanaged();
        let now = self.memory.reading();
        // Two that are made at once are counted once: what the first has taken is known when the second is measured.
        let takes = before.map(|before| self.memory.leases.ledger.unexplained(&now).saturating_sub(before));
        self.memory.leases.ledger.context_made(id, made.then_some(takes.unwrap_or(0)));
        let usual = usual_context(self.memory.leases.ledger.total());
        if let Some(takes) = takes.filter(|takes| made && *takes > 0) {
            // What is kept for the next one: never less than one took, nor so much as a misreading could say.
            self.memory.leases.context_bytes = self.memory.leases.context_bytes.max(takes).min(2 * usual);
        }
    }

    /// One of a tenant's contexts is no more.
    pub(in crate::server) fn context_gone(&mut self, id: TenantId) {
        self.memory.leases.ledger.context_gone(id);
    }
}
