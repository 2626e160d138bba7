/* The calls that several questions make in turn. */
#include "calls.h"

#include <stdlib.h>

CUstream subject;

static CUstream other_blocking, other_non_blocking, spare_stream;
static CUevent old, fresh, spare_event, in_subject;
static CUdeviceptr kept, spare;
static CUmemGenericAllocationHandle spare_handle;
static CUdeviceptr place;
static CUmodule spare_module;
static void *host, *spare_host;
static int number, spare_descriptor = -1;
static bool wants_event_in_subject;

static CUmemAllocationProp properties(void) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, world.device}};
}

static CUmemAccessDesc access_here(void) {
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, world.device},
                             CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

void begin_calls(void) {
    other_blocking = blocking();
    other_non_blocking = non_blocking();
    mark_in(other_blocking, 100);
    mark_in(other_non_blocking, 101);
    old = old_event();
    fresh = an_event();
    kept = memory(4 * MIB);
    MUST(cuMemHostAlloc(&host, MIB, 0));
    MUST(cuMemAddressReserve(&place, 64 * MIB, 0, 0, 0));
    MUST(cuCtxSynchronize());
}

static void nothing(void) { }
static void need_memory(void) { spare = memory(4 * MIB); }
static void need_small(void) { spare = memory(512); }
static void need_stream(void) {
    spare_stream = non_blocking();
    mark_in(spare_stream, 102);
    MUST(cuStreamSynchronize(spare_stream));
}
static void need_event(void) { spare_event = an_event(); }
static void need_host(void) { MUST(cuMemHostAlloc(&spare_host, MIB, 0)); }
static void need_module(void) { MUST(cuModuleLoadData(&spare_module, kernels_ptx)); }
static void need_handle(void) {
    CUmemAllocationProp wanted = properties();
    MUST(cuMemCreate(&spare_handle, 2 * MIB, &wanted, 0));
    place += 2 * MIB;
}
static void need_mapped(void) {
    need_handle();
    MUST(cuMemMap(place, 2 * MIB, 0, spare_handle, 0));
}
static void need_accessible(void) {
    need_mapped();
    CUmemAccessDesc access = access_here();
    MUST(cuMemSetAccess(place, 2 * MIB, &access, 1));
}

