//! The memory that a call names: the device addresses in its arguments, and in a kernel's parameters. The [arrival](super) finds the
//! memory that can be reached from those.

use core::ffi::c_void;

use baton_contract::cuda::{CUdeviceptr, CUfunction};

use super::entry::Gpu;
use super::layouts;
use super::needs::{Named, Needs, Opaque};
use super::pointers::{TENSOR_MAP, WORD};
use super::roots::{self, TensorMap};
use crate::memory::bounds::is_outside;
use crate::memory::space::{Space, is_ours};
use crate::work::idle;

/// The keys of a launch's `extra` list (`CU_LAUNCH_PARAM_…`).
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
/// The alignment of a `CUtensorMap`.
const TENSOR_MAP_ALIGNMENT: usize = 64;

/// The needs of a kernel launch.
pub(crate) fn kernel(gpu: Gpu, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void) -> Needs {
    if gpu == Gpu::Other {
        return Needs::Nothing;
    }
    // A kernel may wait for a write of the host.
    idle::note_waiting();
    let mut found = Named { is_unchecked: true, ..Named::default() };
    // SAFETY: the parameters that the program is about to hand to the driver for a launch.
    let read = unsafe { add_parameters(function, parameters, extra, &mut found) };
    found.hide(read.is_none(), Opaque::Parameters);
    Needs::These(found)
}

/// Memory that a copy or fill reads or writes. Descriptions know their sizes themselves.
pub(crate) trait Reach: Copy {
    /// True if it touches addresses of ours without an allocation, or goes beyond the end of one.
    fn is_wild(self, bytes: usize) -> bool;
    /// Adds the addresses of ours that it names; `None` if they are not known.
    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()>;
}

/// Device memory, or any address of a unified copy.
impl Reach for CUdeviceptr {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        is_outside(self, bytes)
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        if is_ours(self) {
            found.push(self);
        }
        Some(())
    }
}

/// Host memory that is read, or device memory that the driver accepts as such (measured).
impl Reach for *const c_void {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        (self.addr() as CUdeviceptr).is_wild(bytes)
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        (self.addr() as CUdeviceptr).add_to(found)
    }
}

/// Host memory that is written, or device memory that the driver accepts as such.
impl Reach for *mut c_void {
    #[inline]
    fn is_wild(self, bytes: usize) -> bool {
        self.cast_const().is_wild(bytes)
    }

    fn add_to(self, found: &mut Vec<CUdeviceptr>) -> Option<()> {
        self.cast_const().add_to(found)
    }
}

/// The needs of a call over these ranges, by the addresses that it names.
pub(crate) fn ranges(add: impl FnOnce(&mut Vec<CUdeviceptr>) -> Option<()>) -> Needs {
    ranges_and(add, |_| ())
}

/// The needs of a call over these ranges, by the addresses that it names and the data that it brings.
pub(crate) fn ranges_and(
    add: impl FnOnce(&mut Vec<CUdeviceptr>) -> Option<()>,
    bring: impl FnOnce(&mut Named),
) -> Needs {
    let mut found = Named::default();
    if add(&mut found.addresses).is_none() {
        return Needs::Everything;
    }
    bring(&mut found);
    Needs::These(found)
}

/// Adds the addresses in a launch's parameters; `None` if they cannot be read.
///
/// # Safety
///
/// Parameters and `extra` are as the driver takes them for this function.
pub(crate) unsafe fn add_parameters(
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    found: &mut Named,
) -> Option<()> {
    if !extra.is_null() {
        // SAFETY: a list of pairs that ends with a zero, by this function's contract.
        let (buffer, size) = unsafe { buffer_of(extra) }?;
        // SAFETY: as above.
        return unsafe { add_value(buffer, size, found) };
    }
    let layout = layouts::of(function)?;
    // Most parameters are no addresses; growing the list would take longer than finding them.
    found.parameters.reserve(layout.len());
    for (at, size) in layout.iter().enumerate() {
        if parameters.is_null() {
            return None;
        }
        // SAFETY: one pointer for each parameter of the function, by this function's contract.
        unsafe { add_value((*parameters.add(at)).cast(), *size, found) }?;
    }
    Some(())
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

/// Adds the addresses in a parameter's value. `None` if it cannot be read.
///
/// # Safety
///
/// So many bytes can be read.
unsafe fn add_value(value: *const u8, size: usize, found: &mut Named) -> Option<()> {
    if value.is_null() {
        return Some(());
    }
    // SAFETY: by this function's contract. The program changes its parameters after the call, if at all.
    let value = unsafe { core::slice::from_raw_parts(value, size) };
    add_words(value, found);
    if size >= TENSOR_MAP && roots::has_tensor_maps() {
        for at in (0..=size - TENSOR_MAP).step_by(TENSOR_MAP_ALIGNMENT) {
            let map = value[at..].first_chunk::<TENSOR_MAP>()?;
            match roots::tensor_map(map) {
                TensorMap::None => {}
                TensorMap::Of(base) => {
                    found.hide(roots::is_host(base), Opaque::HostParameter);
                    found.addresses.push(base);
                }
                TensorMap::Perhaps => return None,
            }
        }
    }
    Some(())
}

/// Adds every word that is an address of ours, even in between: structures may be packed. A word at a pointer's usual place may mean
/// allocations that it does not lie in.
fn add_words(value: &[u8], found: &mut Named) {
    let ((start, end), host) = (Space::window(), roots::host_range());
    for (at, word) in value.windows(WORD).enumerate() {
        let word = u64::from_le_bytes(word.try_into().expect("a window of eight bytes"));
        if (start..end).contains(&word) && is_ours(word) {
            let list = if at % WORD == 0 { &mut found.parameters } else { &mut found.addresses };
            list.push(word);
        } else if host.contains(&word) {
            // A kernel that is given host memory finds there anything that the host has written by then.
            found.hide(roots::is_host(word), Opaque::HostParameter);
        }
    }
}
