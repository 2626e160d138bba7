//! What a coordinator tells of itself.

pub mod event;
pub mod quota;
