//! Work and who does it: contexts own streams, streams are threads that do operations in order, events
//! are points in that order.

pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod known;
pub(crate) mod locks;
pub(crate) mod op;
pub(crate) mod shared_event;
pub(crate) mod stream;
pub(crate) mod submit;
