//! The real driver: its place, its functions, stand-ins for those that it lacks, and our own calls of it.
//!
//! | file | purpose |
//! |---|---|
//! | `find` | finds and opens it |
//! | `ld_cache` | reads the loader's cache |
//! | `family` | knows the libraries that it consists of |
//! | `symbols` | its entry points as data |
//! | `functions` | its functions, looked up once each |
//! | `missing` | stands in for functions that it lacks |
//! | `in_use` | tells whether this process uses it |
//! | `api` | our own calls of it, with the signatures of `cuda.h` |

pub(crate) mod api;
pub(crate) mod family;
pub(crate) mod find;
pub(crate) mod functions;
pub(crate) mod in_use;
pub(crate) mod ld_cache;
pub(crate) mod missing;
pub(crate) mod symbols;
