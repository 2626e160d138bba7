//! Values that live for ever, one for each GPU.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use baton_contract::cuda::CUdevice;

/// No machine has more GPUs.
pub(crate) const MOST: usize = u64::BITS as usize;

/// A value for each GPU that has one. It is found without a lock, also in a forked child.
pub(crate) struct ByDevice<T: 'static> {
    values: [AtomicPtr<T>; MOST],
    /// A bit for each GPU that has one.
    shown: AtomicU64,
}

/// A GPU's place in lists of all.
pub(crate) const fn place(device: CUdevice) -> usize {
    device as u32 as usize % MOST
}

/// The places whose bits are set, in order.
pub(crate) fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(place)
    })
}

impl<T: Sync> ByDevice<T> {
    pub(crate) const fn new() -> Self {
        Self { values: [const { AtomicPtr::new(ptr::null_mut()) }; MOST], shown: AtomicU64::new(0) }
    }

    /// A GPU's value.
    #[inline]
    pub(crate) fn get(&self, device: CUdevice) -> Option<&'static T> {
        // A program may name a GPU that is not there.
        usize::try_from(device).ok().filter(|place| *place < MOST).and_then(|place| self.at(place))
    }

    fn at(&self, place: usize) -> Option<&'static T> {
        if self.shown.load(Ordering::Acquire) & 1 << place == 0 {
            return None;
        }
        // SAFETY: null, or a reference that lives for ever.
        unsafe { self.values[place].load(Ordering::Acquire).as_ref() }
    }

    /// All values, in the order of the GPUs.
    pub(crate) fn all(&'static self) -> impl Iterator<Item = &'static T> {
        places(self.shown.load(Ordering::Acquire)).filter_map(|place| self.at(place))
    }

    /// True if any GPU has a value.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.shown.load(Ordering::Acquire) != 0
    }

    /// Sets a GPU's value.
    pub(crate) fn set(&self, device: CUdevice, value: &'static T) {
        self.values[place(device)].store(ptr::from_ref(value).cast_mut(), Ordering::Release);
        self.shown.fetch_or(1 << place(device), Ordering::AcqRel);
    }

    /// Has a GPU have no value any more. Those that have found it keep it.
    pub(crate) fn remove(&self, device: CUdevice) {
        self.shown.fetch_and(!(1 << place(device)), Ordering::AcqRel);
    }

    /// Has no GPU have a value any more. True if any had. Async-signal-safe.
    pub(crate) fn clear(&self) -> bool {
        self.shown.swap(0, Ordering::AcqRel) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_has_the_value_that_was_set_for_it_until_that_is_removed() {
        static VALUES: ByDevice<u32> = ByDevice::new();
        assert!(!VALUES.is_any() && VALUES.get(0).is_none());
        VALUES.set(3, &30);
        VALUES.set(63, &630);
        VALUES.set(0, &7);
        assert_eq!(VALUES.all().copied().collect::<Vec<_>>(), [7, 30, 630]);
        assert_eq!([0, 1, 63].map(|device| VALUES.get(device).copied()), [Some(7), None, Some(630)]);
        assert_eq!([-1, 64, 67].map(|device| VALUES.get(device).copied()), [None; 3], "no such GPU");
        VALUES.remove(3);
        assert_eq!(VALUES.all().copied().collect::<Vec<_>>(), [7, 630]);
        assert!(VALUES.clear() && !VALUES.is_any() && !VALUES.clear());
    }
}
