//! Every hooked symbol, with its signature and the body that calls it.
//!
//! Signatures are written from `cuda.h`, not from the hooks' table: this program is to notice if the
//! hooks' is wrong. Enumerations are integers, and structures that a body describes itself are `c_void`.
//! Bodies pass null, numbers, and addresses of memory that lives until they have waited for all work.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::bench::{Handle, Subject};
use crate::moving::Location;
use crate::{
    arrays, attributes, batches, boxes, captures, code, contexts, copies, fills, finding, foreign, graphs, handles,
    launches, leaving, mappings, memory, moving, nodes, old_boxes, old_launches, pinned, pools, primary, questions,
    queued, streams, tensor_maps, textures, unmanaged, waits, words,
};

/// Symbols of one signature, and what is done with each.
pub(crate) struct Row {
    pub(crate) symbols: &'static [&'static str],
    pub(crate) run: fn(&Subject),
}

/// Rows that run in a process of their own.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) rows: &'static [Row],
}

macro_rules! families {
    ($($family:ident { $( $($symbol:ident),+: ($($type:ty),*) => $body:expr; )* })*) => {
        /// All symbols, in the order in which they are called.
        pub(crate) const FAMILIES: &[Family] = &[$(Family {
            name: stringify!($family),
            rows: &[$(Row {
                symbols: &[$(stringify!($symbol)),+],
                run: |subject| {
                    // SAFETY: the row spells cuda.h's signature; the bodies' arguments are described above.
                    let function = unsafe { subject.function::<extern "C" fn($($type),*) -> u32>() };
                    $body(subject, function);
                },
            }),*],
        }),*];
    };
}

type Out<T> = *mut T;
type Bytes = *const c_void;
type Buffer = *mut c_void;
type Description = *const c_void;
type List = *mut c_void;
type Function = Option<extern "C" fn(*mut c_void)>;
type Callback = Option<extern "C" fn(Handle, u32, *mut c_void)>;

