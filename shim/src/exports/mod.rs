//! What the library exports: a door for each of the driver's names, and `dlopen`.

mod asker;
pub(crate) mod dlopen;
pub(crate) mod doors;
pub(crate) mod trace;
