//! The driver's functions that we call ourselves, with the C signatures of `cuda.h`.

use core::ffi::{c_int, c_uint, c_void};

use baton_contract::cuda::*;

use crate::driver::symbols::index;
use crate::exports::doors;

/// An event (`CUevent`).
pub(crate) type CUevent = *mut c_void;

/// The legacy default stream as a handle (`CU_STREAM_LEGACY`).
pub(crate) const STREAM_LEGACY: usize = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_DESCRIPTOR: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const CAPTURE_RELAXED: c_int = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
pub(crate) const NOT_CAPTURING: c_int = 0;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;

macro_rules! calls {
    ($($name:ident = $symbol:ident ($($argument:ident: $type:ty),*);)*) => {
        $(
            /// The driver's function.
            ///
            /// # Safety
            ///
            /// As cuda.h says of it.
            pub(crate) unsafe fn $name($($argument: $type),*) -> CUresult {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> CUresult;
                // SAFETY: a function pointer of the signature that cuda.h gives this symbol.
                let function: Function = unsafe { core::mem::transmute(doors::drivers(index::$symbol)) };
                // SAFETY: by this function's contract.
                unsafe { function($($argument),*) }
            }
        )*

        /// Finds all of them now: later, somebody may hold the loader's lock who waits for us.
        pub(crate) fn find_all() {
            $(doors::drivers(index::$symbol);)*
        }
    };
}

calls! {
    device_count = cuDeviceGetCount(count: *mut c_int);
    device_uuid = cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    primary_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    primary_release = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    primary_state = cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    current = cuCtxGetCurrent(context: *mut CUcontext);
    current_device = cuCtxGetDevice(device: *mut CUdevice);
    synchronize = cuCtxSynchronize();
    push = cuCtxPushCurrent_v2(context: CUcontext);
    pop = cuCtxPopCurrent_v2(context: *mut CUcontext);
    exchange_capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    is_capturing = cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
    stream_query = cuStreamQuery(stream: CUstream);
    event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    event_record = cuEventRecord(event: CUevent, stream: CUstream);
    event_query = cuEventQuery(event: CUevent);
    reserve = cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: u64);
    create = cuMemCreate(handle: *mut u64, bytes: usize, properties: *const CUmemAllocationProp, flags: u64);
    import = cuMemImportFromShareableHandle(handle: *mut u64, descriptor: *mut c_void, kind: c_int);
    map = cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: u64, flags: u64);
    unmap = cuMemUnmap(address: CUdeviceptr, bytes: usize);
    set_access = cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    release = cuMemRelease(handle: u64);
    alloc = cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    alloc_pitch = cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    free = cuMemFree_v2(address: CUdeviceptr);
    copy_out = cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    function_parameter = cuFuncGetParamInfo(function: CUfunction, at: usize, offset: *mut usize, size: *mut usize);
    kernel_parameter = cuKernelGetParamInfo(kernel: CUfunction, at: usize, offset: *mut usize, size: *mut usize);
    graph_nodes = cuGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize);
    node_kind = cuGraphNodeGetType(node: *mut c_void, kind: *mut c_int);
    kernel_node = cuGraphKernelNodeGetParams_v2(node: *mut c_void, out: *mut c_void);
    copy_node = cuGraphMemcpyNodeGetParams(node: *mut c_void, out: *mut c_void);
    fill_node = cuGraphMemsetNodeGetParams(node: *mut c_void, out: *mut c_void);
    child_graph = cuGraphChildGraphNodeGetGraph(node: *mut c_void, graph: *mut *mut c_void);
}

/// This thread's captures do not forbid what we do, until this value is dropped.
pub(crate) struct Relaxed(c_int);

impl Relaxed {
    pub(crate) fn enter() -> Self {
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: exchanges the thread's own setting with the given one.
        unsafe { exchange_capture_mode(&mut mode) };
        Self(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above; the mode is the one that the driver gave.
        unsafe { exchange_capture_mode(&mut self.0) };
    }
}
