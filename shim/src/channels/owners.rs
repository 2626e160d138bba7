//! The owners of the driver's open devices: CUDA, or another library, like the one for management (NVML).

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::driver::family;

/// Descriptors above this are taken for CUDA's.
const MOST: usize = 4096;
/// A bit for each descriptor that belongs to another library.
static OTHERS: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

/// Notes that a device is used by the library with its code at `caller`.
pub(super) fn note(descriptor: c_int, caller: usize) {
    let Some((word, bit)) = place(descriptor) else { return };
    match family::has_code_at(caller) {
        Some(false) => OTHERS[word].fetch_or(bit, Ordering::Relaxed),
        // The number may have meant another file before.
        Some(true) | None => OTHERS[word].fetch_and(!bit, Ordering::Relaxed),
    };
}

/// True if a device was opened by another library than CUDA's. Async-signal-safe.
pub(crate) fn is_another_librarys(descriptor: c_int) -> bool {
    place(descriptor).is_some_and(|(word, bit)| OTHERS[word].load(Ordering::Relaxed) & bit != 0)
}

fn place(descriptor: c_int) -> Option<(usize, u64)> {
    let number = usize::try_from(descriptor).ok().filter(|number| *number < MOST)?;
    Some((number / 64, 1 << (number % 64)))
}
