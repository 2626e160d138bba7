//! What a sanitizer's runtime asks before anything runs.

use core::ffi::{CStr, c_char};

/// A runtime that a program is linked to wants to be the first of all libraries, and ends the program if it is not. It would miss
/// calls of its names that an earlier library answers: none of ours is one that it counts on.
const OPTIONS: &CStr = c"verify_asan_link_order=0";

/// The exported options of AddressSanitizer's runtime, where the program has none of its own and another runtime is not in front.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __asan_default_options() -> *const c_char {
    OPTIONS.as_ptr()
}
