//! The driver's functions, as calls that answer a [`Failure`] with their name when they fail.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;

use libloading::Library;

pub(crate) use baton_tests::entry_points::{Access, Handle, KERNELS, Properties};

/// The call that failed, and its answer.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! driver {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The driver's entry points.
        #[allow(non_snake_case)]
        pub(crate) struct Driver {
            $($name: extern "C" fn($($type),*) -> u32,)*
            _library: Library,
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Driver {
            /// Opens `libcuda.so.1` and finds them all.
            pub(crate) fn open() -> Outcome<Self> {
                let failed = |error: libloading::Error| Failure(error.to_string());
                // SAFETY: a CUDA driver library runs nothing of ours when it is loaded.
                let library = unsafe { Library::new("libcuda.so.1") }.map_err(failed)?;
                Ok(Self {
                    $(
                        // SAFETY: the signature that cuda.h gives this symbol; the library stays open.
                        $name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.map_err(failed)?,
                    )*
                    _library: library,
                })
            }

            $(pub(crate) fn $name(&self, $($argument: $type),*) -> Outcome {
                match (self.$name)($($argument),*) {
                    0 => Ok(()),
                    result => Err(Failure(format!(concat!(stringify!($name), " answered {}"), result))),
                }
            })*
        }
    };
}

