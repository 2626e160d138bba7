//! The tenant's memory as seen by the calls that wait for it.

use core::ops::Range;

use baton_contract::cuda::{CUdevice, CUdeviceptr};
use baton_contract::messages::ExtentId;

/// An extent by its GPU, and its number there.
pub(crate) type ExtentOf = (CUdevice, ExtentId);

/// All memory of the process.
#[derive(Default)]
pub(crate) struct Layout {
    /// Blocks that a call waits for as a whole, in no order.
    pub(crate) blocks: Vec<Range<CUdeviceptr>>,
    /// Blocks of the program's own mappings, each with the homes of the extents behind it.
    pub(crate) mapped: Vec<(Range<CUdeviceptr>, Vec<Range<CUdeviceptr>>)>,
    /// Extents, which arrive as a whole, in order of address. An extent may hold several blocks, and a block may span several extents.
    pub(crate) extents: Vec<ExtentLayout>,
}

/// An extent.
#[derive(Clone, Debug)]
pub(crate) struct ExtentLayout {
    pub(crate) id: ExtentOf,
    /// Its addresses.
    pub(crate) addresses: Range<CUdeviceptr>,
    /// True if it is mapped.
    pub(crate) is_mapped: bool,
}

impl ExtentLayout {
    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }
}
