//! The common part of all contexts of the process: memory, and the end of all work by a failure.

use std::sync::atomic::{AtomicU32, Ordering};

use super::stream::Ticket;
use crate::errors::{Outcome, Status};
use crate::gpu_file::Gpu;
use crate::memory::space::Space;
use crate::pool::pools::Pools;
use crate::settings::Settings;

/// Contexts share it: there is one for the process.
pub(crate) struct Common {
    pub(crate) space: Space,
    pub(crate) pools: Pools,
    /// True if calls wait for work that only may have to.
    pub(super) waiting: bool,
    failed: AtomicU32,
}

impl Common {
    /// For these GPUs; `kind` keeps the pools' handles apart from others'.
    pub(crate) fn new(gpus: &[&'static Gpu], kind: u8, settings: &Settings) -> Common {
        Common {
            space: Space::new(settings.pageable),
            pools: Pools::new(gpus, kind),
            waiting: settings.waiting,
            failed: AtomicU32::new(0),
        }
    }

    /// Fails if a kernel has failed before. As on the device that is the end of the process's work: no
    /// context of it works any more, and none that works can be made.
    pub(crate) fn check(&self) -> Outcome {
        Status::from_code(self.failed.load(Ordering::Acquire)).map_or(Ok(()), Err)
    }

    /// Makes all contexts unusable. The first reason stays.
    pub(super) fn fail(&self, status: Status) {
        let _ = self.failed.compare_exchange(0, status.code(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// The program has waited for these points: memory that was freed before them is free.
    pub(crate) fn observe(&self, points: &[Ticket]) {
        self.pools.observe(&self.space, points);
    }
}
