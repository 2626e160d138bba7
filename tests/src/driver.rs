//! The driver's functions for programs of the tests that call it themselves, found by their names, and what they are given.
//!
//! [`Driver`] gives the driver's own answers, [`Checked`] a [`Failure`] with the name of a function that did not succeed.

#![allow(missing_docs, reason = "functions and fields are those of cuda.h")]

mod types;

use std::ffi::{c_char, c_int};
use std::fmt;

use libloading::Library;

pub use types::*;

/// A context, stream, event, function, pool, graph …
pub type Handle = usize;

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`
pub type Data = [u64; 8];

/// `CUDA_ERROR_NOT_FOUND`, the answer of a function that this driver does not have.
const NOT_FOUND: u32 = 500;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub const DESCRIPTOR: u32 = 1;

/// A function that did not succeed, and its answer.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The result of calls that have to succeed.
pub type Outcome<T = ()> = Result<T, Failure>;

fn checked(name: &str, answer: u32) -> Outcome {
    match answer {
        0 => Ok(()),
        answer => Err(Failure(format!("{name} answered {answer}"))),
    }
}

macro_rules! entry_points {
    (
        plain { $($name:ident($($argument:ident: $type:ty),*);)* }
        twins { $($suffix:literal { $($twin:ident($($twin_argument:ident: $twin_type:ty),*);)* })* }
    ) => {
        /// The driver's entry points. Of those that have two forms, the form is the first argument.
        #[allow(non_snake_case)]
        pub struct Driver {
            $($name: Option<extern "C" fn($($type),*) -> u32>,)*
            $($($twin: [Option<extern "C" fn($($twin_type),*) -> u32>; 2],)*)*
            _library: Library,
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Driver {
            /// Opens `libcuda.so.1` and finds them.
            ///
            /// # Errors
            ///
            /// When it cannot be opened.
            pub fn open() -> Result<Self, libloading::Error> {
                // SAFETY: a CUDA driver library runs nothing of ours when it is loaded.
                let library = unsafe { Library::new("libcuda.so.1") }?;
                Ok(Self {
                    $(
                        // SAFETY: the signature that cuda.h gives this symbol; the library stays open.
                        $name: unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.ok().map(|found| *found),
                    )*
                    $($(
                        $twin: [
                            // SAFETY: as above.
                            unsafe { library.get(concat!(stringify!($twin), "\0").as_bytes()) }.ok().map(|found| *found),
                            // SAFETY: as above; both forms have one signature.
                            unsafe { library.get(concat!(stringify!($twin), $suffix, "\0").as_bytes()) }
                                .ok()
                                .map(|found| *found),
                        ],
                    )*)*
                    _library: library,
                })
            }

            $(pub fn $name(&self, $($argument: $type),*) -> u32 {
                self.$name.map_or(NOT_FOUND, |function| function($($argument),*))
            })*

            $($(pub fn $twin(&self, twin: bool, $($twin_argument: $twin_type),*) -> u32 {
                self.$twin[usize::from(twin)].map_or(NOT_FOUND, |function| function($($twin_argument),*))
            })*)*
        }

        /// The same functions, each in its first form, for calls that have to succeed.
        pub struct Checked(Driver);

        #[allow(non_snake_case, clippy::too_many_arguments, clippy::missing_errors_doc)]
        impl Checked {
            /// Opens `libcuda.so.1`.
            pub fn open() -> Outcome<Self> {
                Driver::open().map(Self).map_err(|error| Failure(error.to_string()))
            }

            /// The driver's own answers, for calls that may fail.
            pub fn unchecked(&self) -> &Driver {
                &self.0
            }

            $(pub fn $name(&self, $($argument: $type),*) -> Outcome {
                checked(stringify!($name), self.0.$name($($argument),*))
            })*

            $($(pub fn $twin(&self, $($twin_argument: $twin_type),*) -> Outcome {
                checked(stringify!($twin), self.0.$twin(false, $($twin_argument),*))
            })*)*
        }
    };
}

entry_points! {
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
        cuGraphAddHostNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
            node: *const HostNode);
        cuGraphAddBatchMemOpNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
            node: *const WordsNode);
        cuGraphAddMemAllocNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
            node: *mut AllocNode);
        cuGraphAddMemFreeNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, at: u64);
        cuGraphAddChildGraphNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle);
        cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64);
        cuGraphExecDestroy(exec: Handle);
        cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, parameters: *const KernelNode);
        cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, parameters: *const Copy3D, context: Handle);
        cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, parameters: *const FillNode, context: Handle);
        cuGraphExecChildGraphNodeSetParams(exec: Handle, node: Handle, child: Handle);
        cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32);
        cuMemExportToShareableHandle(out: *mut c_int, handle: u64, kind: u32, flags: u64);
        cuMemImportFromShareableHandle(out: *mut u64, shared: usize, kind: u32);
        cuMemPoolExportToShareableHandle(out: *mut c_int, pool: Handle, kind: u32, flags: u64);
        cuMemPoolImportFromShareableHandle(out: *mut Handle, shared: usize, kind: u32, flags: u64);
        cuMemPoolExportPointer(out: *mut Data, at: u64);
        cuMemPoolImportPointer(out: *mut u64, pool: Handle, data: *const Data);
        cuIpcGetMemHandle(out: *mut Data, at: u64);
        cuIpcOpenMemHandle_v2(out: *mut u64, handle: Data, flags: u32);
        cuIpcCloseMemHandle(at: u64);
        cuIpcGetEventHandle(out: *mut Data, event: Handle);
        cuIpcOpenEventHandle(out: *mut Handle, handle: Data);
        cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char);
        cuModuleGetGlobal_v2(at: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char);
        cuLibraryUnload(library: Handle);
        cuLibraryGetGlobal(at: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
        cuKernelGetFunction(out: *mut Handle, kernel: Handle);
        cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32);
        cuMemAllocHost_v2(out: *mut usize, bytes: usize);
        cuMemAllocManaged(out: *mut u64, bytes: usize, flags: u32);
        cuStreamCreateWithPriority(out: *mut Handle, flags: u32, priority: c_int);
        cuMemcpyPeerAsync(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle);
        cuMemcpy2D_v2(copy: *const Copy2D);
        cuMemcpy2DUnaligned_v2(copy: *const Copy2D);
        cuMemcpy3D_v2(copy: *const Copy3D);
        cuMemcpyBatchAsync_v2(to: *const u64, from: *const u64, sizes: *const usize, count: usize,
            attributes: *const CopyAttributes, indices: *const usize, attribute_count: usize, stream: Handle);
        cuMemsetD2D8_v2(at: u64, pitch: usize, value: u8, width: usize, height: usize);
        cuMemsetD2D16_v2(at: u64, pitch: usize, value: u16, width: usize, height: usize);
        cuMemsetD2D32_v2(at: u64, pitch: usize, value: u32, width: usize, height: usize);
        cuMemsetD2D8Async(at: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);
        cuMemsetD2D16Async(at: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle);
        cuMemsetD2D32Async(at: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle);
        cuLaunchKernelEx(config: *const LaunchConfig, function: Handle, parameters: *const usize, extra: usize);
        cuLaunchCooperativeKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
            block_z: u32, shared: u32, stream: Handle, parameters: *const usize);
        cuFuncSetBlockShape(function: Handle, x: c_int, y: c_int, z: c_int);
        cuParamSetSize(function: Handle, bytes: u32);
        cuParamSetv(function: Handle, offset: c_int, value: usize, bytes: u32);
        cuLaunchGridAsync(function: Handle, width: c_int, height: c_int, stream: Handle);
        cuGraphClone(out: *mut Handle, graph: Handle);
        cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, parameters: *mut Instantiation);
        cuGraphUpload(exec: Handle, stream: Handle);
        cuGraphExecUpdate_v2(exec: Handle, graph: Handle, told: *mut UpdateTold);
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

/// The kernels' text, with the zero byte that ends it.
pub const KERNELS: &str = concat!(include_str!("../../examples/kernels/kernels.ptx"), "\0");
