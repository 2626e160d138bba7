//! What users ask for: how things stand, other settings, memory that is to leave.

pub(super) mod evict;
pub(super) mod set;
pub(super) mod status;
