//! Stand-ins for functions that the driver lacks: on a machine without a driver, and for entry points that are newer than the driver.
//!
//! Our exports exist for every name, so a call always arrives somewhere. It gets the answer that a
//! program already knows how to handle: no device, not initialised, not found.

use core::ffi::{CStr, c_char};

use baton_contract::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_INITIALIZED, CUDA_SUCCESS,
    CUresult,
};

use super::symbols::Function;

/// The codes a program can meet without a driver, with the driver's name and our words for them.
const ERRORS: [(CUresult, &CStr, &CStr); 5] = [
    (CUDA_SUCCESS, c"CUDA_SUCCESS", c"no error"),
    (CUDA_ERROR_INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (CUDA_ERROR_NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"the driver is not initialised"),
    (CUDA_ERROR_NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA driver and so no CUDA device was found"),
    (CUDA_ERROR_NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"this driver has no such function"),
];

extern "C" fn not_found() -> CUresult {
    CUDA_ERROR_NOT_FOUND
}

extern "C" fn no_device() -> CUresult {
    CUDA_ERROR_NO_DEVICE
}

extern "C" fn not_initialized() -> CUresult {
    CUDA_ERROR_NOT_INITIALIZED
}

extern "C" fn error_name(error: CUresult, out: *mut *const c_char) -> CUresult {
    answer(error, out, |(_, name, _)| name)
}

extern "C" fn error_string(error: CUresult, out: *mut *const c_char) -> CUresult {
    answer(error, out, |(_, _, string)| string)
}

type Error = (CUresult, &'static CStr, &'static CStr);

fn answer(error: CUresult, out: *mut *const c_char, text: fn(Error) -> &'static CStr) -> CUresult {
    if out.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let found = ERRORS.into_iter().find(|(code, _, _)| *code == error);
    // SAFETY: not null, and the program passed it for a pointer to be written there.
    unsafe { *out = found.map_or(core::ptr::null(), |row| text(row).as_ptr()) };
    if found.is_some() { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

/// The functions that are told from the driver's by their addresses. When optimised, the library has several copies of a small function,
/// each with an address of its own; a static holds one of them.
static NOT_FOUND: extern "C" fn() -> CUresult = not_found;
static NOT_INITIALIZED: extern "C" fn() -> CUresult = not_initialized;

/// The answer for a name that the driver at hand does not export.
pub(crate) fn in_this_driver() -> Function {
    NOT_FOUND as *const () as Function
}

/// The answer for a name on a machine without a driver.
pub(crate) fn without_driver(name: &str) -> Function {
    let function = match name {
        "cuInit" => no_device as *const (),
        "cuGetErrorName" => error_name as *const (),
        "cuGetErrorString" => error_string as *const (),
        _ => NOT_INITIALIZED as *const (),
    };
    function as Function
}

/// True if `function` is a stand-in for one that the driver does not have.
pub(crate) fn stands_in(function: Function) -> bool {
    [in_this_driver(), without_driver("")].contains(&function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_named_where_no_driver_can_name_it() {
        let mut out = core::ptr::null();
        assert_eq!(error_name(CUDA_ERROR_NO_DEVICE, &mut out), CUDA_SUCCESS);
        // SAFETY: success means that `out` is one of the C strings above.
        assert_eq!(unsafe { CStr::from_ptr(out) }, c"CUDA_ERROR_NO_DEVICE");
    }

    #[test]
    fn an_unknown_error_gives_null_and_a_null_out_parameter_is_refused() {
        let mut out = c"before".as_ptr();
        assert_eq!(error_string(12345, &mut out), CUDA_ERROR_INVALID_VALUE);
        assert!(out.is_null());
        assert_eq!(error_string(0, core::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
    }
}
