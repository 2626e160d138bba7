//! What a coordinator tells of itself.

pub mod event;
pub mod quota;
pub mod record;
pub mod waits;
