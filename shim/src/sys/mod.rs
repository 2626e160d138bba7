//! The system layer, below everything else of ours.
//!
//! | file | purpose |
//! |---|---|
//! | `futex` | words that threads sleep on |
//! | `lock` | a lock that no forked copy of the process inherits locked |
//! | `by_device` | values that live for ever, one for each GPU |
//! | `once` | a value made on first use, without ever waiting |
//! | `event` | one thread waits, among other descriptors, for others |
//! | `thread` | our threads, and the program's that sleep for us |
//! | `cancel` | keeps threads from being cancelled |
//! | `process` | tells this process from copies of it |
//! | `owner` | names the process that a descriptor came from |
//! | `pages` | pages that other processes share |
//! | `reserve` | descriptors in reserve |
//! | `own_memory` | reads memory that may be gone, without a fault |
//! | `environment` | the environment that the process was started with |
//! | `rtld_next` | the functions after ours, of the C library or another preloaded one |
//! | `user` | the user's settings, and our few messages |

pub(crate) mod by_device;
pub(crate) mod cancel;
mod environment;
pub(crate) mod event;
pub(crate) mod futex;
pub(crate) mod lock;
pub(crate) mod once;
pub(crate) mod own_memory;
pub(crate) mod owner;
pub(crate) mod pages;
pub(crate) mod process;
pub(crate) mod reserve;
pub(crate) mod rtld_next;
pub(crate) mod shared_file;
pub(crate) mod thread;
pub(crate) mod user;
