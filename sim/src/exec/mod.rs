//! Work, and the threads that do it: contexts own streams, streams are threads that do operations in order, events
//! are points in that order.
//!
//! | file | what it does |
//! |---|---|
//! | `common` | the common part of all contexts |
//! | `context` | contexts |
//! | `stack` | the current context of a thread |
//! | `stream` | a queue, and its thread |
//! | `submit` | puts a call's work into a stream or a captured graph |
//! | `op` | one operation, with everything that it needs |
//! | `event` | points in streams that can be waited for and timed |
//! | `shared_event` | the part of an event that processes share |
//! | `tail` | points in captures |
//! | `pause` | waiting for memory that others change |
//! | `outlive` | copies that go on when their process was killed |
//! | `known` | the points of other streams that a stream is behind |
//! | `locks` | the locks that calls wait for inside the driver |
//!
//! `engine.rs` decides how long an operation takes.

pub(crate) mod common;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod known;
pub(crate) mod locks;
pub(crate) mod op;
pub(crate) mod outlive;
pub(crate) mod pause;
pub(crate) mod shared_event;
pub(crate) mod stack;
pub(crate) mod stream;
pub(crate) mod submit;
pub(crate) mod tail;
