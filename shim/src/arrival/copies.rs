//! Descriptions of copies, fills and other work on memory, by `cuda.h`: the memory that they access.

use core::ffi::{c_int, c_void};

use baton_contract::cuda::CUdeviceptr;

use super::brings::{Brings, Filled, Into, Moved, Upload};
use super::footprint::Reach;
use super::needs::{Named, Opaque};
use super::pointers::WORD;
use crate::memory::space::is_ours;

/// A graph (`CUgraph`), one of its nodes (`CUgraphNode`), an array or a context.
pub(crate) type Handle = *mut c_void;

/// `CUgraphNodeType`.
pub(super) mod kind {
    use core::ffi::c_int;

    pub(crate) const KERNEL: c_int = 0;
    pub(crate) const COPY: c_int = 1;
    pub(crate) const FILL: c_int = 2;
    pub(crate) const HOST_FUNCTION: c_int = 3;
    pub(crate) const CHILD: c_int = 4;
    pub(crate) const EMPTY: c_int = 5;
    pub(crate) const WAIT_EVENT: c_int = 6;
    pub(crate) const RECORD_EVENT: c_int = 7;
    pub(crate) const ALLOCATION: c_int = 10;
    pub(crate) const FREE: c_int = 11;
}

/// `CUmemorytype`.
pub(super) const HOST: c_int = 1;
pub(super) const DEVICE: c_int = 2;
pub(super) const UNIFIED: c_int = 4;

/// `CUDA_MEMCPY3D`, and `CUDA_MEMCPY3D_PEER`, which has contexts in the reserved places: two ends, then the extent.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CopyNode {
    pub(super) from: CopyEnd,
    pub(super) to: CopyEnd,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CopyEnd {
    /// In bytes, rows and planes; then the level of detail.
    pub(super) offsets: [usize; 4],
    pub(super) kind: c_int,
    pub(super) host: *const c_void,
    pub(super) device: CUdeviceptr,
    array: Handle,
    context: Handle,
    pitch: usize,
    /// Rows of a plane.
    height: usize,
}

