//! Pools: memory that streams allocate and free in their order.
//!
//! A pool has addresses of its own, and memory of its GPU behind some of them, in steps ([`STEP`]). An allocation may lie over
//! several. Memory that a stream frees can be given out again before the stream has come so far, to work that comes after that;
//! [`Policy`] says how that may be known. Free memory goes back to the GPU when the program waits for something, down to what the
//! pool is told to keep.
//!
//! A pool's lock is taken before the address space's, never behind it.

pub(crate) mod backing;
pub(crate) mod lease;
mod pieces;
pub(crate) mod pools;
pub(crate) mod slot;
pub(crate) mod steps;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::backing::Backing;
use self::lease::{Lease, Source};
use self::pieces::{Freed, Pieces};
use self::steps::{ALIGNMENT, Amount, STEP};
use crate::errors::{Outcome, Status};
use crate::exec::stream::Ticket;
use crate::gpu_file::Gpu;
use crate::memory::allocations::Lent;
use crate::memory::phys::Phys;
use crate::memory::space::{Access, Space};
use crate::settings::MOST_GPUS;

/// How many times the GPU's memory a pool has addresses for: it may have holes.
const ADDRESSES: u64 = 4;

/// The ways in which memory that another stream frees may be used again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Policy {
    /// The allocating stream waits for the free anyway, because of events or default streams.
    FollowEvents,
    /// The free is over.
    Opportunistic,
    /// The allocating stream is made to wait for it, if the GPU has no more memory.
    InternalDependencies,
}

/// One pool.
pub(crate) struct Pool {
    pub(crate) handle: usize,
    gpu: &'static Gpu,
    /// If it is shared with other processes.
    backing: Option<Backing>,
    /// Bytes that it may have.
    most: u64,
    state: Mutex<State>,
}

/// The changing part of a pool.
pub(crate) struct State {
    /// By [`Policy`].
    pub(crate) policies: [bool; 3],
    /// Bytes that it keeps though they are free.
    pub(crate) threshold: u64,
    /// The access of each GPU.
    pub(crate) access: [Access; MOST_GPUS],
    pub(crate) reserved: Amount,
    pub(crate) used: Amount,
    /// From where to where; none before the first allocation.
    addresses: Option<(u64, u64)>,
    pieces: Pieces,
    /// True if the program destroyed it: the rest goes with the last allocation.
    destroyed: bool,
}

/// The reasons that keep a pool from growing.
#[derive(Clone, Copy)]
enum Shortage {
    /// Its own limit, or its addresses: other pools cannot help.
    Pool,
    /// The GPU has no memory left.
    Gpu,
}

/// An allocation, and the points in other streams that its own one has to wait for first.
pub(crate) type Allocated = (Arc<Lease>, Vec<Ticket>);

impl Pool {
    pub(crate) fn new(handle: usize, gpu: &'static Gpu, backing: Option<Backing>, most: u64) -> Arc<Pool> {
        let mut access = [Access::None; MOST_GPUS];
        access[gpu.ordinal()] = Access::ReadWrite;
        let state = State {
            policies: [true; 3],
            threshold: 0,
            access,
            reserved: Amount::default(),
            used: Amount::default(),
            addresses: None,
            pieces: Pieces::default(),
            destroyed: false,
        };
        let most = if most == 0 { u64::MAX } else { most.checked_next_multiple_of(STEP).unwrap_or(u64::MAX) };
        Arc::new(Pool { handle, gpu, backing, most, state: Mutex::new(state) })
    }

    /// The pool that memory was lent by, if it was one.
    pub(crate) fn of(lent: &Arc<dyn Lent>) -> Option<&Pool> {
        let source: &dyn Any = Lease::of(lent)?.source.as_ref();
        source.downcast_ref()
    }

    /// The file behind a pool of this process's that others can share.
    pub(crate) fn exportable(&self) -> Option<&Backing> {
        self.backing.as_ref().filter(|backing| !backing.imported)
    }

    /// The number by which what is exported from it is known.
    pub(crate) fn number(&self) -> Option<u64> {
        self.backing.as_ref().map(|backing| backing.number)
    }

    /// True if other processes may have it too.
    pub(crate) fn can_be_shared(&self) -> bool {
        self.backing.is_some()
    }

    /// The offset in the pool of memory that it lent, the same in all processes, and the bytes that were asked for.
    pub(crate) fn place_of(&self, lent: &Arc<dyn Lent>) -> Option<(u64, u64)> {
        let lease = Lease::of(lent)?;
        Some((lease.start - self.state().addresses.map_or(0, |(start, _)| start), lease.asked))
    }

