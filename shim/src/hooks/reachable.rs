//! The driver's functions by which kernels can access memory that a launch does not name: the driver does the work, and the shim takes
//! note.

use core::ffi::{c_char, c_int, c_uint, c_void};

use baton_contract::cuda::{CUDA_SUCCESS, CUdeviceptr, CUgraphExec, CUresult};

use super::retry::retried;
use super::unmanaged::before_instantiating;
use crate::arrival::copies::{Copy3d, Fill, Node, Unread};
use crate::arrival::footprint::{self, Reach};
use crate::arrival::graphs::{self, CopyNode, FillNode, Handle, KernelNode};
use crate::arrival::roots::HostOf;
use crate::arrival::{self, Gpu, Needs, layouts, roots};
use crate::memory::unmanaged;
use crate::sys::shared_file;
use crate::{gate, session};

/// Makes a call in which the driver checks the addresses: their memory has to be there.
fn with_memory(reaches: impl Reach, call: impl Fn() -> CUresult) -> CUresult {
    let needs = |gpu| match gpu {
        Gpu::Shared => Needs::Everything,
        Gpu::Other => footprint::ranges(|found| reaches.add_to(found)),
    };
    gate::checked(|| arrival::pass(needs), call)
}

/// Stands for memory that earlier calls have named already.
const KNOWN: CUdeviceptr = 0;

/// Takes note of a call after the driver has made it, if there is a session that needs it.
fn noted(answer: CUresult, note: impl FnOnce()) -> CUresult {
    if answer == CUDA_SUCCESS && session::is_any() {
        note();
    }
    answer
}

// Textures.

/// `CUDA_RESOURCE_DESC`: its kind, and for plain memory its address.
#[repr(C)]
struct Resource {
    kind: c_int,
    address: CUdeviceptr,
}
const LINEAR: c_int = 2;
const PITCHED: c_int = 3;

/// The plain memory under a texture; 0 if that is an array, which is not ours.
fn resource_address(resource: *const c_void) -> CUdeviceptr {
    // SAFETY: null, or the program's own description, which the driver is about to read.
    let resource = unsafe { resource.cast::<Resource>().as_ref() };
    resource.filter(|resource| matches!(resource.kind, LINEAR | PITCHED)).map_or(0, |resource| resource.address)
}

type TextureCreate = unsafe extern "C-unwind" fn(*mut u64, *const c_void, *const c_void, *const c_void) -> CUresult;
type TextureDestroy = unsafe extern "C-unwind" fn(u64) -> CUresult;
type ReferenceDestroy = unsafe extern "C-unwind" fn(Handle) -> CUresult;
type TextureAddress = unsafe extern "C-unwind" fn(*mut usize, Handle, CUdeviceptr, usize) -> CUresult;
type TextureAddress2D = unsafe extern "C-unwind" fn(Handle, *const c_void, CUdeviceptr, usize) -> CUresult;

pub(crate) unsafe fn texture_create(
    drivers: TextureCreate,
    out: *mut u64,
    resource: *const c_void,
    texture: *const c_void,
    view: *const c_void,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = with_memory(resource_address(resource), || unsafe { drivers(out, resource, texture, view) });
    // SAFETY: the driver has written it.
    noted(answer, || unsafe { roots::texture_made(*out, resource_address(resource)) })
}

pub(crate) unsafe fn texture_destroy(drivers: TextureDestroy, texture: u64) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(unsafe { drivers(texture) }, || roots::texture_gone(texture))
}

pub(crate) unsafe fn reference_destroy(drivers: ReferenceDestroy, texture: Handle) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(unsafe { drivers(texture) }, || roots::texture_gone(texture.addr() as u64))
}

pub(crate) unsafe fn texture_address(
    drivers: TextureAddress,
    offset: *mut usize,
    texture: Handle,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(address, || unsafe { drivers(offset, texture, address, bytes) }), || {
        roots::texture_made(texture.addr() as u64, address)
    })
}

pub(crate) unsafe fn texture_address_2d(
    drivers: TextureAddress2D,
    texture: Handle,
    format: *const c_void,
    address: CUdeviceptr,
    pitch: usize,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(address, || unsafe { drivers(texture, format, address, pitch) }), || {
        roots::texture_made(texture.addr() as u64, address);
    })
}

// Code.

type Global = unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, Handle, *const c_char) -> CUresult;
type Unload = unsafe extern "C-unwind" fn(Handle) -> CUresult;

pub(crate) unsafe fn global(
    drivers: Global,
    at: *mut CUdeviceptr,
    bytes: *mut usize,
    code: Handle,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(at, bytes, code, name) };
    noted(answer, || {
        if at.is_null() {
            // The program only asked for the size.
            return;
        }
        let (mut place, mut size) = (0, 0);
        // SAFETY: the same question, which was answered just before, with room for both answers.
        if unsafe { drivers(&mut place, &mut size, code, name) } == CUDA_SUCCESS {
            roots::global_found(place, size as u64, code.addr());
        }
    })
}

