//! The table of hooks: every name that Baton stands in front of, with its C signature.
//!
//! Names are the driver's own. The version that a program asks for is chosen by the driver
//! (see [`crate::procaddress`]); which name belongs to which version is in `symbols/cuda-13.0.json`.
//! Signatures are `cuda.h`'s, with structures that no hook reads as plain pointers.

use core::ffi::{c_char, c_int, c_uint, c_void};

use baton_contract::cuda::*;

use crate::symbols::index;
use crate::{doors, gate, procaddress};

/// Makes the hook functions of the rows, generic over the symbol so that twins share a body.
///
/// "C-unwind", because a thread may be cancelled inside the driver: its stack is then unwound through
/// the hook, and the passage through the gate must end.
macro_rules! hooks {
    ($( $($symbol:ident),+ => $($body:ident)::+ ($($argument:ident: $type:ty),* $(,)?); )*) => {
        pub(super) const ROWS: &[&[(usize, *const ())]] = &[$({
            unsafe extern "C-unwind" fn hook<const INDEX: usize>($($argument: $type),*) -> CUresult {
                type Drivers = unsafe extern "C-unwind" fn($($type),*) -> CUresult;
                // SAFETY: the row spells the signature that cuda.h gives its symbols.
                let drivers: Drivers = unsafe { doors::drivers_as(INDEX) };
                hooks!(@body drivers, $($body)::+ ($($argument),*))
            }
            &[$((index::$symbol, hook::<{ index::$symbol }> as *const ())),+]
        }),*];
    };
    (@body $drivers:ident, gated ($($argument:ident),*)) => {{
        let _passage = gate::pass();
        // SAFETY: the driver's own function with the program's own arguments.
        unsafe { $drivers($($argument),*) }
    }};
    (@body $drivers:ident, $($body:ident)::+ ($($argument:ident),*)) => {
        // SAFETY: the hook promises what the driver's own function does for the same arguments.
        unsafe { $($body)::+($drivers, $($argument),*) }
    };
}

