//! A piece of memory that the program was given in a stream's order: from when to when it is there.
//!
//! The program has it from one call to another. The device has it from the point in a stream where it is allocated to the one
//! where it is freed: work that touches it before or behind that finds nothing there, as if nothing were mapped.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::errors::{Outcome, Status};
use crate::exec::stream::Ticket;
use crate::gpu_file::Gpu;
use crate::memory::allocations::Lent;
use crate::memory::space::Space;
use crate::memory::view::{View, Who};

/// Freed memory is full of this byte, as far as [`SPOILED`] goes: nothing should depend on it.
const SPOIL: u8 = 0xF5;
/// How much of it is filled at most: this machine should not have to make pages for gigabytes that no program reads.
const SPOILED: u64 = 64 << 10;

/// A pool, or a graph's allocation: its memory is lent.
pub(crate) trait Source: Any + Send + Sync {
    /// The GPU whose memory it is.
    fn gpu(&self) -> &'static Gpu;

    /// True if it is another process's.
    fn is_imported(&self) -> bool {
        false
    }

    /// The device is done with a piece of it.
    fn tidy(&self, _space: &Space) {}

    /// Takes back what the program has freed: at a point in a stream, or at once.
    fn give_back(&self, space: &Space, lease: &Arc<Lease>, at: Option<Ticket>);
}

/// A piece of memory that was lent.
pub(crate) struct Lease {
    pub(super) source: Arc<dyn Source>,
    pub(crate) start: u64,
    /// As taken from the pool, and as asked for.
    pub(crate) bytes: u64,
    pub(crate) asked: u64,
    over: AtomicBool,
}

impl Lease {
    pub(super) fn new(source: Arc<dyn Source>, start: u64, bytes: u64, asked: u64) -> Lease {
        Lease { source, start, bytes, asked, over: AtomicBool::new(false) }
    }

    /// The lease that stands behind an allocation.
    pub(crate) fn of(lent: &Arc<dyn Lent>) -> Option<&Lease> {
        let lent: &dyn Any = lent.as_ref();
        lent.downcast_ref()
    }

    /// Takes an allocation at an address from the program: it is unknown from now on, whatever the device has still to do.
    pub(crate) fn take(space: &Space, address: u64) -> Outcome<Arc<Lease>> {
        let lent: Arc<dyn Any + Send + Sync> = space.change().allocations.take_lent(address)?;
        lent.downcast().map_err(|_| Status::UNKNOWN)
    }

    /// True if the device is done with it.
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
        if !self.source.is_imported() {
            let seen = View::new(space, self.source.gpu(), Who::Copies);
            // Memory that is not there yet cannot be spoiled. Another process may still have memory that it shares.
            let _ = seen.fill(self.start, &[SPOIL], self.bytes.min(SPOILED) as usize);
        }
        let mut table = space.change();
        if !self.over.swap(true, Ordering::AcqRel) {
            table.leases.remove(&self.start);
        }
        drop(table);
        self.source.tidy(space);
    }

    /// The program has freed it: at a point in a stream, or at once.
    pub(crate) fn give_back(self: &Arc<Lease>, space: &Space, at: Option<Ticket>) {
        self.source.give_back(space, self, at);
    }

    /// `cuMemFree`, which waits for nothing: the program's word is that no work uses it any more.
    pub(crate) fn free_now(self: &Arc<Lease>, space: &Space) {
        self.end(space);
        self.give_back(space, None);
    }
}

impl Lent for Lease {
    fn start(&self) -> u64 {
        self.start
    }
}
