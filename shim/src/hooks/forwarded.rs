//! Functions that go straight to the driver although their arguments name memory or streams, with their [effects](super::effects).
//!
//! There is no code behind these rows. They are here so that no such argument is overlooked: `crate::signatures` demands that they declare
//! no effect that needs a hook.

use core::ffi::{c_char, c_int, c_uint, c_void};

use baton_contract::cuda::*;

use super::effects::{Asks, Changes, Declared, Frees, HostOnly, Imports, Keeps, Tells};

macro_rules! forwarded {
    ($( $($symbol:ident),+ => ($($argument:ident: $type:ty),* $(,)?); )*) => {
        /// The rows, as they are written.
        pub(super) const DECLARED: &[Declared] = &[$({
            const _: Option<unsafe extern "C" fn($($argument: $type),*) -> CUresult> = None;
            Declared { symbols: &[$(stringify!($symbol)),+], body: "", arguments: &[$(stringify!($type)),*] }
        }),*];
    };
}

forwarded! {
    // The program's own physical memory. It does not move, and its handles are the program's.
    cuMemGetAllocationGranularity => (out: *mut usize, properties: Asks<*const c_void>, option: c_int);
    cuMulticastCreate => (out: Tells<*mut u64>, properties: *const c_void);
    cuMulticastAddDevice => (object: Changes<u64>, device: CUdevice);
    cuMulticastUnbind => (object: Changes<u64>, device: CUdevice, at: usize, bytes: usize);

    // Pools.
    cuDeviceGetDefaultMemPool, cuDeviceGetMemPool => (out: Tells<*mut CUmemoryPool>, device: CUdevice);
    cuMemGetDefaultMemPool, cuMemGetMemPool =>
        (out: Tells<*mut CUmemoryPool>, location: *mut CUmemLocation, kind: c_int);
    cuMemPoolGetAccess => (flags: *mut c_int, pool: Asks<CUmemoryPool>, location: *mut CUmemLocation);
    cuDeviceGetGraphMemAttribute, cuDeviceSetGraphMemAttribute =>
        (device: CUdevice, attribute: c_int, value: HostOnly<*mut c_void>);

    // Questions about addresses. The driver has no answer for memory that is not managed, and so none for ours.
    cuMemRangeGetAttribute =>
        (data: HostOnly<*mut c_void>, size: usize, attribute: c_int, address: Asks<CUdeviceptr>, bytes: usize);
    cuMemRangeGetAttributes =>
        (data: HostOnly<*mut *mut c_void>, sizes: *mut usize, attributes: *mut c_int, count: usize, address: Asks<CUdeviceptr>, bytes: usize);

    cuMemGetLocationInfo =>
        (address: Asks<CUdeviceptr>, bytes: usize, region: usize, sample: usize, locations: *mut CUmemLocation);

    // Addresses of 32 bits, from before CUDA 3.2: none of ours is below 4 GiB.
    cuMemGetAddressRange => (base: Tells<*mut CUdeviceptrV1>, size: *mut c_uint, address: Asks<CUdeviceptrV1>);
    cuMemHostGetDevicePointer => (out: Tells<*mut CUdeviceptrV1>, at: Asks<*mut c_void>, flags: c_uint);
    cuModuleGetGlobal =>
        (at: Tells<*mut CUdeviceptrV1>, bytes: *mut c_uint, code: *mut c_void, name: *const c_char);
    cuTexRefGetAddress => (address: Tells<*mut CUdeviceptrV1>, texture: Asks<*mut c_void>);
    cuTexRefSetAddress =>
        (offset: *mut c_uint, texture: Changes<*mut c_void>, address: Keeps<CUdeviceptrV1>, bytes: c_uint);
    cuTexRefSetAddress2D =>
        (texture: Changes<*mut c_void>, format: *const c_void, address: Keeps<CUdeviceptrV1>, pitch: c_uint);
    cuGraphicsResourceGetMappedPointer =>
        (out: Imports<*mut CUdeviceptrV1>, bytes: *mut c_uint, resource: Asks<*mut c_void>);

    // Arrays.
    cuArrayGetDescriptor, cuArrayGetDescriptor_v2, cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2 =>
        (shape: *mut c_void, array: Asks<CUarray>);
    cuArrayGetMemoryRequirements => (requirements: *mut c_void, array: Asks<CUarray>, device: CUdevice);
    cuArrayGetSparseProperties => (properties: *mut c_void, array: Asks<CUarray>);
    cuArrayGetPlane => (plane: Tells<*mut CUarray>, array: Asks<CUarray>, index: c_uint);
    cuMipmappedArrayGetLevel => (level: Tells<*mut CUarray>, mipmap: Asks<*mut c_void>, index: c_uint);
    cuMipmappedArrayGetMemoryRequirements => (requirements: *mut c_void, mipmap: Asks<*mut c_void>, device: CUdevice);
    cuMipmappedArrayGetSparseProperties => (properties: *mut c_void, mipmap: Asks<*mut c_void>);

    // Textures and surfaces: of arrays, or their descriptions.
    cuTexObjectGetResourceDesc => (resource: Tells<*mut c_void>, texture: Asks<u64>);
    cuTexObjectGetTextureDesc, cuTexObjectGetResourceViewDesc => (description: *mut c_void, texture: Asks<u64>);
    cuSurfObjectCreate => (out: Tells<*mut u64>, resource: Keeps<*const c_void>);
    cuSurfObjectGetResourceDesc => (resource: Tells<*mut c_void>, surface: Asks<u64>);
    cuSurfObjectDestroy => (surface: Frees<u64>);
    cuModuleGetTexRef, cuModuleGetSurfRef => (out: Tells<*mut *mut c_void>, code: *mut c_void, name: *const c_char);
    cuSurfRefGetArray => (array: Tells<*mut CUarray>, surface: Asks<*mut c_void>);
    cuSurfRefSetArray => (surface: Changes<*mut c_void>, array: Keeps<CUarray>, flags: c_uint);
    cuTexRefCreate => (out: Tells<*mut *mut c_void>);
    cuTexRefGetAddress_v2 => (address: Tells<*mut CUdeviceptr>, texture: Asks<*mut c_void>);
    cuTexRefGetArray => (array: Tells<*mut CUarray>, texture: Asks<*mut c_void>);
    cuTexRefSetArray => (texture: Changes<*mut c_void>, array: Keeps<CUarray>, flags: c_uint);
    cuTexRefGetMipmappedArray => (mipmap: Tells<*mut *mut c_void>, texture: Asks<*mut c_void>);
    cuTexRefSetMipmappedArray => (texture: Changes<*mut c_void>, mipmap: Keeps<*mut c_void>, flags: c_uint);
    cuTexRefGetAddressMode => (mode: *mut c_int, texture: Asks<*mut c_void>, dimension: c_int);
    cuTexRefSetAddressMode => (texture: Changes<*mut c_void>, dimension: c_int, mode: c_int);
    cuTexRefGetBorderColor => (color: *mut f32, texture: Asks<*mut c_void>);
    cuTexRefSetBorderColor => (texture: Changes<*mut c_void>, color: *mut f32);
    cuTexRefGetFilterMode, cuTexRefGetMipmapFilterMode => (mode: *mut c_int, texture: Asks<*mut c_void>);
    cuTexRefSetFilterMode, cuTexRefSetMipmapFilterMode => (texture: Changes<*mut c_void>, mode: c_int);
    cuTexRefGetFlags => (flags: *mut c_uint, texture: Asks<*mut c_void>);
    cuTexRefSetFlags => (texture: Changes<*mut c_void>, flags: c_uint);
    cuTexRefGetFormat => (format: *mut c_int, channels: *mut c_int, texture: Asks<*mut c_void>);
    cuTexRefSetFormat => (texture: Changes<*mut c_void>, format: c_int, channels: c_int);
    cuTexRefGetMaxAnisotropy => (most: *mut c_int, texture: Asks<*mut c_void>);
    cuTexRefSetMaxAnisotropy => (texture: Changes<*mut c_void>, most: c_uint);
    cuTexRefGetMipmapLevelBias => (bias: *mut f32, texture: Asks<*mut c_void>);
    cuTexRefSetMipmapLevelBias => (texture: Changes<*mut c_void>, bias: f32);
    cuTexRefGetMipmapLevelClamp => (least: *mut f32, most: *mut f32, texture: Asks<*mut c_void>);
    cuTexRefSetMipmapLevelClamp => (texture: Changes<*mut c_void>, least: f32, most: f32);
    cuParamSetTexRef => (function: CUfunction, unit: c_int, texture: Keeps<*mut c_void>);

    // Memory of other interfaces.
    cuExternalMemoryGetMappedMipmappedArray =>
        (mipmap: Imports<*mut *mut c_void>, memory: Asks<*mut c_void>, shape: *const c_void);
    cuGraphicsResourceGetMappedMipmappedArray => (mipmap: Imports<*mut *mut c_void>, resource: Asks<*mut c_void>);
    cuGraphicsSubResourceGetMappedArray =>
        (array: Imports<*mut CUarray>, resource: Asks<*mut c_void>, index: c_uint, level: c_uint);
    cuGraphicsResourceSetMapFlags, cuGraphicsResourceSetMapFlags_v2 =>
        (resource: Changes<*mut c_void>, flags: c_uint);
    cuGraphicsUnregisterResource => (resource: Frees<*mut c_void>);

    // Names by which a fabric's machines access memory. Memory that was bound to one stays where it is.
    cuLogicalEndpointExport => (handle: Tells<*mut c_void>, endpoint: u32, kind: c_int);
    cuLogicalEndpointImport => (endpoint: u32, handle: HostOnly<*const c_void>, kind: c_int);

    // Graphs: the memory that a node names is read when the graph is instantiated.
    cuGraphAddKernelNode, cuGraphAddKernelNode_v2 =>
        (node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, count: usize, parameters: Keeps<*const c_void>);
    cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2 => (node: *mut c_void, parameters: Keeps<*const c_void>);
    cuGraphKernelNodeSetAttribute => (node: *mut c_void, attribute: c_int, value: Keeps<*const c_void>);
    cuGraphKernelNodeGetAttribute => (node: *mut c_void, attribute: c_int, value: Tells<*mut c_void>);
    cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, cuGraphMemcpyNodeGetParams, cuGraphMemsetNodeGetParams,
    cuGraphBatchMemOpNodeGetParams, cuGraphMemAllocNodeGetParams, cuGraphNodeGetParams =>
        (node: *mut c_void, parameters: Tells<*mut c_void>);
    cuGraphMemFreeNodeGetParams => (node: *mut c_void, address: Tells<*mut CUdeviceptr>);
    cuGraphExecGetFlags => (graph: Asks<CUgraphExec>, flags: *mut u64);
    cuGraphExecGetId => (graph: Asks<CUgraphExec>, id: *mut c_uint);
    cuGraphNodeGetEnabled => (graph: Asks<CUgraphExec>, node: *mut c_void, is_enabled: *mut c_uint);
    cuGraphNodeSetEnabled => (graph: Changes<CUgraphExec>, node: *mut c_void, is_enabled: c_uint);
    cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventWaitNodeSetEvent =>
        (graph: Changes<CUgraphExec>, node: *mut c_void, event: *mut c_void);
    cuGraphExecExternalSemaphoresSignalNodeSetParams, cuGraphExecExternalSemaphoresWaitNodeSetParams =>
        (graph: Changes<CUgraphExec>, node: *mut c_void, parameters: *const c_void);

    // Launches: their possible shapes, and parameters of `cuLaunch` and its kin.
    cuOccupancyMaxActiveClusters, cuOccupancyMaxPotentialClusterSize =>
        (size: *mut c_int, function: CUfunction, config: Asks<*const c_void>);
    cuParamSetv => (function: CUfunction, offset: c_int, value: Keeps<*mut c_void>, bytes: c_uint);

    // Streams: questions and settings.
    cuStreamQuery, cuStreamQuery_ptsz => (stream: Asks<CUstream>);
    cuStreamGetCtx, cuStreamGetCtx_ptsz => (stream: Asks<CUstream>, context: *mut CUcontext);
    cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz =>
        (stream: Asks<CUstream>, context: *mut CUcontext, green: *mut *mut c_void);
    cuStreamGetGreenCtx => (stream: Asks<CUstream>, green: *mut *mut c_void);
    cuStreamGetDevice, cuStreamGetDevice_ptsz => (stream: Asks<CUstream>, device: *mut CUdevice);
    cuStreamGetDevResource, cuStreamGetDevResource_ptsz =>
        (stream: Asks<CUstream>, resource: *mut c_void, kind: c_int);
    cuStreamGetFlags, cuStreamGetFlags_ptsz => (stream: Asks<CUstream>, flags: *mut c_uint);
    cuStreamGetId, cuStreamGetId_ptsz => (stream: Asks<CUstream>, id: *mut u64);
    cuStreamGetPriority, cuStreamGetPriority_ptsz => (stream: Asks<CUstream>, priority: *mut c_int);
    cuStreamIsCapturing, cuStreamIsCapturing_ptsz => (stream: Asks<CUstream>, status: *mut c_int);
    cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz =>
        (stream: Asks<CUstream>, status: *mut c_int, id: *mut u64);
    cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz =>
        (stream: Asks<CUstream>, status: *mut c_int, id: *mut u64, graph: *mut *mut c_void, nodes: *mut *const *mut c_void, count: *mut usize);
    cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz =>
        (stream: Asks<CUstream>, status: *mut c_int, id: *mut u64, graph: *mut *mut c_void, nodes: *mut *const *mut c_void, edges: *mut *const c_void, count: *mut usize);
    cuStreamEndCaptureToCig, cuStreamEndCaptureToCig_ptsz => (stream: Changes<CUstream>);
    cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz =>
        (stream: Changes<CUstream>, nodes: *mut *mut c_void, count: usize, flags: c_uint);
    cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz =>
        (stream: Changes<CUstream>, nodes: *mut *mut c_void, edges: *const c_void, count: usize, flags: c_uint);
    cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz => (to: Changes<CUstream>, from: Asks<CUstream>);
    cuStreamGetAttribute, cuStreamGetAttribute_ptsz =>
        (stream: Asks<CUstream>, attribute: c_int, value: Tells<*mut c_void>);
    cuStreamSetAttribute, cuStreamSetAttribute_ptsz =>
        (stream: Changes<CUstream>, attribute: c_int, value: Keeps<*const c_void>);

    // Pointers to memory that only the driver reads.
    cuGetExportTable => (table: HostOnly<*mut *const c_void>, id: *const c_void);
    cuDeviceGetNvSciSyncAttributes => (list: HostOnly<*mut c_void>, device: CUdevice, flags: c_int);
    cuDeviceRegisterAsyncNotification =>
        (device: CUdevice, callback: *const c_void, data: HostOnly<*mut c_void>, out: *mut *mut c_void);
    cuLogsRegisterCallback, cuCoredumpRegisterStartCallback, cuCoredumpRegisterCompleteCallback =>
        (callback: *const c_void, data: HostOnly<*mut c_void>, out: *mut *mut c_void);
    cuUserObjectCreate =>
        (out: *mut *mut c_void, object: HostOnly<*mut c_void>, destroy: *const c_void, count: c_uint, flags: c_uint);
    cuCoredumpGetAttribute, cuCoredumpGetAttributeGlobal, cuCoredumpSetAttribute, cuCoredumpSetAttributeGlobal =>
        (attribute: c_int, value: HostOnly<*mut c_void>, size: *mut usize);
    cuLibraryGetUnifiedFunction => (function: HostOnly<*mut *mut c_void>, library: *mut c_void, name: *const c_char);
    cuLinkCreate, cuLinkCreate_v2 =>
        (count: c_uint, options: *mut c_int, values: HostOnly<*mut *mut c_void>, out: *mut *mut c_void);
    cuLinkAddData, cuLinkAddData_v2 =>
        (link: *mut c_void, kind: c_int, data: HostOnly<*mut c_void>, size: usize, name: *const c_char, count: c_uint, options: *mut c_int, values: HostOnly<*mut *mut c_void>);
    cuLinkAddFile, cuLinkAddFile_v2 =>
        (link: *mut c_void, kind: c_int, file: *const c_char, count: c_uint, options: *mut c_int, values: HostOnly<*mut *mut c_void>);
    cuLinkComplete => (link: *mut c_void, code: HostOnly<*mut *mut c_void>, size: *mut usize);
}
