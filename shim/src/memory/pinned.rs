//! Device memory that passes through: what it takes is counted, so that `baton status` can show it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of what is live, by address or handle.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    live: Mutex<HashMap<u64, u64>>,
    /// Handles were made, which keep their memory for as long as it is mapped, also when they are released.
    has_handles: AtomicBool,
}

impl Pinned {
    /// Something new; says how much there is now.
    pub(crate) fn add(&self, what: u64, bytes: u64) -> u64 {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.insert(what, bytes);
        live.values().sum()
    }

    /// A handle was made.
    pub(crate) fn handle_made(&self) {
        self.has_handles.store(true, Ordering::Relaxed);
    }

    /// Whether there may be any.
    pub(crate) fn is_any(&self) -> bool {
        self.has_handles.load(Ordering::Relaxed) || !self.live.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Something is gone; says how much there is now, if it was known.
    pub(crate) fn remove(&self, what: u64) -> Option<u64> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.remove(&what)?;
        Some(live.values().sum())
    }
}
