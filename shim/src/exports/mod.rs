//! What the library exports: a door for each of the driver's names, `dlopen`, and what a sanitizer asks.

mod asker;
pub(crate) mod dlopen;
pub(crate) mod doors;
mod sanitizer;
pub(crate) mod trace;
