/* The CUDA driver API, as much of it as small C programs need, for machines without the toolkit.
 *
 * It holds facts only (names, numbers, signatures and layouts of the CUDA 13.0 driver interface),
 * so that the C programs of this project build where there is no cuda.h. Where the toolkit is
 * installed, use its cuda.h: it is complete, and a program that compiles with this header
 * compiles with that one. Do not include both.
 *
 * As in cuda.h, a call is spelled by its base name and a macro picks the symbol: the newest
 * version, and with CUDA_API_PER_THREAD_DEFAULT_STREAM the twin whose default stream belongs to
 * the calling thread. (cuGetProcAddress alone is the plain call here in both cases: ask it for
 * twins by its flags.)
 */
#ifndef BATON_CUDA_H
#define BATON_CUDA_H

#ifdef __cuda_cuda_h__
#error "baton_cuda.h stands in for cuda.h: include one of them"
#endif

#define CUDA_VERSION 13000

/* Twins come in two spellings: calls that took a stream all along, and those that did not. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define BATON_CUDA_PTDS(symbol) symbol##_ptds
#define BATON_CUDA_PTSZ(symbol) symbol##_ptsz
#else
#define BATON_CUDA_PTDS(symbol) symbol
#define BATON_CUDA_PTSZ(symbol) symbol
#endif

#include "baton_cuda_types.h"

/* Devices, contexts, modules, the way to all others. */
#define cuDeviceGetUuid             cuDeviceGetUuid_v2
#define cuDeviceTotalMem            cuDeviceTotalMem_v2
#define cuDevicePrimaryCtxRelease   cuDevicePrimaryCtxRelease_v2
#define cuDevicePrimaryCtxReset     cuDevicePrimaryCtxReset_v2
#define cuDevicePrimaryCtxSetFlags  cuDevicePrimaryCtxSetFlags_v2
#define cuCtxCreate                 cuCtxCreate_v4
#define cuCtxDestroy                cuCtxDestroy_v2
#define cuCtxPushCurrent            cuCtxPushCurrent_v2
#define cuCtxPopCurrent             cuCtxPopCurrent_v2
#define cuModuleGetGlobal           cuModuleGetGlobal_v2
#define cuGetProcAddress            cuGetProcAddress_v2

/* Memory. */
#define cuMemGetInfo                cuMemGetInfo_v2
#define cuMemAlloc                  cuMemAlloc_v2
#define cuMemAllocPitch             cuMemAllocPitch_v2
#define cuMemFree                   cuMemFree_v2
#define cuMemGetAddressRange        cuMemGetAddressRange_v2
#define cuMemAllocHost              cuMemAllocHost_v2
#define cuMemHostGetDevicePointer   cuMemHostGetDevicePointer_v2
#define cuMemHostRegister           cuMemHostRegister_v2
#define cuMemAllocAsync             BATON_CUDA_PTSZ(cuMemAllocAsync)
#define cuMemFreeAsync              BATON_CUDA_PTSZ(cuMemFreeAsync)

/* Copies and fills. */
#define cuMemcpy                    BATON_CUDA_PTDS(cuMemcpy)
#define cuMemcpyHtoD                BATON_CUDA_PTDS(cuMemcpyHtoD_v2)
#define cuMemcpyDtoH                BATON_CUDA_PTDS(cuMemcpyDtoH_v2)
#define cuMemcpyDtoD                BATON_CUDA_PTDS(cuMemcpyDtoD_v2)
#define cuMemcpy2D                  BATON_CUDA_PTDS(cuMemcpy2D_v2)
#define cuMemcpy2DUnaligned         BATON_CUDA_PTDS(cuMemcpy2DUnaligned_v2)
#define cuMemcpy3D                  BATON_CUDA_PTDS(cuMemcpy3D_v2)
#define cuMemcpyAsync               BATON_CUDA_PTSZ(cuMemcpyAsync)
#define cuMemcpyHtoDAsync           BATON_CUDA_PTSZ(cuMemcpyHtoDAsync_v2)
#define cuMemcpyDtoHAsync           BATON_CUDA_PTSZ(cuMemcpyDtoHAsync_v2)
#define cuMemcpyDtoDAsync           BATON_CUDA_PTSZ(cuMemcpyDtoDAsync_v2)
#define cuMemcpy2DAsync             BATON_CUDA_PTSZ(cuMemcpy2DAsync_v2)
#define cuMemcpy3DAsync             BATON_CUDA_PTSZ(cuMemcpy3DAsync_v2)
#define cuMemsetD8                  BATON_CUDA_PTDS(cuMemsetD8_v2)
#define cuMemsetD16                 BATON_CUDA_PTDS(cuMemsetD16_v2)
#define cuMemsetD32                 BATON_CUDA_PTDS(cuMemsetD32_v2)
#define cuMemsetD2D8                BATON_CUDA_PTDS(cuMemsetD2D8_v2)
#define cuMemsetD2D16               BATON_CUDA_PTDS(cuMemsetD2D16_v2)
#define cuMemsetD2D32               BATON_CUDA_PTDS(cuMemsetD2D32_v2)
#define cuMemsetD8Async             BATON_CUDA_PTSZ(cuMemsetD8Async)
#define cuMemsetD16Async            BATON_CUDA_PTSZ(cuMemsetD16Async)
#define cuMemsetD32Async            BATON_CUDA_PTSZ(cuMemsetD32Async)
#define cuMemsetD2D8Async           BATON_CUDA_PTSZ(cuMemsetD2D8Async)
#define cuMemsetD2D16Async          BATON_CUDA_PTSZ(cuMemsetD2D16Async)
#define cuMemsetD2D32Async          BATON_CUDA_PTSZ(cuMemsetD2D32Async)

