//! What we need of the system, and know of it before anything else of ours.

pub(crate) mod cancel;
mod environment;
pub(crate) mod event;
pub(crate) mod futex;
pub(crate) mod lock;
pub(crate) mod once;
pub(crate) mod own_memory;
pub(crate) mod owner;
pub(crate) mod process;
pub(crate) mod reserve;
pub(crate) mod rtld_next;
pub(crate) mod thread;
pub(crate) mod user;
