//! The hooks: the handling of the calls that Baton intercepts.
//!
//! [`table`] lists them all, a row each. A row spells the C signature once and names the hook's action:
//!
//! - `gated(…)`: the call touches device memory; it passes the [gate](crate::gate) and goes to the driver.
//! - `function::path(…)`: the call goes to that Rust function, which gets the driver's own as first argument.
//!
//! A row also declares the [effects] of the call on the memory that each argument names.
//!
//! Several names in a row share one body: the per-thread default stream twins (`_ptds`, `_ptsz`) have
//! the signature of the plain name, and each still calls its own function of the driver.

mod checkpoint;
mod contexts;
mod descriptors;
pub(crate) mod effects;
mod escapes;
#[cfg(test)]
mod forwarded;
mod init;
mod ipc;
mod memory;
mod pools;
mod procaddress;
mod reachable;
mod retry;
mod streams;
mod synchronous;
mod table;
pub(crate) mod unknown;
mod unmanaged;
mod vmm;

pub(crate) use memory::memory_of;

use crate::driver::functions;
use crate::driver::symbols::{COUNT, Function};
use crate::sys::process;

/// The code that an export leads to, if the symbol is hooked.
#[derive(Clone, Copy)]
struct Hook(Option<*const ()>);

// SAFETY: the address of code.
unsafe impl Sync for Hook {}

/// The rows of the table, by symbol index.
static HOOKS: [Hook; COUNT] = {
    let mut hooks = [Hook(None); COUNT];
    let mut row = 0;
    while row < table::ROWS.len() {
        let mut i = 0;
        while i < table::ROWS[row].len() {
            let (index, hook) = table::ROWS[row][i];
            assert!(hooks[index].0.is_none(), "a symbol stands twice in the hook table");
            hooks[index] = Hook(Some(hook));
            i += 1;
        }
        row += 1;
    }
    hooks
};

/// The hook of a symbol, if it has one.
pub(crate) fn find(index: usize) -> Option<Function> {
    HOOKS[index].0.map(|hook| hook as Function)
}

/// The real target of a call of this symbol: the hook, if there is one and the driver has the symbol. Where CUDA no longer works, the
/// driver's function returns its error.
pub(crate) fn target(index: usize) -> Function {
    match find(index) {
        Some(hook) if functions::exists(index) && !process::is_bare() => hook,
        _ => functions::original(index),
    }
}

/// The exported query: the name of the `n`th hooked symbol, null after the last.
///
/// For `baton doctor` and the conformance tests, which must not keep a list of their own.
#[cfg_attr(test, expect(dead_code, reason = "called by its exported name only"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn baton_hooked(n: usize) -> *const core::ffi::c_char {
    let hooked = (0..COUNT).filter(|index| find(*index).is_some()).nth(n);
    hooked.map_or(core::ptr::null(), |index| crate::driver::symbols::SYMBOLS[index].name.as_ptr())
}

/// Every row, of hooks and of forwarded functions.
#[cfg(test)]
pub(crate) fn declared() -> impl Iterator<Item = &'static effects::Declared> {
    table::DECLARED.iter().chain(forwarded::DECLARED)
}
