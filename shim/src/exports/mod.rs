//! What the library exports: a door for each of the driver's names, `dlopen`, two functions of NVML, and what a sanitizer asks.

mod asker;
pub(crate) mod dlopen;
pub(crate) mod doors;
#[allow(non_snake_case, reason = "the names are the library's")]
mod nvml;
mod sanitizer;
pub(crate) mod trace;