driver! {
    cuInit(flags: u32);
    cuDeviceGet(out: *mut c_int, index: c_int);
    cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuCtxSetCurrent(context: Handle);
    cuCtxSynchronize();

    cuModuleLoadData(out: *mut Handle, image: *const u8);
    cuModuleUnload(module: Handle);
    cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char);
    cuModuleGetGlobal_v2(at: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char);
    cuLibraryLoadData(out: *mut Handle, image: *const u8, jit: usize, jit_values: usize, jit_count: u32,
        options: usize, option_values: usize, option_count: u32);
    cuLibraryUnload(library: Handle);
    cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char);
    cuLibraryGetGlobal(at: *mut u64, bytes: *mut usize, library: Handle, name: *const c_char);
    cuKernelGetFunction(out: *mut Handle, kernel: Handle);

    cuMemAlloc_v2(out: *mut u64, bytes: usize);
    cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32);
    cuMemFree_v2(at: u64);
    cuMemFreeAsync(at: u64, stream: Handle);
    cuMemHostAlloc(out: *mut usize, bytes: usize, flags: u32);
    cuMemAllocHost_v2(out: *mut usize, bytes: usize);
    cuMemFreeHost(start: usize);
    cuMemHostRegister_v2(start: usize, bytes: usize, flags: u32);
    cuMemHostUnregister(start: usize);
    cuMemHostGetDevicePointer_v2(out: *mut u64, start: usize, flags: u32);
    cuMemAddressReserve(out: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64);
    cuMemAddressFree(at: u64, bytes: usize);
    cuMemCreate(out: *mut u64, bytes: usize, properties: *const Properties, flags: u64);
    cuMemRelease(handle: u64);
    cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    cuMemUnmap(at: u64, bytes: usize);
    cuMemSetAccess(at: u64, bytes: usize, access: *const Access, count: usize);
    cuMemAllocManaged(out: *mut u64, bytes: usize, flags: u32);

    cuStreamCreate(out: *mut Handle, flags: u32);
    cuStreamCreateWithPriority(out: *mut Handle, flags: u32, priority: c_int);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    cuEventCreate(out: *mut Handle, flags: u32);
    cuEventDestroy_v2(event: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventSynchronize(event: Handle);
    cuLaunchHostFunc(stream: Handle, function: extern "C" fn(usize), data: usize);
    cuStreamWriteValue64_v2(stream: Handle, at: u64, value: u64, flags: u32);
    cuStreamBatchMemOp_v2(stream: Handle, count: u32, operations: *mut MemOp, flags: u32);

    cuMemcpy(to: u64, from: u64, bytes: usize);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle);
    cuMemcpyHtoD_v2(to: u64, from: usize, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: u64, from: usize, bytes: usize, stream: Handle);
    cuMemcpyDtoH_v2(to: usize, from: u64, bytes: usize);
    cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle);
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    cuMemcpyPeerAsync(to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle);
    cuMemcpy2D_v2(copy: *const Copy2D);
    cuMemcpy2DUnaligned_v2(copy: *const Copy2D);
    cuMemcpy2DAsync_v2(copy: *const Copy2D, stream: Handle);
    cuMemcpy3D_v2(copy: *const Copy3D);
    cuMemcpy3DAsync_v2(copy: *const Copy3D, stream: Handle);
    cuMemcpyBatchAsync_v2(to: *const u64, from: *const u64, sizes: *const usize, count: usize,
        attributes: *const CopyAttributes, indices: *const usize, attribute_count: usize, stream: Handle);
    cuMemsetD8_v2(at: u64, value: u8, count: usize);
    cuMemsetD16_v2(at: u64, value: u16, count: usize);
    cuMemsetD32_v2(at: u64, value: u32, count: usize);
    cuMemsetD2D8_v2(at: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D16_v2(at: u64, pitch: usize, value: u16, width: usize, height: usize);
    cuMemsetD2D32_v2(at: u64, pitch: usize, value: u32, width: usize, height: usize);
    cuMemsetD8Async(at: u64, value: u8, count: usize, stream: Handle);
    cuMemsetD16Async(at: u64, value: u16, count: usize, stream: Handle);
    cuMemsetD32Async(at: u64, value: u32, count: usize, stream: Handle);
    cuMemsetD2D8Async(at: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);
    cuMemsetD2D16Async(at: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Handle);
    cuMemsetD2D32Async(at: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Handle);

    cuLaunchKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, parameters: *mut usize, extra: *mut usize);
    cuLaunchKernelEx(config: *const LaunchConfig, function: Handle, parameters: *mut usize, extra: *mut usize);
    cuLaunchCooperativeKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32,
        block_z: u32, shared: u32, stream: Handle, parameters: *mut usize);
    cuFuncSetBlockShape(function: Handle, x: c_int, y: c_int, z: c_int);
    cuParamSetSize(function: Handle, bytes: u32);
    cuParamSetv(function: Handle, offset: c_int, value: usize, bytes: u32);
    cuLaunchGridAsync(function: Handle, width: c_int, height: c_int, stream: Handle);

    cuStreamBeginCapture_v2(stream: Handle, mode: u32);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuGraphCreate(out: *mut Handle, flags: u32);
    cuGraphClone(out: *mut Handle, graph: Handle);
    cuGraphDestroy(graph: Handle);
    cuGraphAddKernelNode_v2(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
        node: *const KernelNode);
    cuGraphAddMemcpyNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const Copy3D,
        context: Handle);
    cuGraphAddMemsetNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const FillNode,
        context: Handle);
    cuGraphAddChildGraphNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle);
    cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64);
    cuGraphInstantiateWithParams(out: *mut Handle, graph: Handle, parameters: *mut Instantiation);
    cuGraphUpload(exec: Handle, stream: Handle);
    cuGraphLaunch(exec: Handle, stream: Handle);
    cuGraphExecDestroy(exec: Handle);
    cuGraphExecUpdate_v2(exec: Handle, graph: Handle, told: *mut UpdateTold);
    cuGraphExecKernelNodeSetParams_v2(exec: Handle, node: Handle, parameters: *const KernelNode);
    cuGraphExecMemcpyNodeSetParams(exec: Handle, node: Handle, parameters: *const Copy3D, context: Handle);
    cuGraphExecMemsetNodeSetParams(exec: Handle, node: Handle, parameters: *const FillNode, context: Handle);
    cuGraphNodeSetEnabled(exec: Handle, node: Handle, enabled: u32);
}