const _: () = assert!(size_of::<CopyNode>() == 200 && core::mem::offset_of!(CopyNode, to) == 88);

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flat {
    from: FlatEnd,
    to: FlatEnd,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct FlatEnd {
    /// In bytes and rows.
    offsets: [usize; 2],
    kind: c_int,
    host: *const c_void,
    device: CUdeviceptr,
    array: Handle,
    pitch: usize,
}

const _: () = assert!(size_of::<Flat>() == 128 && core::mem::offset_of!(Flat, to) == 56);

/// `CUDA_MEMSET_NODE_PARAMS`: the second version has a context after these.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FillNode {
    pub(super) target: CUdeviceptr,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// The bytes from the first to the last of this many rows and planes.
fn span([width, height, depth]: [usize; 3], pitch: usize, rows: usize) -> usize {
    if width == 0 || height == 0 || depth == 0 {
        return 0;
    }
    let last_row = (depth - 1).saturating_mul(rows).saturating_add(height - 1);
    last_row.saturating_mul(pitch).saturating_add(width)
}

/// The bytes from the first to the last of this many rows of elements.
pub(crate) fn rows(pitch: usize, width: usize, height: usize, element: usize) -> usize {
    span([width.saturating_mul(element), height, 1], pitch, 0)
}

impl CopyEnd {
    /// The offset in its memory at which it begins.
    fn offset(&self) -> usize {
        let [x, y, z, _] = self.offsets;
        z.wrapping_mul(self.height).wrapping_add(y).wrapping_mul(self.pitch).wrapping_add(x)
    }

    fn address(&self) -> CUdeviceptr {
        self.device.wrapping_add(self.offset() as u64)
    }
}

impl CopyNode {
    fn span(&self, end: &CopyEnd) -> usize {
        span([self.width, self.height, self.depth], end.pitch, end.height)
    }

    /// True if it is one row.
    fn is_a_row(&self) -> bool {
        self.height <= 1 && self.depth <= 1
    }

    /// True if each row at one end consists of whole words, so that a word there comes from one row.
    fn is_whole(&self, end: &CopyEnd) -> bool {
        // On the host, words may begin anywhere.
        let begin = if end.kind == HOST { 0 } else { end.device | end.offsets[0] as u64 };
        let pitch = if self.is_a_row() { 0 } else { end.pitch };
        (begin | self.width as u64 | pitch as u64).is_multiple_of(WORD as u64)
    }

    /// True if no new word comes to the device: the data leaves the device, or whole words move within it.
    pub(super) fn keeps_words(&self) -> bool {
        let is_device = |end: &CopyEnd| end.kind == DEVICE || end.kind == UNIFIED && is_ours(end.address());
        match self.to.kind {
            HOST => !is_ours(self.to.host.addr() as u64),
            UNIFIED if !is_ours(self.to.address()) && is_device(&self.from) => true,
            DEVICE | UNIFIED => is_device(&self.from) && self.is_whole(&self.from) && self.is_whole(&self.to),
            // The copy goes to an array. Only programs with unmanaged memory read addresses from arrays.
            _ => true,
        }
    }
}

impl FillNode {
    pub(super) fn filled(&self) -> Filled {
        let Self { target, pitch, value, element, width, height } = *self;
        Filled { at: target, pitch, value, element: element as usize, width, height }
    }
}

impl From<FlatEnd> for CopyEnd {
    fn from(flat: FlatEnd) -> Self {
        let FlatEnd { offsets: [x, y], kind, host, device, array, pitch } = flat;
        let context = core::ptr::null_mut();
        Self { offsets: [x, y, 0, 0], kind, host, device, array, context, pitch, height: 0 }
    }
}

/// A copy of two dimensions; three; a fill.
#[derive(Clone, Copy)]
pub(crate) struct Copy2d(pub(crate) *const c_void);
#[derive(Clone, Copy)]
pub(crate) struct Copy3d(pub(crate) *const c_void);
#[derive(Clone, Copy)]
pub(crate) struct Fill(pub(crate) *const c_void);
/// Any node of a graph, by a `CUgraphNodeParams`.
#[derive(Clone, Copy)]
pub(crate) struct Node(pub(crate) *const c_void);
/// So many copies of a batch: targets, sources, sizes.
#[derive(Clone, Copy)]
pub(crate) struct Batch(
    pub(crate) *const CUdeviceptr,
    pub(crate) *const CUdeviceptr,
    pub(crate) *const usize,
    pub(crate) usize,
);
/// So many operations of a stream on single words.
#[derive(Clone, Copy)]
pub(crate) struct Words(pub(crate) *const c_void, pub(crate) usize);

/// A description that is not read.
#[derive(Clone, Copy)]
pub(crate) struct Unread;

impl Reach for Unread {
    fn is_wild(self, _: usize) -> bool {
        false
    }

    fn add_to(self, _: &mut Vec<CUdeviceptr>) -> Option<()> {
        None
    }
}

/// The structure that the program hands to the driver, if any.
///
/// # Safety
///
/// Null, or a structure of this type.
unsafe fn given<T: Copy>(at: *const c_void) -> Option<T> {
    // SAFETY: by this function's contract.
    (!at.is_null()).then(|| unsafe { at.cast::<T>().read_unaligned() })
}

impl Reach for CopyNode {
    fn is_wild(self, _: usize) -> bool {
        let is_wild = |end: &CopyEnd| matches!(end.kind, DEVICE | UNIFIED) && end.address().is_wild(self.span(end));
        is_wild(&self.from) || is_wild(&self.to)
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        for end in [&self.from, &self.to] {
            match end.kind {
                DEVICE | UNIFIED => end.address().add_to(found)?,
                HOST => end.host.wrapping_byte_add(end.offset()).add_to(found)?,
                // An array is not ours.
                _ => {}
            }
        }
        Some(())
    }
}

impl Brings for CopyNode {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, into: Into, found: &mut Named) {
        if self.keeps_words() {
            return;
        }
        let span = self.span(&self.from);
        let from = self.from.host.wrapping_byte_add(self.from.offset());
        let is_upload = self.from.kind == HOST && matches!(self.to.kind, DEVICE | UNIFIED);
        if is_upload && self.is_whole(&self.from) && self.is_whole(&self.to) || self.is_a_row() && is_upload {
            return Upload(self.to.address(), from, span).bring(into, found);
        }
        found.hide(true, Opaque::SplitWords);
    }
}

impl Reach for Copy3d {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        // SAFETY: the program's own description, which the driver is about to read.
        unsafe { given::<CopyNode>(self.0) }.is_some_and(|copy| copy.is_wild(bytes))
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        // SAFETY: as above.
        unsafe { given::<CopyNode>(self.0) }.map_or(Some(()), |copy| copy.add_to(found))
    }
}

impl Brings for Copy3d {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, into: Into, found: &mut Named) {
        // SAFETY: the program's own description, which the driver is about to read.
        if let Some(copy) = unsafe { given::<CopyNode>(self.0) } {
            copy.bring(into, found);
        }
    }
}

impl Copy2d {
    fn copy(self) -> Option<CopyNode> {
        // SAFETY: the program's own description, which the driver is about to read.
        let Flat { from, to, width, height } = unsafe { given(self.0) }?;
        Some(CopyNode { from: from.into(), to: to.into(), width, height, depth: 1 })
    }
}