pub(crate) unsafe fn unload(drivers: Unload, code: Handle) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { drivers(code) };
    if !session::is_any() {
        return call();
    }
    // The driver waits for all work of the context.
    let _passage = arrival::enter_in_any_state();
    layouts::forget_all();
    let answer = roots::code_goes(code.addr(), call);
    // Another thread may have asked meanwhile.
    layouts::forget_all();
    answer
}

// Host memory that the device reads.

/// `CU_MEMHOSTALLOC_WRITECOMBINED`: slow to read.
const WRITE_COMBINED: c_uint = 4;

type HostAlloc = unsafe extern "C-unwind" fn(*mut *mut c_void, usize, c_uint) -> CUresult;
type AllocHost = unsafe extern "C-unwind" fn(*mut *mut c_void, usize) -> CUresult;
type AllocHostV1 = unsafe extern "C-unwind" fn(*mut *mut c_void, c_uint) -> CUresult;
type Register = unsafe extern "C-unwind" fn(*mut c_void, usize, c_uint) -> CUresult;
type OfHost = unsafe extern "C-unwind" fn(*mut c_void) -> CUresult;

pub(crate) unsafe fn host_alloc(drivers: HostAlloc, out: *mut *mut c_void, bytes: usize, flags: c_uint) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    noted(unsafe { drivers(out, bytes, flags) }, || unsafe {
        let of = if flags & WRITE_COMBINED == 0 { HostOf::Driver } else { HostOf::Program };
        roots::host_made((*out).expose_provenance() as u64, bytes as u64, of);
    })
}

pub(crate) unsafe fn alloc_host(drivers: AllocHost, out: *mut *mut c_void, bytes: usize) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    noted(unsafe { drivers(out, bytes) }, || unsafe {
        roots::host_made((*out).expose_provenance() as u64, bytes as u64, HostOf::Driver);
    })
}

pub(crate) unsafe fn alloc_host_v1(drivers: AllocHostV1, out: *mut *mut c_void, bytes: c_uint) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    noted(unsafe { drivers(out, bytes) }, || unsafe {
        roots::host_made((*out).expose_provenance() as u64, bytes.into(), HostOf::Driver);
    })
}

pub(crate) unsafe fn host_register(drivers: Register, at: *mut c_void, bytes: usize, flags: c_uint) -> CUresult {
    let start = at.expose_provenance() as u64;
    // SAFETY: the driver's own function with the program's own arguments.
    noted(unsafe { drivers(at, bytes, flags) }, || {
        roots::host_made(start, bytes as u64, HostOf::Program);
        // Programs may wait for each other by it.
        if let Some(session) = session::current()
            && let Some(file) = shared_file::at(start)
        {
            session.link.requests.pins_file(file);
        }
    })
}

pub(crate) unsafe fn host_free(drivers: OfHost, at: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { drivers(at) };
    if !session::is_any() {
        return call();
    }
    // As in `unload`.
    let _passage = arrival::enter_in_any_state();
    roots::host_goes(at.addr() as u64, call)
}

// Tensor maps.

type Tiled = unsafe extern "C-unwind" fn(
    *mut c_void,
    c_int,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const c_uint,
    *const c_uint,
    c_int,
    c_int,
    c_int,
    c_int,
) -> CUresult;
type Im2col = unsafe extern "C-unwind" fn(
    *mut c_void,
    c_int,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const c_int,
    *const c_int,
    c_uint,
    c_uint,
    *const c_uint,
    c_int,
    c_int,
    c_int,
    c_int,
) -> CUresult;
type Im2colWide = unsafe extern "C-unwind" fn(
    *mut c_void,
    c_int,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    c_int,
    c_int,
    c_uint,
    c_uint,
    *const c_uint,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
) -> CUresult;
type SetClass = unsafe extern "C-unwind" fn(*mut c_void, c_int, *mut c_int) -> CUresult;
type ReplaceAddress = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> CUresult;

/// Notes a tensor map that the driver has written.
fn tensor_map(answer: CUresult, map: *const c_void, address: *mut c_void) -> CUresult {
    // SAFETY: on success.
    noted(answer, || unsafe { roots::tensor_map_made(map, address.addr() as u64) })
}

#[expect(clippy::too_many_arguments, reason = "cuda.h's")]
pub(crate) unsafe fn tiled(
    drivers: Tiled,
    map: *mut c_void,
    kind: c_int,
    rank: c_uint,
    address: *mut c_void,
    sizes: *const u64,
    strides: *const u64,
    window: *const c_uint,
    steps: *const c_uint,
    interleave: c_int,
    swizzle: c_int,
    promotion: c_int,
    fill: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe {
        drivers(map, kind, rank, address, sizes, strides, window, steps, interleave, swizzle, promotion, fill)
    };
    tensor_map(answer, map, address)
}

