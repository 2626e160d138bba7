//! How things stand: what a coordinator has said, and what it does not know.

use std::collections::BTreeMap;

use baton_kubernetes::pods::Pod;
use baton_report::status::Status;

/// How things stand, and what the coordinator does not know of it.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) status: Status,
    /// Of which pod programs are, as kubelet names it, by their numbers.
    pub(crate) pods: BTreeMap<u32, Pod>,
}
