//! Device memory that passes through: what it takes is counted, so that `baton status` can show it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of what is live, by address or handle.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    live: Mutex<HashMap<u64, u64>>,
    /// There may be more than that, for good: handles keep their memory for as long as it is mapped, also when they are
    /// released, and what others have made goes when it goes.
    foreign: AtomicBool,
}

impl Pinned {
    /// Something new; says how much there is now.
    pub(crate) fn add(&self, what: u64, bytes: u64) -> u64 {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.insert(what, bytes);
        live.values().sum()
    }

    /// There is memory now whose end nobody tells.
    pub(crate) fn foreign_made(&self) {
        self.foreign.store(true, Ordering::Relaxed);
    }

    /// Whether there may be any.
    pub(crate) fn is_any(&self) -> bool {
        self.foreign.load(Ordering::Relaxed) || !self.live.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Something is gone; says how much there is now, if it was known.
    pub(crate) fn remove(&self, what: u64) -> Option<u64> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.remove(&what)?;
        Some(live.values().sum())
    }
}