#[expect(clippy::too_many_arguments, reason = "cuda.h's")]
pub(crate) unsafe fn im2col(
    drivers: Im2col,
    map: *mut c_void,
    kind: c_int,
    rank: c_uint,
    address: *mut c_void,
    sizes: *const u64,
    strides: *const u64,
    lower: *const c_int,
    upper: *const c_int,
    channels: c_uint,
    pixels: c_uint,
    steps: *const c_uint,
    interleave: c_int,
    swizzle: c_int,
    promotion: c_int,
    fill: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe {
        drivers(
            map, kind, rank, address, sizes, strides, lower, upper, channels, pixels, steps, interleave, swizzle,
            promotion, fill,
        )
    };
    tensor_map(answer, map, address)
}

#[expect(clippy::too_many_arguments, reason = "cuda.h's")]
pub(crate) unsafe fn im2col_wide(
    drivers: Im2colWide,
    map: *mut c_void,
    kind: c_int,
    rank: c_uint,
    address: *mut c_void,
    sizes: *const u64,
    strides: *const u64,
    lower: c_int,
    upper: c_int,
    channels: c_uint,
    pixels: c_uint,
    steps: *const c_uint,
    interleave: c_int,
    mode: c_int,
    swizzle: c_int,
    promotion: c_int,
    fill: c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe {
        drivers(
            map, kind, rank, address, sizes, strides, lower, upper, channels, pixels, steps, interleave, mode, swizzle,
            promotion, fill,
        )
    };
    tensor_map(answer, map, address)
}

/// A tensor map is recognised by its contents, which this call changes.
pub(crate) unsafe fn set_class(drivers: SetClass, map: *mut c_void, class: c_int, now: *mut c_int) -> CUresult {
    let known = session::is_any() && !map.is_null() && roots::has_tensor_maps();
    // SAFETY: not null, so the program's own map, which the driver is about to read.
    let base = if known { unsafe { roots::tensor_map_base(map) } } else { None };
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { drivers(map, class, now) };
    match base {
        // SAFETY: the driver has just written it.
        Some(base) => noted(answer, || unsafe { roots::tensor_map_made(map, base) }),
        None => answer,
    }
}

pub(crate) unsafe fn replace_address(drivers: ReplaceAddress, map: *mut c_void, address: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    tensor_map(unsafe { drivers(map, address) }, map, address)
}

// Graphs.

type AddNode = unsafe extern "C-unwind" fn(*mut Handle, Handle, *const Handle, usize, *mut c_void) -> CUresult;
type AddNodeV2 =
    unsafe extern "C-unwind" fn(*mut Handle, Handle, *const Handle, *const c_void, usize, *mut c_void) -> CUresult;
type Instantiate = unsafe extern "C-unwind" fn(*mut CUgraphExec, Handle, *mut Handle, *mut c_char, usize) -> CUresult;
type WithFlags = unsafe extern "C-unwind" fn(*mut CUgraphExec, Handle, u64) -> CUresult;
type WithParameters = unsafe extern "C-unwind" fn(*mut CUgraphExec, Handle, *mut c_void) -> CUresult;
type OfGraph = unsafe extern "C-unwind" fn(CUgraphExec) -> CUresult;
type SetNode = unsafe extern "C-unwind" fn(CUgraphExec, Handle, *const c_void) -> CUresult;
type SetNodeIn = unsafe extern "C-unwind" fn(CUgraphExec, Handle, *const c_void, Handle) -> CUresult;
type Update = unsafe extern "C-unwind" fn(CUgraphExec, Handle, *mut c_void) -> CUresult;
type UpdateV1 = unsafe extern "C-unwind" fn(CUgraphExec, Handle, *mut Handle, *mut c_int) -> CUresult;

/// Called after a node was added by a `CUgraphNodeParams`, which begins with the kind of the node.
fn node_added(answer: CUresult, parameters: *const c_void) -> CUresult {
    const ALLOCATES: c_int = 10;
    // SAFETY: on success, a structure that the driver has just read.
    if answer == CUDA_SUCCESS && unsafe { *parameters.cast::<c_int>() } == ALLOCATES {
        unmanaged::graph_allocates();
    }
    answer
}

pub(crate) unsafe fn add_node(
    drivers: AddNode,
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    count: usize,
    parameters: *mut c_void,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    node_added(
        with_memory(Node(parameters), || unsafe { drivers(node, graph, dependencies, count, parameters) }),
        parameters,
    )
}

