//! Blocks of cuda.h that cross the border, field by field as it lays them out.

/// `CUDA_MEMCPY2D` (`_v2`)
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Memcpy2D {
    pub(super) src_x: usize,
    pub(super) src_y: usize,
    pub(super) src_type: u32,
    pub(super) src_host: usize,
    pub(super) src_device: u64,
    pub(super) src_array: usize,
    pub(super) src_pitch: usize,
    pub(super) dst_x: usize,
    pub(super) dst_y: usize,
    pub(super) dst_type: u32,
    pub(super) dst_host: usize,
    pub(super) dst_device: u64,
    pub(super) dst_array: usize,
    pub(super) dst_pitch: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// `CUDA_MEMCPY3D` (`_v2`), and `CUDA_MEMCPY3D_PEER`, whose contexts are where the reserved words are.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Memcpy3D {
    pub(super) src_x: usize,
    pub(super) src_y: usize,
    pub(super) src_z: usize,
    pub(super) src_lod: usize,
    pub(super) src_type: u32,
    pub(super) src_host: usize,
    pub(super) src_device: u64,
    pub(super) src_array: usize,
    pub(super) src_context: usize,
    pub(super) src_pitch: usize,
    pub(super) src_height: usize,
    pub(super) dst_x: usize,
    pub(super) dst_y: usize,
    pub(super) dst_z: usize,
    pub(super) dst_lod: usize,
    pub(super) dst_type: u32,
    pub(super) dst_host: usize,
    pub(super) dst_device: u64,
    pub(super) dst_array: usize,
    pub(super) dst_context: usize,
    pub(super) dst_pitch: usize,
    pub(super) dst_height: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) depth: usize,
}

/// `CUDA_MEMCPY2D_v1`, of the calls with 32-bit addresses.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Memcpy2DOld {
    pub(super) src_x: u32,
    pub(super) src_y: u32,
    pub(super) src_type: u32,
    pub(super) src_host: usize,
    pub(super) src_device: u32,
    pub(super) src_array: usize,
    pub(super) src_pitch: u32,
    pub(super) dst_x: u32,
    pub(super) dst_y: u32,
    pub(super) dst_type: u32,
    pub(super) dst_host: usize,
    pub(super) dst_device: u32,
    pub(super) dst_array: usize,
    pub(super) dst_pitch: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// `CUDA_MEMCPY3D_v1`, of the calls with 32-bit addresses.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Memcpy3DOld {
    pub(super) src_x: u32,
    pub(super) src_y: u32,
    pub(super) src_z: u32,
    pub(super) src_lod: u32,
    pub(super) src_type: u32,
    pub(super) src_host: usize,
    pub(super) src_device: u32,
    pub(super) src_array: usize,
    pub(super) reserved0: usize,
    pub(super) src_pitch: u32,
    pub(super) src_height: u32,
    pub(super) dst_x: u32,
    pub(super) dst_y: u32,
    pub(super) dst_z: u32,
    pub(super) dst_lod: u32,
    pub(super) dst_type: u32,
    pub(super) dst_host: usize,
    pub(super) dst_device: u32,
    pub(super) dst_array: usize,
    pub(super) reserved1: usize,
    pub(super) dst_pitch: u32,
    pub(super) dst_height: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) depth: u32,
}

/// `CUmemLocation`
#[derive(Clone, Copy, Default, PartialEq, Debug)]
#[repr(C)]
pub(super) struct Location {
    pub(super) kind: u32,
    pub(super) id: i32,
}

/// `CUmemAllocationProp`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct AllocationProp {
    pub(super) kind: u32,
    pub(super) handle_types: u32,
    pub(super) location: Location,
    pub(super) win32: usize,
    pub(super) compression: u8,
    pub(super) rdma: u8,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 4],
}

/// `CUmulticastObjectProp`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MulticastProps {
    pub(super) devices: u32,
    pub(super) bytes: usize,
    pub(super) handle_types: u64,
    pub(super) flags: u64,
}

/// `CUmemPoolProps`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PoolProps {
    pub(super) kind: u32,
    pub(super) handle_types: u32,
    pub(super) location: Location,
    pub(super) win32: usize,
    pub(super) most: usize,
    pub(super) usage: u16,
    pub(super) reserved: [u8; 54],
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MemAllocNode {
    pub(super) props: PoolProps,
    pub(super) access: usize,
    pub(super) access_count: usize,
    pub(super) bytes: usize,
    pub(super) address: u64,
}

/// `CUmemAccessDesc`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct AccessDesc {
    pub(super) location: Location,
    pub(super) flags: u32,
}

/// `CUmemcpyAttributes`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MemcpyAttributes {
    pub(super) order: u32,
    pub(super) src: Location,
    pub(super) dst: Location,
    pub(super) flags: u32,
}

