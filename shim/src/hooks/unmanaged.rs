//! The driver's functions for memory that Baton does not move: arrays, managed memory, memory of graphs, and memory that others have made.
//!
//! Each hook asks for the memory before the driver does, so that the arena can make way, and counts it ([`crate::memory::unmanaged`]).

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use baton_contract::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUarray, CUdevice, CUdeviceptr, CUresult};
use baton_contract::memory::Unmanaged;

use super::retry::{AGAIN, retried, retried_on};
use crate::arrival::{self, Needs};
use crate::driver::api;
use crate::memory::unmanaged::{self, Asked};
use crate::session::{self, Session};
use crate::sys::thread;

/// Asks for memory of a kind on a GPU, from outside the gate. False if there is none; an error is the call's answer. A thread that has to
/// ask the coordinator passes the gate first: so the GPU is its program's, which is at work there, and tenants with memory in the arena can
/// make way.
pub(super) fn ask(device: CUdevice, kind: Unmanaged, bytes: u64) -> Result<bool, CUresult> {
    if unmanaged::ask_nobody(device, kind, bytes) {
        return Ok(true);
    }
    loop {
        let passage = arrival::pass(|_| Needs::Nothing)?;
        match unmanaged::ask(device, kind, bytes) {
            Asked::Granted => return Ok(true),
            Asked::Denied => return Ok(false),
            Asked::TryAgain => passage.outside(|| thread::sleep(AGAIN))?,
        }
    }
}

/// Makes memory of a kind on the current GPU by `call`, which writes its address or handle to `out`.
///
/// # Safety
///
/// As for [`make_on`].
pub(super) unsafe fn make(
    kind: Unmanaged,
    bytes: u64,
    context: usize,
    out: *const u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    // SAFETY: by this function's contract.
    unsafe { make_on(session::current(), kind, bytes, context, out, call) }
}

/// Makes memory of a kind by `call`, which writes its address or handle to `out`. Without a session for its GPU, it is nobody's. A call
/// that asks for more than the driver could ever allocate is left to the driver.
///
/// # Safety
///
/// `out` is null, or the driver writes it on success.
pub(super) unsafe fn make_on(
    session: Option<&Session>,
    kind: Unmanaged,
    bytes: u64,
    context: usize,
    out: *const u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    let Some(session) = session.filter(|_| !out.is_null() && bytes != 0) else { return retried_on(session, call) };
    let device = session.device;
    let is_leased = match ask(device, kind, bytes) {
        Ok(is_leased) => is_leased,
        Err(answer) => return answer,
    };
    let is_too_much = bytes / 2 > session.link.total();
    // A program may have more managed memory than the GPU has.
    if !is_leased && kind != Unmanaged::Managed && !is_too_much {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let answer = retried_on(Some(session), call);
    match (answer, is_leased) {
        // SAFETY: not null, and written.
        (CUDA_SUCCESS, true) => unmanaged::keep(device, kind, unsafe { *out }, bytes, context),
        // SAFETY: as above.
        (CUDA_SUCCESS, false) => unmanaged::note(device, kind, unsafe { *out }, bytes, context),
        (_, true) => unmanaged::give_back(device, kind, bytes),
        (_, false) => {}
    }
    answer
}

type AllocManaged = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, c_uint) -> CUresult;

pub(super) unsafe fn alloc_managed(
    original: AllocManaged,
    out: *mut CUdeviceptr,
    bytes: usize,
    flags: c_uint,
) -> CUresult {
    let call = || match arrival::pass(|_| Needs::Nothing) {
        // SAFETY: the driver's own function with the program's own arguments.
        Ok(_passage) => unsafe { original(out, bytes, flags) },
        Err(answer) => answer,
    };
    // SAFETY: the driver writes the address on success.
    unsafe { make(Unmanaged::Managed, bytes as u64, api::current_context(), out, call) }
}

// Arrays.

