//! Pools: memory that streams allocate and free in their order.
//!
//! A pool has memory of its GPU in stretches ([`STEP`]) that are mapped as long as it has them. What a stream frees can be given
//! out again before the stream has come so far, to whoever comes after that; [`Policy`] says how that may be known. Memory that
//! nobody has goes back to the GPU when the program waits for something, down to what the pool is told to keep.
//!
//! A pool's lock is taken before the address space's, never behind it.

mod chunk;
pub(crate) mod lease;
pub(crate) mod pools;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::chunk::{Chunk, Freed};
use self::lease::Lease;
use crate::errors::{Outcome, Status};
use crate::exec::stream::Ticket;
use crate::gpu_file::Gpu;
use crate::memory::phys::{GRANULARITY, Phys};
use crate::memory::space::{Access, Space};
use crate::settings::MOST_GPUS;

/// How much memory a pool takes from the GPU at once; more only for an allocation that is larger.
pub(crate) const STEP: u64 = 32 << 20;

/// What every allocation's address and size are a multiple of.
const ALIGNMENT: u64 = 512;

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

/// How much memory there is of some kind, and how much there ever was.
#[derive(Clone, Copy, Default)]
pub(crate) struct Amount {
    pub(crate) current: u64,
    pub(crate) high: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.current += bytes;
        self.high = self.high.max(self.current);
    }

    fn take(&mut self, bytes: u64) {
        self.current -= bytes;
    }

    /// Forgets what there was.
    pub(crate) fn reset(&mut self) {
        self.high = self.current;
    }
}

/// One pool.
pub(crate) struct Pool {
    pub(crate) handle: usize,
    gpu: &'static Gpu,
    /// Whether it can be shared with other processes.
    pub(crate) exportable: bool,
    /// How much memory it may have.
    most: u64,
    state: Mutex<State>,
}

/// What changes of it.
pub(crate) struct State {
    /// By [`Policy`].
    pub(crate) policies: [bool; 3],
    /// Memory that it keeps though nobody has it.
    pub(crate) threshold: u64,
    /// What each GPU may do with it.
    pub(crate) access: [Access; MOST_GPUS],
    pub(crate) reserved: Amount,
    pub(crate) used: Amount,
    chunks: BTreeMap<u64, Chunk>,
    /// Whether the program destroyed it: what is left goes with the last allocation.
    destroyed: bool,
}

/// An allocation, and the points in other streams that its own one has to wait for first.
pub(crate) type Allocated = (Arc<Lease>, Vec<Ticket>);

impl Pool {
    pub(crate) fn new(handle: usize, gpu: &'static Gpu, exportable: bool, most: u64) -> Arc<Pool> {
        let mut access = [Access::None; MOST_GPUS];
        access[gpu.ordinal()] = Access::ReadWrite;
        let state = State {
            policies: [true; 3],
            threshold: 0,
            access,
            reserved: Amount::default(),
            used: Amount::default(),
            chunks: BTreeMap::new(),
            destroyed: false,
        };
        let most = if most == 0 { u64::MAX } else { most.next_multiple_of(GRANULARITY) };
        Arc::new(Pool { handle, gpu, exportable, most, state: Mutex::new(state) })
    }

