//! What the library exports: a door for each of the driver's names, and `dlopen`.

pub(crate) mod dlopen;
pub(crate) mod doors;
pub(crate) mod trace;
