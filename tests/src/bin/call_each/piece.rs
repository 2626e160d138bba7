//! Pieces of test memory with known contents, and the model of what a copy or a fill should do to them.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

use crate::bench::Bench;

/// Bytes in a piece.
pub(crate) const SIZE: usize = 1024;
/// An address that belongs to no allocation.
pub(crate) const NOWHERE: u64 = 0x1234;

/// Where a piece lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Host memory as every program has it.
    Pageable,
    /// Host memory that the driver has given out.
    Pinned,
}

/// A piece of memory with known contents.
pub(crate) struct Piece<'a> {
    bench: &'a Bench,
    place: Place,
    /// The piece's contents before the call under test.
    pub(crate) before: Vec<u8>,
    address: u64,
    /// A pageable piece's bytes.
    _pageable: Vec<u8>,
}

impl<'a> Piece<'a> {
    pub(crate) fn new(bench: &'a Bench, place: Place, contents: &[u8]) -> Self {
        assert_eq!(contents.len(), SIZE);
        let mut pageable = Vec::new();
        let mut address = 0;
        let mut place = place;
        if place == Place::Pinned {
            let mut pinned = null_mut();
            if bench.cuMemAllocHost_v2(&mut pinned, SIZE) == 0 {
                address = pinned as u64;
                // SAFETY: the driver has just given SIZE bytes of host memory, which nothing else uses.
                unsafe { std::slice::from_raw_parts_mut(pinned.cast::<u8>(), SIZE) }.copy_from_slice(contents);
            } else {
                place = Place::Pageable;
            }
        }
        match place {
            Place::Pinned => {}
            Place::Pageable => {
                pageable = contents.to_vec();
                address = pageable.as_mut_ptr() as u64;
            }
            Place::Device => {
                bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut address, SIZE));
                if address != 0 {
                    bench.note("cuMemcpyHtoD_v2", bench.cuMemcpyHtoD_v2(address, contents.as_ptr().cast(), SIZE));
                    bench.note("cuCtxSynchronize", bench.cuCtxSynchronize());
                }
            }
        }
        Self { bench, place, before: contents.to_vec(), address, _pageable: pageable }
    }

    /// Memory that a case may copy from.
    pub(crate) fn source(bench: &'a Bench, place: Place) -> Self {
        Self::new(bench, place, &noise(1))
    }

    /// Memory that a case may write to.
    pub(crate) fn target(bench: &'a Bench, place: Place) -> Self {
        Self::new(bench, place, &noise(2))
    }

    /// The address of a byte of it.
    pub(crate) fn at(&self, offset: usize) -> u64 {
        self.address + offset as u64
    }

    /// The address of a host piece.
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// The place of an address range in this piece, if it lies inside.
    pub(crate) fn span(&self, address: u64, bytes: usize) -> Option<Range<usize>> {
        let start = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let end = start.checked_add(bytes)?;
        (self.address != 0 && end <= SIZE).then_some(start..end)
    }

    /// The piece's contents now.
    fn now(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; SIZE];
        match self.place {
            Place::Device => {
                let result = match self.address {
                    0 => return None,
                    address => self.bench.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, SIZE),
                };
                self.bench.note("cuMemcpyDtoH_v2", result);
                (result == 0).then_some(bytes)
            }
            Place::Pageable | Place::Pinned => {
                // SAFETY: SIZE bytes that belong to this piece; the device's work on them has ended.
                bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(self.pointer().cast::<u8>(), SIZE) });
                Some(bytes)
            }
        }
    }

    /// Waits for all work and compares the piece with what it should hold.
    pub(crate) fn seen(&self, meant: &[u8]) -> String {
        let settled = self.bench.settle();
        let Some(now) = self.now() else { return format!("{settled}no memory") };
        format!("{settled}{}", verdict(&now, &self.before, meant))
    }

    /// [`Piece::seen`] of a piece that should be as before.
    pub(crate) fn untouched(&self) -> String {
        self.seen(&self.before)
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        match self.place {
            Place::Device if self.address != 0 => {
                self.bench.note("cuMemFree_v2", self.bench.cuMemFree_v2(self.address))
            }
            Place::Pinned => self.bench.note("cuMemFreeHost", self.bench.cuMemFreeHost(self.pointer())),
            _ => {}
        }
    }
}

/// Compares memory's contents with those before the call and those meant for after it.
pub(crate) fn verdict(now: &[u8], before: &[u8], meant: &[u8]) -> String {
    let word = match () {
        () if now == meant && now == before => "untouched",
        () if now == meant => "right",
        () if now == before => "nothing done",
        () => "wrong",
    };
    format!("{word} {:08x}", checksum(now))
}

/// FNV-1a of 32 bits.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A piece's worth of bytes that look random.
pub(crate) fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    (0..SIZE)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

/// The contents of `to` after a copy of `bytes`: unchanged if either end lies outside its piece.
pub(crate) fn copied(to: &Piece, to_address: u64, from: &Piece, from_address: u64, bytes: usize) -> Vec<u8> {
    let mut after = to.before.clone();
    if let (Some(to), Some(from_span)) = (to.span(to_address, bytes), from.span(from_address, bytes)) {
        after[to].copy_from_slice(&from.before[from_span]);
    }
    after
}