static void need_event_in_subject(void) {
    in_subject = an_event();
    wants_event_in_subject = true;
}
static void need_reserved(void) {
    MUST(cuMemAddressReserve(&spare, 2 * MIB, 0, 0, 0));
}
static void need_exportable(void) {
    CUmemAllocationProp wanted = properties();
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    MUST(cuMemCreate(&spare_handle, 2 * MIB, &wanted, 0));
}
static void need_descriptor(void) {
    need_exportable();
    MUST(cuMemExportToShareableHandle(&spare_descriptor, spare_handle,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}
static void need_pages(void) {
    spare_host = aligned_alloc(4096, MIB);
}
static void need_registered(void) {
    need_pages();
    MUST(cuMemHostRegister(spare_host, MIB, 0));
}

static CUresult map(void) {
    return cuMemMap(place, 2 * MIB, 0, spare_handle, 0);
}
static CUresult set_access(void) {
    CUmemAccessDesc access = access_here();
    return cuMemSetAccess(place, 2 * MIB, &access, 1);
}
static CUresult create(void) {
    CUmemAllocationProp wanted = properties();
    return cuMemCreate(&spare_handle, 2 * MIB, &wanted, 0);
}
static CUresult capture_info(CUstream stream) {
    unsigned long long id;
    return cuStreamGetCaptureInfo(stream, &number, &id, NULL, NULL, NULL);
}
static CUresult is_capturing(CUstream stream) {
    return cuStreamIsCapturing(stream, &number);
}
static CUresult memory_info(void) {
    size_t free_bytes, total;
    return cuMemGetInfo(&free_bytes, &total);
}
static CUresult address_range(void) {
    CUdeviceptr base;
    size_t size;
    return cuMemGetAddressRange(&base, &size, kept);
}
static CUresult record_and_query(void) {
    CUresult got = cuCtxRecordEvent(world.context, fresh);
    return got ? got : cuEventQuery(fresh);
}
static CUresult stream_context(void) {
    CUcontext context;
    return cuStreamGetCtx(subject, &context);
}
static CUresult stream_id(void) {
    unsigned long long id;
    return cuStreamGetId(subject, &id);
}
static CUresult import(void) {
    return cuMemImportFromShareableHandle(&spare_handle, (void *)(intptr_t)spare_descriptor,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}
static CUresult find_function(void) {
    CUfunction found;
    return cuModuleGetFunction(&found, world.module, "sum_u32");
}
static void on_host(void *data) {
    (void)data;
}
static CUresult pointer_attribute(void) {
    return cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kept);
}

#define CALLS(X)                                                                                   \
    X("cuCtxRecordEvent", nothing, cuCtxRecordEvent(world.context, fresh))                         \
    X("cuCtxWaitEvent(complete event)", nothing, cuCtxWaitEvent(world.context, old))               \
    X("cuStreamQuery(0)", nothing, cuStreamQuery(NULL))                                            \
    X("cuStreamQuery(CU_STREAM_LEGACY)", nothing, cuStreamQuery(LEGACY))                           \
    X("cuStreamQuery(CU_STREAM_PER_THREAD)", nothing, cuStreamQuery(PER_THREAD))                   \
    X("cuStreamQuery(another, blocking)", nothing, cuStreamQuery(other_blocking))                  \
    X("cuStreamQuery(another, non-blocking)", nothing, cuStreamQuery(other_non_blocking))          \
    X("cuStreamQuery(this stream)", nothing, cuStreamQuery(subject))                               \
    X("cuEventQuery(complete event)", nothing, cuEventQuery(old))                                  \
    X("cuEventSynchronize(complete event)", nothing, cuEventSynchronize(old))                      \
    X("cuStreamIsCapturing(legacy)", nothing, is_capturing(LEGACY))                                \
    X("cuStreamIsCapturing(this stream)", nothing, is_capturing(subject))                          \
    X("cuStreamGetCaptureInfo(legacy)", nothing, capture_info(LEGACY))                             \
    X("cuStreamGetCaptureInfo(this stream)", nothing, capture_info(subject))                       \
    X("cuEventRecord(legacy)", nothing, cuEventRecord(fresh, LEGACY))                              \
    X("cuEventRecord(another, blocking)", nothing, cuEventRecord(fresh, other_blocking))           \
    X("cuEventRecord(another, non-blocking)", nothing, cuEventRecord(fresh, other_non_blocking))   \
    X("cuEventRecord(this stream)", nothing, cuEventRecord(fresh, subject))                        \
    X("cuStreamWaitEvent(another non-blocking, complete event)", nothing,                          \
      cuStreamWaitEvent(other_non_blocking, old, 0))                                               \
    X("cuMemFree(4 MiB)", need_memory, cuMemFree(spare))                                           \
    X("cuMemFree(512 bytes)", need_small, cuMemFree(spare))                                        \
    X("cuMemAlloc(4 MiB)", nothing, cuMemAlloc(&spare, 4 * MIB))                                   \
    X("cuMemAlloc(512 bytes)", nothing, cuMemAlloc(&spare, 512))                                   \
    X("cuMemFreeAsync(of cuMemAlloc, another non-blocking)", need_memory,                          \
      cuMemFreeAsync(spare, other_non_blocking))                                                   \
    X("cuMemFreeAsync(of cuMemAlloc, another blocking)", need_memory,                              \
      cuMemFreeAsync(spare, other_blocking))                                                       \
    X("cuMemFreeAsync(of cuMemAlloc, this stream)", need_memory, cuMemFreeAsync(spare, subject))   \
    X("cuMemFreeAsync(of cuMemAlloc, legacy)", need_memory, cuMemFreeAsync(spare, LEGACY))         \
    X("cuMemGetInfo", nothing, memory_info())                                                      \
    X("cuMemGetAddressRange", nothing, address_range())                                            \
    X("cuPointerGetAttribute", nothing, pointer_attribute())                                       \
    X("cuMemCreate", nothing, create())                                                            \
    X("cuMemMap", need_handle, map())                                                              \
    X("cuMemSetAccess", need_mapped, set_access())                                                 \
    X("cuMemUnmap", need_accessible, cuMemUnmap(place, 2 * MIB))                                   \
    X("cuMemRelease", need_handle, cuMemRelease(spare_handle))                                     \
    X("cuStreamCreate", nothing, cuStreamCreate(&spare_stream, CU_STREAM_NON_BLOCKING))            \
    X("cuStreamDestroy(idle)", need_stream, cuStreamDestroy(spare_stream))                         \
    X("cuEventCreate", nothing, cuEventCreate(&spare_event, CU_EVENT_DISABLE_TIMING))              \
    X("cuEventDestroy", need_event, cuEventDestroy(spare_event))                                   \
    X("cuMemHostAlloc", nothing, cuMemHostAlloc(&spare_host, MIB, 0))                              \
    X("cuMemFreeHost", need_host, cuMemFreeHost(spare_host))                                       \
    X("cuModuleLoadData", nothing, cuModuleLoadData(&spare_module, kernels_ptx))                   \
    X("cuModuleUnload", need_module, cuModuleUnload(spare_module))                                 \
    X("cuStreamSynchronize(another, non-blocking)", nothing,                                       \
      cuStreamSynchronize(other_non_blocking))                                                     \
    X("cuStreamSynchronize(another, blocking)", nothing, cuStreamSynchronize(other_blocking))      \
    X("cuCtxSynchronize", nothing, cuCtxSynchronize())                                             \
    X("cuMemcpyHtoD(64 bytes)", nothing, cuMemcpyHtoD(kept, &number, sizeof number))               \
    X("cuMemcpyDtoH(64 bytes)", nothing, cuMemcpyDtoH(&number, kept, sizeof number))               \
    X("cuMemcpyDtoD", nothing, cuMemcpyDtoD(kept, kept + 2 * MIB, 4096))                           \
    X("cuMemsetD8", nothing, cuMemsetD8(kept, 0, 4096))                                            \
    X("cuMemcpyDtoHAsync(pinned; another, non-blocking)", nothing,                                 \
      cuMemcpyDtoHAsync(host, kept, 4096, other_non_blocking))                                     \
    X("cuMemcpyHtoDAsync(pageable; another, non-blocking)", nothing,                               \
      cuMemcpyHtoDAsync(kept, kernels_ptx, 64, other_non_blocking))                                \
    X("launch in another, non-blocking", nothing, try_mark_in(other_non_blocking, 103))            \
    X("launch in another, blocking", nothing, try_mark_in(other_blocking, 104))                    \
    X("launch in legacy", nothing, try_mark_in(LEGACY, 105))                                       \
    X("launch in per-thread", nothing, try_mark_in(PER_THREAD, 106))                               \
    X("cuCtxSetCurrent", nothing, cuCtxSetCurrent(world.context))                                  \
    X("cuEventQuery(event recorded in this stream)", need_event_in_subject,                        \
      cuEventQuery(in_subject))                                                                    \
    X("cuCtxRecordEvent, then cuEventQuery of it", nothing, record_and_query())                    \
    X("cuEventRecord(per-thread)", nothing, cuEventRecord(fresh, PER_THREAD))                      \
    X("cuStreamWaitEvent(this stream, complete event)", nothing,                                   \
      cuStreamWaitEvent(subject, old, 0))                                                          \
    X("cuStreamIsCapturing(another, non-blocking)", nothing, is_capturing(other_non_blocking))     \
    X("cuStreamGetCtx(this stream)", nothing, stream_context())                                    \
    X("cuStreamGetId(this stream)", nothing, stream_id())                                          \
    X("cuMemAddressReserve", nothing, cuMemAddressReserve(&spare, 2 * MIB, 0, 0, 0))               \
    X("cuMemAddressFree", need_reserved, cuMemAddressFree(spare, 2 * MIB))                         \
    X("cuMemExportToShareableHandle", need_exportable,                                             \
      cuMemExportToShareableHandle(&spare_descriptor, spare_handle,                                \
                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0))                   \
    X("cuMemImportFromShareableHandle", need_descriptor, import())                                 \
    X("cuMemHostRegister", need_pages, cuMemHostRegister(spare_host, MIB, 0))                      \
    X("cuMemHostUnregister", need_registered, cuMemHostUnregister(spare_host))                     \
    X("cuMemAllocAsync(another, non-blocking)", nothing,                                           \
      cuMemAllocAsync(&spare, 4 * MIB, other_non_blocking))                                        \
    X("cuMemsetD32Async(another, non-blocking)", nothing,                                          \
      cuMemsetD32Async(kept, 0, 1024, other_non_blocking))                                         \
    X("cuLaunchHostFunc(another, non-blocking)", nothing,                                          \
      cuLaunchHostFunc(other_non_blocking, on_host, NULL))                                         \
    X("cuModuleGetFunction", nothing, find_function())

const char *call_name(int which) {
#define NAME(name, prepare, call) name,
    static const char *const names[] = {CALLS(NAME)};
    return which < (int)(sizeof names / sizeof names[0]) ? names[which] : NULL;
}

void prepare_call(int which) {
#define PREPARE(name, prepare, call) prepare,
    static void (*const steps[])(void) = {CALLS(PREPARE)};
    steps[which]();
}

void situation_begun(void) {
    if (wants_event_in_subject) MUST(cuEventRecord(in_subject, subject));
}

CUresult make_call(int which) {
    int at = 0;
#define MAKE(name, prepare, call)                                                                  \
    if (which == at++) return call;
    CALLS(MAKE)
    return (CUresult)ABSENT;
}
