//! `cuGetProcAddress`: the way in which most programs reach the driver today.
//!
//! The driver is always asked first, with the program's own arguments. Its answer is checked only if that is a function: if it is one that
//! the driver also exports (recognised by its address, so version and flags have already played their part), the program gets our export
//! instead, the same address that `dlsym` gives it.
//!
//! A newer function that Baton does not know does not exist for the program ([`super::unknown`]): not by a name of its own, nor as a newer
//! version of a known name. The program does not get an older version in its place either, whose arguments may differ: it has asked for
//! the newer one.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use baton_contract::cuda::{CUDA_ERROR_NOT_FOUND, CUDA_SUCCESS, CUresult};

use super::unknown;
use crate::driver::symbols::{COUNT, Function, NEWEST, PER_THREAD, SYMBOLS};
use crate::driver::{functions, symbols};

/// The C signature of `cuGetProcAddress` before CUDA 12.
pub(crate) type V1 = unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult;
/// The C signature since CUDA 12.
pub(crate) type V2 = unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> CUresult;

/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`
const SYMBOL_NOT_FOUND: c_int = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD_STREAM: u64 = 2;

pub(crate) unsafe fn v1(
    drivers: V1,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // For a name that does not exist, the earlier value stays.
    // SAFETY: null, or the program's own place for the answer.
    let before = unsafe { function.as_ref() }.copied();
    // SAFETY: the driver's own function with the program's own arguments.
    let result = unsafe { drivers(symbol, function, version, flags) };
    let newest = || {
        let mut other = ptr::null_mut();
        // SAFETY: the same name, and a place of ours.
        unsafe { drivers(symbol, &mut other, NEWEST as c_int, flags) };
        other
    };
    // SAFETY: the driver was given the same two pointers and accepted them.
    if unsafe { substitute(result, symbol, function, version, flags, newest) } {
        return result;
    }
    if let Some(before) = before {
        // SAFETY: not null, and the driver has just written to it.
        unsafe { *function = before };
    }
    CUDA_ERROR_NOT_FOUND
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
    let newest = || {
        let (mut other, mut status) = (ptr::null_mut(), 0);
        // SAFETY: the same name, and places of ours.
        unsafe { drivers(symbol, &mut other, NEWEST as c_int, flags, &mut status) };
        other
    };
    // SAFETY: the driver was given the same two pointers and accepted them.
    if !unsafe { substitute(result, symbol, function, version, flags, newest) } {
        // This is the answer about a name that does not exist: that is no failure.
        // SAFETY: the driver has just written to both, except for a status that the program does not want.
        unsafe {
            *function = ptr::null_mut();
            if let Some(status) = status.as_mut() {
                *status = SYMBOL_NOT_FOUND;
            }
        }
    }
    result
}

/// Replaces the driver's answer by the function that programs get; false if they get none. `newest` asks again, with the newest version of
/// which all functions are known.
///
/// # Safety
///
/// If `result` is success, `symbol` is null or a C string and `function` null or writable.
unsafe fn substitute(
    result: CUresult,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    newest: impl FnOnce() -> Function,
) -> bool {
    if result != CUDA_SUCCESS || symbol.is_null() || function.is_null() {
        return true;
    }
    // SAFETY: not null, and by the contract above a C string.
    let base = unsafe { CStr::from_ptr(symbol) };
    // SAFETY: not null, and the driver has just written to it.
    let answer = unsafe { &mut *function };
    if answer.is_null() {
        return true;
    }
    let known = index_of(base.to_bytes(), *answer).or_else(|| {
        // A driver may answer with other addresses than those that it exports. For a version whose functions are all known, the list names
        // the function; and an answer that is the same for a newer version is no newer function.
        let is_known = version as u32 <= NEWEST || newest() == *answer;
        let listed = is_known.then(|| listed(base.to_bytes(), (version as u32).min(NEWEST), flags)).flatten();
        listed.filter(|index| functions::exists(*index))
    });
    match known.map(symbols::export).or_else(|| unknown::export(base, *answer)) {
        Some(export) => *answer = export,
        None => return false,
    }
    true
}

/// The symbols that programs ask for by this name.
fn named(base: &[u8]) -> impl Iterator<Item = usize> + Clone {
    (0..COUNT).filter(move |index| SYMBOLS[*index].base.as_bytes() == base)
}

/// The symbol of the driver's `function`, among those that programs ask for by this name.
fn index_of(base: &[u8], function: Function) -> Option<usize> {
    named(base).find(|index| functions::is(*index, function))
}

/// The symbol of a name in this version, by the list. With the flag for per-thread streams only the twins count, for a name that has any.
fn listed(base: &[u8], version: u32, flags: u64) -> Option<usize> {
    let twins = flags & PER_THREAD_STREAM != 0 && named(base).any(|index| PER_THREAD[index]);
    // Version 0 is in no list.
    let is_meant = |index: &usize| PER_THREAD[*index] == twins && (1..=version).contains(&SYMBOLS[*index].version);
    named(base).filter(is_meant).max_by_key(|index| SYMBOLS[*index].version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_which_symbol_a_name_is_in_each_version() {
        for (index, symbol) in SYMBOLS.iter().enumerate().filter(|(_, symbol)| symbol.version != 0) {
            let flags = if PER_THREAD[index] { PER_THREAD_STREAM } else { 0 };
            assert_eq!(listed(symbol.base.as_bytes(), symbol.version, flags), Some(index), "{}", symbol.name());
        }
        let name = |base: &str, version, flags| listed(base.as_bytes(), version, flags).map(|at| SYMBOLS[at].name());
        assert_eq!(name("cuLaunchHostFunc", 13000, 0), Some("cuLaunchHostFunc"));
        assert_eq!(name("cuLaunchHostFunc", NEWEST, PER_THREAD_STREAM), Some("cuLaunchHostFunc_v2_ptsz"));
        assert_eq!(name("cuMemAlloc", NEWEST, PER_THREAD_STREAM), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAlloc", 1000, 0), None);
        assert_eq!(name("cuNoSuchFunction", NEWEST, 0), None);
    }
}
