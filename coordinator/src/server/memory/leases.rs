//! The ledger: every byte of the GPU, and what contexts take.

use std::collections::HashMap;

use baton_books::ledger::{Account, Ledger};
use baton_policy::arbiter::TenantId;

/// What a context is taken to need before one was measured. Less on a small GPU.
const CONTEXT_BYTES: u64 = 640 << 20;
/// What is left for what nobody can foresee when the arena grows back. Less on a small GPU.
const RESERVE: u64 = 256 << 20;
/// On a small GPU, so small a part of it.
const SMALL_PART: u64 = 16;

/// What of its memory a GPU of this size keeps free for what nobody can foresee.
pub(super) fn reserve(total: u64) -> u64 {
    RESERVE.min(total / SMALL_PART)
}

/// What a context is taken to need on a GPU of this size.
pub(super) fn usual_context(total: u64) -> u64 {
    CONTEXT_BYTES.min(total / SMALL_PART)
}

/// Every byte of the GPU, and what contexts take.
pub(super) struct Leases {
    pub(super) ledger: Ledger<TenantId>,
    /// What a context is taken to need, in bytes.
    pub(super) context_bytes: u64,
    /// What was used and not in the books when room was made for a context that is being made.
    pub(super) before_context: HashMap<TenantId, u64>,
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
