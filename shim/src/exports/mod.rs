//! The exported names: one for each name of the driver, `dlopen`, two functions of NVML, and a sanitizer's hook.
//!
//! | file | purpose |
//! |---|---|
//! | `symbols` | an export for each of the driver's names |
//! | `trace/` | times calls (`BATON_TRACE`) |
//! | `dlopen` | leads every spelling of the driver's name here |
//! | `asker` | tells the program's calls from the driver's own |
//! | `nvml` | gives NVML the figures of `cuMemGetInfo` |
//! | `sanitizer` | answers a sanitizer's runtime before any other code runs |

mod asker;
pub(crate) mod dlopen;
#[allow(non_snake_case, reason = "the names are the library's")]
mod nvml;
mod sanitizer;
pub(crate) mod symbols;
pub(crate) mod trace;
