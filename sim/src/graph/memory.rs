//! A launch of an instance that allocates or frees memory.

use std::sync::Arc;

use crate::errors::{Outcome, Status};
use crate::exec::op::{Op, Plan};
use crate::exec::stream::Ticket;
use crate::gpu_file::Gpu;
use crate::memory::space::Space;
use crate::pool::lease::{Lease, Source};
use crate::pool::slot::Slot;

/// A launch's memory, between making it ready and having submitted the launch.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// The points in other streams that it has to wait for: memory was freed there.
    pub(crate) after: Vec<Ticket>,
    /// Memory of the launch before, which it frees first.
    left: Vec<Arc<Lease>>,
    /// Memory that it allocates.
    made: Vec<Arc<Lease>>,
    /// Memory that it frees.
    freed: Vec<Arc<Lease>>,
}

impl Prepared {
    /// Makes memory ready for the operations of a launch. `again` says that a launch frees what is left of the one before.
    pub(crate) fn new(space: &Space, ops: Vec<Op>, again: bool, make_room: impl Fn(&'static Gpu)) -> Outcome<Prepared> {
        let mut prepared = Prepared::default();
        let outcome = prepared.prepare(space, ops, again, make_room);
        if outcome.is_err() {
            prepared.undo(space);
        }
        outcome.map(|()| prepared)
    }

    fn prepare(&mut self, space: &Space, ops: Vec<Op>, again: bool, make_room: impl Fn(&'static Gpu)) -> Outcome {
        let left: Vec<Arc<Lease>> = allocated(&ops).filter_map(|slot| slot.live()).collect();
        if !again && !left.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        for lease in left {
            let lease = Lease::take(space, lease.start)?;
            lease.give_back(space, None);
            self.plan.ops.push(Op::End(lease.clone()));
            self.left.push(lease);
        }
        for op in ops {
            let op = match op {
                Op::Allocate(slot) => {
                    let allocated = slot.allocate(space).or_else(|_| {
                        make_room(slot.gpu());
                        slot.allocate(space)
                    });
                    let (lease, after) = allocated?;
                    self.after.extend(after);
                    self.made.push(lease.clone());
                    Op::Begin(lease)
                }
                Op::Release(slot) => {
                    // No other call may free it from now on.
                    let lease = Lease::take(space, slot.start())?;
                    self.freed.push(lease.clone());
                    Op::End(lease)
                }
                other => other,
            };
            self.plan.ops.push(op);
        }
        Ok(())
    }

    /// The launch was submitted: from that point on, the memory that it frees is free.
    pub(crate) fn submitted(&self, space: &Space, at: &Ticket) {
        self.freed.iter().for_each(|lease| lease.give_back(space, Some(at.clone())));
    }

    /// There is no launch after all. Memory that the launch before has left is free all the same.
    pub(crate) fn undo(&self, space: &Space) {
        self.left.iter().for_each(|lease| lease.end(space));
        let others = self.freed.iter().filter(|freed| !self.made.iter().any(|made| Arc::ptr_eq(made, freed)));
        others.for_each(|lease| space.change().allocations.renew(lease.clone()));
        for lease in &self.made {
            // Memory that the launch itself frees is taken already.
            let _ = Lease::take(space, lease.start);
            lease.free_now(space);
        }
    }
}

/// The slots of a launch's allocations.
fn allocated(ops: &[Op]) -> impl Iterator<Item = &Arc<Slot>> {
    ops.iter().filter_map(|op| match op {
        Op::Allocate(slot) => Some(slot),
        _ => None,
    })
}