    /// Takes an allocation that another process made in this pool.
    pub(crate) fn import(self: &Arc<Pool>, space: &Space, offset: u64, bytes: u64) -> Outcome<u64> {
        let backing = self.backing.as_ref().filter(|backing| backing.imported).ok_or(Status::INVALID_VALUE)?;
        let taken = bytes.checked_next_multiple_of(ALIGNMENT).filter(|_| bytes > 0).ok_or(Status::INVALID_VALUE)?;
        let end = offset.checked_add(taken).filter(|end| *end <= backing.length).ok_or(Status::INVALID_VALUE)?;
        let mut state = self.state();
        let (first, _) = state.reserve(space, backing.length)?;
        let start = first + offset;
        if space.look().allocations.starting_at(start).is_some() {
            // It is here already.
            return Err(Status::INVALID_VALUE);
        }
        for step in (offset / STEP * STEP..end).step_by(STEP as usize) {
            if !state.pieces.has(first + step) {
                let phys = Phys::part_of(self.gpu, backing.file(), step, STEP, false)?;
                space.change().map_in_order(first + step, phys, state.access)?;
                state.pieces.add_taken(first + step);
                state.reserved.add(STEP);
            }
        }
        state.used.add(bytes);
        let lease = Arc::new(Lease::new(self.clone(), start, taken, bytes));
        space.change().enter_lent(lease.clone(), bytes);
        lease.begin(space);
        Ok(start)
    }

    /// The access of GPUs beside its own.
    pub(crate) fn peers(&self) -> [Access; MOST_GPUS] {
        let mut access = self.state().access;
        access[self.gpu.ordinal()] = Access::None;
        access
    }

