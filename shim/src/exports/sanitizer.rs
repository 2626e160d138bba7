//! The answers for a sanitizer's runtime, which asks before any other code runs.

use core::ffi::c_char;

/// The exported options of AddressSanitizer's runtime, where the program has none of its own and no other runtime is in front.
///
/// A runtime that a program is linked to wants to be the first of all libraries, and ends the program if it is not. It would miss calls of
/// its names that an earlier library answers, but it relies on none of our names.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