/// `CUDA_ARRAY_DESCRIPTOR`, with numbers of its version's width.
#[repr(C)]
struct Flat<N> {
    width: N,
    height: N,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`, likewise.
#[repr(C)]
struct Deep<N> {
    width: N,
    height: N,
    depth: N,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: the memory is the program's, and is mapped later.
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;

/// A description of an array.
trait Shape {
    /// Its memory in bytes, as far as that is known: the driver may round it up. There are so many levels, each of half the size.
    fn bytes(&self, levels: c_uint) -> u64;
}

impl<N: Copy + TryInto<u64>> Shape for Flat<N> {
    fn bytes(&self, levels: c_uint) -> u64 {
        let sides = [self.width, self.height].map(|side| side.try_into().unwrap_or(0));
        in_all([sides[0], sides[1], 0], self.format, self.channels, levels)
    }
}

impl<N: Copy + TryInto<u64>> Shape for Deep<N> {
    fn bytes(&self, levels: c_uint) -> u64 {
        if self.flags & WITHOUT_MEMORY != 0 {
            return 0;
        }
        let sides = [self.width, self.height, self.depth].map(|side| side.try_into().unwrap_or(0));
        in_all(sides, self.format, self.channels, levels)
    }
}

/// The bytes of one channel of a `CUarray_format`. Formats that pack several channels, or compress them, take at most this.
fn of_format(format: c_int) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    }
}

/// The bytes of all levels. A missing side is 0, and counts as 1.
fn in_all(sides: [u64; 3], format: c_int, channels: c_uint, levels: c_uint) -> u64 {
    if sides[0] == 0 {
        return 0;
    }
    let level = |level: u32| {
        let points = sides.map(|side| side.checked_shr(level).unwrap_or(0).max(1)).into_iter();
        points.fold(of_format(format) * u64::from(channels.min(4)), u64::saturating_mul)
    };
    // Past the last level with more than one point, levels add next to nothing.
    (0..levels.min(u64::BITS)).map(level).fold(0, u64::saturating_add)
}

/// # Safety
///
/// Null, or the program's own description.
unsafe fn bytes_of<S: Shape>(shape: *const c_void, levels: c_uint) -> u64 {
    // SAFETY: by this function's contract.
    unsafe { shape.cast::<S>().as_ref() }.map_or(0, |shape| shape.bytes(levels))
}

type ArrayCreate = unsafe extern "C-unwind" fn(*mut CUarray, *const c_void) -> CUresult;
type MipmapCreate = unsafe extern "C-unwind" fn(*mut *mut c_void, *const c_void, c_uint) -> CUresult;
type OfHandle = unsafe extern "C-unwind" fn(*mut c_void) -> CUresult;

unsafe fn create<S: Shape>(original: ArrayCreate, out: *mut CUarray, shape: *const c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments; it writes the handle on success.
    unsafe {
        make(Unmanaged::Array, bytes_of::<S>(shape, 1), api::current_context(), out.cast(), || original(out, shape))
    }
}

pub(super) unsafe fn array(original: ArrayCreate, out: *mut CUarray, shape: *const c_void) -> CUresult {
    // SAFETY: as the caller.
    unsafe { create::<Flat<usize>>(original, out, shape) }
}

pub(super) unsafe fn array_v1(original: ArrayCreate, out: *mut CUarray, shape: *const c_void) -> CUresult {
    // SAFETY: as the caller.
    unsafe { create::<Flat<c_uint>>(original, out, shape) }
}

pub(super) unsafe fn array_3d(original: ArrayCreate, out: *mut CUarray, shape: *const c_void) -> CUresult {
    // SAFETY: as the caller.
    unsafe { create::<Deep<usize>>(original, out, shape) }
}

pub(super) unsafe fn array_3d_v1(original: ArrayCreate, out: *mut CUarray, shape: *const c_void) -> CUresult {
    // SAFETY: as the caller.
    unsafe { create::<Deep<c_uint>>(original, out, shape) }
}

pub(super) unsafe fn mipmap(
    original: MipmapCreate,
    out: *mut *mut c_void,
    shape: *const c_void,
    levels: c_uint,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments; it writes the handle on success.
    unsafe {
        let bytes = bytes_of::<Deep<usize>>(shape, levels);
        make(Unmanaged::Array, bytes, api::current_context(), out.cast(), || original(out, shape, levels))
    }
}

/// Gives back an array, a mipmapped one, or memory of another interface.
pub(super) unsafe fn destroy(original: OfHandle, handle: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own argument.
    unmanaged::remove(handle.expose_provenance() as u64, || unsafe { original(handle) })
}

// Memory of other interfaces.

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, as far as it is read.
#[repr(C)]
struct ExternalMemory {
    kind: c_int,
    handle: [u64; 2],
    bytes: u64,
}

type Import = unsafe extern "C-unwind" fn(*mut *mut c_void, *const c_void) -> CUresult;

/// `cuImportExternalMemory`: the memory exists already. It is counted, and no room has to be made for it.
pub(super) unsafe fn import_external(original: Import, out: *mut *mut c_void, handle: *const c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = retried(|| unsafe { original(out, handle) });
    // SAFETY: null, or the program's own description, which the driver has just read.
    let memory = unsafe { handle.cast::<ExternalMemory>().as_ref() };
    if answer == CUDA_SUCCESS
        && let Some(session) = session::current()
        && let Some(memory) = memory
        && !out.is_null()
    {
        // SAFETY: not null, and written.
        let made = unsafe { *out }.expose_provenance() as u64;
        unmanaged::note(session.device, Unmanaged::External, made, memory.bytes, api::current_context());
    }
    answer
}

// Memory of graphs. The driver takes it when a graph is instantiated, uploaded or launched, and keeps it until the program trims it;
// graphs use it one after the other.

/// Asks for a graph's memory before it is instantiated, if it has any. If that is denied, the driver still has the answer.
pub(super) fn before_instantiating(graph: *mut c_void) {
    if !unmanaged::graphs_allocate() {
        return;
    }
    let Some(device) = session::current().map(|session| session.device) else { return };
    let (Some(reserved), needed) = (reserved(device), allocated_by(graph)) else { return };
    if needed > 0 {
        set_reserved(device, reserved.saturating_add(needed));
    }
}

/// Sets the counted memory of this program's graphs on a GPU to the bytes that they have, or are about to have.
fn set_reserved(device: CUdevice, bytes: u64) {
    let counted = unmanaged::of_kind(device, Unmanaged::Graph);
    match bytes.checked_sub(counted) {
        Some(more) => drop(ask(device, Unmanaged::Graph, more)),
        None => unmanaged::give_back(device, Unmanaged::Graph, counted - bytes),
    }
}

/// Bytes that the driver has taken for graphs of this program on a GPU.
fn reserved(device: CUdevice) -> Option<u64> {
    /// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
    const RESERVED: c_int = 2;
    let mut bytes = 0_u64;
    // SAFETY: this attribute is a number of 64 bits.
    let answer = unsafe { api::graph_memory(device, RESERVED, (&raw mut bytes).cast()) };
    (answer == CUDA_SUCCESS).then_some(bytes)
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`, as far as it is read.
#[repr(C)]
struct Allocation {
    pool: [u64; 11],
    access: *const c_void,
    count: usize,
    bytes: usize,
    address: CUdeviceptr,
}

/// Bytes that the nodes of a graph allocate.
fn allocated_by(graph: *mut c_void) -> u64 {
    const CHILD: c_int = 4;
    const ALLOCATES: c_int = 10;
    let mut count = 0;
    // SAFETY: the program's graph, and an out-parameter.
    if unsafe { api::graph_nodes(graph, ptr::null_mut(), &mut count) } != CUDA_SUCCESS {
        return 0;
    }
    let mut nodes = vec![ptr::null_mut(); count];
    // SAFETY: a list of as many items as is said.
    if unsafe { api::graph_nodes(graph, nodes.as_mut_ptr(), &mut count) } != CUDA_SUCCESS {
        return 0;
    }
    let of_node = |node: &*mut c_void| {
        let mut kind = -1;
        // SAFETY: a node of that graph, and an out-parameter.
        if unsafe { api::node_kind(*node, &mut kind) } != CUDA_SUCCESS {
            return 0;
        }
        match kind {
            ALLOCATES => {
                // SAFETY: numbers and pointers, for which zero is a value.
                let mut allocation: Allocation = unsafe { core::mem::zeroed() };
                // SAFETY: such a node, and a structure of cuda.h's layout.
                let answer = unsafe { api::allocation_node(*node, (&raw mut allocation).cast()) };
                if answer == CUDA_SUCCESS { allocation.bytes as u64 } else { 0 }
            }
            CHILD => {
                let mut child = ptr::null_mut();
                // SAFETY: such a node, and an out-parameter.
                let answer = unsafe { api::child_graph(*node, &mut child) };
                if answer == CUDA_SUCCESS { allocated_by(child) } else { 0 }
            }
            _ => 0,
        }
    };
    nodes.iter().take(count).map(of_node).fold(0, u64::saturating_add)
}

type OfDevice = unsafe extern "C-unwind" fn(CUdevice) -> CUresult;

/// `cuDeviceGraphMemTrim`: gives back memory that graphs no longer use.
pub(super) unsafe fn trim_graphs(original: OfDevice, device: CUdevice) -> CUresult {
    // SAFETY: the driver's own function with the program's own argument.
    let answer = unsafe { original(device) };
    if answer == CUDA_SUCCESS
        && unmanaged::graphs_allocate()
        && session::of(device).is_some()
        && let Some(reserved) = reserved(device)
    {
        let counted = unmanaged::of_kind(device, Unmanaged::Graph);
        unmanaged::give_back(device, Unmanaged::Graph, counted.saturating_sub(reserved));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSIGNED_INT8: c_int = 1;
    const FLOAT: c_int = 0x20;

    #[test]
    fn an_array_takes_its_points_and_each_level_of_a_mipmap_half_as_many_a_side() {
        let line = Flat::<usize> { width: 1000, height: 0, format: UNSIGNED_INT8, channels: 1 };
        assert_eq!(line.bytes(1), 1000);
        let old = Flat::<c_uint> { width: 10, height: 20, format: FLOAT, channels: 4 };
        assert_eq!(old.bytes(1), 10 * 20 * 16);
        let cube = Deep::<usize> { width: 8, height: 8, depth: 8, format: FLOAT, channels: 1, flags: 0 };
        assert_eq!(cube.bytes(1), 512 * 4);
        assert_eq!(cube.bytes(4), (512 + 64 + 8 + 1) * 4);
        assert_eq!(Deep { flags: 0x40, ..cube }.bytes(1), 0, "its memory comes from elsewhere");
        let huge = Deep::<usize> { width: usize::MAX, height: usize::MAX, depth: 0, format: 0, channels: 9, flags: 0 };
        assert_eq!(huge.bytes(c_uint::MAX), u64::MAX);
    }
}
