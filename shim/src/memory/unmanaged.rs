//! Device memory that passes through: what it takes is counted, so that `baton status` can show it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUresult};

use crate::link;

/// Bytes of what is live, by address or handle.
#[derive(Default)]
struct Live {
    sizes: Option<HashMap<u64, u64>>,
    total: u64,
}

static LIVE: Mutex<Live> = Mutex::new(Live { sizes: None, total: 0 });
/// There may be more than that, for good: handles keep their memory for as long as it is mapped, also when they are
/// released, and what others have made goes when it goes.
static FOREIGN: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    fn add(&mut self, what: u64, bytes: u64) {
        let before = self.sizes.get_or_insert_default().insert(what, bytes);
        self.total = self.total - before.unwrap_or(0) + bytes;
        self.show();
    }

    fn remove(&mut self, what: u64) -> Option<u64> {
        let bytes = self.sizes.as_mut()?.remove(&what)?;
        self.total -= bytes;
        self.show();
        Some(bytes)
    }

    fn show(&self) {
        if let Some(link) = link::get() {
            link.own().unmanaged_bytes.store(self.total, Ordering::Relaxed);
        }
    }
}

/// Something was made, under this address or handle.
pub(crate) fn add(what: u64, bytes: u64) {
    if link::get().is_some() {
        lock().add(what, bytes);
    }
}

/// Something is given back by `give_back`. It counts no more from before on, because its address may be given out again at
/// once; if that is refused, it counts again.
pub(crate) fn remove(what: u64, give_back: impl FnOnce() -> CUresult) -> CUresult {
    let removed = lock().remove(what);
    let answer = give_back();
    if answer != CUDA_SUCCESS
        && let Some(bytes) = removed
    {
        lock().add(what, bytes);
    }
    answer
}

/// There is memory now whose end nobody tells.
pub(crate) fn foreign_made() {
    FOREIGN.store(true, Ordering::Relaxed);
}

/// Whether there may be any.
pub(crate) fn is_any() -> bool {
    FOREIGN.load(Ordering::Relaxed) || lock().total != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_live_is_summed_up_as_it_comes_and_goes() {
        let mut live = Live::default();
        live.add(1, 10);
        live.add(2, 5);
        live.add(1, 7);
        assert_eq!(live.total, 12, "an address that was given out again counts once");
        assert_eq!((live.remove(1), live.remove(1), live.total), (Some(7), None, 5));
    }
}
