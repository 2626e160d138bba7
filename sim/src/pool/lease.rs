//! A piece of memory that the program was given in a stream's order: from when to when it is there.
//!
//! The program has it from one call to another. The device has it from the point in a stream where it is allocated to the one
//! where it is freed: work that touches it before or behind that finds nothing there, as if nothing were mapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Pool;
use super::slot::Slot;
use crate::exec::stream::Ticket;
use crate::gpu_file::Gpu;
use crate::memory::space::Space;
use crate::memory::view::{View, Who};

/// What memory is full of that was freed, as far as [`SPOILED`] goes: nothing should depend on it.
const SPOIL: u8 = 0xF5;
/// How much of it is filled at most: this machine should not have to make pages for gigabytes that nobody looks at.
const SPOILED: u64 = 64 << 10;

/// Whose memory it is.
pub(crate) enum Source {
    Pool(Arc<Pool>),
    /// Of a graph's allocation.
    Slot(Arc<Slot>),
}

/// One of them.
pub(crate) struct Lease {
    pub(crate) source: Source,
    pub(crate) start: u64,
    /// As taken from the pool, and as asked for.
    pub(crate) bytes: u64,
    pub(crate) asked: u64,
    over: AtomicBool,
}

impl Lease {
    pub(super) fn new(source: Source, start: u64, bytes: u64, asked: u64) -> Lease {
        Lease { source, start, bytes, asked, over: AtomicBool::new(false) }
    }

    /// The GPU whose memory it is.
    fn gpu(&self) -> &'static Gpu {
        match &self.source {
            Source::Pool(pool) => pool.gpu(),
            Source::Slot(slot) => slot.gpu(),
        }
    }

    /// The pool that it is from.
    pub(crate) fn pool(&self) -> Option<&Arc<Pool>> {
        match &self.source {
            Source::Pool(pool) => Some(pool),
            Source::Slot(_) => None,
        }
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
        if !self.pool().is_some_and(|pool| pool.is_imported()) {
            let seen = View::new(space, self.gpu(), Who::Copies);
            // What is not there yet cannot be spoiled. What another process shares it may still have.
            let _ = seen.fill(self.start, &[SPOIL], self.bytes.min(SPOILED) as usize);
        }
        let mut table = space.change();
        if !self.over.swap(true, Ordering::AcqRel) {
            table.leases.remove(&self.start);
        }
        drop(table);
        if let Source::Pool(pool) = &self.source {
            pool.tidy(space);
        }
    }

    /// The program has freed it: at a point in a stream, or at once.
    pub(crate) fn give_back(self: &Arc<Lease>, space: &Space, at: Option<Ticket>) {
        match &self.source {
            Source::Pool(pool) => pool.give_back(space, self, at),
            Source::Slot(slot) => slot.give_back(self, at),
        }
    }

    /// `cuMemFree`, which waits for nothing: that nobody uses it any more is the program's word.
    pub(crate) fn free_now(self: &Arc<Lease>, space: &Space) {
        self.end(space);
        self.give_back(space, None);
    }
}
