//! A piece of a pool's memory that the program was given: from when to when it is there.
//!
//! The program has it from one call to another. The device has it from the point in a stream where it is allocated to the one
//! where it is freed: work that touches it before or behind that finds nothing there, as if nothing were mapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Pool;
use crate::memory::space::Space;
use crate::memory::view::{View, Who};

/// What memory is full of that was freed, as far as [`SPOILED`] goes: nothing should depend on it.
const SPOIL: u8 = 0xF5;
/// How much of it is filled at most: this machine should not have to make pages for gigabytes that nobody looks at.
const SPOILED: u64 = 64 << 10;

/// One of them.
pub(crate) struct Lease {
    pub(crate) pool: Arc<Pool>,
    pub(crate) start: u64,
    /// As taken from the pool.
    pub(crate) bytes: u64,
    over: AtomicBool,
}

impl Lease {
    pub(super) fn new(pool: Arc<Pool>, start: u64, bytes: u64) -> Lease {
        Lease { pool, start, bytes, over: AtomicBool::new(false) }
    }

    /// Whether the device is done with it.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The device comes to the allocation. (Freed already, if the program frees it in a stream that does not wait for that.)
    pub(crate) fn begin(&self, space: &Space) {
        let mut table = space.change();
        if !self.is_over() {
            table.leases.insert(self.start, self.bytes);
        }
    }

    /// The device comes to the free.
    pub(crate) fn end(self: &Arc<Lease>, space: &Space) {
        let seen = View::new(space, self.pool.gpu(), Who::Copies);
        // What is not there yet cannot be spoiled.
        let _ = seen.fill(self.start, &[SPOIL], self.bytes.min(SPOILED) as usize);
        let mut table = space.change();
        if !self.over.swap(true, Ordering::AcqRel) {
            table.leases.remove(&self.start);
        }
        table.allocations.forget_lease(self);
        drop(table);
        self.pool.tidy(space);
    }
}
