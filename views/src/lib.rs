//! What every view shows of a coordinator. All views read what its one recorder has written down, so they all say the same.
//!
//! Nothing here opens a socket, reads a clock or prints: everything is made of what a coordinator has answered.
//!
//! - [`event`]: what has happened, as a coordinator tells it to tools (`Opening::Events`).
//! - [`timeline`]: who had the GPU when, and how each program stood, made of that.

pub mod event;
pub mod timeline;
