//! The driver's functions that the two processes call.

use std::ffi::{c_char, c_int};

pub(crate) use baton_tests::entry_points::{Access, Handle, KERNELS, PoolProperties, Properties};

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`
pub(crate) type Data = [u64; 8];

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(crate) const DESCRIPTOR: u32 = 1;

baton_tests::entry_points! {
    plain {
        cuInit(flags: u32);
        cuDeviceGet(out: *mut c_int, index: c_int);
        cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int);
        cuCtxSetCurrent(context: Handle);
        cuLibraryLoadData(out: *mut Handle, image: *const u8, jit: usize, jit_values: usize, jit_count: u32,
            options: usize, option_values: usize, option_count: u32);
        cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char);
        cuLaunchKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: Handle, parameters: *const usize, extra: usize);
        cuMemAlloc_v2(out: *mut u64, bytes: usize);
        cuMemFree_v2(at: u64);
        cuMemFreeAsync(at: u64, stream: Handle);
        cuMemAllocFromPoolAsync(out: *mut u64, bytes: usize, pool: Handle, stream: Handle);
        cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle);
        cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64);
        cuMemCreate(out: *mut u64, bytes: usize, properties: *const Properties, flags: u64);
        cuMemRelease(handle: u64);
        cuMemAddressReserve(out: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64);
        cuMemAddressFree(at: u64, bytes: usize);
        cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
        cuMemUnmap(at: u64, bytes: usize);
        cuMemSetAccess(at: u64, bytes: usize, access: *const Access, count: usize);
        cuMemExportToShareableHandle(out: *mut c_int, handle: u64, kind: u32, flags: u64);
        cuMemImportFromShareableHandle(out: *mut u64, shared: usize, kind: u32);
        cuMemPoolCreate(out: *mut Handle, properties: *const PoolProperties);
        cuMemPoolDestroy(pool: Handle);
        cuMemPoolExportToShareableHandle(out: *mut c_int, pool: Handle, kind: u32, flags: u64);
        cuMemPoolImportFromShareableHandle(out: *mut Handle, shared: usize, kind: u32, flags: u64);
        cuMemPoolExportPointer(out: *mut Data, at: u64);
        cuMemPoolImportPointer(out: *mut u64, pool: Handle, data: *const Data);
        cuIpcGetMemHandle(out: *mut Data, at: u64);
        cuIpcOpenMemHandle_v2(out: *mut u64, handle: Data, flags: u32);
        cuIpcCloseMemHandle(at: u64);
        cuIpcGetEventHandle(out: *mut Data, event: Handle);
        cuIpcOpenEventHandle(out: *mut Handle, handle: Data);
        cuStreamCreate(out: *mut Handle, flags: u32);
        cuStreamSynchronize(stream: Handle);
        cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
        cuEventCreate(out: *mut Handle, flags: u32);
        cuEventDestroy_v2(event: Handle);
        cuEventRecord(event: Handle, stream: Handle);
        cuEventSynchronize(event: Handle);
    }
    twins {}
}
