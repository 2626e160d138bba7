//! The ledger: every byte of the GPU, and the memory that contexts take.

use std::collections::HashMap;

use baton_books::ledger::{Account, Ledger};
use baton_policy::arbiter::TenantId;

/// Assumed size of a context before one is measured. Less on a small GPU.
const CONTEXT_BYTES: u64 = 640 << 20;
/// Bytes left for unforeseen needs when the arena grows back. Less on a small GPU.
const RESERVE: u64 = 256 << 20;
/// On a small GPU, the divisor that gives the part of its memory.
const SMALL_PART: u64 = 16;

/// Bytes that a GPU of this size keeps free for unforeseen needs.
pub(super) fn reserve(total: u64) -> u64 {
    RESERVE.min(total / SMALL_PART)
}

/// Assumed size of a context on a GPU of this size.
pub(super) fn usual_context(total: u64) -> u64 {
    CONTEXT_BYTES.min(total / SMALL_PART)
}

/// Every byte of the GPU, and the memory that contexts take.
pub(super) struct Leases {
    pub(super) ledger: Ledger<TenantId>,
    /// Assumed size of a context, in bytes.
    pub(super) context_bytes: u64,
    /// Bytes in use and not in the books when room was made for a context that is being made.
    pub(super) before_context: HashMap<TenantId, u64>,
}

impl Leases {
    /// Creates the ledger of a GPU of `total` bytes, of which `own` are the coordinator's own.
    pub(super) fn new(total: u64, own: u64) -> Self {
        let context_bytes = usual_context(total);
        Self { ledger: Ledger::new(total, own), context_bytes, before_context: HashMap::new() }
    }

    /// The tenant's account of memory beside the arena.
    pub(super) fn account(&self, id: TenantId) -> Account {
        self.ledger.account(id)
    }

    /// Removes a tenant that has ended.
    pub(super) fn remove(&mut self, id: TenantId) {
        self.ledger.remove(id);
        self.before_context.remove(&id);
    }
}
