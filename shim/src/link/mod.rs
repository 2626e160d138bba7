//! The coordinator's client.

pub(crate) mod requests;
