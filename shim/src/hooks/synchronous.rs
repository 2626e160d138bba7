//! The driver's functions by which a program asks the host to wait for copies and fills (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`).
//!
//! A program asks for that before it lets another device access memory, which the shim does not see; tokens for that device's driver
//! (`CU_POINTER_ATTRIBUTE_P2P_TOKENS`) come with it. So the memory stays where it is from then on. The driver refuses the attribute for
//! memory of our kind; so the shim itself waits, as the driver does for memory of `cuMemAlloc` (measured: `order-*`, `copies-*` and
//! `tokens-*` in `bench/results/rules.json`).

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use baton_contract::cuda::{CUDA_SUCCESS, CUdeviceptr, CUresult};

use super::escapes::{self, REFUSED, is_ours};
use super::{memory, vmm};
use crate::arrival::{self, Needs};
use crate::driver::api::{self, Stream};
use crate::memory::space::{self, Space};
use crate::memory::vmm as books;

const TOKENS: c_int = 5;
const SYNC_MEMOPS: c_int = 6;

/// True if there ever was such memory: for a quick check.
static IS_ANY: AtomicBool = AtomicBool::new(false);

type SetAttribute = unsafe extern "C-unwind" fn(*const c_void, c_int, CUdeviceptr) -> CUresult;

/// `cuPointerSetAttribute`: sets an attribute of memory.
pub(super) unsafe fn set_attribute(
    original: SetAttribute,
    value: *const c_void,
    attribute: c_int,
    address: CUdeviceptr,
) -> CUresult {
    if !is_ours(address, 1) {
        // SAFETY: the driver's own function with the program's own arguments.
        let call = || unsafe { original(value, attribute, address) };
        let is_mapped = space::has_mapped(address, 1);
        return if is_mapped { arrival::ask_about(address, call) } else { call() };
    }
    let Some(space) = space::at(address).filter(|_| attribute == SYNC_MEMOPS && !value.is_null()) else {
        return REFUSED;
    };
    // SAFETY: the program's own value, of 32 bits.
    let is_on = unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
    let may_be = if is_on { stays(address) } else { Ok(()) };
    match may_be {
        Ok(()) if set(space, address, is_on) => CUDA_SUCCESS,
        Ok(()) => REFUSED,
        Err(answer) => answer,
    }
}

/// Makes the memory at an address stay where it is, and be here, because others are about to access it past its addresses. An error is the
/// call's answer.
fn stays(address: CUdeviceptr) -> Result<(), CUresult> {
    match books::mapping(address) {
        Some(mapping) => vmm::let_in(mapping.at, mapping.bytes, || CUDA_SUCCESS).map(drop),
        None => escapes::let_in(address).map(drop),
    }
}

/// Makes the host wait for copies and fills of the memory at an address, or stop doing so. False if there is none.
fn set(space: &Space, address: CUdeviceptr, is_synchronous: bool) -> bool {
    // Set before any caller can rely on it.
    IS_ANY.fetch_or(is_synchronous, Ordering::Release);
    space.set_synchronous(address, is_synchronous)
}

type Attribute = unsafe extern "C-unwind" fn(*mut c_void, c_int, CUdeviceptr) -> CUresult;

/// `cuPointerGetAttribute`: tokens are asked for alone, because the driver gives none together with other attributes.
pub(super) unsafe fn pointer_attribute(
    original: Attribute,
    out: *mut c_void,
    attribute: c_int,
    address: CUdeviceptr,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { memory::pointer_attribute(original, out, attribute, address) };
    if attribute == TOKENS { told(address, call) } else { call() }
}

/// Returns tokens: their owner can access the memory.
fn told(address: CUdeviceptr, call: impl Fn() -> CUresult) -> CUresult {
    let allocated = space::at(address).filter(|space| space.find(address).is_some());
    let known = allocated.or_else(|| books::with_mapping(address).map(|(space, _)| space));
    let Some(space) = known else { return call() };
    if let Err(answer) = stays(address) {
        return answer;
    }
    let answer = call();
    if answer == CUDA_SUCCESS {
        set(space, address, true);
    }
    answer
}

/// True if the host may have to wait for copies and fills.
#[inline]
pub(super) fn is_any() -> bool {
    IS_ANY.load(Ordering::Acquire)
}

/// Waits for a copy or a fill of these places in a default stream, if the program has asked for that.
#[cold]
pub(super) fn wait<const INDEX: usize>(places: Needs) -> CUresult {
    let Needs::These(places) = places else { return CUDA_SUCCESS };
    let is_synchronous = |at: &CUdeviceptr| space::at(*at).is_some_and(|space| space.is_synchronous(*at));
    let waits = places.addresses.iter().any(is_synchronous);
    // SAFETY: the stream that the call has just been made in; while it captures, such calls are refused.
    if waits { unsafe { api::synchronize(Stream::of::<INDEX>(ptr::null_mut())) } } else { CUDA_SUCCESS }
}