families! {
    finding {
        cuInit: (c_uint) => finding::started;
        cuGetProcAddress: (*const c_char, Out<Buffer>, c_int, u64) => finding::first;
        cuGetProcAddress_v2: (*const c_char, Out<Buffer>, c_int, u64, Out<c_int>) => finding::second;
    }

    memory {
        cuMemAlloc_v2: (Out<u64>, usize) => memory::give;
        cuMemAlloc: (Out<u32>, u32) => memory::old_give;
        cuMemAllocPitch_v2: (Out<u64>, Out<usize>, usize, usize, u32) => memory::give_rows;
        cuMemAllocPitch: (Out<u32>, Out<u32>, u32, u32, u32) => memory::old_give_rows;
        cuMemAllocManaged: (Out<u64>, usize, u32) => memory::give_managed;
        cuMemFree_v2: (u64) => memory::take;
        cuMemFree: (u32) => memory::old_take;
        cuMemAllocAsync, cuMemAllocAsync_ptsz: (Out<u64>, usize, Handle) => memory::give_async;
        cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz:
            (Out<u64>, usize, Handle, Handle) => memory::give_from_pool;
        cuMemFreeAsync, cuMemFreeAsync_ptsz: (u64, Handle) => memory::take_async;
    }

    copies {
        cuMemcpy, cuMemcpy_ptds: (u64, u64, usize) => copies::any;
        cuMemcpyAsync, cuMemcpyAsync_ptsz: (u64, u64, usize, Handle) => copies::any_async;
        cuMemcpyPeer, cuMemcpyPeer_ptds: (u64, Handle, u64, Handle, usize) => copies::peers;
        cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz:
            (u64, Handle, u64, Handle, usize, Handle) => copies::peers_async;
        cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds: (u64, Bytes, usize) => copies::to_device;
        cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz: (u64, Bytes, usize, Handle) => copies::to_device_async;
        cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds: (Buffer, u64, usize) => copies::from_device;
        cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz: (Buffer, u64, usize, Handle) => copies::from_device_async;
        cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds: (u64, u64, usize) => copies::devices;
        cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz: (u64, u64, usize, Handle) => copies::devices_async;
        cuMemcpyHtoD: (u32, Bytes, u32) => copies::old_to_device;
        cuMemcpyHtoDAsync: (u32, Bytes, u32, Handle) => copies::old_to_device_async;
        cuMemcpyDtoH: (Buffer, u32, u32) => copies::old_from_device;
        cuMemcpyDtoHAsync: (Buffer, u32, u32, Handle) => copies::old_from_device_async;
        cuMemcpyDtoD: (u32, u32, u32) => copies::old_devices;
        cuMemcpyDtoDAsync: (u32, u32, u32, Handle) => copies::old_devices_async;
    }

    batches {
        cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz:
            (Out<u64>, Out<u64>, Out<usize>, usize, List, Out<usize>, usize, Handle) => batches::copies;
        cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz:
            (Out<u64>, Out<u64>, Out<usize>, usize, List, Out<usize>, usize, Out<usize>, Handle) => batches::old_copies;
        cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz: (usize, List, u64, Handle) => batches::boxes;
        cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz:
            (usize, List, Out<usize>, u64, Handle) => batches::old_boxes;
        cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz:
            (u64, u64, usize, List, Handle) => batches::with_attributes;
        cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz:
            (List, u64, Handle) => batches::one_box;
        cuFabricCpyBatchAsync, cuFabricCpyBatchAsync_ptsz: (usize, List, u64, Handle) => batches::by_fabric;
    }

    arrays {
        cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds: (Handle, usize, Handle, usize, usize) => arrays::arrays;
        cuMemcpyAtoA: (Handle, u32, Handle, u32, u32) => arrays::old_arrays;
        cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds: (u64, Handle, usize, usize) => arrays::to_device;
        cuMemcpyAtoD: (u32, Handle, u32, u32) => arrays::old_to_device;
        cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds: (Handle, usize, u64, usize) => arrays::from_device;
        cuMemcpyDtoA: (Handle, u32, u32, u32) => arrays::old_from_device;
        cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds: (Buffer, Handle, usize, usize) => arrays::to_host;
        cuMemcpyAtoH: (Buffer, Handle, u32, u32) => arrays::old_to_host;
        cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz:
            (Buffer, Handle, usize, usize, Handle) => arrays::to_host_async;
        cuMemcpyAtoHAsync: (Buffer, Handle, u32, u32, Handle) => arrays::old_to_host_async;
        cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds: (Handle, usize, Bytes, usize) => arrays::from_host;
        cuMemcpyHtoA: (Handle, u32, Bytes, u32) => arrays::old_from_host;
        cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz:
            (Handle, usize, Bytes, usize, Handle) => arrays::from_host_async;
        cuMemcpyHtoAAsync: (Handle, u32, Bytes, u32, Handle) => arrays::old_from_host_async;
    }

    boxes {
        cuMemcpy2D_v2, cuMemcpy2D_v2_ptds: (Description) => boxes::plane;
        cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds: (Description) => boxes::plane;
        cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz: (Description, Handle) => boxes::plane_async;
        cuMemcpy3D_v2, cuMemcpy3D_v2_ptds: (Description) => boxes::solid;
        cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz: (Description, Handle) => boxes::solid_async;
        cuMemcpy3DPeer, cuMemcpy3DPeer_ptds: (Description) => boxes::peers;
        cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz: (Description, Handle) => boxes::peers_async;
    }

    old_boxes {
        cuMemcpy2D, cuMemcpy2DUnaligned: (Description) => old_boxes::plane;
        cuMemcpy2DAsync: (Description, Handle) => old_boxes::plane_async;
        cuMemcpy3D: (Description) => old_boxes::solid;
        cuMemcpy3DAsync: (Description, Handle) => old_boxes::solid_async;
    }

    fills {
        cuMemsetD8_v2, cuMemsetD8_v2_ptds: (u64, u8, usize) => fills::line;
        cuMemsetD16_v2, cuMemsetD16_v2_ptds: (u64, u16, usize) => fills::line;
        cuMemsetD32_v2, cuMemsetD32_v2_ptds: (u64, u32, usize) => fills::line;
        cuMemsetD8Async, cuMemsetD8Async_ptsz: (u64, u8, usize, Handle) => fills::line_async;
        cuMemsetD16Async, cuMemsetD16Async_ptsz: (u64, u16, usize, Handle) => fills::line_async;
        cuMemsetD32Async, cuMemsetD32Async_ptsz: (u64, u32, usize, Handle) => fills::line_async;
        cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds: (u64, usize, u8, usize, usize) => fills::plane;
        cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds: (u64, usize, u16, usize, usize) => fills::plane;
        cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds: (u64, usize, u32, usize, usize) => fills::plane;
        cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz: (u64, usize, u8, usize, usize, Handle) => fills::plane_async;
        cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz: (u64, usize, u16, usize, usize, Handle) => fills::plane_async;
        cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz: (u64, usize, u32, usize, usize, Handle) => fills::plane_async;
        cuMemsetD8: (u32, u8, u32) => fills::old_line;
        cuMemsetD16: (u32, u16, u32) => fills::old_line;
        cuMemsetD32: (u32, u32, u32) => fills::old_line;
        cuMemsetD2D8: (u32, u32, u8, u32, u32) => fills::old_plane;
        cuMemsetD2D16: (u32, u32, u16, u32, u32) => fills::old_plane;
        cuMemsetD2D32: (u32, u32, u32, u32, u32) => fills::old_plane;
    }

    moving {
        cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz: (u64, usize, c_int, Handle) => moving::old_prefetch;
        cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz: (u64, usize, Location, u32, Handle) => moving::prefetch;
        cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz:
            (Out<u64>, Out<usize>, usize, Out<Location>, Out<usize>, usize, u64, Handle) => moving::prefetches;
        cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz:
            (Out<u64>, Out<usize>, usize, u64, Handle) => moving::discards;
        cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz:
            (Out<u64>, Out<usize>, usize, Out<Location>, Out<usize>, usize, u64, Handle)
                => moving::discards_and_prefetches;
        cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz:
            (List, usize, u32, Out<usize>, Handle) => moving::decompress;
        cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz: (List, u32, Handle) => moving::map_arrays;
        cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz: (Handle, u64, usize, u32) => moving::attach;
        cuMemAdvise: (u64, usize, c_int, c_int) => moving::old_advise;
        cuMemAdvise_v2: (u64, usize, c_int, Location) => moving::advise;
    }

    launches {
        cuLaunchKernel, cuLaunchKernel_ptsz:
            (Handle, u32, u32, u32, u32, u32, u32, u32, Handle, Out<Buffer>, Out<Buffer>) => launches::kernel;
        cuLaunchKernelEx, cuLaunchKernelEx_ptsz:
            (Description, Handle, Out<Buffer>, Out<Buffer>) => launches::extended;
        cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz:
            (Handle, u32, u32, u32, u32, u32, u32, u32, Handle, Out<Buffer>) => launches::cooperative;
        cuLaunchCooperativeKernelMultiDevice: (List, u32, u32) => launches::cooperative_devices;
    }

    old_launches {
        cuLaunch: (Handle) => old_launches::one_block;
        cuLaunchGrid: (Handle, c_int, c_int) => old_launches::grid;
        cuLaunchGridAsync: (Handle, c_int, c_int, Handle) => old_launches::grid_async;
    }

    queued {
        cuLaunchHostFunc, cuLaunchHostFunc_ptsz: (Handle, Function, Buffer) => queued::host_function;
        cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz: (Handle, Function, Buffer, u32) => queued::host_function_2;
        cuStreamAddCallback, cuStreamAddCallback_ptsz: (Handle, Callback, Buffer, u32) => queued::callback;
        cuGraphLaunch, cuGraphLaunch_ptsz: (Handle, Handle) => queued::launch_graph;
        cuGraphUpload, cuGraphUpload_ptsz: (Handle, Handle) => queued::upload_graph;
    }

    graphs {
        cuGraphInstantiate, cuGraphInstantiate_v2:
            (Out<Handle>, Handle, Out<Handle>, Out<c_char>, usize) => graphs::old_instantiate;
        cuGraphInstantiateWithFlags: (Out<Handle>, Handle, u64) => graphs::instantiate;
        cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz:
            (Out<Handle>, Handle, Buffer) => graphs::instantiate_with_parameters;
        cuGraphExecDestroy: (Handle) => graphs::destroy;
        cuGraphExecUpdate_v2: (Handle, Handle, Buffer) => graphs::update;
        cuGraphExecUpdate: (Handle, Handle, Out<Handle>, Out<c_int>) => graphs::old_update;
    }

    nodes {
        cuGraphAddMemcpyNode:
            (Out<Handle>, Handle, *const Handle, usize, Description, Handle) => nodes::add_copy;
        cuGraphAddMemsetNode:
            (Out<Handle>, Handle, *const Handle, usize, Description, Handle) => nodes::add_fill;
        cuGraphAddBatchMemOpNode: (Out<Handle>, Handle, *const Handle, usize, Description) => nodes::add_words;
        cuGraphAddNode: (Out<Handle>, Handle, *const Handle, usize, Buffer) => nodes::add_any;
        cuGraphAddNode_v2, cuGraphAddNode_v3: (Out<Handle>, Handle, *const Handle, Description, usize, Buffer) => nodes::add_any_2;
        cuGraphMemcpyNodeSetParams: (Handle, Description) => nodes::rewrite_copy;
        cuGraphMemsetNodeSetParams: (Handle, Description) => nodes::rewrite_fill;
        cuGraphBatchMemOpNodeSetParams: (Handle, Description) => nodes::rewrite_words;
        cuGraphNodeSetParams, cuGraphNodeSetParams_v2: (Handle, Buffer) => nodes::rewrite_any;
        cuGraphExecKernelNodeSetParams_v2: (Handle, Handle, Description) => nodes::kernel;
        cuGraphExecKernelNodeSetParams: (Handle, Handle, Description) => nodes::old_kernel;
        cuGraphExecMemcpyNodeSetParams: (Handle, Handle, Description, Handle) => nodes::copy;
        cuGraphExecMemsetNodeSetParams: (Handle, Handle, Description, Handle) => nodes::fill;
        cuGraphExecHostNodeSetParams: (Handle, Handle, Description) => nodes::host;
        cuGraphExecBatchMemOpNodeSetParams: (Handle, Handle, Description) => nodes::words;
        cuGraphExecChildGraphNodeSetParams: (Handle, Handle, Handle) => nodes::child;
        cuGraphExecNodeSetParams: (Handle, Handle, Buffer) => nodes::any;
    }

    words {
        cuStreamWriteValue32, cuStreamWriteValue32_ptsz: (Handle, u64, u32, u32) => words::write;
        cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz: (Handle, u64, u32, u32) => words::write;
        cuStreamWriteValue64, cuStreamWriteValue64_ptsz: (Handle, u64, u64, u32) => words::write;
        cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz: (Handle, u64, u64, u32) => words::write;
        cuStreamWaitValue32, cuStreamWaitValue32_ptsz: (Handle, u64, u32, u32) => words::wait;
        cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz: (Handle, u64, u32, u32) => words::wait;
        cuStreamWaitValue64, cuStreamWaitValue64_ptsz: (Handle, u64, u64, u32) => words::wait;
        cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz: (Handle, u64, u64, u32) => words::wait;
        cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz: (Handle, u32, List, u32) => words::batch;
        cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz: (Handle, u32, List, u32) => words::batch;
    }

    questions {
        cuDeviceTotalMem_v2: (Out<usize>, c_int) => questions::total;
        cuMemGetInfo_v2: (Out<usize>, Out<usize>) => questions::info;
        cuMemGetAddressRange_v2: (Out<u64>, Out<usize>, u64) => questions::range;
        cuPointerGetAttribute: (Buffer, c_int, u64) => attributes::one;
        cuPointerGetAttributes: (u32, Out<c_int>, Out<Buffer>, u64) => attributes::many;
        cuPointerSetAttribute: (Description, c_int, u64) => attributes::set;
        cuMemGetAccess: (Out<u64>, *const Location, u64) => questions::access;
        cuMemHostGetDevicePointer_v2: (Out<u64>, Buffer, u32) => questions::device_pointer;
        cuMemHostGetFlags: (Out<u32>, Buffer) => questions::host_flags;
    }

    handles {
        cuMemCreate: (Out<u64>, usize, Description, u64) => handles::create;
        cuMemRelease: (u64) => handles::release;
        cuMemGetAllocationPropertiesFromHandle: (Out<handles::Properties>, u64) => handles::properties;
        cuMemPoolCreate: (Out<Handle>, Description) => handles::create_pool;
    }

    pools {
        cuMemPoolDestroy: (Handle) => pools::destroy;
        cuMemPoolTrimTo: (Handle, usize) => pools::trim;
        cuMemPoolGetAttribute: (Handle, c_int, Buffer) => pools::attribute;
        cuMemPoolSetAttribute: (Handle, c_int, Buffer) => pools::set_attribute;
        cuMemPoolSetAccess: (Handle, Description, usize) => pools::set_access;
        cuDeviceSetMemPool: (c_int, Handle) => pools::set_of_device;
        cuMemSetMemPool: (*const Location, c_int, Handle) => pools::set_of_location;
        cuStreamSynchronize, cuStreamSynchronize_ptsz: (Handle) => pools::stream;
        cuCtxSynchronize: () => pools::context;
        cuCtxSynchronize_v2: (Handle) => pools::one_context;
        cuEventSynchronize: (Handle) => pools::event;
        cuEventRecord, cuEventRecord_ptsz: (Handle, Handle) => pools::record;
        cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz: (Handle, Handle, u32) => pools::record_with_flags;
        cuEventDestroy_v2, cuEventDestroy: (Handle) => pools::event_destroy;
    }

    mappings {
        cuMemAddressReserve: (Out<u64>, usize, usize, u64, u64) => mappings::reserve_addresses;
        cuMemMap: (u64, usize, usize, u64, u64) => mappings::map;
        cuMemUnmap: (u64, usize) => mappings::unmap;
        cuMemSetAccess: (u64, usize, Description, usize) => mappings::set_access;
        cuMemAddressFree: (u64, usize) => mappings::free_addresses;
        cuMemRetainAllocationHandle: (Out<u64>, Buffer) => mappings::retain;
    }

    leaving {
        cuMemPoolExportPointer: (Buffer, u64) => leaving::by_pool;
        cuIpcGetMemHandle: (Out<foreign::Shared>, u64) => leaving::to_process;
        cuIpcGetEventHandle: (Out<foreign::Shared>, Handle) => leaving::event_to_process;
        cuMemExportToShareableHandle: (Buffer, u64, c_int, u64) => leaving::by_handle;
        cuMemPoolExportToShareableHandle: (Buffer, Handle, c_int, u64) => leaving::whole_pool;
        cuCheckpointProcessLock, cuCheckpointProcessCheckpoint: (c_int, Buffer) => leaving::suspend;
        cuMulticastBindMem: (u64, usize, u64, usize, usize, u64) => leaving::handle_to_multicast;
        cuMulticastBindAddr: (u64, usize, u64, usize, u64) => leaving::to_multicast;
        cuMulticastBindMem_v2: (u64, c_int, usize, u64, usize, usize, u64) => leaving::handle_to_multicast_2;
        cuMulticastBindAddr_v2: (u64, c_int, usize, u64, usize, u64) => leaving::to_multicast_2;
        cuLogicalEndpointBindMem: (u32, c_int, u64, u64, u64, u64, u64) => leaving::handle_to_endpoint;
        cuLogicalEndpointBindAddr: (u32, c_int, u64, Buffer, u64, u64) => leaving::to_endpoint;
        cuMemGetHandleForAddressRange: (Buffer, u64, usize, c_int, u64) => leaving::to_device;
        cuGraphAddMemFreeNode: (Out<Handle>, Handle, *const Handle, usize, u64) => leaving::by_graph;
    }

    foreign {
        cuMemImportFromShareableHandle: (Out<u64>, Buffer, c_int) => foreign::import;
        cuMemPoolImportFromShareableHandle: (Out<Handle>, Buffer, c_int, u64) => foreign::import_pool;
        cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle: (Out<u64>, foreign::Shared, u32) => foreign::of_process;
        cuIpcCloseMemHandle: (u64) => foreign::close;
        cuIpcOpenEventHandle: (Out<Handle>, foreign::Shared) => foreign::event_of_process;
        cuMemPoolImportPointer: (Out<u64>, Handle, Buffer) => foreign::of_pool;
        cuExternalMemoryGetMappedBuffer: (Out<u64>, Handle, Description) => foreign::of_external;
        cuGraphicsResourceGetMappedPointer_v2: (Out<u64>, Out<usize>, Handle) => foreign::of_graphics;
        cuGraphicsMapResources, cuGraphicsMapResources_ptsz, cuGraphicsUnmapResources, cuGraphicsUnmapResources_ptsz:
            (u32, List, Handle) => foreign::resources;
        cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz,
        cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz:
            (List, Description, u32, Handle) => foreign::semaphores;
        cuGraphAddMemAllocNode: (Out<Handle>, Handle, *const Handle, usize, Buffer) => foreign::of_graph;
    }

    unmanaged {
        cuArrayCreate_v2: (Out<Handle>, Description) => unmanaged::array::<usize>;
        cuArrayCreate: (Out<Handle>, Description) => unmanaged::array::<u32>;
        cuArray3DCreate_v2: (Out<Handle>, Description) => unmanaged::deep_array::<usize>;
        cuArray3DCreate: (Out<Handle>, Description) => unmanaged::deep_array::<u32>;
        cuMipmappedArrayCreate: (Out<Handle>, Description, u32) => unmanaged::mipmap;
        cuArrayDestroy, cuMipmappedArrayDestroy, cuDestroyExternalMemory: (Handle) => unmanaged::destroy;
        cuImportExternalMemory: (Out<Handle>, Description) => unmanaged::import;
        cuDeviceGraphMemTrim: (c_int) => unmanaged::trim;
    }

    pinned {
        cuMemHostAlloc: (Out<Handle>, usize, u32) => pinned::give;
        cuMemAllocHost: (Out<Handle>, u32) => pinned::old_give_plain;
        cuMemAllocHost_v2: (Out<Handle>, usize) => pinned::give_plain;
        cuMemHostRegister, cuMemHostRegister_v2: (Buffer, usize, u32) => pinned::register;
        cuMemFreeHost: (Buffer) => pinned::take;
        cuMemHostUnregister: (Buffer) => pinned::unregister;
    }

    code {
        cuModuleGetGlobal_v2: (Out<u64>, Out<usize>, Handle, *const c_char) => code::global_of_module;
        cuLibraryGetGlobal: (Out<u64>, Out<usize>, Handle, *const c_char) => code::global_of_library;
        cuLibraryGetManaged: (Out<u64>, Out<usize>, Handle, *const c_char) => code::global_of_library;
        cuModuleLoad: (Out<Handle>, *const c_char) => code::load_file;
        cuModuleLoadData, cuModuleLoadFatBinary: (Out<Handle>, *const c_char) => code::load;
        cuModuleLoadDataEx: (Out<Handle>, *const c_char, u32, Buffer, Buffer) => code::load_with_options;
        cuLibraryLoadData: (Out<Handle>, *const c_char, Buffer, Buffer, u32, Buffer, Buffer, u32) => code::load_library;
        cuLibraryLoadFromFile: (Out<Handle>, *const c_char, Buffer, Buffer, u32, Buffer, Buffer, u32) => code::load_library_file;
        cuModuleUnload: (Handle) => code::unload_module;
        cuLibraryUnload: (Handle) => code::unload_library;
    }

    textures {
        cuTexObjectCreate: (Out<u64>, Description, Description, Description) => textures::create;
        cuTexObjectDestroy: (u64) => textures::destroy;
        cuTexRefDestroy: (Handle) => textures::destroy_reference;
        cuTexRefSetAddress_v2: (Out<usize>, Handle, u64, usize) => textures::line;
        cuTexRefSetAddress2D_v2, cuTexRefSetAddress2D_v3: (Handle, Description, u64, usize) => textures::rows;
    }

    tensor_maps {
        cuTensorMapEncodeTiled:
            (Buffer, c_int, u32, Buffer, *const u64, *const u64, *const u32, *const u32, c_int, c_int, c_int, c_int)
                => tensor_maps::tiled;
        cuTensorMapEncodeIm2col:
            (Buffer, c_int, u32, Buffer, *const u64, *const u64, *const c_int, *const c_int, u32, u32, *const u32,
             c_int, c_int, c_int, c_int) => tensor_maps::columns;
        cuTensorMapEncodeIm2colWide:
            (Buffer, c_int, u32, Buffer, *const u64, *const u64, c_int, c_int, u32, u32, *const u32,
             c_int, c_int, c_int, c_int, c_int) => tensor_maps::wide_columns;
        cuTensorMapReplaceAddress: (Buffer, Buffer) => tensor_maps::replace;
        cuTensorMapSetAllocationClass: (Buffer, c_int, Out<c_int>) => tensor_maps::set_class;
    }

    streams {
        cuStreamCreate: (Out<Handle>, u32) => streams::create;
        cuStreamCreateWithPriority: (Out<Handle>, u32, c_int) => streams::create_with_priority;
        cuGreenCtxStreamCreate: (Out<Handle>, Handle, u32, c_int) => streams::create_in_green;
        cuStreamDestroy_v2, cuStreamDestroy: (Handle) => streams::destroy;
        cuStreamWaitEvent, cuStreamWaitEvent_ptsz: (Handle, Handle, u32) => waits::event;
    }

    captures {
        cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz: (Handle, c_int) => captures::begin;
        cuStreamBeginCapture, cuStreamBeginCapture_ptsz: (Handle) => captures::old_begin;
        cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz:
            (Handle, Handle, *const Handle, Description, usize, c_int) => captures::begin_to_graph;
        cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz:
            (Handle, c_int, Handle, captures::Changed, Buffer) => captures::begin_again;
        cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz: (Handle, Buffer) => captures::begin_to_list;
        cuStreamEndCapture, cuStreamEndCapture_ptsz: (Handle, Out<Handle>) => captures::end;
    }

    contexts {
        cuCtxCreate_v2, cuCtxCreate: (Out<Handle>, u32, c_int) => contexts::create;
        cuCtxCreate_v3: (Out<Handle>, List, c_int, u32, c_int) => contexts::create_3;
        cuCtxCreate_v4: (Out<Handle>, List, u32, c_int) => contexts::create_4;
        cuGreenCtxCreate: (Out<Handle>, Handle, c_int, u32) => contexts::create_green;
        cuCtxFromGreenCtx: (Out<Handle>, Handle) => contexts::from_green;
        cuGreenCtxDestroy: (Handle) => contexts::destroy_green;
        cuCtxDestroy_v2, cuCtxDestroy: (Handle) => contexts::destroy;
        cuCtxDetach: (Handle) => contexts::detach;
        cuCtxEnablePeerAccess: (Handle, u32) => contexts::enable_peer;
        cuCtxDisablePeerAccess: (Handle) => contexts::disable_peer;
    }

    // Last: a reset takes with it what the cases stand on.
    primary {
        cuDevicePrimaryCtxRetain: (Out<Handle>, c_int) => primary::retain;
        cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease: (c_int) => primary::release;
        cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset: (c_int) => primary::reset;
    }
}
