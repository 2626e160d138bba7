//! `cuGetProcAddress`: how most programs reach the driver today.
//!
//! The driver is always asked first, with the program's own arguments. Only when it answers with a
//! function is the answer looked at: if it is one that the driver also exports (recognised by its
//! address, so version and flags have already played their part), the program gets our door instead,
//! the same address that `dlsym` gives it. Names we do not know pass through.

use core::ffi::{CStr, c_char, c_int, c_void};

use baton_contract::cuda::{CUDA_SUCCESS, CUresult};

use crate::driver::symbols::{COUNT, SYMBOLS};
use crate::driver::{functions, symbols};

/// The C signature of `cuGetProcAddress` before CUDA 12.
pub(crate) type V1 = unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;
/// The C signature since CUDA 12.
pub(crate) type V2 = unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CUresult;

pub(crate) unsafe fn v1(
    drivers: V1,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let result = unsafe { drivers(symbol, function, version, flags) };
    // SAFETY: the driver was given the same two pointers and accepted them.
    unsafe { substitute(result, symbol, function) };
    result
}

pub(crate) unsafe fn v2(
    drivers: V2,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let result = unsafe { drivers(symbol, function, version, flags, status) };
    // SAFETY: the driver was given the same two pointers and accepted them.
    unsafe { substitute(result, symbol, function) };
    result
}

/// Replaces the driver's answer by our door, where we have reason to stand in between.
///
/// # Safety
///
/// If `result` is success, `symbol` is null or a C string and `function` null or writable.
unsafe fn substitute(result: CUresult, symbol: *const c_char, function: *mut *mut c_void) {
    if result != CUDA_SUCCESS || symbol.is_null() || function.is_null() {
        return;
    }
    // SAFETY: not null, and by the contract above a C string.
    let base = unsafe { CStr::from_ptr(symbol) };
    // SAFETY: not null, and the driver has just written to it.
    let answer = unsafe { &mut *function };
    if answer.is_null() {
        return;
    }
    if let Some(index) = index_of(base.to_bytes(), *answer) {
        *answer = symbols::door(index);
    }
}

/// Which symbol the driver's `function` is, among those that programs ask for by this name.
fn index_of(base: &[u8], function: *mut c_void) -> Option<usize> {
    (0..COUNT).filter(|index| SYMBOLS[*index].base.as_bytes() == base).find(|index| functions::is(*index, function))
}
