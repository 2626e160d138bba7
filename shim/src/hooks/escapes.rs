//! Calls that would change the memory behind addresses, or let others access it past them.
//!
//! A program may do that with mappings and handles of its own. Memory of ours is mapped too, but the program takes it for `cuMemAlloc`'s,
//! for which the driver refuses such calls. And it moves: an alias would keep a frame that others have by then, and an unmapped extent
//! would still count as mapped. So the driver never sees such a call. These are its answers about memory of `cuMemAlloc` (measured with
//! driver 580 on an H200: question D in `bench/results/driver_facts.json`; `tests/c/legal/aliases.c` asks again):
//!
//! | call | answer |
//! |---|---|
//! | `cuMemRetainAllocationHandle` | 1 |
//! | `cuMemMap` onto it, `cuMemUnmap`, `cuMemSetAccess`, `cuMemAddressFree`, whole or a part | 1 |
//! | `cuMemGetAccess` | 0, and no access is set, for any GPU; 101 for a GPU that is not there |
//! | `cuMemAdvise` | 1 |
//! | `cuMemHostGetDevicePointer`, `cuMemHostGetFlags` | 1 |
//! | `cuMemPoolExportPointer` | 1 |
//! | `cuGraphAddMemFreeNode` | 1 |
//! | `cuMulticastBindAddr` without a multicast object | 1; 801 on a machine without multicast |
//! | `cuPointerSetAttribute` of an attribute that cannot be set | 1 |
//! | `cuMemGetHandleForAddressRange` | 0: the memory stays where it is from then on |
//! | `cuIpcGetMemHandle` | 0: other processes get the same memory, and it moves all the same ([`super::ipc`]) |
//! | `cuPointerSetAttribute(SYNC_MEMOPS)` | 0: so does that memory, and the host waits for copies ([`super::synchronous`]) |

use core::ffi::{c_int, c_void};

use baton_contract::cuda::{
    CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUdeviceptr, CUmemLocation, CUresult,
};

use crate::arrival::{self, Needs};
use crate::gate::Passage;
use crate::memory::bounds::{as_unknown, is_outside};
use crate::memory::space::{self, Space, is_window};
use crate::memory::vmm;
use crate::session;

/// The driver's answer to a call about addresses that are not the caller's own mapping.
pub(super) const REFUSED: CUresult = CUDA_ERROR_INVALID_VALUE;

/// True if a range touches addresses that allocations of ours may get, now or ever.
#[inline]
pub(super) fn is_ours(address: CUdeviceptr, bytes: usize) -> bool {
    let (start, end) = Space::window();
    let bytes = bytes.max(1) as u64;
    let may_be = address < end && address.saturating_add(bytes) > start;
    may_be && space::reserves_any(address, bytes)
}

type GetAccess = unsafe extern "C-unwind" fn(*mut u64, *const CUmemLocation, CUdeviceptr) -> CUresult;
pub(super) type RangeHandle = unsafe extern "C-unwind" fn(*mut c_void, CUdeviceptr, usize, c_int, u64) -> CUresult;

/// `cuMemGetAccess`: no GPU has access to an allocation, as far as the program has set it.
pub(super) unsafe fn access(
    original: GetAccess,
    flags: *mut u64,
    location: *const CUmemLocation,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let ask = |address| unsafe { original(flags, location, address) };
    if let Some(mapping) = vmm::mapping(address) {
        let answer = arrival::ask_about(address, || ask(address));
        // While its contents are on their way, no GPU has access yet.
        // SAFETY: the program's own structure, which the driver has just read.
        let CUmemLocation { kind, id } = if answer == CUDA_SUCCESS { unsafe { *location } } else { return answer };
        if kind == CU_MEM_LOCATION_TYPE_DEVICE {
            // SAFETY: the driver has just written it.
            unsafe { *flags = mapping.access.flags(id) as u64 };
        }
        return answer;
    }
    if space::at(address).and_then(|space| space.find(address)).is_none() {
        return ask(as_unknown(address));
    }
    // The driver is asked first, for its answer to any other error.
    let answer = arrival::ask_about(address, || ask(address));
    if answer == CUDA_SUCCESS {
        // SAFETY: the driver has just written it.
        unsafe { *flags = 0 };
    }
    answer
}

/// `cuMemGetHandleForAddressRange`: returns a descriptor by which other devices on the bus access memory, even after it was freed.
pub(super) unsafe fn to_a_handle(
    original: RangeHandle,
    out: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    kind: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(out, address, bytes, kind, flags) };
    if !is_ours(address, bytes) {
        return call();
    }
    if is_outside(address, bytes) || !is_window(address) {
        return REFUSED;
    }
    // A process that has opened memory cannot let others access it (measured: `opened-devices` in `bench/results/rules.json`).
    if space::at(address).and_then(|space| space.find(address)).is_some_and(|(_, found)| found.is_opened) {
        return REFUSED;
    }
    match let_in(address) {
        Ok(_passage) => call(),
        Err(answer) => answer,
    }
}

/// Lets others access an allocation past its addresses: it is here, and stays where it is. An error is the call's answer.
pub(super) fn let_in(address: CUdeviceptr) -> Result<Passage, CUresult> {
    let here = || Needs::at(address);
    let passage = arrival::pass_here(here)?;
    let guard = arrival::lock_mappings(&passage, here())?;
    let stays = match session::at(address) {
        Some(session) => session.space.let_escape(&session.link.requests, address, &guard)?,
        // Without a coordinator nothing moves.
        None => true,
    };
    if stays { Ok(passage) } else { Err(REFUSED) }
}
