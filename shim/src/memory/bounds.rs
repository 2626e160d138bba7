//! Checks that a call stays within allocations: the driver refuses a copy that leaves one of its own allocations, but cannot know where
//! ours end.

use baton_contract::cuda::CUdeviceptr;

use super::space;

/// True if a copy or fill would touch addresses of ours without an allocation, or go beyond the end of one.
#[inline]
pub(crate) fn is_outside(address: CUdeviceptr, bytes: usize) -> bool {
    space::is_window(address) && reaches_outside(address, bytes)
}

#[cold]
fn reaches_outside(address: CUdeviceptr, bytes: usize) -> bool {
    let Some(space) = space::at(address) else { return false };
    match space.bytes_from(address) {
        Some(left) => bytes as u64 > left,
        None => bytes > 0,
    }
}

/// An address at which nothing is mapped.
pub(crate) const NOTHING: CUdeviceptr = 8;

/// The address to ask the driver about. An address of ours without an allocation may still be mapped, as a part of a shared extent or as
/// freed memory that is kept; the program is to be told that nothing is there.
pub(crate) fn as_unknown(address: CUdeviceptr) -> CUdeviceptr {
    let is_ours = space::is_window(address) && space::at(address).is_some();
    if is_ours { NOTHING } else { address }
}
