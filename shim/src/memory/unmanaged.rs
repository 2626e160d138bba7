//! Device memory that Baton does not move: it is asked for before the driver allocates it, and counted by kind.
//!
//! On each GPU the process has a **lease** of memory beside the arena, which the coordinator grants in steps: an allocation that fits the rest of the
//! lease needs no request. Freed memory goes back to the lease, and a large unused rest goes back to the coordinator.
//!
//! A call that makes such memory takes these steps:
//!
//! 1. [`ask`] before the driver is called.
//! 2. The driver's call. If it fails, [`give_back`].
//! 3. [`keep`] the bytes under the address or handle that has them, and [`remove`] freed ones. Or, where the bytes have no such name
//!    (a pool that grows and shrinks), [`give_back`] when they are gone.
//!
//! Memory that exists already, because others have made it, is only counted ([`note`]). So is managed memory for which there is no room:
//! the driver moves that itself, and lets a program have more of it than the GPU has.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUresult};
use baton_contract::memory::{PerKind, Unmanaged};

use crate::link::{self, Link, requests::Unserved};

/// The step by which the lease grows. It is less on a small GPU.
const STEP: u64 = 32 << 20;
/// The step on a small GPU, as a part of its memory: one in so many.
const SMALL_PART: u64 = 64;

/// An object that takes memory.
#[derive(Clone, Copy)]
struct Entry {
    device: CUdevice,
    kind: Unmanaged,
    bytes: u64,
    /// The context that it goes with; 0 if it outlives contexts.
    context: usize,
    /// True if it uses the lease.
    is_leased: bool,
}

/// All unmanaged memory of this process.
struct Live {
    /// By address or handle.
    entries: Option<HashMap<u64, Entry>>,
    gpus: BTreeMap<CUdevice, Lease>,
}

/// The memory of a GPU.
#[derive(Default)]
struct Lease {
    /// In bytes.
    kinds: PerKind,
    /// Bytes of the lease that are used.
    used: u64,
    leased: u64,
}

static LIVE: Mutex<Live> = Mutex::new(Live { entries: None, gpus: BTreeMap::new() });
/// There may be more memory than is counted, for good: handles keep their memory for as long as it is mapped, even after they are
/// released, and memory of others stays as long as they keep it.
static FOREIGN: AtomicBool = AtomicBool::new(false);

/// True if a graph allocates memory.
static GRAPHS: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// The memory of a GPU.
    fn on(&mut self, device: CUdevice) -> &mut Lease {
        self.gpus.entry(device).or_default()
    }
}

impl Lease {
    /// Uses so many more bytes of the lease, if it has them.
    fn take(&mut self, kind: Unmanaged, bytes: u64) -> bool {
        let used = self.used.checked_add(bytes).filter(|used| *used <= self.leased);
        if let Some(used) = used {
            self.used = used;
            self.count(kind, bytes);
        }
        used.is_some()
    }

    fn count(&mut self, kind: Unmanaged, bytes: u64) {
        let sum = &mut self.kinds[kind.index()];
        *sum = sum.saturating_add(bytes);
    }

    fn uncount(&mut self, kind: Unmanaged, bytes: u64) {
        let sum = &mut self.kinds[kind.index()];
        *sum = sum.saturating_sub(bytes);
    }

    /// Uses so many bytes less. Returns the bytes of the lease that are to go back: a step is left, which the next call may need.
    fn put(&mut self, kind: Unmanaged, bytes: u64, step: u64) -> u64 {
        self.uncount(kind, bytes);
        self.used = self.used.saturating_sub(bytes);
        let spare = self.leased - self.used;
        // So a program that makes and frees at the edge of a step does not cause a request each time.
        let back = match self.used {
            0 => spare,
            _ if spare >= 2 * step => spare - step,
            _ => 0,
        };
        self.leased -= back;
        back
    }

    /// Bytes that the lease lacks for so many more.
    fn missing(&self, bytes: u64) -> u64 {
        self.used.saturating_add(bytes).saturating_sub(self.leased)
    }

    fn show(&self, link: &Link) {
        for (shown, bytes) in link.own().unmanaged_bytes.iter().zip(self.kinds) {
            shown.store(bytes, Ordering::Relaxed);
        }
    }
}

/// The bytes by which a lease grows at once.
fn step(link: &Link) -> u64 {
    STEP.min(link.total() / SMALL_PART)
}

/// Counts so many more bytes of a GPU if the lease has room for them. Makes no request.
pub(crate) fn ask_nobody(device: CUdevice, kind: Unmanaged, bytes: u64) -> bool {
    let Some(link) = link::of(device) else { return true };
    let mut live = lock();
    let lease = live.on(device);
    let fits = lease.take(kind, bytes);
    if fits {
        lease.show(link);
    }
    fits
}

/// The outcome of a request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is counted: the driver can be called.
    Granted,
    /// There is none: the driver would report a lack of memory. Nothing is counted.
    Denied,
    /// The program has to leave the GPU first. The request is repeated outside the gate.
    TryAgain,
}

/// Called before memory of this kind is made on a GPU. Asks the coordinator for it if the lease has no room for it, and counts it.
pub(crate) fn ask(device: CUdevice, kind: Unmanaged, bytes: u64) -> Asked {
    let Some(link) = link::of(device) else { return Asked::Granted };
    // Another thread may use the granted bytes meanwhile, so the request is repeated. That ends: each time some thread has got its memory.
    loop {
        let least = {
            let mut live = lock();
            let lease = live.on(device);
            if lease.take(kind, bytes) {
                lease.show(link);
                return Asked::Granted;
            }
            lease.missing(bytes)
        };
        let welcome = least.checked_next_multiple_of(step(link).max(1)).unwrap_or(least);
        let granted = match link.requests.lease(least, welcome) {
            Ok(granted) => granted,
            Err(Unserved::TryAgain) => return Asked::TryAgain,
            // With no coordinator to refuse it, only the driver can.
            Err(_) => least,
        };
        if granted < least {
            return Asked::Denied;
        }
        let mut live = lock();
        let lease = live.on(device);
        lease.leased = lease.leased.saturating_add(granted);
        if lease.take(kind, bytes) {
            lease.show(link);
            return Asked::Granted;
        }
    }
}

