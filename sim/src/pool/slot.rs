//! Memory of graphs' allocations: an address is the same at every launch, as long as the graph or an instance of it lives.
//!
//! Each graph has addresses of its own. The GPU's memory comes behind them with the first launch, in steps as in pools, and stays
//! until there is no instance any more and the program trims what graphs have. As measured, it counts as used by the graph all
//! that time, allocated or not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::lease::{Lease, Source};
use super::steps::{ALIGNMENT, Amount, STEP};
use crate::errors::{Outcome, Status};
use crate::exec::stream::Ticket;
use crate::gpu_file::Gpu;
use crate::memory::phys::Phys;
use crate::memory::space::{Access, Space};
use crate::settings::MOST_GPUS;

/// How much memory a GPU's graphs have.
#[derive(Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) used: Amount,
    pub(crate) reserved: Amount,
}

/// The memory of all graphs, on one GPU.
pub(crate) struct GraphMemory {
    gpu: &'static Gpu,
    figures: Arc<Mutex<Figures>>,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// The memory of one graph.
struct Area {
    gpu: &'static Gpu,
    start: u64,
    length: u64,
    /// The graph's handle.
    graph: usize,
    figures: Arc<Mutex<Figures>>,
    state: Mutex<AreaState>,
}

#[derive(Default)]
struct AreaState {
    /// Bytes that allocations have, from the start.
    taken: u64,
    /// Bytes that memory is behind.
    backed: u64,
    /// True if there is an instance that was launched.
    instance: bool,
    /// The number of allocations that the program has.
    live: usize,
    /// Freed allocations that the device may still use.
    freed: Vec<Weak<Lease>>,
    /// Bytes of it that count as used.
    used: u64,
}

/// One allocation of a graph.
pub(crate) struct Slot {
    area: Arc<Area>,
    start: u64,
    /// As asked for.
    pub(crate) bytes: u64,
    /// The access of GPUs beside its own.
    access: [Access; MOST_GPUS],
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    /// The last launch's allocation, unless that was freed.
    live: Option<Arc<Lease>>,
    /// The point at which it was freed last.
    freed: Option<Ticket>,
    /// A graph that frees it.
    freed_by: Option<usize>,
}

impl GraphMemory {
    pub(super) fn new(gpu: &'static Gpu) -> GraphMemory {
        GraphMemory { gpu, figures: Arc::default(), slots: Mutex::default() }
    }

    /// A slot for an allocation of a graph. Makes away with those of graphs that are gone.
    pub(crate) fn add(
        &self,
        space: &Space,
        bytes: u64,
        access: [Access; MOST_GPUS],
        graph: usize,
    ) -> Outcome<Arc<Slot>> {
        self.sweep(space);
        let mut slots = self.slots();
        let known = slots.iter().find(|slot| slot.area.graph == graph).map(|slot| slot.area.clone());
        let area = known.map_or_else(|| self.area(space, graph), Ok)?;
        let start = area.take(bytes)?;
        space.change().enter_slot(start, bytes, self.gpu.ordinal());
        let slot = Arc::new(Slot { area, start, bytes, access, state: Mutex::default() });
        slots.push(slot.clone());
        Ok(slot)
    }

    fn area(&self, space: &Space, graph: usize) -> Outcome<Arc<Area>> {
        let length = self.gpu.memory().next_multiple_of(STEP);
        let start = space.change().reserve(length, STEP, 0, false)?;
        let (gpu, figures, state) = (self.gpu, self.figures.clone(), Mutex::default());
        Ok(Arc::new(Area { gpu, start, length, graph, figures, state }))
    }

    /// The slot of an allocation that starts at an address.
    pub(crate) fn find(&self, start: u64) -> Option<Arc<Slot>> {
        self.slots().iter().find(|slot| slot.start == start).cloned()
    }

    /// How much memory there is.
    pub(crate) fn figures(&self) -> MutexGuard<'_, Figures> {
        lock(&self.figures)
    }

    /// Gives all memory back that no graph uses.
    pub(crate) fn trim(&self, space: &Space) {
        self.sweep(space);
        let slots = self.slots().clone();
        slots.iter().for_each(|slot| slot.area.unback(space));
    }