pub(crate) unsafe fn add_node_v2(
    drivers: AddNodeV2,
    node: *mut Handle,
    graph: Handle,
    dependencies: *const Handle,
    edges: *const c_void,
    count: usize,
    parameters: *mut c_void,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    node_added(
        with_memory(Node(parameters), || unsafe { drivers(node, graph, dependencies, edges, count, parameters) }),
        parameters,
    )
}

/// Called after a graph was instantiated.
///
/// # Safety
///
/// On success, `out` was written by the driver.
unsafe fn ready(answer: CUresult, out: *mut CUgraphExec, graph: Handle) -> CUresult {
    // SAFETY: by this function's contract.
    noted(answer, || unsafe { graphs::made(*out, graph) })
}

pub(crate) unsafe fn instantiate(
    drivers: Instantiate,
    out: *mut CUgraphExec,
    graph: Handle,
    node: *mut Handle,
    text: *mut c_char,
    size: usize,
) -> CUresult {
    // Instantiating a graph may take device memory.
    before_instantiating(graph);
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    unsafe { ready(with_memory(KNOWN, || retried(|| drivers(out, graph, node, text, size))), out, graph) }
}

pub(crate) unsafe fn instantiate_with_flags(
    drivers: WithFlags,
    out: *mut CUgraphExec,
    graph: Handle,
    flags: u64,
) -> CUresult {
    // `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`: no parameters name the memory that such a graph touches.
    if flags & 4 != 0 {
        roots::device_graph_made();
    }
    before_instantiating(graph);
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    unsafe { ready(with_memory(KNOWN, || retried(|| drivers(out, graph, flags))), out, graph) }
}

pub(crate) unsafe fn instantiate_with_parameters(
    drivers: WithParameters,
    out: *mut CUgraphExec,
    graph: Handle,
    parameters: *mut c_void,
) -> CUresult {
    // Its first field is the flags.
    // SAFETY: null, or the program's own structure.
    if unsafe { parameters.cast::<u64>().as_ref() }.is_some_and(|flags| flags & 4 != 0) {
        roots::device_graph_made();
    }
    before_instantiating(graph);
    // SAFETY: the driver's own function with the program's own arguments, and the value that it has written.
    unsafe { ready(with_memory(KNOWN, || retried(|| drivers(out, graph, parameters))), out, graph) }
}

pub(crate) unsafe fn graph_destroy(drivers: OfGraph, graph: CUgraphExec) -> CUresult {
    if session::is_any() {
        graphs::gone(graph);
    }
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { drivers(graph) }
}

pub(crate) unsafe fn set_kernel(drivers: SetNode, graph: CUgraphExec, node: Handle, to: *const c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(unsafe { drivers(graph, node, to) }, || graphs::kernel_changed(graph, to.cast::<KernelNode>(), false))
}

pub(crate) unsafe fn set_kernel_v1(drivers: SetNode, graph: CUgraphExec, node: Handle, to: *const c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(unsafe { drivers(graph, node, to) }, || graphs::kernel_changed(graph, to.cast::<KernelNode>(), true))
}

pub(crate) unsafe fn set_copy(
    drivers: SetNodeIn,
    graph: CUgraphExec,
    node: Handle,
    to: *const c_void,
    context: Handle,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(Copy3d(to), || unsafe { drivers(graph, node, to, context) }), || {
        graphs::copy_changed(graph, to.cast::<CopyNode>())
    })
}

pub(crate) unsafe fn set_fill(
    drivers: SetNodeIn,
    graph: CUgraphExec,
    node: Handle,
    to: *const c_void,
    context: Handle,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(Fill(to), || unsafe { drivers(graph, node, to, context) }), || {
        graphs::fill_changed(graph, to.cast::<FillNode>())
    })
}

pub(crate) unsafe fn set_child(drivers: SetNode, graph: CUgraphExec, node: Handle, child: *const c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(KNOWN, || unsafe { drivers(graph, node, child) }), || {
        graphs::child_changed(graph, child.cast_mut())
    })
}

/// Hook of a change by a structure that is not read.
pub(crate) unsafe fn set_other(drivers: SetNode, graph: CUgraphExec, node: Handle, to: *const c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(Unread, || unsafe { drivers(graph, node, to) }), || graphs::unreadable(graph))
}

pub(crate) unsafe fn update(drivers: Update, graph: CUgraphExec, to: Handle, result: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(KNOWN, || unsafe { drivers(graph, to, result) }), || graphs::made(graph, to))
}

pub(crate) unsafe fn update_v1(
    drivers: UpdateV1,
    graph: CUgraphExec,
    to: Handle,
    node: *mut Handle,
    result: *mut c_int,
) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    noted(with_memory(KNOWN, || unsafe { drivers(graph, to, node, result) }), || graphs::made(graph, to))
}
