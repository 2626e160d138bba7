//! Features that the simulated device does not have: calls about them answer `CUDA_ERROR_NOT_SUPPORTED`, or that there is no such thing.
//!
//! The rows name no parameters because none is looked at; in the C calling convention here those belong to the
//! caller.

use super::arguments::current;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::submit::Default;

doors! {
    // Arrays, textures and surfaces.
    old cuArray3DCreate: "cuArray3DCreate" 2000 () = in_context;
    cuArray3DCreate_v2: "cuArray3DCreate" 3020 () = in_context;
    old cuArray3DGetDescriptor: "cuArray3DGetDescriptor" 2000 () = in_context;
    cuArray3DGetDescriptor_v2: "cuArray3DGetDescriptor" 3020 () = in_context;
    old cuArrayCreate: "cuArrayCreate" 2000 () = in_context;
    cuArrayCreate_v2: "cuArrayCreate" 3020 () = in_context;
    cuArrayDestroy: "cuArrayDestroy" 2000 () = in_context;
    old cuArrayGetDescriptor: "cuArrayGetDescriptor" 2000 () = in_context;
    cuArrayGetDescriptor_v2: "cuArrayGetDescriptor" 3020 () = in_context;
    cuArrayGetMemoryRequirements: "cuArrayGetMemoryRequirements" 11060 () = in_context;
    cuArrayGetPlane: "cuArrayGetPlane" 11020 () = in_context;
    cuArrayGetSparseProperties: "cuArrayGetSparseProperties" 11010 () = in_context;
    cuMipmappedArrayCreate: "cuMipmappedArrayCreate" 5000 () = in_context;
    cuMipmappedArrayDestroy: "cuMipmappedArrayDestroy" 5000 () = in_context;
    cuMipmappedArrayGetLevel: "cuMipmappedArrayGetLevel" 5000 () = in_context;
    cuMipmappedArrayGetMemoryRequirements: "cuMipmappedArrayGetMemoryRequirements" 11060 () = in_context;
    cuMipmappedArrayGetSparseProperties: "cuMipmappedArrayGetSparseProperties" 11010 () = in_context;
    cuSurfObjectCreate: "cuSurfObjectCreate" 5000 () = in_context;
    cuSurfObjectDestroy: "cuSurfObjectDestroy" 5000 () = in_context;
    cuSurfObjectGetResourceDesc: "cuSurfObjectGetResourceDesc" 5000 () = in_context;
    cuSurfRefGetArray: "cuSurfRefGetArray" 3000 () = in_context;
    cuSurfRefSetArray: "cuSurfRefSetArray" 3000 () = in_context;
    cuTexObjectCreate: "cuTexObjectCreate" 5000 () = in_context;
    cuTexObjectDestroy: "cuTexObjectDestroy" 5000 () = in_context;
    cuTexObjectGetResourceDesc: "cuTexObjectGetResourceDesc" 5000 () = in_context;
    cuTexObjectGetResourceViewDesc: "cuTexObjectGetResourceViewDesc" 5000 () = in_context;
    cuTexObjectGetTextureDesc: "cuTexObjectGetTextureDesc" 5000 () = in_context;
    cuTexRefCreate: "cuTexRefCreate" 2000 () = in_context;
    cuTexRefDestroy: "cuTexRefDestroy" 2000 () = in_context;
    old cuTexRefGetAddress: "cuTexRefGetAddress" 2000 () = in_context;
    cuTexRefGetAddress_v2: "cuTexRefGetAddress" 3020 () = in_context;
    cuTexRefGetAddressMode: "cuTexRefGetAddressMode" 2000 () = in_context;
    cuTexRefGetArray: "cuTexRefGetArray" 2000 () = in_context;
    cuTexRefGetBorderColor: "cuTexRefGetBorderColor" 8000 () = in_context;
    cuTexRefGetFilterMode: "cuTexRefGetFilterMode" 2000 () = in_context;
    cuTexRefGetFlags: "cuTexRefGetFlags" 2000 () = in_context;
    cuTexRefGetFormat: "cuTexRefGetFormat" 2000 () = in_context;
    cuTexRefGetMaxAnisotropy: "cuTexRefGetMaxAnisotropy" 5000 () = in_context;
    cuTexRefGetMipmapFilterMode: "cuTexRefGetMipmapFilterMode" 5000 () = in_context;
    cuTexRefGetMipmapLevelBias: "cuTexRefGetMipmapLevelBias" 5000 () = in_context;
    cuTexRefGetMipmapLevelClamp: "cuTexRefGetMipmapLevelClamp" 5000 () = in_context;
    cuTexRefGetMipmappedArray: "cuTexRefGetMipmappedArray" 5000 () = in_context;
    old cuTexRefSetAddress: "cuTexRefSetAddress" 2000 () = in_context;
    cuTexRefSetAddress_v2: "cuTexRefSetAddress" 3020 () = in_context;
    old cuTexRefSetAddress2D: "cuTexRefSetAddress2D" 2020 () = in_context;
    cuTexRefSetAddress2D_v2: "cuTexRefSetAddress2D" 3020 () = in_context;
    cuTexRefSetAddress2D_v3: "cuTexRefSetAddress2D" 4010 () = in_context;
    cuTexRefSetAddressMode: "cuTexRefSetAddressMode" 2000 () = in_context;
    cuTexRefSetArray: "cuTexRefSetArray" 2000 () = in_context;
    cuTexRefSetBorderColor: "cuTexRefSetBorderColor" 8000 () = in_context;
    cuTexRefSetFilterMode: "cuTexRefSetFilterMode" 2000 () = in_context;
    cuTexRefSetFlags: "cuTexRefSetFlags" 2000 () = in_context;
    cuTexRefSetFormat: "cuTexRefSetFormat" 2000 () = in_context;
    cuTexRefSetMaxAnisotropy: "cuTexRefSetMaxAnisotropy" 5000 () = in_context;
    cuTexRefSetMipmapFilterMode: "cuTexRefSetMipmapFilterMode" 5000 () = in_context;
    cuTexRefSetMipmapLevelBias: "cuTexRefSetMipmapLevelBias" 5000 () = in_context;
    cuTexRefSetMipmapLevelClamp: "cuTexRefSetMipmapLevelClamp" 5000 () = in_context;
    cuTexRefSetMipmappedArray: "cuTexRefSetMipmappedArray" 5000 () = in_context;
    // Graphics, and memory and semaphores of other interfaces.
    cuDestroyExternalMemory: "cuDestroyExternalMemory" 10000 () = in_context;
    cuDestroyExternalSemaphore: "cuDestroyExternalSemaphore" 10000 () = in_context;
    cuExternalMemoryGetMappedBuffer: "cuExternalMemoryGetMappedBuffer" 10000 () = in_context;
    cuExternalMemoryGetMappedMipmappedArray: "cuExternalMemoryGetMappedMipmappedArray" 10000 () = in_context;
    cuGraphicsMapResources / cuGraphicsMapResources_ptsz: "cuGraphicsMapResources" 3000 / 7000 () = in_context_stream;
    cuGraphicsResourceGetMappedMipmappedArray: "cuGraphicsResourceGetMappedMipmappedArray" 5000 () = in_context;
    old cuGraphicsResourceGetMappedPointer: "cuGraphicsResourceGetMappedPointer" 3000 () = in_context;
    cuGraphicsResourceGetMappedPointer_v2: "cuGraphicsResourceGetMappedPointer" 3020 () = in_context;
    cuGraphicsResourceSetMapFlags: "cuGraphicsResourceSetMapFlags" 3000 () = in_context;
    cuGraphicsResourceSetMapFlags_v2: "cuGraphicsResourceSetMapFlags" 6050 () = in_context;
    cuGraphicsSubResourceGetMappedArray: "cuGraphicsSubResourceGetMappedArray" 3000 () = in_context;
    cuGraphicsUnmapResources / cuGraphicsUnmapResources_ptsz: "cuGraphicsUnmapResources" 3000 / 7000 () = in_context_stream;
    cuGraphicsUnregisterResource: "cuGraphicsUnregisterResource" 3000 () = in_context;
    cuImportExternalMemory: "cuImportExternalMemory" 10000 () = in_context;
    cuImportExternalSemaphore: "cuImportExternalSemaphore" 10000 () = in_context;
    cuSignalExternalSemaphoresAsync / cuSignalExternalSemaphoresAsync_ptsz: "cuSignalExternalSemaphoresAsync" 10000 / 10000 () = in_context_stream;
    cuWaitExternalSemaphoresAsync / cuWaitExternalSemaphoresAsync_ptsz: "cuWaitExternalSemaphoresAsync" 10000 / 10000 () = in_context_stream;
    // Work that is recorded into a graphics interface's lists.
    cuStreamBeginCaptureToCig / cuStreamBeginCaptureToCig_ptsz: "cuStreamBeginCaptureToCig" 13010 / 13010 () = in_context_stream;
    cuStreamEndCaptureToCig / cuStreamEndCaptureToCig_ptsz: "cuStreamEndCaptureToCig" 13010 / 13010 () = in_context_stream;
    // Nodes of graphs with semaphores.
    cuGraphAddExternalSemaphoresSignalNode: "cuGraphAddExternalSemaphoresSignalNode" 11020 () = in_process;
    cuGraphAddExternalSemaphoresWaitNode: "cuGraphAddExternalSemaphoresWaitNode" 11020 () = in_process;
    cuGraphExecExternalSemaphoresSignalNodeSetParams: "cuGraphExecExternalSemaphoresSignalNodeSetParams" 11020 () = in_process;
    cuGraphExecExternalSemaphoresWaitNodeSetParams: "cuGraphExecExternalSemaphoresWaitNodeSetParams" 11020 () = in_process;
    cuGraphExternalSemaphoresSignalNodeGetParams: "cuGraphExternalSemaphoresSignalNodeGetParams" 11020 () = in_process;
    cuGraphExternalSemaphoresSignalNodeSetParams: "cuGraphExternalSemaphoresSignalNodeSetParams" 11020 () = in_process;
    cuGraphExternalSemaphoresWaitNodeGetParams: "cuGraphExternalSemaphoresWaitNodeGetParams" 11020 () = in_process;
    cuGraphExternalSemaphoresWaitNodeSetParams: "cuGraphExternalSemaphoresWaitNodeSetParams" 11020 () = in_process;
    // Parts of a device.
    cuCtxFromGreenCtx: "cuCtxFromGreenCtx" 12040 () = in_context;
    cuCtxGetDevResource: "cuCtxGetDevResource" 12040 () = in_context;
    cuDevResourceGenerateDesc: "cuDevResourceGenerateDesc" 12040 () = in_process;
    cuDevSmResourceSplit: "cuDevSmResourceSplit" 13010 () = in_process;
    cuDevSmResourceSplitByCount: "cuDevSmResourceSplitByCount" 12040 () = in_process;
    cuStreamGetDevResource / cuStreamGetDevResource_ptsz: "cuStreamGetDevResource" 13010 / 13010 () = in_context_stream;
    cuGreenCtxCreate: "cuGreenCtxCreate" 12040 () = in_context;
    cuGreenCtxDestroy: "cuGreenCtxDestroy" 12040 () = in_process;
    cuGreenCtxGetDevResource: "cuGreenCtxGetDevResource" 12040 () = in_context;
    cuGreenCtxGetId: "cuGreenCtxGetId" 12090 () = in_context;
    cuGreenCtxRecordEvent: "cuGreenCtxRecordEvent" 12040 () = in_context;
    cuGreenCtxStreamCreate: "cuGreenCtxStreamCreate" 12050 () = in_context;
    cuGreenCtxWaitEvent: "cuGreenCtxWaitEvent" 12040 () = in_context;
    // Descriptors of images.
    cuTensorMapEncodeIm2col: "cuTensorMapEncodeIm2col" 12000 () = in_process;
    cuTensorMapEncodeIm2colWide: "cuTensorMapEncodeIm2colWide" 12080 () = in_process;
    // The driver's own diagnostics.
    cuCheckpointOperationComplete: "cuCheckpointOperationComplete" 13040 () = in_process;
    cuCheckpointProcessCheckpoint: "cuCheckpointProcessCheckpoint" 12080 () = in_process;
    cuCheckpointProcessGetRestoreThreadId: "cuCheckpointProcessGetRestoreThreadId" 12080 () = in_process;
    cuCheckpointProcessGetState: "cuCheckpointProcessGetState" 12080 () = in_process;
    cuCheckpointProcessLock: "cuCheckpointProcessLock" 12080 () = in_process;
    cuCheckpointProcessRestore: "cuCheckpointProcessRestore" 12080 () = in_process;
    cuCheckpointProcessUnlock: "cuCheckpointProcessUnlock" 12080 () = in_process;
    cuCoredumpDeregisterCompleteCallback: "cuCoredumpDeregisterCompleteCallback" 13020 () = in_process;
    cuCoredumpDeregisterStartCallback: "cuCoredumpDeregisterStartCallback" 13020 () = in_process;
    cuCoredumpRegisterCompleteCallback: "cuCoredumpRegisterCompleteCallback" 13020 () = in_process;
    cuCoredumpRegisterStartCallback: "cuCoredumpRegisterStartCallback" 13020 () = in_process;
    cuCoredumpGetAttribute: "cuCoredumpGetAttribute" 12010 () = in_process;
    cuCoredumpGetAttributeGlobal: "cuCoredumpGetAttributeGlobal" 12010 () = in_process;
    cuCoredumpSetAttribute: "cuCoredumpSetAttribute" 12010 () = in_process;
    cuCoredumpSetAttributeGlobal: "cuCoredumpSetAttributeGlobal" 12010 () = in_process;
    cuLogsCurrent: "cuLogsCurrent" 12090 () = in_process;
    cuLogsDumpToFile: "cuLogsDumpToFile" 12090 () = in_process;
    cuLogsDumpToMemory: "cuLogsDumpToMemory" 12090 () = in_process;
    cuLogsRegisterCallback: "cuLogsRegisterCallback" 12090 () = in_process;
    cuLogsUnregisterCallback: "cuLogsUnregisterCallback" 12090 () = in_process;
}

pub(super) fn in_process() -> Outcome {
    Err(Status::NOT_SUPPORTED)
}

/// Calls that the driver takes in a context only.
fn in_context() -> Outcome {
    current()?;
    Err(Status::NOT_SUPPORTED)
}

pub(super) fn in_context_stream(_: Default) -> Outcome {
    in_context()
}
