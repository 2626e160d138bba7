//! The driver's own functions, looked up once each.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::symbols::{COUNT, Function, SYMBOLS};
use super::{family, find, missing};

/// By symbol index; null until asked for.
static FUNCTIONS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];

/// The driver's own function, or a stand-in where the driver has none.
pub(crate) fn original(index: usize) -> Function {
    let known = FUNCTIONS[index].load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let symbol = &SYMBOLS[index];
    let found = match find::get() {
        Some(driver) => driver.symbol(symbol.name).unwrap_or_else(missing::in_this_driver),
        None => missing::without_driver(symbol.name()),
    };
    FUNCTIONS[index].store(found, Ordering::Release);
    found
}

/// Finds all functions.
pub(crate) fn find_all() {
    for index in 0..COUNT {
        original(index);
    }
}

/// The driver's own function, if it was looked for. Async-signal-safe.
pub(crate) fn found(index: usize) -> Option<Function> {
    Some(FUNCTIONS[index].load(Ordering::Acquire)).filter(|function| !function.is_null())
}

/// True if this is the driver's own function of a name, in any of the driver's libraries.
pub(crate) fn is(index: usize, function: Function) -> bool {
    original(index) == function || family::is_named(function, SYMBOLS[index].name)
}

/// True if the driver has this function.
pub(crate) fn exists(index: usize) -> bool {
    !missing::stands_in(original(index))
}

/// The driver's own function as a hook of the row with this signature calls it.
///
/// # Safety
///
/// `F` is a function pointer type with the C signature that `cuda.h` gives the symbol.
#[inline(always)]
pub(crate) unsafe fn original_as<F: Copy>(index: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<Function>()) };
    let function = FUNCTIONS[index].load(Ordering::Relaxed);
    debug_assert!(!function.is_null(), "a hook runs only after its export was resolved");
    // SAFETY: a pointer-sized function pointer, of the right signature by this function's contract;
    // not null, because the slot that leads to a hook is written after `FUNCTIONS` (release, and the
    // hook is reached through that slot).
    unsafe { core::mem::transmute_copy(&function) }
}
