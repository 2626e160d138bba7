//! Device memory that passes through: what it takes is counted, so that `baton status` can show it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of what is live, by address or handle.
#[derive(Debug, Default)]
pub(crate) struct Pinned(Mutex<HashMap<u64, u64>>);

impl Pinned {
    /// Something new; says how much there is now.
    pub(crate) fn add(&self, what: u64, bytes: u64) -> u64 {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.insert(what, bytes);
        live.values().sum()
    }

    /// Something is gone; says how much there is now, if it was known.
    pub(crate) fn remove(&self, what: u64) -> Option<u64> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.remove(&what)?;
        Some(live.values().sum())
    }
}
