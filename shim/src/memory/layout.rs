//! The tenant's memory as those see it who wait for it.

use baton_contract::cuda::CUdeviceptr;
use baton_contract::messages::ExtentId;

/// A block: what is waited for as a whole.
pub(crate) struct BlockLayout {
    /// Where it begins.
    pub(crate) start: CUdeviceptr,
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// What backs it, and whether that is mapped.
    pub(crate) extents: Vec<(ExtentId, bool)>,
}