/// `CUmemorytype`
pub(crate) const HOST: u32 = 1;
pub(crate) const DEVICE: u32 = 2;

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Copy2D {
    pub(crate) from_x: usize,
    pub(crate) from_y: usize,
    pub(crate) from_type: u32,
    pub(crate) from_host: usize,
    pub(crate) from_device: u64,
    pub(crate) from_array: usize,
    pub(crate) from_pitch: usize,
    pub(crate) to_x: usize,
    pub(crate) to_y: usize,
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

/// `CUmemcpyAttributes`
#[repr(C)]
pub(crate) struct CopyAttributes {
    pub(crate) order: u32,
    pub(crate) hints: [u32; 4],
    pub(crate) flags: u32,
}

/// `CUstreamBatchMemOpParams`, as one that writes a value
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MemOp {
    pub(crate) operation: u32,
    pub(crate) at: u64,
    pub(crate) value: u64,
    pub(crate) flags: u32,
    pub(crate) alias: u64,
    pub(crate) pad: u64,
}

/// `CUlaunchConfig`
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attribute_count: u32,
}

/// `CUlaunchAttribute`
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: u32,
    pub(crate) pad: u32,
    pub(crate) value: [u64; 8],
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) parameters: *mut usize,
    pub(crate) extra: *mut usize,
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

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[repr(C)]
pub(crate) struct Instantiation {
    pub(crate) flags: u64,
    pub(crate) upload_stream: Handle,
    pub(crate) error_node: Handle,
    pub(crate) result: u32,
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
pub(crate) struct UpdateTold {
    pub(crate) result: u32,
    pub(crate) node: Handle,
    pub(crate) from: Handle,
}

const _: () = {
    assert!(size_of::<Copy2D>() == 128);
    assert!(size_of::<Copy3D>() == 200);
    assert!(size_of::<CopyAttributes>() == 24);
    assert!(size_of::<MemOp>() == 48);
    assert!(size_of::<LaunchConfig>() == 56);
    assert!(size_of::<LaunchAttribute>() == 72);
    assert!(size_of::<KernelNode>() == 72);
    assert!(size_of::<FillNode>() == 40);
};

/// The driver, a context, and the kernels as a library, which all lanes share.
pub(crate) struct Gpu {
    pub(crate) driver: Driver,
    pub(crate) context: Handle,
    device: c_int,
    pub(crate) library: Handle,
    /// Another library, of which a global is used.
    globals: Handle,
}

/// Code with nothing but a global.
pub(crate) const GLOBALS: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 8 .b8 table[4096];
";

impl Gpu {
    /// Opens the first device.
    pub(crate) fn open() -> Outcome<Self> {
        let driver = Driver::open()?;
        driver.cuInit(0)?;
        let (mut device, mut context, mut library, mut globals) = (0, 0, 0, 0);
        driver.cuDeviceGet(&mut device, 0)?;
        driver.cuDevicePrimaryCtxRetain(&mut context, device)?;
        driver.cuCtxSetCurrent(context)?;
        driver.cuLibraryLoadData(&mut library, KERNELS.as_ptr(), 0, 0, 0, 0, 0, 0)?;
        driver.cuLibraryLoadData(&mut globals, GLOBALS.as_ptr().cast(), 0, 0, 0, 0, 0, 0)?;
        Ok(Self { driver, context, device, library, globals })
    }

    /// Address and size of the library's global.
    pub(crate) fn library_global(&self) -> Outcome<(u64, usize)> {
        let (mut at, mut bytes) = (0, 0);
        self.driver.cuLibraryGetGlobal(&mut at, &mut bytes, self.globals, c"table".as_ptr())?;
        Ok((at, bytes))
    }

    /// Ends it in order.
    pub(crate) fn close(self) -> Outcome {
        self.driver.cuLibraryUnload(self.globals)?;
        self.driver.cuLibraryUnload(self.library)?;
        self.driver.cuDevicePrimaryCtxRelease_v2(self.device)
    }
}
