/* The driver's entry points, found by name at run time: a program that is linked to no libcuda runs
 * wherever there is one. Types and numbers are the project's own header's; what that does not have
 * is here, with the values that cuda.h gives it.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include "baton_cuda_types.h"

typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUmemPoolHandle_st *CUmemoryPool;

typedef struct CUdevResource_st {
    int type;
    unsigned char padding[92];
    union {
        struct {
            unsigned smCount;
        } sm;
        unsigned char room[48];
    };
} CUdevResource;

typedef struct CUipcMemHandle_st {
    char reserved[64];
} CUipcMemHandle;

typedef struct CUipcEventHandle_st {
    char reserved[64];
} CUipcEventHandle;

typedef struct CUmemPoolPtrExportData_st {
    unsigned char reserved[64];
} CUmemPoolPtrExportData;

enum {
    ABSENT = 9999, /* what a call answers that this driver does not export */
    GREEN_CTX_DEFAULT_STREAM = 1,
    DEV_RESOURCE_TYPE_SM = 1,
    ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
    POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
    MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
};

/* name here, name of the symbol, parameters */
#define DRIVER_CALLS(X)                                                                            \
    X(cuInit, "cuInit", (unsigned))                                                                \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *))                                           \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *))                                               \
    X(cuDeviceGet, "cuDeviceGet", (CUdevice *, int))                                               \
    X(cuDeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                                 \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice))                        \
    X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int *, CUdevice, CUdevice))                 \
    X(cuDeviceGetP2PAttribute, "cuDeviceGetP2PAttribute", (int *, int, CUdevice, CUdevice))        \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))               \
    X(cuCtxCreate, "cuCtxCreate_v2", (CUcontext *, unsigned, CUdevice))                            \
    X(cuCtxDestroy, "cuCtxDestroy_v2", (CUcontext))                                                \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext))                                             \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext *))                                           \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                \
    X(cuCtxRecordEvent, "cuCtxRecordEvent", (CUcontext, CUevent))                                  \
    X(cuCtxWaitEvent, "cuCtxWaitEvent", (CUcontext, CUevent))                                      \
    X(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", (CUcontext, unsigned))                       \
    X(cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess", (CUcontext))                               \
    X(cuDeviceGetDevResource, "cuDeviceGetDevResource", (CUdevice, CUdevResource *, int))          \
    X(cuDevSmResourceSplitByCount, "cuDevSmResourceSplitByCount",                                  \
      (CUdevResource *, unsigned *, const CUdevResource *, CUdevResource *, unsigned, unsigned))   \
    X(cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc",                                      \
      (CUdevResourceDesc *, CUdevResource *, unsigned))                                            \
    X(cuGreenCtxCreate, "cuGreenCtxCreate",                                                        \
      (CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned))                                       \
    X(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", (CUstream *, CUgreenCtx, unsigned, int))   \
    X(cuGreenCtxRecordEvent, "cuGreenCtxRecordEvent", (CUgreenCtx, CUevent))                       \
    X(cuCtxFromGreenCtx, "cuCtxFromGreenCtx", (CUcontext *, CUgreenCtx))                           \
    X(cuModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *))                            \
    X(cuModuleUnload, "cuModuleUnload", (CUmodule))                                                \
    X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))          \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                       \
    X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                        \
    X(cuMemFree, "cuMemFree_v2", (CUdeviceptr))                                                    \
    X(cuMemAllocAsync, "cuMemAllocAsync", (CUdeviceptr *, size_t, CUstream))                       \
    X(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr, CUstream))                                   \
    X(cuMemGetAddressRange, "cuMemGetAddressRange_v2", (CUdeviceptr *, size_t *, CUdeviceptr))     \
    X(cuMemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))                               \
    X(cuMemFreeHost, "cuMemFreeHost", (void *))                                                    \
    X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr *, void *, unsigned)) \
    X(cuMemHostGetFlags, "cuMemHostGetFlags", (unsigned *, void *))                                \
    X(cuMemHostRegister, "cuMemHostRegister_v2", (void *, size_t, unsigned))                       \
    X(cuMemHostUnregister, "cuMemHostUnregister", (void *))                                        \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", (void *, int, CUdeviceptr))                  \
    X(cuPointerSetAttribute, "cuPointerSetAttribute", (const void *, int, CUdeviceptr))            \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle *, CUdeviceptr))                     \
    X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr *, CUipcMemHandle, unsigned))      \
    X(cuIpcGetEventHandle, "cuIpcGetEventHandle", (CUipcEventHandle *, CUevent))                   \
    X(cuIpcOpenEventHandle, "cuIpcOpenEventHandle", (CUevent *, CUipcEventHandle))                 \
    X(cuMemAdvise_v1, "cuMemAdvise", (CUdeviceptr, size_t, int, CUdevice))                         \
    X(cuMemAdvise, "cuMemAdvise_v2", (CUdeviceptr, size_t, int, CUmemLocation))                    \
    X(cuMemPrefetchAsync_v1, "cuMemPrefetchAsync", (CUdeviceptr, size_t, CUdevice, CUstream))      \
    X(cuMemPrefetchAsync, "cuMemPrefetchAsync_v2",                                                 \
      (CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream))                                    \
    X(cuMemRangeGetAttribute, "cuMemRangeGetAttribute",                                            \
      (void *, size_t, int, CUdeviceptr, size_t))                                                  \
    X(cuMemPoolExportPointer, "cuMemPoolExportPointer", (CUmemPoolPtrExportData *, CUdeviceptr))   \
    X(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange",                              \
      (void *, CUdeviceptr, size_t, int, unsigned long long))                                      \
    X(cuStreamAttachMemAsync, "cuStreamAttachMemAsync", (CUstream, CUdeviceptr, size_t, unsigned)) \
    X(cuMulticastBindAddr, "cuMulticastBindAddr",                                                  \
      (CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t, unsigned long long))             \
    X(cuMemcpy, "cuMemcpy", (CUdeviceptr, CUdeviceptr, size_t))                                    \
    X(cuMemcpyAsync, "cuMemcpyAsync", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                \
    X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))                        \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))                              \
    X(cuMemcpyDtoD, "cuMemcpyDtoD_v2", (CUdeviceptr, CUdeviceptr, size_t))                         \
    X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))    \
    X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))          \
    X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))     \
    X(cuMemcpyPeer, "cuMemcpyPeer", (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t))      \
    X(cuMemcpyPeerAsync, "cuMemcpyPeerAsync",                                                      \
      (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))                          \
    X(cuMemsetD8, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t))                           \
    X(cuMemsetD32, "cuMemsetD32_v2", (CUdeviceptr, unsigned, size_t))                              \
    X(cuMemsetD32Async, "cuMemsetD32Async", (CUdeviceptr, unsigned, size_t, CUstream))             \
    X(cuMemAddressReserve, "cuMemAddressReserve",                                                  \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                            \
    X(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t))                                 \
    X(cuMemCreate, "cuMemCreate",                                                                  \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))   \
    X(cuMemRelease, "cuMemRelease", (CUmemGenericAllocationHandle))                                \
    X(cuMemMap, "cuMemMap",                                                                        \
      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))             \
    X(cuMemUnmap, "cuMemUnmap", (CUdeviceptr, size_t))                                             \
    X(cuMemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))    \
    X(cuMemGetAccess, "cuMemGetAccess",                                                            \
      (unsigned long long *, const CUmemLocation *, CUdeviceptr))                                  \
    X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle",                                \
      (void *, CUmemGenericAllocationHandle, int, unsigned long long))                             \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                            \
      (CUmemGenericAllocationHandle *, void *, int))                                               \
    X(cuMemGetAllocationPropertiesFromHandle, "cuMemGetAllocationPropertiesFromHandle",            \
      (CUmemAllocationProp *, CUmemGenericAllocationHandle))                                       \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle",                                  \
      (CUmemGenericAllocationHandle *, void *))                                                    \
    X(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned))                                    \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", (CUstream *, unsigned, int))       \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream))                                           \
    X(cuStreamGetFlags, "cuStreamGetFlags", (CUstream, unsigned *))                                \
    X(cuStreamGetId, "cuStreamGetId", (CUstream, unsigned long long *))                            \
    X(cuStreamGetId_ptsz, "cuStreamGetId_ptsz", (CUstream, unsigned long long *))                  \
    X(cuStreamGetCtx, "cuStreamGetCtx", (CUstream, CUcontext *))                                   \
    X(cuStreamGetPriority, "cuStreamGetPriority", (CUstream, int *))                               \
    X(cuStreamGetDevice, "cuStreamGetDevice", (CUstream, CUdevice *))                              \
    X(cuStreamQuery, "cuStreamQuery", (CUstream))                                                  \
    X(cuStreamQuery_ptsz, "cuStreamQuery_ptsz", (CUstream))                                        \
    X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream))                                      \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                       \
    X(cuStreamWaitValue32, "cuStreamWaitValue32_v2",                                               \
      (CUstream, CUdeviceptr, unsigned, unsigned))                                                 \
    X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int))                            \
    X(cuStreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *))                             \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", (CUstream, int *))                               \
    X(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",                                         \
      (CUstream, int *, unsigned long long *, CUgraph *, const CUgraphNode **, size_t *))          \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int *))             \
    X(cuEventCreate, "cuEventCreate", (CUevent *, unsigned))                                       \
    X(cuEventDestroy, "cuEventDestroy_v2", (CUevent))                                              \
    X(cuEventRecord, "cuEventRecord", (CUevent, CUstream))                                         \
    X(cuEventRecord_ptsz, "cuEventRecord_ptsz", (CUevent, CUstream))                               \
    X(cuEventQuery, "cuEventQuery", (CUevent))                                                     \
    X(cuEventSynchronize, "cuEventSynchronize", (CUevent))                                         \
    X(cuEventElapsedTime, "cuEventElapsedTime", (float *, CUevent, CUevent))                       \
    X(cuEventElapsedTime_v2, "cuEventElapsedTime_v2", (float *, CUevent, CUevent))                 \
    X(cuLaunchKernel, "cuLaunchKernel",                                                            \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))                                                                          \
    X(cuLaunchKernel_ptsz, "cuLaunchKernel_ptsz",                                                  \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))                                                                          \
    X(cuLaunchHostFunc, "cuLaunchHostFunc", (CUstream, CUhostFn, void *))                          \
    X(cuGraphCreate, "cuGraphCreate", (CUgraph *, unsigned))                                       \
    X(cuGraphDestroy, "cuGraphDestroy", (CUgraph))                                                 \
    X(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode",                                              \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))                          \
    X(cuGraphGetNodes, "cuGraphGetNodes", (CUgraph, CUgraphNode *, size_t *))                      \
    X(cuGraphInstantiate, "cuGraphInstantiateWithFlags",                                           \
      (CUgraphExec *, CUgraph, unsigned long long))                                                \
    X(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))

#define DECLARE(name, symbol, params) extern CUresult(*name) params;
DRIVER_CALLS(DECLARE)
#undef DECLARE

/* Opens libcuda.so.1 and finds every entry point. */
void open_driver(void);

#endif
