//! The sizes that pools' memory comes in, and its figures.

/// A pool takes memory from the GPU in steps of so many bytes, and its addresses are a multiple of that.
pub(crate) const STEP: u64 = 32 << 20;

/// Every allocation's address and size are a multiple of this.
pub(super) const ALIGNMENT: u64 = 512;

/// Bytes of some kind of memory, now and at most so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Amount {
    pub(crate) current: u64,
    pub(crate) high: u64,
}

impl Amount {
    pub(super) fn add(&mut self, bytes: u64) {
        self.current += bytes;
        self.high = self.high.max(self.current);
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.current -= bytes;
    }

    /// Forgets the past.
    pub(crate) fn reset(&mut self) {
        self.high = self.current;
    }
}