hooks! {
    // Finding functions: answered with our doors.
    cuGetProcAddress =>
        procaddress::v1(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64);
    cuGetProcAddress_v2 =>
        procaddress::v2(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int);

    // Memory: what gives it out and takes it back.
    cuMemAlloc_v2 => gated(out: *mut CUdeviceptr, bytes: usize);
    cuMemAlloc => gated(out: *mut CUdeviceptrV1, bytes: c_uint);
    cuMemAllocPitch_v2 =>
        gated(out: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemAllocPitch =>
        gated(out: *mut CUdeviceptrV1, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint);
    cuMemAllocManaged => gated(out: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuMemFree_v2 => gated(address: CUdeviceptr);
    cuMemFree => gated(address: CUdeviceptrV1);
    cuMemAllocAsync, cuMemAllocAsync_ptsz => gated(out: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz =>
        gated(out: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemFreeAsync, cuMemFreeAsync_ptsz => gated(address: CUdeviceptr, stream: CUstream);

    // Copies between addresses.
    cuMemcpy, cuMemcpy_ptds => gated(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
    cuMemcpyAsync, cuMemcpyAsync_ptsz => gated(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyPeer, cuMemcpyPeer_ptds =>
        gated(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize);
    cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz =>
        gated(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream);
    cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds => gated(dst: CUdeviceptr, src: *const c_void, bytes: usize);
    cuMemcpyHtoD => gated(dst: CUdeviceptrV1, src: *const c_void, bytes: c_uint);
    cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz =>
        gated(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyHtoDAsync => gated(dst: CUdeviceptrV1, src: *const c_void, bytes: c_uint, stream: CUstream);
    cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds => gated(dst: *mut c_void, src: CUdeviceptr, bytes: usize);
    cuMemcpyDtoH => gated(dst: *mut c_void, src: CUdeviceptrV1, bytes: c_uint);
    cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz =>
        gated(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync => gated(dst: *mut c_void, src: CUdeviceptrV1, bytes: c_uint, stream: CUstream);
    cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds => gated(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
    cuMemcpyDtoD => gated(dst: CUdeviceptrV1, src: CUdeviceptrV1, bytes: c_uint);
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz =>
        gated(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync => gated(dst: CUdeviceptrV1, src: CUdeviceptrV1, bytes: c_uint, stream: CUstream);
    cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz =>
        gated(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, stream: CUstream);
    cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz =>
        gated(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, fail_index: *mut usize, stream: CUstream);

    // Copies to and from arrays.
    cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds =>
        gated(dst: CUarray, dst_offset: usize, src: CUarray, src_offset: usize, bytes: usize);
    cuMemcpyAtoA => gated(dst: CUarray, dst_offset: c_uint, src: CUarray, src_offset: c_uint, bytes: c_uint);
    cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds => gated(dst: CUdeviceptr, src: CUarray, src_offset: usize, bytes: usize);
    cuMemcpyAtoD => gated(dst: CUdeviceptrV1, src: CUarray, src_offset: c_uint, bytes: c_uint);
    cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds => gated(dst: CUarray, dst_offset: usize, src: CUdeviceptr, bytes: usize);
    cuMemcpyDtoA => gated(dst: CUarray, dst_offset: c_uint, src: CUdeviceptrV1, bytes: c_uint);
    cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds => gated(dst: *mut c_void, src: CUarray, src_offset: usize, bytes: usize);
    cuMemcpyAtoH => gated(dst: *mut c_void, src: CUarray, src_offset: c_uint, bytes: c_uint);
    cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz =>
        gated(dst: *mut c_void, src: CUarray, src_offset: usize, bytes: usize, stream: CUstream);
    cuMemcpyAtoHAsync => gated(dst: *mut c_void, src: CUarray, src_offset: c_uint, bytes: c_uint, stream: CUstream);
    cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds => gated(dst: CUarray, dst_offset: usize, src: *const c_void, bytes: usize);
    cuMemcpyHtoA => gated(dst: CUarray, dst_offset: c_uint, src: *const c_void, bytes: c_uint);
    cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz =>
        gated(dst: CUarray, dst_offset: usize, src: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyHtoAAsync => gated(dst: CUarray, dst_offset: c_uint, src: *const c_void, bytes: c_uint, stream: CUstream);

    // Copies of two and three dimensions; both versions take one pointer to a description.
    cuMemcpy2D_v2, cuMemcpy2D_v2_ptds => gated(copy: *const c_void);
    cuMemcpy2D => gated(copy: *const c_void);
    cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds => gated(copy: *const c_void);
    cuMemcpy2DUnaligned => gated(copy: *const c_void);
    cuMemcpy3D_v2, cuMemcpy3D_v2_ptds => gated(copy: *const c_void);
    cuMemcpy3D => gated(copy: *const c_void);
    cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz => gated(copy: *const c_void, stream: CUstream);
    cuMemcpy2DAsync => gated(copy: *const c_void, stream: CUstream);
    cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz => gated(copy: *const c_void, stream: CUstream);
    cuMemcpy3DAsync => gated(copy: *const c_void, stream: CUstream);
    cuMemcpy3DPeer, cuMemcpy3DPeer_ptds => gated(copy: *const c_void);
    cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz => gated(copy: *const c_void, stream: CUstream);
    cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz =>
        gated(count: usize, operations: *mut c_void, flags: u64, stream: CUstream);
    cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz =>
        gated(count: usize, operations: *mut c_void, fail_index: *mut usize, flags: u64, stream: CUstream);

    // Fills.
    cuMemsetD8_v2, cuMemsetD8_v2_ptds => gated(dst: CUdeviceptr, value: u8, count: usize);
    cuMemsetD8 => gated(dst: CUdeviceptrV1, value: u8, count: c_uint);
    cuMemsetD8Async, cuMemsetD8Async_ptsz => gated(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds =>
        gated(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8 => gated(dst: CUdeviceptrV1, pitch: c_uint, value: u8, width: c_uint, height: c_uint);
    cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz =>
        gated(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream);
    cuMemsetD16_v2, cuMemsetD16_v2_ptds => gated(dst: CUdeviceptr, value: u16, count: usize);
    cuMemsetD16 => gated(dst: CUdeviceptrV1, value: u16, count: c_uint);
    cuMemsetD16Async, cuMemsetD16Async_ptsz => gated(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds =>
        gated(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize);
    cuMemsetD2D16 => gated(dst: CUdeviceptrV1, pitch: c_uint, value: u16, width: c_uint, height: c_uint);
    cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz =>
        gated(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream);
    cuMemsetD32_v2, cuMemsetD32_v2_ptds => gated(dst: CUdeviceptr, value: u32, count: usize);
    cuMemsetD32 => gated(dst: CUdeviceptrV1, value: u32, count: c_uint);
    cuMemsetD32Async, cuMemsetD32Async_ptsz => gated(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream);
    cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds =>
        gated(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize);
    cuMemsetD2D32 => gated(dst: CUdeviceptrV1, pitch: c_uint, value: u32, width: c_uint, height: c_uint);
    cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz =>
        gated(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream);

    // Moving memory that is already there.
    cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz =>
        gated(address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream);
    cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz =>
        gated(address: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: c_uint, stream: CUstream);
    cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz =>
        gated(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut CUmemLocation, location_indexes: *mut usize, location_count: usize, flags: u64, stream: CUstream);
    cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz =>
        gated(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: CUstream);
    cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz =>
        gated(addresses: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut CUmemLocation, location_indexes: *mut usize, location_count: usize, flags: u64, stream: CUstream);
    cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz =>
        gated(operations: *mut c_void, count: usize, flags: c_uint, error_index: *mut usize, stream: CUstream);
    cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz => gated(maps: *mut c_void, count: c_uint, stream: CUstream);
    cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint);

    // Launches.
    cuLaunchKernel, cuLaunchKernel_ptsz =>
        gated(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx, cuLaunchKernelEx_ptsz =>
        gated(config: *const c_void, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz =>
        gated(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void);
    cuLaunchCooperativeKernelMultiDevice => gated(launches: *mut c_void, count: c_uint, flags: c_uint);
    cuLaunch => gated(function: CUfunction);
    cuLaunchGrid => gated(function: CUfunction, width: c_int, height: c_int);
    cuLaunchGridAsync => gated(function: CUfunction, width: c_int, height: c_int, stream: CUstream);
    cuLaunchHostFunc, cuLaunchHostFunc_ptsz => gated(stream: CUstream, function: *const c_void, data: *mut c_void);
    cuStreamAddCallback, cuStreamAddCallback_ptsz =>
        gated(stream: CUstream, callback: *const c_void, data: *mut c_void, flags: c_uint);
    cuGraphLaunch, cuGraphLaunch_ptsz => gated(graph: CUgraphExec, stream: CUstream);
    cuGraphUpload, cuGraphUpload_ptsz => gated(graph: CUgraphExec, stream: CUstream);

    // A stream writes to memory, or waits for what is written there.
    cuStreamWaitValue32, cuStreamWaitValue32_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamWriteValue32, cuStreamWriteValue32_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamWaitValue64, cuStreamWaitValue64_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint);
    cuStreamWriteValue64, cuStreamWriteValue64_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint);
    cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz =>
        gated(stream: CUstream, count: c_uint, operations: *mut c_void, flags: c_uint);
    cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint);
    cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint);
    cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz =>
        gated(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint);
    cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz =>
        gated(stream: CUstream, count: c_uint, operations: *mut c_void, flags: c_uint);
}
