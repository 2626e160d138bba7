//! The driver's functions, found by their names. Of those that have two forms, the form is the first argument.

use std::ffi::{c_char, c_int};

pub(crate) use baton_tests::entry_points::{Access, Handle, KERNELS, PoolProperties, Properties};

baton_tests::entry_points! {
    plain {
        cuInit(flags: u32);
        cuDeviceGet(out: *mut c_int, index: c_int);
        cuDeviceGetCount(out: *mut c_int);
        cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int);
        cuDevicePrimaryCtxRelease_v2(device: c_int);
        cuCtxCreate_v2(out: *mut Handle, flags: u32, device: c_int);
        cuCtxDestroy_v2(context: Handle);
        cuCtxSetCurrent(context: Handle);
        cuCtxGetCurrent(out: *mut Handle);
        cuCtxSynchronize();
        cuLibraryLoadData(out: *mut Handle, image: *const u8, jit: usize, jit_values: usize, jit_count: u32,
            options: usize, option_values: usize, option_count: u32);
        cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char);
        cuModuleLoadData(out: *mut Handle, image: *const u8);
        cuModuleUnload(module: Handle);
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(out: *mut u64, bytes: usize);
        cuMemFree_v2(at: u64);
        cuMemHostAlloc(out: *mut usize, bytes: usize, flags: u32);
        cuMemFreeHost(start: usize);
        cuMemHostRegister_v2(start: usize, bytes: usize, flags: u32);
        cuMemHostUnregister(start: usize);
        cuMemHostGetDevicePointer_v2(out: *mut u64, start: usize, flags: u32);
        cuMemAddressReserve(out: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64);
        cuMemAddressFree(at: u64, bytes: usize);
        cuMemCreate(out: *mut u64, bytes: usize, properties: *const Properties, flags: u64);
        cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
        cuMemUnmap(at: u64, bytes: usize);
        cuMemSetAccess(at: u64, bytes: usize, access: *const Access, count: usize);
        cuMemRetainAllocationHandle(out: *mut u64, at: u64);
        cuMemRelease(handle: u64);
        cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64);
        cuPointerGetAttribute(out: *mut u64, attribute: c_int, at: u64);
        cuDeviceGetDefaultMemPool(out: *mut Handle, device: c_int);
        cuDeviceSetMemPool(device: c_int, pool: Handle);
        cuMemPoolCreate(out: *mut Handle, properties: *const PoolProperties);
        cuMemPoolDestroy(pool: Handle);
        cuMemPoolTrimTo(pool: Handle, keep: usize);
        cuMemPoolGetAttribute(pool: Handle, attribute: u32, value: *mut u64);
        cuMemPoolSetAttribute(pool: Handle, attribute: u32, value: *const u64);
        cuMemPoolGetAccess(flags: *mut u32, pool: Handle, location: *const [u32; 2]);
        cuStreamCreate(out: *mut Handle, flags: u32);
        cuStreamDestroy_v2(stream: Handle);
        cuEventCreate(out: *mut Handle, flags: u32);
        cuEventDestroy_v2(event: Handle);
        cuEventSynchronize(event: Handle);
        cuEventQuery(event: Handle);
        cuThreadExchangeStreamCaptureMode(mode: *mut u32);
        cuGraphCreate(out: *mut Handle, flags: u32);
        cuGraphDestroy(graph: Handle);
        cuGraphAddKernelNode_v2(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
            node: *const KernelNode);
        cuGraphAddMemcpyNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const Copy3D,
            context: Handle);
        cuGraphAddMemsetNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
            node: *const FillNode, context: Handle);
        cuGraphAddHostNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const HostNode);
        cuGraphAddBatchMemOpNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
            node: *const WordsNode);
        cuGraphAddMemAllocNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
            node: *mut AllocNode);
        cuGraphAddMemFreeNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, at: u64);
        cuGraphAddChildGraphNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle);
        cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64);
        cuGraphExecDestroy(exec: Handle);
        cuGraphExecUpdate_v2(exec: Handle, graph: Handle, told: *mut [usize; 3]);
        cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, parameters: *const KernelNode);
        cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, parameters: *const Copy3D, context: Handle);
        cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, parameters: *const FillNode, context: Handle);
        cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle);
        cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32);
    }
    twins {
        "_ptsz" {
            cuStreamSynchronize(stream: Handle);
            cuStreamQuery(stream: Handle);
            cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
            cuEventRecord(event: Handle, stream: Handle);
            cuLaunchHostFunc(stream: Handle, function: extern "C" fn(usize), data: usize);
            cuStreamWaitValue32_v2(stream: Handle, at: u64, value: u32, flags: u32);
            cuStreamWriteValue32_v2(stream: Handle, at: u64, value: u32, flags: u32);
            cuStreamWaitValue64_v2(stream: Handle, at: u64, value: u64, flags: u32);
            cuStreamWriteValue64_v2(stream: Handle, at: u64, value: u64, flags: u32);
            cuStreamBatchMemOp_v2(stream: Handle, count: u32, words: *const WordOp, flags: u32);
            cuMemAllocAsync(out: *mut u64, bytes: usize, stream: Handle);
            cuMemAllocFromPoolAsync(out: *mut u64, bytes: usize, pool: Handle, stream: Handle);
            cuMemFreeAsync(at: u64, stream: Handle);
            cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle);
            cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: Handle);
            cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle);
            cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
            cuMemcpy2DAsync_v2(copy: *const Copy2D, stream: Handle);
            cuMemcpy3DAsync_v2(copy: *const Copy3D, stream: Handle);
            cuMemsetD8Async(at: u64, value: u8, count: usize, stream: Handle);
            cuMemsetD16Async(at: u64, value: u16, count: usize, stream: Handle);
            cuMemsetD32Async(at: u64, value: u32, count: usize, stream: Handle);
            cuLaunchKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
                block_z: u32, shared: u32, stream: Handle, parameters: *const usize, extra: usize);
            cuStreamBeginCapture_v2(stream: Handle, mode: u32);
            cuStreamEndCapture(stream: Handle, graph: *mut Handle);
            cuGraphLaunch(exec: Handle, stream: Handle);
        }
        "_ptds" {
            cuMemcpy(to: u64, from: u64, bytes: usize);
            cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize);
            cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize);
            cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize);
            cuMemsetD8_v2(at: u64, value: u8, count: usize);
            cuMemsetD16_v2(at: u64, value: u16, count: usize);
            cuMemsetD32_v2(at: u64, value: u32, count: usize);
        }
    }
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[repr(C)]
pub(crate) struct AllocNode {
    pub(crate) pool: PoolProperties,
    pub(crate) access: usize,
    pub(crate) access_count: usize,
    pub(crate) bytes: usize,
    pub(crate) at: u64,
}

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Copy2D {
    pub(crate) from_corner: [usize; 2],
    pub(crate) from_type: u32,
    pub(crate) from_host: usize,
    pub(crate) from_device: u64,
    pub(crate) from_array: usize,
    pub(crate) from_pitch: usize,
    pub(crate) to_corner: [usize; 2],
    pub(crate) to_type: u32,
    pub(crate) to_host: usize,
    pub(crate) to_device: u64,
    pub(crate) to_array: usize,
    pub(crate) to_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Copy3D {
    pub(crate) from_corner: [usize; 4],
    pub(crate) from_type: u32,
    pub(crate) from_host: usize,
    pub(crate) from_device: u64,
    pub(crate) from_array: usize,
    pub(crate) reserved0: usize,
    pub(crate) from_pitch: usize,
    pub(crate) from_height: usize,
    pub(crate) to_corner: [usize; 4],
    pub(crate) to_type: u32,
    pub(crate) to_host: usize,
    pub(crate) to_device: u64,
    pub(crate) to_array: usize,
    pub(crate) reserved1: usize,
    pub(crate) to_pitch: usize,
    pub(crate) to_height: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) parameters: *const usize,
    pub(crate) extra: usize,
    pub(crate) kernel: Handle,
    pub(crate) context: Handle,
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
pub(crate) struct FillNode {
    pub(crate) at: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
pub(crate) struct HostNode {
    pub(crate) function: extern "C" fn(usize),
    pub(crate) data: usize,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`
#[repr(C)]
pub(crate) struct WordsNode {
    pub(crate) context: Handle,
    pub(crate) count: u32,
    pub(crate) words: *const WordOp,
    pub(crate) flags: u32,
}

/// `CUstreamBatchMemOpParams`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WordOp {
    pub(crate) operation: u32,
    pub(crate) at: u64,
    pub(crate) value: u64,
    pub(crate) flags: u32,
    pub(crate) alias: u64,
    pub(crate) pad: u64,
}

impl WordOp {
    /// Waits until a word of 32 bits is at least so much.
    pub(crate) const WAIT_32: u32 = 1;
    /// Writes 32 bits.
    pub(crate) const WRITE_32: u32 = 2;
    /// Writes 64 bits.
    pub(crate) const WRITE_64: u32 = 5;

    pub(crate) fn new(operation: u32, at: u64, value: u64) -> Self {
        Self { operation, at, value, flags: 0, alias: 0, pad: 0 }
    }
}

const _: () = {
    assert!(size_of::<Copy2D>() == 128);
    assert!(size_of::<Copy3D>() == 200);
    assert!(size_of::<KernelNode>() == 72);
    assert!(size_of::<FillNode>() == 40);
    assert!(size_of::<HostNode>() == 16);
    assert!(size_of::<WordsNode>() == 32);
    assert!(size_of::<WordOp>() == 48);
    assert!(size_of::<AllocNode>() == 120);
};
