//! The driver's entry points as data: [`SYMBOLS`], and [`index`] with a constant per name.

use core::ffi::{CStr, c_void};

/// A function of any signature; cast to the right one where it is called.
pub(crate) type Function = *mut c_void;

/// One entry point of the driver.
pub(crate) struct Symbol {
    /// The name that the driver exports, for example `cuMemAlloc_v2`.
    pub(crate) name: &'static CStr,
    /// The name by which a program asks `cuGetProcAddress`, for example `cuMemAlloc`.
    pub(crate) base: &'static str,
    /// The first CUDA version with it; 0 where no public header tells.
    pub(crate) version: u32,
}

impl Symbol {
    /// The name without its C terminator.
    pub(crate) fn name(&self) -> &'static str {
        self.name.to_str().unwrap_or_default()
    }
}

unsafe extern "C" {
    /// The addresses of the exported functions of these names. Never written.
    safe static baton_exports: [usize; COUNT];
    /// Code that leads through `symbols::unknown_call`. Never written.
    safe static baton_unknown_stubs: [[u8; 16]; UNKNOWN];
}

/// The address that programs get for a function that Baton does not know, if they get any.
pub(crate) fn unknown_stub(number: usize) -> Function {
    baton_unknown_stubs[number].as_ptr().cast_mut().cast()
}

/// The address that programs get for a symbol.
pub(crate) fn export(index: usize) -> Function {
    core::ptr::with_exposed_provenance_mut(baton_exports[index])
}

include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
