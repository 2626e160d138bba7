//! What a sanitizer's runtime asks before anything runs.

use core::ffi::c_char;

/// The exported options of AddressSanitizer's runtime, where the program has none of its own and another runtime is not in front.
///
/// A runtime that a program is linked to wants to be the first of all libraries, and ends the program if it is not. It would miss
/// calls of its names that an earlier library answers: none of ours is one that it counts on.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