    /// The GPU whose memory it gives out.
    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Its settings and figures.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds memory for a stream that is behind these points (the last is its own): what everybody may have or the stream itself
    /// has freed, what the policies allow, more from the GPU (after `make_room`, if need be), and at last what has to be waited for.
    pub(crate) fn allocate(
        self: &Arc<Pool>,
        space: &Space,
        bytes: u64,
        behind: &[Ticket],
        make_room: impl FnOnce(),
    ) -> Outcome<Allocated> {
        let needed = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Status::OUT_OF_MEMORY)?;
        let own = behind.last().ok_or(Status::UNKNOWN)?.stream();
        let mut state = self.state();
        let is_behind = |freed: &Freed| behind.iter().any(|point| point.is_behind(&freed.at));
        let [follow, opportunistic, internal] = state.policies;
        let may = |freed: &Freed| {
            freed.at.stream() == own || follow && is_behind(freed) || opportunistic && freed.lease.is_over()
        };
        let mut found = state.room(needed, &may);
        if found.is_none() {
            found = self.grow(&mut state, space, needed);
        }
        if found.is_none() {
            // Others may have to give memory back, which locks this pool too.
            drop(state);
            make_room();
            state = self.state();
            found = self.grow(&mut state, space, needed);
        }
        if found.is_none() && internal {
            found = state.room(needed, &|_| true);
        }
        let (chunk, start) = found.ok_or(Status::OUT_OF_MEMORY)?;
        let chunk = state.chunks.get_mut(&chunk).ok_or(Status::UNKNOWN)?;
        let after = chunk.take(start, needed).into_iter().map(|freed| freed.at).collect();
        state.used.add(needed);
        let lease = Arc::new(Lease::new(self.clone(), start, needed));
        space.change().enter_lease(lease.clone(), bytes);
        Ok((lease, after))
    }

    /// Takes back what the program has freed: at a point in a stream, or at once.
    pub(crate) fn give_back(&self, space: &Space, lease: &Arc<Lease>, at: Option<Ticket>) {
        let mut state = self.state();
        state.used.take(lease.bytes);
        let freed = at.map(|at| Freed { lease: lease.clone(), at });
        if let Some((_, chunk)) = state.chunks.range_mut(..=lease.start).next_back() {
            chunk.give(lease.start, lease.bytes, freed);
        }
        drop(state);
        self.tidy(space);
    }

    /// What was freed before these points is everybody's: the program has waited for them. Also gives back what is too much.
    pub(crate) fn observe(&self, space: &Space, points: &[Ticket]) {
        let mut state = self.state();
        let is_seen = |freed: &Freed| points.iter().any(|point| point.is_behind(&freed.at));
        state.chunks.values_mut().for_each(|chunk| chunk.settle(&is_seen));
        let keep = state.threshold;
        self.release(state, space, keep, &|_| false);
    }

    /// Gives memory back that nobody has, as long as that much is left.
    pub(crate) fn trim(&self, space: &Space, keep: u64) {
        self.release(self.state(), space, keep, &|freed| freed.lease.is_over());
    }

    /// The program destroys it.
    pub(crate) fn destroy(&self, space: &Space) {
        self.state().destroyed = true;
        self.tidy(space);
    }

    /// Whether it was destroyed and has no memory any more.
    pub(crate) fn is_gone(&self) -> bool {
        let state = self.state();
        state.destroyed && state.chunks.is_empty()
    }

    /// Says what a GPU may do with its memory.
    pub(crate) fn set_access(&self, space: &Space, ordinal: usize, access: Access) -> Outcome {
        let mut state = self.state();
        state.access[ordinal] = access;
        let mut table = space.change();
        state.chunks.iter().try_for_each(|(start, chunk)| table.set_access(*start, chunk.bytes(), ordinal, access))
    }

    /// A destroyed pool keeps nothing that nobody has.
    fn tidy(&self, space: &Space) {
        let state = self.state();
        if state.destroyed {
            self.release(state, space, 0, &|freed| freed.lease.is_over());
        }
    }

    /// Takes more memory from the GPU: a step, or as much as is needed if that is more or if there is no room for a step.
    fn grow(&self, state: &mut State, space: &Space, needed: u64) -> Option<(u64, u64)> {
        let needed = needed.checked_next_multiple_of(GRANULARITY)?;
        let left = self.most.saturating_sub(state.reserved.current).min(self.gpu.memory());
        let sizes = [needed.max(STEP).min(left), needed];
        let made = sizes.into_iter().filter(|bytes| (needed..=left).contains(bytes));
        let phys = made.filter_map(|bytes| Phys::create(self.gpu, bytes, self.exportable).ok()).next()?;
        let bytes = phys.bytes();
        let start = space.change().place_for_pool(phys, state.access).ok()?;
        state.reserved.add(bytes);
        state.chunks.insert(start, Chunk::new(start, bytes));
        Some((start, start))
    }

    /// Gives whole stretches back that nobody has, as far as these frees are good enough, and as long as so much is left.
    fn release(&self, mut state: MutexGuard<'_, State>, space: &Space, keep: u64, may: &impl Fn(&Freed) -> bool) {
        if state.reserved.current <= keep || self.exportable && !state.destroyed {
            // The driver never takes memory out of a pool that other processes may know.
            return;
        }
        let empty = state.chunks.iter().filter(|(_, chunk)| chunk.is_empty(may));
        let mut all: Vec<(u64, u64)> = empty.map(|(start, chunk)| (*start, chunk.bytes())).collect();
        let mut gone = Vec::new();
        while let Some((start, bytes)) = all.pop() {
            if state.reserved.current - bytes < keep {
                continue;
            }
            state.chunks.remove(&start);
            state.reserved.take(bytes);
            gone.extend(space.change().take_from_pool(start, bytes));
        }
        drop(state);
        // The memory goes back to the GPU when nobody holds a lock any more.
        drop(gone);
    }
}

impl State {
    /// The stretch and the address of the smallest room that is large enough.
    fn room(&self, needed: u64, may: &impl Fn(&Freed) -> bool) -> Option<(u64, u64)> {
        let rooms = self.chunks.iter().filter_map(|(name, chunk)| Some((chunk.room(needed, may)?, *name)));
        rooms.min().map(|((_, start), name)| (name, start))
    }
}