/* Streams and events. */
#define cuStreamDestroy             cuStreamDestroy_v2
#define cuStreamGetPriority         BATON_CUDA_PTSZ(cuStreamGetPriority)
#define cuStreamGetFlags            BATON_CUDA_PTSZ(cuStreamGetFlags)
#define cuStreamGetId               BATON_CUDA_PTSZ(cuStreamGetId)
#define cuStreamGetCtx              BATON_CUDA_PTSZ(cuStreamGetCtx)
#define cuStreamGetDevice           BATON_CUDA_PTSZ(cuStreamGetDevice)
#define cuStreamWaitEvent           BATON_CUDA_PTSZ(cuStreamWaitEvent)
#define cuStreamAddCallback         BATON_CUDA_PTSZ(cuStreamAddCallback)
#define cuStreamQuery               BATON_CUDA_PTSZ(cuStreamQuery)
#define cuStreamSynchronize         BATON_CUDA_PTSZ(cuStreamSynchronize)
#define cuStreamWaitValue32         BATON_CUDA_PTSZ(cuStreamWaitValue32_v2)
#define cuStreamWaitValue64         BATON_CUDA_PTSZ(cuStreamWaitValue64_v2)
#define cuStreamWriteValue32        BATON_CUDA_PTSZ(cuStreamWriteValue32_v2)
#define cuStreamWriteValue64        BATON_CUDA_PTSZ(cuStreamWriteValue64_v2)
#define cuEventDestroy              cuEventDestroy_v2
#define cuEventElapsedTime          cuEventElapsedTime_v2
#define cuEventRecord               BATON_CUDA_PTSZ(cuEventRecord)
#define cuEventRecordWithFlags      BATON_CUDA_PTSZ(cuEventRecordWithFlags)

/* Launches. */
#define cuLaunchKernel              BATON_CUDA_PTSZ(cuLaunchKernel)
#define cuLaunchKernelEx            BATON_CUDA_PTSZ(cuLaunchKernelEx)
#define cuLaunchCooperativeKernel   BATON_CUDA_PTSZ(cuLaunchCooperativeKernel)
#define cuLaunchHostFunc            BATON_CUDA_PTSZ(cuLaunchHostFunc)

/* Capture and graphs. */
#define cuStreamBeginCapture        BATON_CUDA_PTSZ(cuStreamBeginCapture_v2)
#define cuStreamEndCapture          BATON_CUDA_PTSZ(cuStreamEndCapture)
#define cuStreamIsCapturing         BATON_CUDA_PTSZ(cuStreamIsCapturing)
#define cuStreamGetCaptureInfo      BATON_CUDA_PTSZ(cuStreamGetCaptureInfo_v3)
#define cuGraphGetEdges             cuGraphGetEdges_v2
#define cuGraphNodeGetDependencies  cuGraphNodeGetDependencies_v2
#define cuGraphAddDependencies      cuGraphAddDependencies_v2
#define cuGraphRemoveDependencies   cuGraphRemoveDependencies_v2
#define cuGraphInstantiate          cuGraphInstantiateWithFlags
#define cuGraphInstantiateWithParams BATON_CUDA_PTSZ(cuGraphInstantiateWithParams)
#define cuGraphExecUpdate           cuGraphExecUpdate_v2
#define cuGraphUpload               BATON_CUDA_PTSZ(cuGraphUpload)
#define cuGraphLaunch               BATON_CUDA_PTSZ(cuGraphLaunch)

/* Programs for drivers of before CUDA 12.0 have kernel nodes by the names of then. Their parameters are the beginning of their
 * successors' parameters. */
#ifndef BATON_CUDA_BEFORE_12
#define cuGraphAddKernelNode        cuGraphAddKernelNode_v2
#define cuGraphKernelNodeGetParams  cuGraphKernelNodeGetParams_v2
#define cuGraphKernelNodeSetParams  cuGraphKernelNodeSetParams_v2
#define cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2
#endif

#include "baton_cuda_calls.h"

#endif
