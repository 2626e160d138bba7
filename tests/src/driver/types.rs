//! Structures that the driver's functions are given, as `cuda.h` lays them out.

use std::ffi::c_int;

use super::Handle;

/// `CUmemLocation`: the first GPU.
const FIRST_GPU: [c_int; 2] = [1, 0];

/// `CUmemAllocationProp`: of the first GPU.
#[derive(Debug)]
#[repr(C)]
pub struct Properties {
    kind: u32,
    handle_types: u32,
    location: [c_int; 2],
    more: [u64; 2],
}

impl Properties {
    /// Memory that can be exported as a descriptor, or that cannot.
    pub const fn exportable(exportable: bool) -> Self {
        Self { kind: 1, handle_types: exportable as u32, location: FIRST_GPU, more: [0; 2] }
    }
}

/// `CUmemPoolProps`: of the first GPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: [c_int; 2],
    more: [u64; 9],
}

impl PoolProperties {
    /// A pool of this process's alone, or one that can be exported as a descriptor.
    pub const fn exportable(exportable: bool) -> Self {
        Self { kind: 1, handle_types: exportable as u32, location: FIRST_GPU, more: [0; 9] }
    }
}

/// `CUmemAccessDesc`: of the first GPU.
#[derive(Debug)]
#[repr(C)]
pub struct Access {
    location: [c_int; 2],
    flags: u32,
}

impl Access {
    /// None.
    pub const NONE: Self = Self { location: FIRST_GPU, flags: 0 };
    /// To read and write.
    pub const FULL: Self = Self { location: FIRST_GPU, flags: 3 };
}

/// `CUmemorytype`
pub const HOST: u32 = 1;
pub const DEVICE: u32 = 2;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[repr(C)]
pub struct AllocNode {
    pub pool: PoolProperties,
    pub access: usize,
    pub access_count: usize,
    pub bytes: usize,
    pub at: u64,
}

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Copy2D {
    pub from_corner: [usize; 2],
    pub from_type: u32,
    pub from_host: usize,
    pub from_device: u64,
    pub from_array: usize,
    pub from_pitch: usize,
    pub to_corner: [usize; 2],
    pub to_type: u32,
    pub to_host: usize,
    pub to_device: u64,
    pub to_array: usize,
    pub to_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Copy3D {
    pub from_corner: [usize; 4],
    pub from_type: u32,
    pub from_host: usize,
    pub from_device: u64,
    pub from_array: usize,
    pub reserved0: usize,
    pub from_pitch: usize,
    pub from_height: usize,
    pub to_corner: [usize; 4],
    pub to_type: u32,
    pub to_host: usize,
    pub to_device: u64,
    pub to_array: usize,
    pub reserved1: usize,
    pub to_pitch: usize,
    pub to_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
pub struct KernelNode {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub parameters: *const usize,
    pub extra: usize,
    pub kernel: Handle,
    pub context: Handle,
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
pub struct FillNode {
    pub at: u64,
    pub pitch: usize,
    pub value: u32,
    pub element: u32,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
pub struct HostNode {
    pub function: extern "C" fn(usize),
    pub data: usize,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[repr(C)]
pub struct WordsNode {
    pub context: Handle,
    pub count: u32,
    pub words: *const WordOp,
    pub flags: u32,
}

/// `CUstreamBatchMemOpParams`
#[derive(Clone, Copy)]
#[repr(C)]
pub struct WordOp {
    pub operation: u32,
    pub at: u64,
    pub value: u64,
    pub flags: u32,
    pub alias: u64,
    pub pad: u64,
}

impl WordOp {
    /// Waits until a word of 32 bits is at least so much.
    pub const WAIT_32: u32 = 1;
    /// Writes 32 bits.
    pub const WRITE_32: u32 = 2;
    /// Writes 64 bits.
    pub const WRITE_64: u32 = 5;

    pub fn new(operation: u32, at: u64, value: u64) -> Self {
        Self { operation, at, value, flags: 0, alias: 0, pad: 0 }
    }
}

/// `CUmemcpyAttributes`
#[repr(C)]
pub struct CopyAttributes {
    pub order: u32,
    pub hints: [u32; 4],
    pub flags: u32,
}

/// `CUlaunchConfig`
#[repr(C)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: Handle,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: u32,
}

/// `CUlaunchAttribute`
#[repr(C)]
pub struct LaunchAttribute {
    pub id: u32,
    pub pad: u32,
    pub value: [u64; 8],
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[repr(C)]
pub struct Instantiation {
    pub flags: u64,
    pub upload_stream: Handle,
    pub error_node: Handle,
    pub result: u32,
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
pub struct UpdateTold {
    pub result: u32,
    pub node: Handle,
    pub from: Handle,
}

const _: () = {
    assert!(size_of::<Properties>() == 32);
    assert!(size_of::<PoolProperties>() == 88);
    assert!(size_of::<Access>() == 12);
    assert!(size_of::<Copy2D>() == 128);
    assert!(size_of::<Copy3D>() == 200);
    assert!(size_of::<KernelNode>() == 72);
    assert!(size_of::<FillNode>() == 40);
    assert!(size_of::<HostNode>() == 16);
    assert!(size_of::<WordsNode>() == 32);
    assert!(size_of::<WordOp>() == 48);
    assert!(size_of::<AllocNode>() == 120);
    assert!(size_of::<CopyAttributes>() == 24);
    assert!(size_of::<LaunchConfig>() == 56);
    assert!(size_of::<LaunchAttribute>() == 72);
};
