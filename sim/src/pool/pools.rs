//! All pools of a process: those that the program made, and the GPUs' default ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Pool;
use super::backing::Backing;
use super::lease::Source;
use super::slot::{GraphMemory, Slot};
use crate::errors::{Outcome, Status};
use crate::exec::stream::Ticket;
use crate::gpu_file::Gpu;
use crate::memory::space::Space;
use crate::registry::Registry;

/// Pools by their handles, and the one that each GPU's allocations are from.
pub(crate) struct Pools {
    known: Registry<Pool>,
    /// By the GPUs' ordinals.
    defaults: Vec<Arc<Pool>>,
    current: Mutex<Vec<Arc<Pool>>>,
    /// The memory of graphs on each GPU.
    graphs: Vec<GraphMemory>,
    /// Destroyed, but with memory that the program has.
    leaving: Mutex<Vec<Arc<Pool>>>,
}

impl Pools {
    /// The default pools of these GPUs; `kind` is what keeps their handles apart from others'.
    pub(crate) fn new(gpus: &[&'static Gpu], kind: u8) -> Pools {
        let known = Registry::new(kind);
        let make = |gpu: &&'static Gpu| {
            let pool = Pool::new(known.draw(), gpu, None, 0);
            known.put(pool.handle, pool.clone());
            pool
        };
        let defaults: Vec<_> = gpus.iter().map(make).collect();
        let graphs = gpus.iter().map(|gpu| GraphMemory::new(gpu)).collect();
        Pools { current: Mutex::new(defaults.clone()), known, defaults, graphs, leaving: Mutex::default() }
    }

    /// Makes a pool.
    pub(crate) fn make(&self, gpu: &'static Gpu, backing: Option<Backing>, most: u64) -> Arc<Pool> {
        let pool = Pool::new(self.known.draw(), gpu, backing, most);
        self.known.put(pool.handle, pool.clone());
        pool
    }

    /// The pool of a handle; a wrong one is a wrong value.
    pub(crate) fn find(&self, handle: usize) -> Outcome<Arc<Pool>> {
        self.known.get(handle).map_err(|_| Status::INVALID_VALUE)
    }

    /// A GPU's default pool.
    pub(crate) fn default_of(&self, ordinal: usize) -> Arc<Pool> {
        self.defaults[ordinal].clone()
    }

    /// The pool that a GPU's allocations are from.
    pub(crate) fn current_of(&self, ordinal: usize) -> Arc<Pool> {
        self.current()[ordinal].clone()
    }

    /// The memory of graphs on a GPU.
    pub(crate) fn graphs_of(&self, ordinal: usize) -> &GraphMemory {
        &self.graphs[ordinal]
    }

    /// The GPU's memory of graphs that an allocation is of.
    pub(crate) fn slot(&self, start: u64) -> Option<Arc<Slot>> {
        self.graphs.iter().find_map(|graphs| graphs.find(start))
    }

    /// Makes a pool that of its GPU's allocations.
    pub(crate) fn set_current(&self, pool: Arc<Pool>) {
        let ordinal = pool.gpu().ordinal();
        self.current()[ordinal] = pool;
    }

    /// Destroys a pool. Memory that the program has of it stays until it is freed.
    pub(crate) fn destroy(&self, space: &Space, handle: usize) -> Outcome {
        let pool = self.find(handle)?;
        let ordinal = pool.gpu().ordinal();
        if self.defaults[ordinal].handle == handle {
            return Err(Status::INVALID_VALUE);
        }
        self.known.remove(handle)?;
        let mut current = self.current();
        if current[ordinal].handle == handle {
            current[ordinal] = self.defaults[ordinal].clone();
        }
        drop(current);
        pool.destroy(space);
        let mut leaving = self.leaving();
        leaving.retain(|pool| !pool.is_gone());
        if !pool.is_gone() {
            leaving.push(pool);
        }
        Ok(())
    }

    /// The program has waited for these points.
    pub(crate) fn observe(&self, space: &Space, points: &[Ticket]) {
        self.each(|pool| pool.observe(space, points));
    }

    /// Has the pools of a GPU give back all free memory.
    pub(crate) fn make_room(&self, space: &Space, gpu: &'static Gpu) {
        self.each(|pool| {
            if pool.gpu().ordinal() == gpu.ordinal() {
                pool.trim(space, 0);
            }
        });
        self.graphs_of(gpu.ordinal()).trim(space);
    }

    fn each(&self, what: impl Fn(&Pool)) {
        let all = self.known.all();
        let leaving = self.leaving().clone();
        all.iter().chain(&leaving).for_each(|pool| what(pool));
    }

    fn current(&self) -> MutexGuard<'_, Vec<Arc<Pool>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Vec<Arc<Pool>>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