    /// Its settings and figures.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds memory for a stream that is behind these points (the last is its own): memory that all may have or the stream itself
    /// has freed, memory that the policies allow, more from the GPU (after `make_room`, if need be), and at last memory to wait for.
    pub(crate) fn allocate(
        self: &Arc<Pool>,
        space: &Space,
        bytes: u64,
        behind: &[Ticket],
        make_room: impl FnOnce(),
    ) -> Outcome<Allocated> {
        if self.is_imported() {
            return Err(Status::INVALID_VALUE);
        }
        let needed = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Status::OUT_OF_MEMORY)?;
        let own = behind.last().ok_or(Status::UNKNOWN)?.stream();
        let mut state = self.state();
        let is_behind = |freed: &Freed| behind.iter().any(|point| point.is_behind(&freed.at));
        let [follow, opportunistic, internal] = state.policies;
        let may = |freed: &Freed| {
            freed.at.stream() == own || follow && is_behind(freed) || opportunistic && freed.lease.is_over()
        };
        let mut found = state.pieces.room(needed, &may).ok_or(Shortage::Gpu);
        if found.is_err() {
            found = self.grow(&mut state, space, needed, &may);
        }
        if let Err(shortage) = found {
            // Both lock this pool too.
            drop(state);
            match shortage {
                Shortage::Pool => self.trim(space, 0),
                Shortage::Gpu => make_room(),
            }
            state = self.state();
            found = self.grow(&mut state, space, needed, &may);
        }
        let mut found = found.ok();
        if found.is_none() && internal {
            found = state.pieces.room(needed, &|_| true);
        }
        let start = found.ok_or(Status::OUT_OF_MEMORY)?;
        let after = state.pieces.take(start, needed).into_iter().map(|freed| freed.at).collect();
        state.used.add(bytes);
        let lease = Arc::new(Lease::new(self.clone(), start, needed, bytes));
        space.change().enter_lent(lease.clone(), bytes);
        Ok((lease, after))
    }

    /// The program has waited for these points: memory that was freed before them is free for all streams. Also gives back what is too
    /// much.
    pub(crate) fn observe(&self, space: &Space, points: &[Ticket]) {
        let mut state = self.state();
        let is_seen = |freed: &Freed| points.iter().any(|point| point.is_behind(&freed.at));
        state.pieces.settle(&is_seen);
        let keep = state.threshold;
        self.release(state, space, keep, &|_| false);
    }

    /// Gives free memory back, as long as that much is left: in whole steps. (More than there are numbers for is
    /// nothing to the driver.)
    pub(crate) fn trim(&self, space: &Space, keep: u64) {
        let keep = keep.checked_next_multiple_of(STEP).unwrap_or(0);
        self.release(self.state(), space, keep, &|freed| freed.lease.is_over());
    }

    /// The program destroys it.
    pub(crate) fn destroy(&self, space: &Space) {
        self.state().destroyed = true;
        self.tidy(space);
    }

    /// True if it was destroyed and has no memory any more.
    pub(crate) fn is_gone(&self) -> bool {
        let state = self.state();
        state.destroyed && state.pieces.is_empty()
    }

    /// Says what a GPU may do with its memory.
    pub(crate) fn set_access(&self, space: &Space, ordinal: usize, access: Access) -> Outcome {
        let mut state = self.state();
        state.access[ordinal] = access;
        let mut table = space.change();
        state.pieces.steps().try_for_each(|step| table.set_access(step, STEP, ordinal, access))
    }

    /// Takes more memory from the GPU, beside what can be had already.
    fn grow(
        &self,
        state: &mut State,
        space: &Space,
        needed: u64,
        may: &impl Fn(&Freed) -> bool,
    ) -> Result<u64, Shortage> {
        if needed > self.most.min(self.gpu.memory()) {
            return Err(Shortage::Pool);
        }
        let addresses = state.reserve(space, addresses_on(self.gpu)).map_err(|_| Shortage::Pool)?;
        let (start, steps) = state.pieces.room_with_more(needed, may, addresses).ok_or(Shortage::Pool)?;
        let more = STEP * steps.len() as u64;
        if self.most - state.reserved.current < more {
            return Err(Shortage::Pool);
        }
        // All or nothing.
        let make = |step: &u64| match &self.backing {
            Some(backing) => Phys::part_of(self.gpu, backing.file(), step - addresses.0, STEP, true),
            None => Phys::create(self.gpu, STEP, false),
        };
        let made: Outcome<Vec<Phys>> = steps.iter().map(make).collect();
        for (step, phys) in steps.into_iter().zip(made.map_err(|_| Shortage::Gpu)?) {
            space.change().map_in_order(step, phys, state.access).map_err(|_| Shortage::Pool)?;
            state.pieces.add(step);
        }
        state.reserved.add(more);
        Ok(start)
    }

    /// Gives free steps back, as far as these frees are good enough, and as long as so much is left.
    fn release(&self, mut state: MutexGuard<'_, State>, space: &Space, keep: u64, may: &impl Fn(&Freed) -> bool) {
        if self.can_be_shared() && !state.destroyed {
            // The driver never takes memory out of a pool that other processes may know.
            return;
        }
        let mut gone = Vec::new();
        if self.is_imported() && state.used.current == 0 {
            // No allocation of it is left here.
            state.pieces.give_all();
        }
        while state.reserved.current >= STEP
            && state.reserved.current - STEP >= keep
            && let Some(step) = state.pieces.remove_idle(may)
        {
            state.reserved.take(STEP);
            gone.extend(space.change().unmap(step, STEP).unwrap_or_default());
        }
        if state.destroyed
            && state.pieces.is_empty()
            && let Some((start, _)) = state.addresses.take()
        {
            space.change().drop_reservation(start);
        }
        drop(state);
        // The memory goes back to the GPU when no lock is held any more.
        drop(gone);
    }
}

impl Source for Pool {
    fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Then nothing is allocated from it here, nor is there anything to set.
    fn is_imported(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.imported)
    }

    /// A destroyed pool keeps no free memory.
    fn tidy(&self, space: &Space) {
        let state = self.state();
        if state.destroyed {
            self.release(state, space, 0, &|freed| freed.lease.is_over());
        }
    }

    /// At once, it gives back what is too much.
    fn give_back(&self, space: &Space, lease: &Arc<Lease>, at: Option<Ticket>) {
        let mut state = self.state();
        state.used.take(lease.asked);
        let at_once = at.is_none();
        let freed = at.map(|at| Freed { lease: lease.clone(), at });
        if self.is_imported() {
            drop(state);
            return self.tidy(space);
        }
        state.pieces.give(lease.start, lease.bytes, freed);
        if at_once {
            let keep = state.threshold;
            self.release(state, space, keep, &|_| false);
        } else {
            drop(state);
        }
        self.tidy(space);
    }
}

impl State {
    /// The pool's addresses, from where to where; so many, if there are none yet.
    fn reserve(&mut self, space: &Space, bytes: u64) -> Outcome<(u64, u64)> {
        if self.addresses.is_none() {
            let start = space.change().reserve(bytes, STEP, 0, false)?;
            self.addresses = Some((start, start + bytes));
        }
        self.addresses.ok_or(Status::UNKNOWN)
    }
}

/// How many addresses a pool on a GPU has.
pub(crate) fn addresses_on(gpu: &Gpu) -> u64 {
    (gpu.memory() * ADDRESSES).next_multiple_of(STEP)
}