    /// Forgets slots whose graphs and instances are gone, and whose memory the program has freed. Their addresses go with the last of a
    /// graph, and so does the memory.
    fn sweep(&self, space: &Space) {
        // A slot without another reference gets none again: [`GraphMemory::find`] needs the lock too.
        let mut slots = self.slots();
        let gone: Vec<Arc<Slot>> = slots.extract_if(.., |slot| Arc::strong_count(slot) == 1).collect();
        for slot in gone {
            space.change().allocations.forget_slot(slot.start);
            if Arc::strong_count(&slot.area) == 1 {
                slot.area.let_go();
                slot.area.unback(space);
                space.change().drop_reservation(slot.area.start);
            }
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        lock(&self.slots)
    }
}

impl Area {
    /// Addresses for an allocation.
    fn take(&self, bytes: u64) -> Outcome<u64> {
        let mut state = lock(&self.state);
        let taken = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| bytes.checked_add(state.taken));
        let taken = taken.filter(|taken| *taken <= self.length).ok_or(Status::OUT_OF_MEMORY)?;
        Ok(self.start + std::mem::replace(&mut state.taken, taken))
    }

    /// Sees that memory is behind all allocations, since a launch needs it.
    fn back(&self, space: &Space, access: [Access; MOST_GPUS]) -> Outcome {
        let mut state = lock(&self.state);
        while state.backed < state.taken {
            let phys = Phys::create(self.gpu, STEP, false)?;
            space.change().map_in_order(self.start + state.backed, phys, access)?;
            state.backed += STEP;
            lock(&self.figures).reserved.add(STEP);
        }
        (state.instance, state.live) = (true, state.live + 1);
        self.count(&mut state);
        Ok(())
    }

    fn give_back(&self, lease: &Arc<Lease>) {
        let mut state = lock(&self.state);
        state.live -= 1;
        state.freed.retain(|freed| freed.upgrade().is_some_and(|freed| !freed.is_over()));
        state.freed.push(Arc::downgrade(lease));
        self.count(&mut state);
    }

    /// There is no instance of the graph any more.
    fn let_go(&self) {
        let mut state = lock(&self.state);
        state.instance = false;
        self.count(&mut state);
    }

    /// Counts what is used.
    fn count(&self, state: &mut AreaState) {
        let now = if state.instance || state.live > 0 { state.backed } else { 0 };
        let mut figures = lock(&self.figures);
        figures.used.take(state.used);
        figures.used.add(now);
        state.used = now;
    }

    /// Gives the GPU's memory back, if no graph uses it.
    fn unback(&self, space: &Space) {
        let mut state = lock(&self.state);
        if state.used > 0 || state.freed.iter().any(|freed| freed.upgrade().is_some_and(|freed| !freed.is_over())) {
            return;
        }
        let gone = space.change().unmap(self.start, state.backed);
        lock(&self.figures).reserved.take(state.backed);
        state.backed = 0;
        drop(gone);
    }
}

impl Slot {
    /// The address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// How many GPUs beside its own may use it.
    pub(crate) fn peers(&self) -> usize {
        self.access.iter().filter(|access| **access != Access::None).count()
    }

    /// The last launch's allocation, unless that was freed.
    pub(crate) fn live(&self) -> Option<Arc<Lease>> {
        self.state().live.clone()
    }

    /// The graph's instance is destroyed.
    pub(crate) fn let_go(&self) {
        self.area.let_go();
    }

    /// Notes that a graph frees it, if it may: once, and not both the graph that allocates it and another.
    pub(crate) fn free_in(&self, graph: usize) -> Outcome {
        let mut state = self.state();
        let own = self.area.graph;
        match state.freed_by {
            Some(other) if other == graph || other == own || graph == own => Err(Status::INVALID_VALUE),
            _ => {
                state.freed_by = Some(graph);
                Ok(())
            }
        }
    }

    /// A launch allocates it; the point in another stream that it has to wait for first. The program does not have it yet.
    pub(crate) fn allocate(self: &Arc<Slot>, space: &Space) -> Outcome<(Arc<Lease>, Option<Ticket>)> {
        let mut access = self.access;
        access[self.gpu().ordinal()] = Access::ReadWrite;
        self.area.back(space, access)?;
        let mut state = self.state();
        let taken = self.bytes.next_multiple_of(ALIGNMENT);
        let lease = Arc::new(Lease::new(self.clone(), self.start, taken, self.bytes));
        state.live = Some(lease.clone());
        space.change().allocations.renew(lease.clone());
        Ok((lease, state.freed.take()))
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        lock(&self.state)
    }
}

impl Source for Slot {
    fn gpu(&self) -> &'static Gpu {
        self.area.gpu
    }

    fn give_back(&self, _space: &Space, lease: &Arc<Lease>, at: Option<Ticket>) {
        let mut state = self.state();
        (state.live, state.freed) = (None, at);
        self.area.give_back(lease);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
