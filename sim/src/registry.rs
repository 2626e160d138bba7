//! Handles: numbers that stand for the driver's objects.
//!
//! A handle is never an address and never used again, so that a stale or invented one is found out
//! (`CUDA_ERROR_INVALID_HANDLE`) instead of followed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::errors::{Outcome, Status};

/// All objects of one kind.
pub(crate) struct Registry<T> {
    next: AtomicUsize,
    live: RwLock<HashMap<usize, Arc<T>>>,
}

impl<T> Registry<T> {
    /// An empty registry; `kind` keeps the handles of different kinds apart.
    pub(crate) fn new(kind: u8) -> Registry<T> {
        // Far from small numbers (0, 1 and 2 are special streams), from host and from device addresses.
        let base = 0x0100_0000_0000_0000 | (usize::from(kind) << 40);
        Registry { next: AtomicUsize::new(base + 0x1000), live: RwLock::new(HashMap::new()) }
    }

    /// Draws a handle before its object is there: the object may want to know it.
    pub(crate) fn draw(&self) -> usize {
        self.next.fetch_add(0x10, Ordering::Relaxed)
    }

    /// Makes a drawn handle stand for an object.
    pub(crate) fn put(&self, handle: usize, object: Arc<T>) {
        self.write().insert(handle, object);
    }

    /// Draws a handle for an object.
    pub(crate) fn add(&self, object: Arc<T>) -> usize {
        let handle = self.draw();
        self.put(handle, object);
        handle
    }

    /// The object behind a handle.
    pub(crate) fn get(&self, handle: usize) -> Outcome<Arc<T>> {
        self.read().get(&handle).cloned().ok_or(Status::INVALID_HANDLE)
    }

    /// The object that is meant, and its handle.
    pub(crate) fn find(&self, meant: impl Fn(&T) -> bool) -> Option<(usize, Arc<T>)> {
        let live = self.read();
        let found = live.iter().find(|(_, object)| meant(object));
        found.map(|(handle, object)| (*handle, object.clone()))
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.read().values().cloned().collect()
    }

    /// Ends a handle. The object lives on while it is used.
    pub(crate) fn remove(&self, handle: usize) -> Outcome<Arc<T>> {
        self.write().remove(&handle).ok_or(Status::INVALID_HANDLE)
    }

    /// Ends all handles whose object is meant.
    pub(crate) fn remove_if(&self, mut meant: impl FnMut(&T) -> bool) {
        self.write().retain(|_, object| !meant(object));
    }

    /// How many handles there are.
    pub(crate) fn count(&self) -> usize {
        self.read().len()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<usize, Arc<T>>> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<usize, Arc<T>>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_is_refused_and_never_drawn_again() {
        let registry = Registry::new(7);
        let first = registry.add(Arc::new(1));
        assert_eq!(*registry.get(first).unwrap(), 1);
        registry.remove(first).unwrap();
        assert_eq!(registry.get(first).err(), Some(Status::INVALID_HANDLE));
        assert_ne!(registry.add(Arc::new(2)), first);
    }
}
