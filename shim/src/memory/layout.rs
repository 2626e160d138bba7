//! The tenant's memory as those see it who wait for it.

use core::ops::Range;

use baton_contract::cuda::CUdeviceptr;
use baton_contract::messages::ExtentId;

/// All of it.
pub(crate) struct Layout {
    /// What is waited for as a whole, without an order.
    pub(crate) blocks: Vec<Range<CUdeviceptr>>,
    /// The same of the program's own mappings, with the addresses by which the extents behind them go.
    pub(crate) mapped: Vec<(Range<CUdeviceptr>, Vec<Range<CUdeviceptr>>)>,
    /// What comes as a whole, in order of address. One may have several blocks, and a block several of these.
    pub(crate) extents: Vec<ExtentLayout>,
}

/// An extent.
#[derive(Clone, Debug)]
pub(crate) struct ExtentLayout {
    pub(crate) id: ExtentId,
    /// Where it is.
    pub(crate) addresses: Range<CUdeviceptr>,
    /// Whether it is there.
    pub(crate) is_mapped: bool,
}

impl ExtentLayout {
    /// How large it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }
}
