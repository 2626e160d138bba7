//! What a call needs: the device addresses that it names. What can be reached from those is found by the
//! [arrival](super).

use core::ffi::c_void;

use baton_contract::cuda::{CUdeviceptr, CUfunction};

use super::blocks::Needs;
use super::door::Gpu;
use super::layouts;
use super::roots::{self, HostMemory, TensorMap};
use super::words::TENSOR_MAP;
use crate::memory::bounds::is_outside;
use crate::memory::space::is_ours;

/// Where a launch's parameters lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    DeviceOnly,
    /// To host memory too, which may change until the launch.
    HostToo,
}

/// The keys of a launch's `extra` list (`CU_LAUNCH_PARAM_…`).
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
/// What is longer is not read word by word in a call.
const MOST_READ: usize = 64 << 20;
/// What a `CUtensorMap` is aligned to.
const TENSOR_MAP_ALIGNMENT: usize = 64;

/// A launch's.
pub(crate) fn kernel(gpu: Gpu, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void) -> Needs {
    if gpu == Gpu::Other {
        return Needs::Nothing;
    }
    let mut found = Vec::new();
    // SAFETY: what the program is about to hand to the driver as a launch's parameters.
    match unsafe { add_parameters(function, parameters, extra, &mut found) } {
        Some(_) => Needs::These(found),
        None => Needs::Everything,
    }
}

/// Something that a copy or fill reads or writes. Descriptions know their sizes themselves.
pub(crate) trait Reach: Copy {
    /// Whether it touches addresses of ours without an allocation, or goes beyond the end of one.
    fn is_wild(self, bytes: usize) -> bool;
    /// Adds what a call for this GPU needs of that; `None` if it cannot be told.
    fn add_to(self, bytes: usize, gpu: Gpu, found: &mut Vec<CUdeviceptr>) -> Option<()>;
}

/// Device memory, or any address of a unified copy.
impl Reach for CUdeviceptr {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        is_outside(self, bytes)
    }

    fn add_to(self, _: usize, _: Gpu, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        if is_ours(self) {
            found.push(self);
        }
        Some(())
    }
}

/// Where a unified copy reads from: if that is not ours, it may be host memory, and its contents are not read here.
#[derive(Clone, Copy)]
pub(crate) struct Unified(pub(crate) CUdeviceptr);

impl Reach for Unified {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        is_outside(self.0, bytes)
    }

    fn add_to(self, _: usize, gpu: Gpu, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        if is_ours(self.0) {
            found.push(self.0);
            return Some(());
        }
        (gpu == Gpu::Other).then_some(())
    }
}

/// Host memory that is read: the device will hold the pointers in it. Device memory is taken for host memory as well (measured).
impl Reach for *const c_void {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        is_outside(self.addr() as u64, bytes)
    }

    fn add_to(self, bytes: usize, gpu: Gpu, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        if is_ours(self.addr() as u64) {
            found.push(self.addr() as u64);
            return Some(());
        }
        if bytes == 0 || self.is_null() || gpu == Gpu::Other {
            // To the first two the driver has an answer.
            return Some(());
        }
        if bytes > MOST_READ {
            return None;
        }
        // Wherever the program says: it may have got that wrong, and then the driver has the answer.
        roots::add_from_host(self.expose_provenance(), bytes, found).then_some(())
    }
}

/// Host memory that is written, or device memory that is taken for it.
impl Reach for *mut c_void {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        is_outside(self.addr() as u64, bytes)
    }

    fn add_to(self, _: usize, _: Gpu, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        if is_ours(self.addr() as u64) {
            found.push(self.addr() as u64);
        }
        Some(())
    }
}

/// What a copy or fill over these ranges needs.
pub(crate) fn ranges(mut add: impl FnMut(&mut Vec<CUdeviceptr>) -> Option<()>) -> Needs {
    let mut found = Vec::new();
    add(&mut found).map_or(Needs::Everything, |()| Needs::These(found))
}

/// Adds what a launch's parameters name; `None` if they cannot be read.
///
/// # Safety
///
/// Parameters and `extra` are what the driver takes for this function.
pub(crate) unsafe fn add_parameters(
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    found: &mut Vec<CUdeviceptr>,
) -> Option<Reads> {
    let mut reads = Reads::DeviceOnly;
    if !extra.is_null() {
        // SAFETY: a list of pairs that ends with a zero, by this function's contract.
        let (buffer, size) = unsafe { buffer_of(extra) }?;
        // SAFETY: as above.
        unsafe { add_value(buffer, size, found, &mut reads) }?;
        return Some(reads);
    }
    let layout = layouts::of(function)?;
    // Most parameters are no addresses; growing the list would take longer than finding them.
    found.reserve(layout.len());
    for (at, size) in layout.iter().enumerate() {
        if parameters.is_null() {
            return None;
        }
        // SAFETY: one pointer for each parameter of the function, by this function's contract.
        unsafe { add_value((*parameters.add(at)).cast(), *size, found, &mut reads) }?;
    }
    Some(reads)
}

/// # Safety
///
/// A list of pairs that ends with [`END`].
unsafe fn buffer_of(extra: *mut *mut c_void) -> Option<(*const u8, usize)> {
    let (mut buffer, mut size) = (None, None);
    // More pairs than there are keys make no sense.
    for pair in 0..8 {
        // SAFETY: not behind the end, by this function's contract.
        let (key, value) = unsafe { ((*extra.add(2 * pair)).addr(), *extra.add(2 * pair + 1)) };
        match key {
            END => break,
            BUFFER_POINTER => buffer = Some(value.cast_const().cast()),
            // SAFETY: points to the size.
            BUFFER_SIZE => size = Some(unsafe { *value.cast::<usize>() }),
            _ => return None,
        }
    }
    buffer.zip(size)
}

/// None if it names what cannot be read.
///
/// # Safety
///
/// So many bytes can be read.
unsafe fn add_value(value: *const u8, size: usize, found: &mut Vec<CUdeviceptr>, reads: &mut Reads) -> Option<()> {
    if value.is_null() {
        return Some(());
    }
    // SAFETY: by this function's contract.
    unsafe { add_words(value, size, found, reads) }?;
    if size >= TENSOR_MAP && roots::has_tensor_maps() {
        for at in (0..=size - TENSOR_MAP).step_by(TENSOR_MAP_ALIGNMENT) {
            // SAFETY: within the value.
            let map: [u8; TENSOR_MAP] = unsafe { value.add(at).cast::<[u8; TENSOR_MAP]>().read_unaligned() };
            match roots::tensor_map(&map) {
                TensorMap::None => {}
                TensorMap::Of(base) => found.push(base),
                TensorMap::Perhaps => return None,
            }
        }
    }
    Some(())
}

/// Adds every word that is an address of ours. Also in between: structures may be packed.
///
/// # Safety
///
/// So many bytes can be read.
unsafe fn add_words(start: *const u8, bytes: usize, found: &mut Vec<CUdeviceptr>, reads: &mut Reads) -> Option<()> {
    let mut at = 0;
    while at + 8 <= bytes {
        // SAFETY: within the range.
        let word = unsafe { start.add(at).cast::<u64>().read_unaligned() };
        if is_ours(word) {
            found.push(word);
        } else if roots::is_pinned_host(word) {
            // A kernel that is given host memory finds there what it finds.
            match roots::add_pinned_host(word, found) {
                HostMemory::None => {}
                HostMemory::Read => *reads = Reads::HostToo,
                HostMemory::Gone => return None,
            }
        }
        at += 4;
    }
    Some(())
}