/// `CUmemcpy3DOperand`, as the pointer it may be
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Operand3D {
    pub(super) kind: u32,
    pub(super) pointer: u64,
    /// In elements of one byte; 0: as wide as the copy.
    pub(super) row: usize,
    pub(super) layer: usize,
    pub(super) hint: Location,
}

/// `CUDA_MEMCPY3D_BATCH_OP`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct BatchOp3D {
    pub(super) src: Operand3D,
    pub(super) dst: Operand3D,
    pub(super) extent: [usize; 3],
    pub(super) order: u32,
    pub(super) flags: u32,
}

/// `CUstreamBatchMemOpParams`; all its variants begin so
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct BatchMemOp {
    pub(super) operation: u32,
    pub(super) address: u64,
    pub(super) value: u64,
    pub(super) flags: u32,
    pub(super) alias: u64,
    pub(super) pad: u64,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct BatchMemOpNode {
    pub(super) context: usize,
    pub(super) count: u32,
    pub(super) ops: usize,
    pub(super) flags: u32,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct KernelNode {
    pub(super) function: usize,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) params: usize,
    pub(super) extra: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct KernelNode2 {
    pub(super) first: KernelNode,
    pub(super) kernel: usize,
    pub(super) context: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`; `_v2` has a context behind it
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct MemsetNode {
    pub(super) dst: u64,
    pub(super) pitch: usize,
    pub(super) value: u32,
    pub(super) element: u32,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct HostNode {
    pub(super) function: usize,
    pub(super) data: usize,
}

/// `CUDA_MEMCPY_NODE_PARAMS`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct MemcpyNode {
    pub(super) flags: i32,
    pub(super) reserved: i32,
    pub(super) context: usize,
    pub(super) copy: Memcpy3D,
}

/// `CUgraphNodeParams`: the kind, then one of the blocks above
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct NodeParams {
    pub(super) kind: u32,
    pub(super) reserved: [i32; 3],
    pub(super) block: [u64; 29],
    pub(super) reserved2: u64,
}

/// `CUgraphEdgeData`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct EdgeData {
    pub(super) from_port: u8,
    pub(super) to_port: u8,
    pub(super) kind: u8,
    pub(super) reserved: [u8; 5],
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct InstantiateParams {
    pub(super) flags: u64,
    pub(super) upload_stream: usize,
    pub(super) error_node: usize,
    pub(super) result: u32,
}

/// `CUgraphExecUpdateResultInfo`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UpdateResultInfo {
    pub(super) result: u32,
    pub(super) error_node: usize,
    pub(super) error_from: usize,
}

/// `CUlaunchAttribute`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct LaunchAttribute {
    pub(super) id: u32,
    pub(super) pad: u32,
    pub(super) value: [u64; 8],
}

/// `CUlaunchConfig`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct LaunchConfig {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) stream: usize,
    pub(super) attributes: usize,
    pub(super) attribute_count: u32,
}

/// `CUDA_LAUNCH_PARAMS`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct LaunchParams {
    pub(super) function: usize,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) stream: usize,
    pub(super) params: usize,
}

/// `CUdevprop`
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct DeviceProperties {
    pub(super) max_threads_per_block: i32,
    pub(super) max_block: [i32; 3],
    pub(super) max_grid: [i32; 3],
    pub(super) shared_per_block: i32,
    pub(super) constant_memory: i32,
    pub(super) warp: i32,
    pub(super) max_pitch: i32,
    pub(super) registers_per_block: i32,
    pub(super) clock_khz: i32,
    pub(super) texture_alignment: i32,
}

// Sizes that a C compiler gives the same blocks.
const _: () = {
    assert!(size_of::<Memcpy2D>() == 128);
    assert!(size_of::<Memcpy3D>() == 200);
    assert!(size_of::<AllocationProp>() == 32);
    assert!(size_of::<PoolProps>() == 88);
    assert!(size_of::<MemAllocNode>() == 120);
    assert!(size_of::<AccessDesc>() == 12);
    assert!(size_of::<MemcpyAttributes>() == 24);
    assert!(size_of::<Operand3D>() == 40);
    assert!(size_of::<BatchOp3D>() == 112);
    assert!(size_of::<BatchMemOp>() == 48);
    assert!(size_of::<KernelNode>() == 56);
    assert!(size_of::<KernelNode2>() == 72);
    assert!(size_of::<MemsetNode>() == 40);
    assert!(size_of::<MemcpyNode>() == 216);
    assert!(size_of::<NodeParams>() == 256);
    assert!(size_of::<LaunchAttribute>() == 72);
    assert!(size_of::<LaunchConfig>() == 56);
};