impl Reach for Copy2d {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        self.copy().is_some_and(|copy| copy.is_wild(bytes))
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        self.copy().map_or(Some(()), |copy| copy.add_to(found))
    }
}

impl Brings for Copy2d {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, into: Into, found: &mut Named) {
        if let Some(copy) = self.copy() {
            copy.bring(into, found);
        }
    }
}

impl Reach for Fill {
    fn is_wild(self, _: usize) -> bool {
        // SAFETY: the program's own description, which the driver is about to read.
        unsafe { given::<FillNode>(self.0) }
            .is_some_and(|fill| fill.target.is_wild(rows(fill.pitch, fill.width, fill.height, fill.element as usize)))
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        // SAFETY: as above.
        unsafe { given::<FillNode>(self.0) }.map_or(Some(()), |fill| fill.target.add_to(found))
    }
}

impl Node {
    /// The offset of the description in a node's parameters, and the one of a copy's.
    const DESCRIPTION: usize = 16;
    const COPY: usize = 32;
}

impl Reach for Node {
    fn is_wild(self, _: usize) -> bool {
        false
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        use kind::*;
        // SAFETY: the program's own description, which the driver is about to read.
        match unsafe { given::<c_int>(self.0) } {
            Some(COPY) => Copy3d(self.0.wrapping_byte_add(Self::COPY)).add_to(found),
            Some(FILL) => Fill(self.0.wrapping_byte_add(Self::DESCRIPTION)).add_to(found),
            // These name no memory that is checked when they are added.
            None | Some(KERNEL | HOST_FUNCTION | CHILD | EMPTY | WAIT_EVENT | RECORD_EVENT) => Some(()),
            Some(_) => None,
        }
    }
}

impl Batch {
    fn ranges(self) -> impl Iterator<Item = (CUdeviceptr, CUdeviceptr, usize)> {
        let Self(to, from, sizes, count) = self;
        let count = if to.is_null() || from.is_null() || sizes.is_null() { 0 } else { count };
        // SAFETY: the program's own arrays of so many items, which the driver is about to read.
        (0..count).map(move |at| unsafe { (*to.add(at), *from.add(at), *sizes.add(at)) })
    }
}

impl Reach for Batch {
    fn is_wild(self, _: usize) -> bool {
        self.ranges().any(|(to, from, bytes)| to.is_wild(bytes) || from.is_wild(bytes))
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        self.ranges().try_for_each(|(to, from, _)| to.add_to(found).and(from.add_to(found)))
    }
}

impl Brings for Batch {
    const ENDS_BY_ITSELF: bool = true;

    fn bring(self, into: Into, found: &mut Named) {
        self.ranges().for_each(|(to, from, bytes)| Moved(to, from, bytes).bring(into, found));
    }
}

/// `CUstreamBatchMemOpParams`: a union of 48 bytes that begins with its kind.
#[repr(C)]
#[derive(Clone, Copy)]
struct Word {
    kind: c_int,
    address: CUdeviceptr,
    rest: [u64; 4],
}

const _: () = assert!(size_of::<Word>() == 48);

impl Reach for Words {
    fn is_wild(self, _: usize) -> bool {
        false
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        /// `CUstreamBatchMemOpType`: waiting and writing, of 4 and 8 bytes; and two that name no address.
        const WAIT_4: c_int = 1;
        const WRITE_4: c_int = 2;
        const FLUSH: c_int = 3;
        const WAIT_8: c_int = 4;
        const WRITE_8: c_int = 5;
        const BARRIER: c_int = 6;
        let count = if self.0.is_null() { 0 } else { self.1 };
        for at in 0..count {
            // SAFETY: the program's own array of so many items, which the driver is about to read.
            let word: Word = unsafe { given(self.0.wrapping_byte_add(at * size_of::<Word>())) }?;
            match word.kind {
                WAIT_4 | WRITE_4 | WAIT_8 | WRITE_8 if is_ours(word.address) => found.push(word.address),
                WAIT_4 | WRITE_4 | WAIT_8 | WRITE_8 | FLUSH | BARRIER => {}
                _ => return None,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_spans_what_lies_between_its_first_and_its_last_byte() {
        for (extent, pitch, rows, bytes) in [
            ([10, 1, 1], 0, 0, 10),
            ([10, 3, 1], 16, 0, 42),
            ([10, 3, 2], 16, 4, (4 + 2) * 16 + 10),
            ([10, 0, 2], 16, 4, 0),
            ([10, usize::MAX, 2], 16, 4, usize::MAX),
        ] {
            assert_eq!(span(extent, pitch, rows), bytes, "{extent:?} of rows of {pitch}");
        }
    }
}
