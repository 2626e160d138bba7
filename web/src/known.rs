//! The present state: a coordinator's status, and facts that it does not know.

use std::collections::BTreeMap;

use baton_report::pod::Pod;
use baton_report::status::Status;

/// The status, and facts that the coordinator does not know.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) status: Status,
    /// The programs' pods by kubelet's names, by program number.
    pub(crate) pods: BTreeMap<u32, Pod>,
}