/// Gives back bytes that were asked for, but not used after all, or are free again.
pub(crate) fn give_back(device: CUdevice, kind: Unmanaged, bytes: u64) {
    let Some(link) = link::of(device) else { return };
    let back = {
        let mut live = lock();
        let lease = live.on(device);
        let back = lease.put(kind, bytes, step(link));
        lease.show(link);
        back
    };
    if back > 0 {
        link.unlease(back);
    }
}

/// Records memory that was asked for and made, under this address or handle, in this context; 0 if it outlives contexts.
pub(crate) fn keep(device: CUdevice, kind: Unmanaged, what: u64, bytes: u64, context: usize) {
    if link::of(device).is_some() {
        insert(what, Entry { device, kind, bytes, context, is_leased: true });
    }
}

/// Records memory that was made without a request, because it takes no additional memory, or because it may exceed the GPU's memory.
pub(crate) fn note(device: CUdevice, kind: Unmanaged, what: u64, bytes: u64, context: usize) {
    let Some(link) = link::of(device) else { return };
    let mut live = lock();
    let lease = live.on(device);
    lease.count(kind, bytes);
    lease.show(link);
    drop(live);
    insert(what, Entry { device, kind, bytes, context, is_leased: false });
}

fn insert(what: u64, entry: Entry) {
    let before = lock().entries.get_or_insert_default().insert(what, entry);
    // The address was reused: its earlier memory is gone.
    before.into_iter().for_each(end);
}

fn end(Entry { device, kind, bytes, is_leased, .. }: Entry) {
    if is_leased {
        return give_back(device, kind, bytes);
    }
    let mut live = lock();
    let lease = live.on(device);
    lease.uncount(kind, bytes);
    if let Some(link) = link::of(device) {
        lease.show(link);
    }
}

/// Removes an object that `free` gives back. Its name is free before the call, because it may be reused at once; if the call is refused,
/// the object is kept again.
pub(crate) fn remove(what: u64, free: impl FnOnce() -> CUresult) -> CUresult {
    let removed = lock().entries.as_mut().and_then(|entries| entries.remove(&what));
    let answer = free();
    match removed {
        Some(entry) if answer == CUDA_SUCCESS => end(entry),
        Some(entry) => drop(lock().entries.get_or_insert_default().insert(what, entry)),
        None => {}
    }
    answer
}

/// Removes all objects that were made in a context that has gone.
pub(crate) fn context_gone(context: usize) {
    let gone: Vec<Entry> = {
        let mut live = lock();
        let Some(entries) = live.entries.as_mut() else { return };
        entries.extract_if(|_, entry| entry.context == context && context != 0).map(|(_, entry)| entry).collect()
    };
    gone.into_iter().for_each(end);
}

/// Records that there is memory now whose end is not reported.
pub(crate) fn foreign_made() {
    FOREIGN.store(true, Ordering::Relaxed);
}

/// Records that a graph of this program allocates memory when it runs.
pub(crate) fn graph_allocates() {
    GRAPHS.store(true, Ordering::Relaxed);
    foreign_made();
}

/// True if there may be such a graph.
pub(crate) fn graphs_allocate() -> bool {
    GRAPHS.load(Ordering::Relaxed)
}

/// True if there may be any unmanaged memory.
pub(crate) fn is_any() -> bool {
    FOREIGN.load(Ordering::Relaxed) || lock().gpus.values().any(|lease| lease.kinds.iter().any(|bytes| *bytes != 0))
}

/// Bytes of a GPU's lease, used or not.
pub(crate) fn leased(device: CUdevice) -> u64 {
    lock().on(device).leased
}

/// Bytes of one kind.
pub(crate) fn of_kind(device: CUdevice, kind: Unmanaged) -> u64 {
    lock().on(device).kinds[kind.index()]
}

/// Bytes of all kinds: the memory that the program has on a GPU beside its allocations.
pub(crate) fn used(device: CUdevice) -> u64 {
    lock().on(device).kinds.iter().copied().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Unmanaged::{Array, Pool};

    #[test]
    fn what_fits_the_lease_is_taken_and_the_rest_is_missing() {
        let mut lease = Lease { leased: 10, ..Lease::default() };
        assert!(lease.take(Array, 7) && !lease.take(Array, 4));
        assert_eq!((lease.missing(4), lease.missing(3), lease.missing(u64::MAX)), (1, 0, u64::MAX - 10));
        assert!(lease.take(Pool, 3), "kinds share it");
        assert_eq!((lease.kinds[Array.index()], lease.kinds[Pool.index()], lease.used), (7, 3, 10));
    }

    #[test]
    fn what_is_much_more_than_is_used_goes_back_and_all_of_it_at_the_end() {
        let mut lease = Lease { leased: 100, ..Lease::default() };
        assert!(lease.take(Array, 100));
        assert_eq!(lease.put(Array, 10, 20), 0);
        assert_eq!(lease.put(Array, 10, 20), 0, "less than two steps");
        assert_eq!((lease.put(Array, 20, 20), lease.leased), (20, 80), "a step is left");
        assert_eq!((lease.put(Array, 60, 20), lease.leased, lease.used), (80, 0, 0));
    }
}
